//! The differential oracle over many seeds. See `mqttshim_integration::differential`.
//!
//! `MQTTSHIM_SEED=n` plays the scenario of one seed, `MQTTSHIM_SEEDS=n` those of so many seeds from there on (from 1 if none is said).
//! Without either: as many as fit the time.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use mqttshim_integration::differential::{
    Outcome, Rig, SCENARIOS_PER_RIG, Scenario, generate, shrink,
};
use mqttshim_integration::metrics::Metrics;
use mqttshim_integration::{needs, wait};

/// For all scenarios, unless their number is said.
const TIME: Duration = Duration::from_secs(40);
/// For making a failing scenario smaller.
const SHRINK_TIME: Duration = Duration::from_secs(60);
/// Looks that have to find the card's numbers the same: longer together than it takes to publish them.
const STILL: usize = 10;
/// A smaller scenario fails if it does in one of so many attempts: some failures depend on timing.
const ATTEMPTS: usize = 2;

#[test]
fn differential_every_client_gets_what_the_broker_alone_would_have_sent_it() {
    needs!("mosquitto");
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let (said, seeds) = (number("MQTTSHIM_SEED"), number("MQTTSHIM_SEEDS"));
    let first = said.unwrap_or(1);
    let count = seeds.or(said.map(|_| 1));
    let start = Instant::now();
    let mut rig = Rig::start(first);
    let mut played = 0;
    let mut tally = Tally::default();
    while count.map_or(start.elapsed() < TIME, |count| played < count) {
        let seed = first + played;
        if played > 0 && seed.is_multiple_of(SCENARIOS_PER_RIG) {
            tally.add(&rig);
            rig = Rig::start(seed);
        }
        let scenario = generate(seed);
        let outcome = rig
            .play(&scenario)
            .unwrap_or_else(|error| panic!("seed {seed}: no clean end: {error}"));
        played += 1;
        if !outcome.differences.is_empty() {
            report(&scenario, &outcome, first, played);
        }
    }
    tally.add(&rig);
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("differential: seeds {first} to {}, {seconds:.1} s; {tally}", first + played - 1);
    assert!(tally.of("all_rules_hold") > 0.0 || said.is_some(), "the card distributed nothing");
    assert!(tally.dropped < 1.0, "the card dropped copies, for which no scenario is meant");
}

/// What the cards say they did.
#[derive(Default)]
struct Tally {
    /// PUBLISHes by the reason of the decision; one is the card's.
    reasons: BTreeMap<String, f64>,
    dropped: f64,
}

impl Tally {
    /// Adds the numbers of a card that has nothing more to do. They are published at intervals: what stays the same counts.
    fn add(&mut self, rig: &Rig) {
        let (mut before, mut same) = (Vec::new(), 0);
        let metrics = wait::until("the card's numbers stand still", || {
            let metrics = rig.card.metrics();
            let now = publishes(&metrics);
            same = if now == before { same + 1 } else { 0 };
            before = now;
            (same == STILL).then_some(metrics)
        });
        // What a client said is too large for it is not to be sent.
        self.dropped += metrics.sum("mqttshim_outbox_dropped_total", &[])
            - metrics.sum("mqttshim_outbox_dropped_total", &["maximum_packet_size"]);
        for line in publishes(&metrics) {
            let (_, rest) = line.split_once("reason=\"").unwrap();
            let (reason, rest) = rest.split_once('"').unwrap();
            let (_, value) = rest.rsplit_once(' ').unwrap();
            *self.reasons.entry(reason.to_owned()).or_default() += value.parse::<f64>().unwrap();
        }
    }

    fn of(&self, reason: &str) -> f64 {
        self.reasons.get(reason).copied().unwrap_or_default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let card = self.of("all_rules_hold");
        let all: f64 = self.reasons.values().sum();
        write!(out, "{all} PUBLISHes, {card} of them by the card, the others by the broker, for")?;
        let others = self.reasons.iter().filter(|(reason, _)| *reason != "all_rules_hold");
        others.into_iter().try_for_each(|(reason, count)| write!(out, " {reason} {count}"))
    }
}

fn publishes(metrics: &Metrics) -> Vec<String> {
    let text = metrics.text();
    let is_publish = |line: &&str| line.starts_with("mqttshim_publish_total");
    text.lines().filter(is_publish).map(str::to_owned).collect()
}

/// Tells of a failure as briefly as it can be made, and how to see it again.
fn report(scenario: &Scenario, outcome: &Outcome, first: u64, played: u64) -> ! {
    let fails = |rig: &Rig, scenario: &Scenario| {
        let differs = || rig.play(scenario).is_ok_and(|outcome| !outcome.differences.is_empty());
        (0..ATTEMPTS).any(|_| differs())
    };
    let rig = Rig::start(scenario.seed);
    let (small, seeds) = if fails(&rig, scenario) {
        let small = shrink(scenario, SHRINK_TIME, |smaller| fails(&rig, smaller));
        (small, format!("MQTTSHIM_SEED={}", scenario.seed))
    } else {
        // Alone on new brokers it did not: it takes what was played before, or luck.
        (scenario.clone(), format!("MQTTSHIM_SEED={first} MQTTSHIM_SEEDS={played}"))
    };
    let last = rig.play(&small).ok().filter(|last| !last.differences.is_empty());
    panic!(
        "the runs differ:\n{}\n\nas first played:\n{}\n\n{small}\n{}\n\
         {seeds} cargo nextest run -p mqttshim-integration differential",
        last.as_ref().unwrap_or(outcome).differences.join("\n"),
        outcome.differences.join("\n"),
        involved(last.as_ref().unwrap_or(outcome)),
    );
}

/// The conversations that the differences name.
fn involved(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (name, run) in [("alone", &outcome.plain), ("on the card", &outcome.on_card)] {
        for (index, conversation) in run.iter().enumerate() {
            let label = format!("connection {index} (");
            if !outcome.differences.iter().any(|difference| difference.contains(&label)) {
                continue;
            }
            text += &format!("{name}, connection {index} (client {}):\n", conversation.client);
            for event in &conversation.events {
                text += &format!("    {event}\n");
            }
        }
    }
    text
}

//! The differential oracle over many seeds. See `mqttshim_integration::differential`.
//!
//! `MQTTSHIM_SEED=n` plays the scenario of one seed, `MQTTSHIM_SEEDS=n` those of so many seeds from there on (from 1 if none is said).
//! Without either: as many as fit the time.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::time::{Duration, Instant};

use mqttshim_integration::differential::{Outcome, Rig, Scenario, generate, shrink};
use mqttshim_integration::{needs, wait};

/// For all scenarios, unless their number is said.
const TIME: Duration = Duration::from_secs(40);
/// For making a failing scenario smaller.
const SHRINK_TIME: Duration = Duration::from_secs(60);
/// Scenarios before both brokers start afresh.
const SCENARIOS_PER_RIG: u64 = 100;
/// A smaller scenario fails if it does in one of so many attempts: some failures depend on timing.
const ATTEMPTS: usize = 2;

#[test]
fn differential_every_client_gets_what_the_broker_alone_would_have_sent_it() {
    needs!("mosquitto");
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let (seed, seeds) = (number("MQTTSHIM_SEED"), number("MQTTSHIM_SEEDS"));
    let first = seed.unwrap_or(1);
    let count = seeds.or(seed.map(|_| 1));
    let start = Instant::now();
    let mut rig = Rig::start();
    let (mut played, mut by_card, mut by_broker) = (0, 0.0, 0.0);
    let mut close = |rig: &Rig| {
        let told = wait::poll(Duration::from_secs(2), || {
            let metrics = rig.card.metrics();
            (metrics.by_card() > 0.0).then_some(metrics)
        });
        let metrics = told.unwrap_or_else(|| rig.card.metrics());
        by_card += metrics.by_card();
        by_broker += metrics.by_broker();
    };
    while count.map_or(start.elapsed() < TIME, |count| played < count) {
        if played > 0 && played % SCENARIOS_PER_RIG == 0 {
            close(&rig);
            rig = Rig::start();
        }
        let scenario = generate(first + played);
        let outcome = rig.play(&scenario).unwrap();
        played += 1;
        if !outcome.differences.is_empty() {
            report(&scenario, &outcome, first, played);
        }
    }
    close(&rig);
    eprintln!(
        "differential: seeds {first} to {}, {:.1} s; {by_card} PUBLISHes by the card, {by_broker} by the broker",
        first + played - 1,
        start.elapsed().as_secs_f64(),
    );
    assert!(by_card > 0.0 || seed.is_some(), "the card distributed nothing");
}

/// Tells of a failure as briefly as it can be made, and how to see it again.
fn report(scenario: &Scenario, outcome: &Outcome, first: u64, played: u64) -> ! {
    let fails = |rig: &Rig, scenario: &Scenario| {
        let differs = || rig.play(scenario).is_ok_and(|outcome| !outcome.differences.is_empty());
        (0..ATTEMPTS).any(|_| differs())
    };
    let rig = Rig::start();
    let (small, again) = if fails(&rig, scenario) {
        let command = format!("MQTTSHIM_SEED={}", scenario.seed);
        (shrink(scenario, SHRINK_TIME, |smaller| fails(&rig, smaller)), command)
    } else {
        let command = format!(
            "MQTTSHIM_SEED={first} MQTTSHIM_SEEDS={played}, for alone on new brokers the seed did not fail again",
        );
        (scenario.clone(), command)
    };
    let last = rig.play(&small).ok().filter(|last| !last.differences.is_empty());
    panic!(
        "the runs differ:\n{}\n\nas first played:\n{}\n\n{small}\n{}\nplay again: {again}\n\
         before: cargo nextest run -p mqttshim-integration differential",
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

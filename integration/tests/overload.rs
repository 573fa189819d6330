//! More than some readers take, on a broker alone and on us. See `mqttshim_integration::overload`.
//!
//! `MQTTSHIM_TEST_LONG=1` plays all 24 cells, else some of them; `MQTTSHIM_OVERLOAD_CELL=n` plays one.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::path::Path;
use std::time::Duration;

use mqttshim_integration::metrics::Metrics;
use mqttshim_integration::overload::{Cell, Outcome, QUEUED_MAX, Road, Watch, play};
use mqttshim_integration::{Broker, BrokerSetup, Card, Client, Folder, needs, wait};

/// Cells of `make test`: each way to be slow, each QoS, each road, both sizes.
const SOME: [usize; 3] = [8, 5, 19];
/// How much longer than alone one message in a hundred may take to a quick reader, and what a busy machine may add. Behind a slow reader
/// it would wait for as long as that does not read: seconds.
const SLOWER_MAX: u32 = 4;
const BUSY: Duration = Duration::from_millis(250);
/// What every reader with QoS 1 gets before one is lost: as many as may wait, and as many as may be unacknowledged.
const QOS1_WHOLE: u64 = QUEUED_MAX + 20;
const MIB: u64 = 1024 * 1024;
/// What a process may grow by besides the messages it holds: windows of connections, what the allocator keeps.
const SLACK_BYTES: u64 = 24 * MIB;
/// What mosquitto writes when it begins to drop for a client, and what the card does.
const BROKER_DROPS: &str = "messages are being dropped for client";
const CARD_DROPS: &str = "messages are dropped for a client";

/// A cell played on one of the two.
struct Played {
    outcome: Outcome,
    /// Drops the broker counts.
    by_broker: u64,
    /// What the card says of itself.
    card: Option<Metrics>,
    /// Clients of which it was said that they do not keep up, as often as it was.
    named: Vec<String>,
}

impl Played {
    fn by_card(&self) -> u64 {
        self.card.as_ref().map_or(0, |card| sum(card, "mqttshim_outbox_dropped_total", &[]))
    }

    fn row(&self, who: &str) -> String {
        let Outcome { published, quick, slow, grown_bytes, .. } = &self.outcome;
        let quick: u64 = quick.iter().map(|share| share.received).min().unwrap_or(0);
        let slow: u64 = slow.iter().map(|share| share.received).min().unwrap_or(0);
        let dropped = format!("{}+{}", self.by_broker, self.by_card());
        let grown: Vec<_> = grown_bytes.iter().map(|bytes| (bytes / MIB).to_string()).collect();
        format!(
            "{who:5} {published:9} {quick:9} {slow:9} {:9} {dropped:>13} {:>9.1} {:>10}",
            self.outcome.whole(),
            self.outcome.p99().as_secs_f64() * 1000.0,
            grown.join("+")
        )
    }
}

fn sum(metrics: &Metrics, name: &str, labels: &[&str]) -> u64 {
    metrics.sum(name, labels) as u64
}

fn start(folder: &Folder, session: Option<&Path>) -> Broker {
    let config = format!("max_queued_messages {QUEUED_MAX}");
    Broker::start(folder, &BrokerSetup { session, config: &config, ..BrokerSetup::default() })
}

fn alone(cell: &Cell) -> Played {
    let folder = Folder::new();
    let broker = start(&folder, None);
    let outcome = play(cell, broker.port(), Watch::on(&[broker.pid()]));
    let by_broker = dropped(&broker);
    let named = named(&broker.process.log(), BROKER_DROPS);
    Played { outcome, by_broker, card: None, named }
}

fn on_us(cell: &Cell) -> Played {
    let folder = Folder::new();
    let card = Card::start(&folder);
    let broker = start(&folder, Some(card.session()));
    let outcome = play(cell, broker.port(), Watch::on(&[broker.pid(), card.pid()]));
    let by_broker = dropped(&broker);
    let mut all = named(&broker.process.log(), BROKER_DROPS);
    all.extend(named(&card.process.log(), CARD_DROPS));
    Played { outcome, by_broker, card: Some(card.metrics()), named: all }
}

/// Drops the broker says it made, once it has counted what was there before: it counts once a second.
fn dropped(broker: &Broker) -> u64 {
    let read = |what: &str| -> u64 {
        let mut client = Client::new(broker.port(), "statistics");
        client.subscribe(&format!("$SYS/broker/{what}"), 0);
        let text = String::from_utf8(client.message().payload).unwrap();
        client.disconnect();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    let start = read("uptime");
    wait::until("two of the broker's counts have passed", || {
        (read("uptime") >= start + 2).then_some(())
    });
    read("publish/messages/dropped")
}

/// The clients a log names in lines with these words, sorted.
fn named(log: &str, words: &str) -> Vec<String> {
    let is_client = |word: &&str| word.starts_with("slow-") || word.starts_with("quick-");
    let name = |line: &str| {
        let mut all = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        all.find(is_client).unwrap_or_default().to_owned()
    };
    let mut names: Vec<String> =
        log.lines().filter(|line| line.contains(words)).map(name).collect();
    names.sort();
    names
}

#[track_caller]
fn compare(cell: &Cell, alone: &Played, us: &Played) {
    let slow: Vec<String> = (0..cell.slow_readers()).map(|it| format!("slow-{it}")).collect();
    let qos1_whole = if cell.qos == 1 { QOS1_WHOLE } else { QUEUED_MAX };
    for (who, it) in [("alone", alone), ("us", us)] {
        let Outcome { published, quick, slow: shares, .. } = &it.outcome;
        let kept = quick.iter().chain(shares).map(|share| share.received).sum::<u64>();
        let lost = (quick.len() + shares.len()) as u64 * published - kept;
        assert!(it.outcome.lost() > 0, "{cell}, {who}: nothing was too much");
        assert_eq!(it.by_broker + it.by_card(), lost, "{cell}, {who}: drops are not counted");
        // The newest are lost, none before as many wait as may.
        assert!(it.outcome.whole() >= qos1_whole, "{cell}, {who}: {}", it.outcome.whole());
    }
    assert_eq!(alone.outcome.lost(), alone.by_broker, "{cell}: a quick reader lost some alone");
    assert_eq!(us.named, slow, "{cell}: a line for each slow client");
    assert_eq!(alone.named, slow, "{cell}: mosquitto has another custom");
    for share in &us.outcome.quick {
        assert_eq!(share.received, us.outcome.published, "{cell}: a quick reader lost some");
    }
    let p99 = us.outcome.p99();
    assert!(p99 <= alone.outcome.p99() * SLOWER_MAX + BUSY, "{cell}: quick readers wait {p99:?}");
    check_road(cell, us);
    check_memory(cell, alone, us);
}

/// The messages went where they were to go, and what was lost was lost there, for mosquitto's reason.
#[track_caller]
fn check_road(cell: &Cell, us: &Played) {
    let metrics = us.card.as_ref().expect("a card was there");
    let taken = metrics.by_card() as u64;
    match cell.road {
        Road::Broker => assert_eq!((taken, us.by_card()), (0, 0), "{cell}: {}", metrics.text()),
        Road::Card => {
            assert!(taken * 10 >= us.outcome.published * 9, "{cell}: {}", metrics.text());
            let reason =
                if cell.qos == 0 { "reason=\"messages\"" } else { "reason=\"queued_messages\"" };
            let counted = sum(metrics, "mqttshim_outbox_dropped_total", &[reason]);
            assert_eq!(counted, us.by_card(), "{cell}: {}", metrics.text());
        }
    }
}

/// The broker holds no more than alone; the card what may wait for a client, once for all clients, or only what is under way.
#[track_caller]
fn check_memory(cell: &Cell, alone: &Played, us: &Played) {
    let [alone] = alone.outcome.grown_bytes[..] else { panic!("one process") };
    let [broker, card] = us.outcome.grown_bytes[..] else { panic!("two processes") };
    assert!(broker <= alone * 5 / 4 + SLACK_BYTES, "{cell}: the broker grew by {broker} bytes");
    let waiting = match cell.road {
        Road::Card => QUEUED_MAX * cell.payload_bytes as u64 * 5 / 4,
        Road::Broker => 0,
    };
    assert!(card <= waiting + SLACK_BYTES, "{cell}: dpu-server grew by {card} bytes");
}

#[test]
fn who_reads_slowly_loses_what_it_would_lose_alone_and_nobody_else_notices() {
    needs!("mosquitto");
    let all = Cell::all();
    let number = std::env::var("MQTTSHIM_OVERLOAD_CELL").ok().map(|it| it.parse().unwrap());
    let is_long = std::env::var_os("MQTTSHIM_TEST_LONG").is_some();
    let which: Vec<usize> = match number {
        Some(number) => vec![number],
        None if is_long => (0..all.len()).collect(),
        None => SOME.to_vec(),
    };
    let head = format!(
        "{:35}       {:>9} {:>9} {:>9} {:>9} {:>13} {:>9} {:>10}",
        "cell", "published", "quick", "slow", "no gap", "dropped", "p99 ms", "grown MiB"
    );
    eprintln!("{head}");
    for index in which {
        let cell = &all[index];
        let alone = alone(cell);
        eprintln!("{index:2} {cell:32} {}", alone.row("alone"));
        let us = on_us(cell);
        eprintln!("{index:2} {cell:32} {}", us.row("us"));
        compare(cell, &alone, &us);
    }
}

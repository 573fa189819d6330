//! Permission by observation, on mosquitto with an access list: who is denied gets nothing and reaches nobody, who is granted misses
//! nothing, and nearly everything is the card's.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::time::{Duration, Instant};

use mqttshim_integration::crowd::{Crowd, payload};
use mqttshim_integration::metrics::Metrics;
use mqttshim_integration::{Broker, BrokerSetup, Card, Client, Folder, Message, needs};

/// Everybody may write to rooms and read its own; write its own news and read all.
const ACCESS: &str =
    "pattern write room/+\npattern read room/%c\npattern write news/%c\npattern read news/#\n";
/// For what is still under way after the last PUBLISH.
const PATIENCE: Duration = Duration::from_secs(20);
/// Stands for a library that reports every change of policy: what is learned stays.
const FOR_EVER: [&str; 4] = ["--trust", "observed", "--route-ttl", "86400"];
/// As it is by itself.
const BY_DEFAULT: [&str; 2] = ["--trust", "observed"];

struct House {
    folder: Folder,
    card: Card,
    broker: Broker,
}

impl House {
    fn open(flags: &[&str], access: Option<&str>) -> House {
        let folder = Folder::new();
        let card = Card::start_with(&folder, flags);
        let config = access.map_or(String::new(), |access| {
            format!("acl_file {}", folder.write("access.acl", access).display())
        });
        let setup = BrokerSetup {
            session: Some(card.session()),
            config: &config,
            ..BrokerSetup::default()
        };
        let broker = Broker::start(&folder, &setup);
        House { folder, card, broker }
    }

    fn client(&self, id: &str) -> Client {
        Client::new(self.broker.port(), id)
    }

    fn reader(&self, id: &str, filter: &str) -> Client {
        let mut client = self.client(id);
        assert_eq!(client.subscribe(filter, 0), 0, "granted, whatever the access list says");
        client
    }

    /// The share of the card in what was published since `before`, once all of `published` is counted.
    #[track_caller]
    fn share(&self, before: &Metrics, published: f64) -> f64 {
        let (card, broker) = (before.by_card(), before.by_broker());
        let seen = self.card.await_metrics("all is counted", |it| {
            it.by_card() - card + it.by_broker() - broker >= published
        });
        let share = (seen.by_card() - card) / published;
        eprintln!("the card's share is {:.2} %", 100.0 * share);
        for line in seen.text().lines().filter(|line| !line.ends_with(" 0")) {
            if line.starts_with("mqttshim_publish") || line.starts_with("mqttshim_windows") {
                eprintln!("{line}");
            }
        }
        share
    }
}

/// Sends one message each interval; in between calls `meanwhile` with the time that is left.
fn at_a_steady_rate(
    count: u64,
    interval: Duration,
    mut send: impl FnMut(u64),
    mut meanwhile: impl FnMut(u64, Duration),
) {
    let start = Instant::now();
    for number in 0..count {
        send(number);
        let next = start + interval * u32::try_from(number + 1).unwrap();
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            meanwhile(number, left);
        }
    }
}

#[test]
fn who_may_not_read_gets_nothing_and_who_may_misses_nothing() {
    needs!("mosquitto");
    let house = House::open(&FOR_EVER, Some(ACCESS));
    let (mut alice, mut bob) = (house.reader("alice", "room/#"), house.reader("bob", "room/#"));
    let mut publisher = house.client("publisher");
    let before = house.card.metrics();
    let send = |number: u64| {
        let room = if number.is_multiple_of(2) { "room/alice" } else { "room/bob" };
        publisher.publish(&Message::new(room, number.to_string()));
    };
    at_a_steady_rate(200, Duration::from_millis(5), send, |_, left| std::thread::sleep(left));
    for (reader, first) in [(&mut alice, 0), (&mut bob, 1)] {
        for number in (first..200).step_by(2) {
            assert_eq!(reader.message().payload, number.to_string().into_bytes());
        }
        assert_eq!(reader.messages_so_far(), []);
    }
    assert!(house.share(&before, 200.0) > 0.8);
}

#[test]
fn who_may_not_write_reaches_nobody_though_it_sends_what_is_allowed_to_others() {
    needs!("mosquitto");
    let house = House::open(&FOR_EVER, Some(ACCESS));
    let mut reader = house.reader("reader", "news/good");
    let (mut good, mut evil) = (house.client("good"), house.client("evil"));
    let send = |number: u64| {
        let message = Message::new("news/good", number.to_string());
        let is_copied = !(50..150).contains(&number);
        // In front of the original, or behind it.
        if is_copied && number.is_multiple_of(2) {
            evil.publish(&message);
        }
        good.publish(&message);
        if is_copied && !number.is_multiple_of(2) {
            evil.publish(&message);
        }
        evil.publish(&Message::new("news/good", format!("evil {number}")));
    };
    at_a_steady_rate(400, Duration::from_millis(5), send, |_, left| std::thread::sleep(left));
    for number in 0..400 {
        assert_eq!(reader.message().payload, number.to_string().into_bytes());
    }
    assert_eq!(reader.messages_so_far(), []);
    house.card.await_metrics("some of the good are the card's", |it| it.by_card() > 0.0);
}

#[test]
fn an_access_list_that_is_read_again_is_followed_when_what_was_learned_is_too_old() {
    needs!("mosquitto");
    let mut house = House::open(&["--trust", "observed", "--route-ttl", "1"], Some(ACCESS));
    let mut reader = house.reader("reader", "news/#");
    let mut publisher = house.client("good");
    let mut send = |count: u64| {
        let message = Message::new("news/good", "x");
        let send = |_| publisher.publish(&message);
        at_a_steady_rate(count, Duration::from_millis(10), send, |_, left| {
            std::thread::sleep(left)
        });
        publisher.ping().unwrap();
    };
    send(20);
    for _ in 0..20 {
        drop(reader.message());
    }
    house.card.await_metrics("the card has learned", |it| it.by_card() > 0.0);
    house.folder.write("access.acl", "pattern write news/%c\n");
    house.broker.reload();
    house.broker.process.await_log("Reloading config");
    std::thread::sleep(Duration::from_millis(1_200));
    reader.messages_so_far();
    send(50);
    assert_eq!(reader.messages_so_far(), []);
}

/// One publisher at 100 messages a second.
#[track_caller]
fn steady(subscribers: usize, messages: u64) -> f64 {
    let house = House::open(&BY_DEFAULT, None);
    let mut crowd = Crowd::subscribe(house.broker.port(), subscribers, "t");
    let mut publisher = house.client("publisher");
    let before = house.card.metrics();
    let send = |number| publisher.publish(&Message::new("t", payload(number, 64)));
    let pump = |_, left| crowd.pump(left).unwrap();
    at_a_steady_rate(messages, Duration::from_millis(10), send, pump);
    crowd.await_all(messages, PATIENCE).unwrap();
    house.share(&before, messages as f64)
}

#[test]
fn a_steady_topic_is_the_cards() {
    needs!("mosquitto");
    assert!(steady(100, 600) >= 0.995);
}

#[test]
fn a_steady_topic_of_a_thousand_subscribers_is_the_cards() {
    needs!("mosquitto");
    assert!(steady(1_000, 1_500) >= 0.995);
}

#[test]
fn somebody_who_joins_and_somebody_who_leaves_each_second_cost_little() {
    needs!("mosquitto");
    let house = House::open(&BY_DEFAULT, None);
    let mut crowd = Crowd::subscribe(house.broker.port(), 1_000, "t");
    let mut publisher = house.client("publisher");
    let before = house.card.metrics();
    let mut guests = std::collections::VecDeque::new();
    let send = |number| publisher.publish(&Message::new("t", payload(number, 64)));
    let mut served = Vec::new();
    let meanwhile = |number: u64, left| {
        if number % 100 == 50 && served.len() as u64 * 100 < number {
            served.push(number);
            guests.push_back(house.reader(&format!("guest-{number}"), "t"));
            if guests.len() > 2 {
                let leaver: Client = guests.pop_front().unwrap();
                leaver.disconnect();
            }
        }
        crowd.pump(left).unwrap();
    };
    at_a_steady_rate(800, Duration::from_millis(10), send, meanwhile);
    crowd.await_all(800, PATIENCE).unwrap();
    assert!(house.share(&before, 800.0) >= 0.95);
}

#[test]
fn a_thousand_publishers_with_topics_of_their_own_are_learned_in_two_rounds() {
    needs!("mosquitto");
    let house = House::open(&BY_DEFAULT, None);
    let round_ms = std::env::var("MQTTSHIM_ROUND_MS").map_or(1_000, |it| it.parse().unwrap());
    let mut reader = house.reader("reader", "#");
    let mut publishers: Vec<_> = (0..1_000).map(|it| house.client(&format!("p{it}"))).collect();
    let mut before = house.card.metrics();
    for round in 0..5_u64 {
        if round == 2 {
            before = house.card.metrics();
        }
        let send = |number: u64| {
            let message = Message::new(&format!("own/{number}"), format!("{number} {round}"));
            publishers[number as usize].publish(&message);
        };
        let interval = Duration::from_millis(round_ms) / 1_000;
        at_a_steady_rate(1_000, interval, send, |_, left| std::thread::sleep(left));
        for _ in 0..1_000 {
            drop(reader.message());
        }
        publishers[0].ping().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(house.share(&before, 3_000.0) >= 0.9);
}

#[test]
fn in_shadow_the_card_would_have_done_what_mosquitto_did() {
    needs!("mosquitto");
    let flags = ["--trust", "observed", "--decision", "shadow", "--route-ttl", "86400"];
    let house = House::open(&flags, Some(ACCESS));
    let (mut alice, _bob) = (house.reader("alice", "room/#"), house.reader("bob", "room/#"));
    let mut publisher = house.client("publisher");
    let send = |number: u64| publisher.publish(&Message::new("room/alice", number.to_string()));
    at_a_steady_rate(100, Duration::from_millis(10), send, |_, left| std::thread::sleep(left));
    for number in 0..100 {
        assert_eq!(alice.message().payload, number.to_string().into_bytes());
    }
    let shadow = |it: &Metrics, outcome: &str| it.sum("mqttshim_shadow_total", &[outcome]);
    let seen =
        house.card.await_metrics("all is compared", |it| shadow(it, "outcome=\"same\"") >= 90.0);
    assert_eq!(shadow(&seen, "outcome=\"different\""), 0.0);
    assert_eq!(seen.by_card(), 0.0);
}

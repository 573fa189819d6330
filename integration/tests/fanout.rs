//! One publisher, many subscribers: the card distributes, each message reaches each subscriber once and in order, and the broker
//! sleeps on.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::time::{Duration, Instant};

use mqttshim_integration::crowd::{Crowd, payload};
use mqttshim_integration::{Broker, Card, Client, Folder, Message, needs, procfs, wait};

const TOPIC: &str = "fan/out";
/// For what is still under way after the last PUBLISH.
const PATIENCE: Duration = Duration::from_secs(20);

/// One run: how many, how many messages, and how long between them.
struct Run {
    subscribers: usize,
    messages: u64,
    interval: Duration,
}

/// Publishes at a steady rate while the subscribers read. Returns the broker's CPU time.
#[track_caller]
fn distribute(broker: &Broker, run: &Run, is_alone: bool) -> Duration {
    let mut crowd = Crowd::subscribe(broker.port(), run.subscribers, TOPIC);
    if is_alone {
        // On a busy machine it drops some of what it cannot send in time, and so spends less than it should.
        crowd = crowd.lossy();
    }
    let mut publisher = Client::new(broker.port(), "publisher");
    let before = procfs::cpu(broker.pid());
    let start = Instant::now();
    for number in 0..run.messages {
        publisher.publish(&Message::new(TOPIC, payload(number, 64)));
        let next = start + run.interval * u32::try_from(number + 1).unwrap();
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            crowd.pump(left).unwrap();
        }
    }
    if is_alone {
        crowd.drain(Duration::from_secs(1)).unwrap();
    } else {
        crowd.await_all(run.messages, PATIENCE).unwrap();
    }
    let spent = procfs::cpu(broker.pid()).saturating_sub(before);
    publisher.disconnect();
    spent
}

/// What the broker itself says under `$SYS/broker`.
#[track_caller]
fn said_by_the_broker(broker: &Broker, what: &str) -> u64 {
    let mut client = Client::new(broker.port(), "statistics");
    client.subscribe(&format!("$SYS/broker/{what}"), 0);
    let text = String::from_utf8(client.message().payload).unwrap();
    client.disconnect();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// PUBLISHes the broker counts as received, once everything before this call is counted: it counts once a second.
#[track_caller]
fn publishes_received(broker: &Broker) -> u64 {
    let start = said_by_the_broker(broker, "uptime");
    wait::until("two of the broker's counts have passed", || {
        (said_by_the_broker(broker, "uptime") >= start + 2).then_some(())
    });
    said_by_the_broker(broker, "publish/messages/received")
}

/// What the broker would take in this time if nothing happened: mosquitto wakes ten times a second, whatever it is told.
fn at_rest(broker: &Broker, time: Duration) -> Duration {
    let (before, start) = (procfs::cpu(broker.pid()), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let spent = procfs::cpu(broker.pid()).saturating_sub(before);
    spent.mul_f64(time.as_secs_f64() / start.elapsed().as_secs_f64())
}

fn check(run: &Run) {
    let folder = Folder::new();
    let plain = Broker::plain(&folder);
    let alone = distribute(&plain, run, true);
    drop(plain);

    let card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let (by_card, by_broker) = (card.metrics().by_card(), card.metrics().by_broker());
    let counted = publishes_received(&broker);
    let idle = at_rest(&broker, run.interval * u32::try_from(run.messages).unwrap());
    let asleep = distribute(&broker, run, false);
    let (messages, subscribers) = (run.messages as f64, run.subscribers as f64);
    card.await_metrics("every PUBLISH was the card's", |it| it.by_card() - by_card == messages);
    assert_eq!(card.metrics().by_broker(), by_broker);
    let deliveries = card.metrics().sum("mqttshim_deliveries_total", &["by=\"card\""]);
    assert!(deliveries >= messages * subscribers, "{deliveries} deliveries");
    assert_eq!(publishes_received(&broker), counted, "the broker saw a PUBLISH");
    let share = asleep.saturating_sub(idle).as_secs_f64() / alone.as_secs_f64();
    eprintln!(
        "{} messages to {} subscribers: the broker took {alone:?} alone, {asleep:?} on the card and would have taken {idle:?} at \
         rest ({:.2} %)",
        run.messages,
        run.subscribers,
        share * 100.0
    );
    assert!(share < 0.02, "the broker's CPU time on the card is {:.2} %", share * 100.0);
}

#[test]
fn a_hundred_subscribers_get_each_message_once_and_the_broker_sees_none() {
    needs!("mosquitto");
    check(&Run { subscribers: 100, messages: 1_000, interval: Duration::from_millis(5) });
}

#[test]
fn a_thousand_subscribers_get_a_thousand_messages_once_and_the_broker_sees_none() {
    needs!("mosquitto");
    check(&Run { subscribers: 1_000, messages: 1_000, interval: Duration::from_millis(20) });
}

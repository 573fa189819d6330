//! The broker's view of who is alive stays true while the card eats a client's packets.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::time::{Duration, Instant};

use mqttshim_integration::{Broker, Card, Client, Folder, Login, Message, needs, wait};

const KEEP_ALIVE_S: u16 = 2;
/// mosquitto 2.0 looks every five seconds for clients silent for one and a half keep-alives.
const LONGER_THAN_ANY_TIMEOUT: Duration = Duration::from_secs(11);
const INTERVAL: Duration = Duration::from_millis(100);

#[test]
fn a_publisher_whose_packets_the_card_eats_stays_connected_and_a_silent_client_times_out() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let mut subscriber = Client::new(broker.port(), "subscriber");
    assert_eq!(subscriber.subscribe("alive", 0), 0);
    let login = |id| Login { keep_alive_s: KEEP_ALIVE_S, ..Login::new(id) };
    let silent =
        Login { will: Some(Message::new("alive", "the silent one is gone")), ..login("silent") };
    let (mut silent, _) = Client::connect(broker.port(), &silent);
    let (mut publisher, _) = Client::connect(broker.port(), &login("publisher"));
    let start = Instant::now();
    let mut sent = 0_u64;
    while start.elapsed() < LONGER_THAN_ANY_TIMEOUT {
        // It says nothing but PUBLISH: no PINGREQ of its own.
        publisher.publish(&Message::new("alive", "x"));
        sent += 1;
        let next = start + INTERVAL * u32::try_from(sent).unwrap();
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    publisher.publish(&Message::new("alive", "still here"));
    let eaten = card.await_metrics("the card took every PUBLISH", |it| it.by_card() >= sent as f64);
    assert!(eaten.sum("mqttshim_pings_injected_total", &[]) >= 5.0, "{}", eaten.text());
    let mut payloads = Vec::new();
    wait::until("the publisher's last message and the silent client's will", || {
        payloads.push(subscriber.message().payload);
        let has = |text: &[u8]| payloads.iter().any(|payload| payload == text);
        (has(b"still here") && has(b"the silent one is gone")).then_some(())
    });
    silent.set_timeout(Duration::from_secs(1));
    assert!(silent.ping().is_err(), "the broker has closed the silent client");
    // Its own PINGREQ is answered once, whatever the card asked in between.
    publisher.ping().unwrap();
    assert!(publisher.messages_so_far().is_empty());
}

//! Ten thousand connections come and go, and nothing stays behind.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use mqttshim_integration::{Broker, Card, Client, Folder, Message, needs, procfs, wait};

const ROUNDS: usize = 10_000;
/// Enough for every table and pool to have its size.
const WARM_UP: usize = 2_000;
/// The send ring of a session.
const RING_BYTES: usize = 2 * 1024 * 1024;
const RESIDENT_BYTES_MAX: u64 = 1024 * 1024;

/// Connects, subscribes now and then, and leaves: politely, or by closing.
fn come_and_go(port: u16, rounds: usize) {
    for round in 0..rounds {
        let mut client = Client::new(port, &format!("guest-{}", round % 7));
        if round % 16 == 0 {
            assert_eq!(client.subscribe("guest/#", 0), 0);
            client.publish(&Message::new("guest/book", "was here"));
            assert_eq!(client.message().payload, b"was here");
        }
        if round % 2 == 0 {
            client.disconnect();
        } else {
            client.vanish();
        }
    }
}

/// Has the broker write more than a session's send ring holds, so that every page of it has been used: a ring gets its
/// memory as it is written for the first time.
fn use_the_whole_ring(port: u16) {
    let mut reader = Client::new(port, "reader");
    assert_eq!(reader.subscribe("warm/up", 1), 1);
    let bytes = vec![7; 2 * RING_BYTES];
    Client::new(port, "writer").publish(&Message::new("warm/up", bytes.clone()).qos(1));
    assert!(reader.message().payload == bytes);
}

/// Descriptors and resident bytes of the two processes once all guests are gone.
#[track_caller]
fn settle(card: &Card, broker: &Broker) -> [(usize, u64); 2] {
    card.await_metrics("every connection is gone", |it| it.sum("mqttshim_connections", &[]) == 0.0);
    let mut last = 0;
    // The broker closes in its own time: twice the same is settled.
    wait::until("the broker's descriptors are settled", || {
        let now = procfs::descriptors(broker.pid());
        (std::mem::replace(&mut last, now) == now).then_some(())
    });
    [broker.pid(), card.pid()].map(|pid| (procfs::descriptors(pid), procfs::resident_bytes(pid)))
}

#[test]
fn ten_thousand_connections_leave_no_descriptor_and_no_megabyte() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    use_the_whole_ring(broker.port());
    come_and_go(broker.port(), WARM_UP);
    let before = settle(&card, &broker);
    come_and_go(broker.port(), ROUNDS);
    let after = settle(&card, &broker);
    for (name, before, after) in
        [("broker", before[0], after[0]), ("dpu-server", before[1], after[1])]
    {
        eprintln!(
            "{name}: descriptors {} → {}, resident {} → {}",
            before.0, after.0, before.1, after.1
        );
        assert_eq!(before.0, after.0, "{name}'s descriptors");
        assert!(before.1.abs_diff(after.1) <= RESIDENT_BYTES_MAX, "{name}'s memory");
    }
}

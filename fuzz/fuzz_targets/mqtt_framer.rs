//! Bytes that claim to be MQTT, from a client and from a broker, cut in any way: the framer hands out or holds every byte once and
//! in order, and the core that reads them never panics. Where nothing is distributed by the card, both streams leave as they
//! came.

#![no_main]

use std::time::Instant;

use dpu_server::mqtt::framer::{Framer, Handling, Piece};
use dpu_server::mqtt::{ConnId, Core, CoreConfig, Trust};
use libfuzzer_sys::fuzz_target;

/// Packets up to this size are asked for whole.
const WHOLE_BYTES_MAX: usize = 4096;

fuzz_target!(|input: (Vec<u8>, Vec<u8>, u64)| {
    let (client, broker, cuts) = input;
    frame(&client, cuts, false);
    frame(&client, cuts, true);
    for trust in [Trust::Observed, Trust::Suback] {
        for is_late in [false, true] {
            relay(trust, is_late, &client, &broker, cuts);
        }
    }
});

/// Pieces of 1 to 64 bytes, as `cuts` says.
fn chunks(mut bytes: &[u8], cuts: u64) -> impl Iterator<Item = &[u8]> {
    let mut turn = 0;
    std::iter::from_fn(move || {
        let size = 1 + (cuts.rotate_left(turn) & 63) as usize;
        turn += 6;
        let (front, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        (!front.is_empty()).then_some(front)
    })
}

/// `goes_on`: so does the framer behind what breaks the rules.
fn frame(bytes: &[u8], cuts: u64, goes_on: bool) {
    let mut framer = Framer::new();
    let mut seen = Vec::new();
    for mut chunk in chunks(bytes, cuts) {
        let handling = |header: &dpu_server::mqtt::FixedHeader| {
            if header.packet_bytes() <= WHOLE_BYTES_MAX && header.packet_bytes() % 2 == 0 {
                Handling::Whole
            } else {
                Handling::Stream
            }
        };
        while let Some(piece) = framer.next(&mut chunk, handling) {
            seen.extend_from_slice(match piece {
                Piece::Packet { bytes, .. }
                | Piece::Start { bytes, .. }
                | Piece::Part { bytes, .. }
                | Piece::Raw(bytes) => bytes,
                Piece::Malformed { held, .. } => held,
            });
            if goes_on {
                framer.go_on();
            }
        }
    }
    seen.extend(framer.give_up());
    assert_eq!(seen, bytes);
}

fn relay(trust: Trust, is_late: bool, client: &[u8], broker: &[u8], cuts: u64) {
    let mut core = Core::new(CoreConfig { trust, ..CoreConfig::default() });
    let (conn, now) = (ConnId(0), Instant::now());
    if is_late {
        core.expect_late_deliveries();
    }
    core.handle_open(conn, now);
    let (mut up, mut down) = (chunks(client, cuts), chunks(broker, !cuts));
    loop {
        let (from_client, from_broker) = (up.next(), down.next());
        if from_client.is_none() && from_broker.is_none() {
            break;
        }
        core.handle_client(conn, from_client.unwrap_or_default(), now);
        core.handle_broker(conn, from_broker.unwrap_or_default(), now);
    }
    core.handle_client_gone(conn, now);
    if trust == Trust::Observed && is_late {
        assert_eq!(core.to_broker(conn).as_slice(), client);
        let received: Vec<u8> = core.outbox(conn).chunks().flatten().copied().collect();
        assert!(broker.starts_with(&received), "bytes nobody sent");
    }
    core.handle_broker_gone(conn, now);
    core.handle_close(conn, now);
}

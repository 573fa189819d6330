//! Micro-benchmarks of the MQTT core: what one distributed PUBLISH costs the card, by subscribers and size, and what
//! handing a stream through costs.
//!
//! `cargo bench -p dpu-server --bench mqtt`. Timed is the core alone: outboxes are emptied between publishes, off the
//! clock, as the driver would.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dpu_server::mqtt::{ConnId, Core, CoreConfig, Trust};

const PUBLISHER: ConnId = ConnId(0);

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    let mut length = body.len();
    while length >= 0x80 {
        out.push((length % 0x80) as u8 | 0x80);
        length /= 0x80;
    }
    out.push(length as u8);
    out.extend(body);
    out
}

fn publish(topic: &str, payload: usize) -> Vec<u8> {
    let mut body = (topic.len() as u16).to_be_bytes().to_vec();
    body.extend(topic.as_bytes());
    body.resize(body.len() + payload, b'x');
    packet(0x30, &body)
}

fn connect(core: &mut Core, conn: ConnId, now: Instant) {
    core.handle_open(conn, now);
    core.handle_client(conn, b"\x10\x0C\x00\x04MQTT\x04\x02\x00\x3C\x00\x00", now);
    core.handle_broker(conn, &[0x20, 2, 0, 0], now);
}

/// One publisher, and so many subscribers of this filter.
fn core_with(subscribers: u32, filter: &str, now: Instant) -> Core {
    core_that_trusts(Trust::Suback, subscribers, filter, now)
}

/// The same, however it trusts.
fn core_that_trusts(trust: Trust, subscribers: u32, filter: &str, now: Instant) -> Core {
    let mut core = Core::new(CoreConfig { trust, ..CoreConfig::default() });
    connect(&mut core, PUBLISHER, now);
    let mut subscribe = vec![0, 1, 0, filter.len() as u8];
    subscribe.extend(filter.as_bytes());
    subscribe.push(0);
    for number in 1..=subscribers {
        let conn = ConnId(number);
        connect(&mut core, conn, now);
        core.handle_client(conn, &packet(0x82, &subscribe), now);
        core.handle_broker(conn, &[0x90, 3, 0, 1, 0, 0xD0, 0], now);
    }
    empty(&mut core);
    core
}

/// Empties everything that waits, as the driver does.
fn empty(core: &mut Core) {
    while let Some(conn) = core.poll_dirty() {
        let outbox = core.outbox_mut(conn);
        let bytes = outbox.bytes();
        outbox.advance(bytes);
        let queue = core.to_broker(conn);
        let bytes = queue.bytes();
        queue.advance(bytes);
    }
}

fn time_publishes(core: &mut Core, packet: &[u8], iterations: u64, now: Instant) -> Duration {
    let mut elapsed = Duration::ZERO;
    for _ in 0..iterations {
        let start = Instant::now();
        core.handle_client(PUBLISHER, black_box(packet), now);
        elapsed += start.elapsed();
        empty(core);
    }
    elapsed
}

fn fan_out(c: &mut Criterion) {
    let now = Instant::now();
    let mut group = c.benchmark_group("fan_out");
    for subscribers in [1, 100, 1_000, 10_000] {
        group.throughput(Throughput::Elements(subscribers.into()));
        group.bench_function(format!("fan_out_1_to_{subscribers}"), |b| {
            let mut core = core_with(subscribers, "bench/+/topic", now);
            let packet = publish("bench/1/topic", 64);
            b.iter_custom(|iterations| time_publishes(&mut core, &packet, iterations, now));
            assert_eq!(core.counters().publishes_broker.iter().sum::<u64>(), 0);
        });
    }
    for subscribers in [1, 1_000] {
        group.throughput(Throughput::Elements(subscribers.into()));
        group.bench_function(format!("observed_fan_out_1_to_{subscribers}"), |b| {
            let trust = Trust::Observed;
            let mut core = core_that_trusts(trust, subscribers, "bench/+/topic", now);
            let packet = publish("bench/1/topic", 64);
            // The first is not looked at, the second is watched.
            core.handle_client(PUBLISHER, &packet.repeat(2), now);
            for number in 1..=subscribers {
                core.handle_broker(ConnId(number), &packet.repeat(2), now);
            }
            core.handle_broker(PUBLISHER, &[0xD0, 0, 0xD0, 0], now);
            core.handle_client(PUBLISHER, &packet, now);
            for number in 1..=subscribers {
                core.handle_broker(ConnId(number), &packet, now);
            }
            core.handle_broker(PUBLISHER, &[0xD0, 0], now);
            empty(&mut core);
            let slow = core.counters().publishes_broker.iter().sum::<u64>();
            b.iter_custom(|iterations| time_publishes(&mut core, &packet, iterations, now));
            assert_eq!(core.counters().publishes_broker.iter().sum::<u64>(), slow);
        });
    }
    group.finish();
}

fn changing_topics(c: &mut Criterion) {
    let now = Instant::now();
    c.bench_function("route_of_a_new_topic_with_1_subscriber", |b| {
        let mut core = core_with(1, "bench/#", now);
        let packets: Vec<_> = (0..100_000).map(|n| publish(&format!("bench/{n}"), 64)).collect();
        let mut next = packets.iter().cycle();
        b.iter_custom(|iterations| {
            let packets: Vec<_> = next.by_ref().take(iterations as usize).collect();
            let start = Instant::now();
            for packet in packets {
                core.handle_client(PUBLISHER, packet, now);
                empty(&mut core);
            }
            start.elapsed()
        });
    });
}

fn pass_through(c: &mut Criterion) {
    let now = Instant::now();
    let mut group = c.benchmark_group("pass_through");
    let mut slow = publish("bench/topic", 64);
    slow[0] = 0x31;
    let stream = slow.repeat(100);
    group.throughput(Throughput::Elements(100));
    group.bench_function("100_retained_publishes_to_the_broker", |b| {
        let mut core = core_with(1, "bench/#", now);
        b.iter(|| {
            core.handle_client(PUBLISHER, black_box(&stream), now);
            empty(&mut core);
        });
    });
    group.bench_function("100_publishes_from_the_broker", |b| {
        let mut core = core_with(1, "bench/#", now);
        b.iter(|| {
            core.handle_broker(ConnId(1), black_box(&stream), now);
            empty(&mut core);
        });
    });
    group.finish();
}

criterion_group!(benches, fan_out, changing_topics, pass_through);
criterion_main!(benches);

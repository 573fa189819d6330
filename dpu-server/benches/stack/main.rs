//! What our own TCP/IP costs by itself: no card, no broker, a port that is memory.
//!
//! ```text
//! cargo bench -p dpu-server --bench stack                          a table of times, 100 to 100,000 connections
//! cargo bench -p dpu-server --bench stack -- 1000                  the same for so many
//! .../stack count fan-out-64 1000 20                               one case, for an instruction counter
//! ```
//!
//! A *delivery* is one subscriber's copy handed to the stack at once, and its frame in the port's memory. Part of a *batch* is what an
//! outbox offers, which goes by the connection's buffer. An *acknowledgement* is the frame by which that subscriber's machine confirms it. Times are CPU time of the thread, the median of rounds.
//! `scripts/instructions.sh` counts instructions under valgrind and compares them with `benches/stack/instructions.txt`.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod clients;
mod wire;

use std::time::Duration;

use dpu_server::stack::{Batch, Key, Sent, Stack};
use rustix::time::{ClockId, clock_gettime};

use self::clients::Bench;

/// Deliveries timed for one figure, if that is possible in so many rounds.
const DELIVERIES: usize = 2_000_000;
const ROUNDS: std::ops::RangeInclusive<usize> = 15..=2000;
/// Waits that find nothing, timed for one figure.
const IDLE_WAITS: u32 = 2000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["count", case, connections, rounds] => {
            count(case, number(connections), number(rounds));
        }
        [] => table(&[100, 1_000, 10_000, 100_000]),
        _ => table(&words.iter().map(|word| number(word)).collect::<Vec<_>>()),
    }
}

fn number(word: &str) -> usize {
    match word.parse() {
        Ok(number) if number > 0 => number,
        _ => {
            eprintln!("stack: {word} is no number of connections");
            std::process::exit(2);
        }
    }
}

/// CPU time this thread has used.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes of memory this process holds.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes = line.split_whitespace().next().and_then(|word| word.parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn table(sizes: &[usize]) {
    println!("nanoseconds of CPU; memory in bytes a connection");
    println!(
        "{:>11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "connections", "64 B", "ack", "256 B", "batch", "connect", "idle wait", "memory"
    );
    for &connections in sizes {
        let mut bench = Bench::new(connections);
        let memory = resident();
        let start = cpu();
        bench.connect();
        let connect = cpu() - start;
        let memory = resident().saturating_sub(memory);
        let rounds = (DELIVERIES / connections).clamp(*ROUNDS.start(), *ROUNDS.end());
        let (small, ack) = fan_out(&mut bench, Way::Delivery, 64, rounds);
        let (large, _) = fan_out(&mut bench, Way::Delivery, 256, rounds);
        let (batch, _) = fan_out(&mut bench, Way::Batch, 64, rounds);
        let start = cpu();
        for _ in 0..IDLE_WAITS {
            bench.wait();
        }
        let idle = (cpu() - start) / IDLE_WAITS;
        println!(
            "{connections:>11} {small:>9.0} {ack:>9.0} {large:>9.0} {batch:>9.0} {:>9.0} {:>9} {:>9}",
            connect.as_nanos() as f64 / connections as f64,
            idle.as_nanos(),
            memory / connections
        );
    }
}

/// How a message gets to everybody.
#[derive(Clone, Copy)]
enum Way {
    Delivery,
    Batch,
}

/// Nanoseconds a delivery, and an acknowledgement.
fn fan_out(bench: &mut Bench, way: Way, payload_bytes: usize, rounds: usize) -> (f64, f64) {
    let payload = vec![0x5a; payload_bytes];
    let (mut sends, mut acks) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = cpu();
        send_to_all(bench, way, &payload);
        sends.push(cpu() - start);
        bench.prepare_acknowledgements(payload_bytes);
        let start = cpu();
        bench.wait_for_all();
        acks.push(cpu() - start);
    }
    let each = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_nanos() as f64 / bench.connections() as f64
    };
    (each(sends), each(acks))
}

fn send_to_all(bench: &mut Bench, way: Way, payload: &[u8]) {
    let frames = bench.frames_sent();
    match way {
        Way::Delivery => {
            let mut refused = Vec::new();
            bench.stack.deliver(bench.keys().map(|key| (key, 0, payload)), &mut refused);
            assert!(refused.is_empty(), "a connection is full");
        }
        Way::Batch => {
            let mut batch = Batch::default();
            for key in bench.keys() {
                batch.push(key, std::iter::once(payload));
            }
            let mut sent = std::mem::take(&mut bench.sent);
            bench.stack.send(&batch, &mut sent);
            let is_whole = |sent: &Sent| *sent == Sent::Bytes(payload.len());
            assert!(sent.iter().all(is_whole), "a connection is full");
            bench.sent = sent;
        }
    }
    assert_eq!(bench.frames_sent() - frames, bench.connections() as u64, "not one frame each");
}

/// Does one thing so often, for whoever counts instructions from outside.
fn count(case: &str, connections: usize, rounds: usize) {
    let mut bench = Bench::new(connections);
    bench.connect();
    for _ in 0..rounds {
        match case {
            // The frames of the acknowledgements are ready-made: they cost little beside their handling.
            "fan-out-64" => exchange(&mut bench, Way::Delivery, 64, true),
            "delivery-64" => exchange(&mut bench, Way::Delivery, 64, false),
            "delivery-256" => exchange(&mut bench, Way::Delivery, 256, false),
            "batch-64" => exchange(&mut bench, Way::Batch, 64, false),
            "connect" => {
                bench = Bench::new(connections);
                bench.connect();
            }
            "idle" => bench.wait(),
            _ => {
                eprintln!("stack: no case {case}");
                std::process::exit(2);
            }
        }
    }
}

/// One fan-out, and all acknowledgements, if they are to be counted.
fn exchange(bench: &mut Bench, way: Way, payload_bytes: usize, is_acknowledged: bool) {
    send_to_all(bench, way, &vec![0x5a; payload_bytes]);
    if is_acknowledged {
        bench.prepare_acknowledgements(payload_bytes);
        bench.wait_for_all();
    }
}

/// The key of a connection's socket: the listener has the first.
fn key(connection: usize) -> Key {
    Key(connection as u32 + 1)
}

//! Bytes come through as they were written, whatever the wire does.

use std::time::Duration;

use mqttshim_schema::How;

use super::wire::{Faults, Rng, Wire};
use super::{LISTENER, PORT, at, milliseconds};
use crate::stack::{Key, Received, Sent};

const CLIENT: Key = Key(1);
const SERVED: Key = Key(2);
/// Longest time without a byte: a few retransmission time-outs in a row, each twice the last, from 200 ms.
const STALL_MAX: Duration = Duration::from_secs(30);

/// One direction: what was written, and what came.
struct Stream {
    from: usize,
    bytes: Vec<u8>,
    written: usize,
    received: Vec<u8>,
    is_shut: bool,
    has_ended: bool,
}

impl Stream {
    fn new(from: usize, length: usize, rng: &mut Rng) -> Stream {
        let bytes = (0..length).map(|_| rng.next() as u8).collect();
        Stream { from, bytes, written: 0, received: Vec::new(), is_shut: false, has_ended: false }
    }

    fn keys(&self) -> (Key, Key) {
        if self.from == 0 { (CLIENT, SERVED) } else { (SERVED, CLIENT) }
    }

    /// Writes and reads what is possible. Whether a byte came.
    fn turn(&mut self, wire: &mut Wire) -> bool {
        let (writer, reader) = self.keys();
        let rest = &self.bytes[self.written..];
        if !rest.is_empty() {
            match wire.writes(self.from, writer, rest) {
                Sent::Bytes(count) => self.written += count,
                Sent::Full => {}
                Sent::Gone(error) => panic!("{error}"),
            }
        } else if !self.is_shut {
            wire.ends[self.from].shutdown(writer, How::Write).unwrap();
            self.is_shut = true;
        }
        let before = self.received.len();
        let mut buffer = [0; 5000];
        loop {
            match wire.ends[1 - self.from].recv(wire.now, reader, &mut buffer) {
                Received::Bytes(count) => self.received.extend_from_slice(&buffer[..count]),
                Received::Empty => break,
                Received::Fin => {
                    self.has_ended = true;
                    break;
                }
                Received::Gone(error) => panic!("{error}"),
            }
        }
        self.received.len() > before
    }
}

/// Connects, sends so many bytes each way at once, and compares. Returns how long that took on the wire's clock.
fn exchange(address: &str, faults: Faults, length: usize, seed: u64) -> Duration {
    let mut wire = Wire::new(faults, seed);
    wire.ends[0].connect(wire.now, CLIENT, 0, at(address, PORT), &[]).unwrap();
    wire.settle();
    while wire.ends[1].accept(wire.now, LISTENER, SERVED).is_err() {
        assert!(wire.sleep() && wire.now < STALL_MAX, "no connection after {:?}", wire.now);
        wire.settle();
    }
    while wire.ends[0].connect_result(CLIENT).is_none() {
        assert!(wire.sleep());
        wire.settle();
    }
    let mut rng = Rng(!seed);
    let mut streams = [0, 1].map(|from| Stream::new(from, length, &mut rng));
    let mut last = wire.now;
    while !streams.iter().all(|stream| stream.has_ended) {
        let mut has_moved = false;
        for stream in &mut streams {
            has_moved |= stream.turn(&mut wire);
        }
        wire.settle();
        if has_moved {
            last = wire.now;
        } else {
            assert!(wire.sleep(), "nothing is due, and bytes are missing");
        }
        assert!(wire.now - last < STALL_MAX, "nothing came for {:?}", wire.now - last);
    }
    for stream in &streams {
        assert!(stream.received == stream.bytes, "the bytes differ");
    }
    wire.now
}

#[test]
fn a_clean_wire_carries_both_ways_at_once() {
    for address in ["10.0.0.1", "fd00::1"] {
        let took = exchange(address, Faults::default(), 300_000, 1);
        assert!(took < milliseconds(200), "{took:?}");
    }
}

#[test]
fn every_byte_comes_through_loss_reordering_and_repetition() {
    let length = 60_000;
    for (row, lost) in [0, 1, 10, 50].into_iter().enumerate() {
        for (column, overtaken) in [0, 10, 100].into_iter().enumerate() {
            for (plane, delay) in [0, 5, 50].into_iter().enumerate() {
                for repeated in [0, 20] {
                    let faults = Faults { lost, repeated, overtaken, delay: milliseconds(delay) };
                    for seed in 0..20 {
                        let seed = seed * 1000 + (row * 100 + column * 10 + plane) as u64;
                        let took = exchange("10.0.0.1", faults, length, seed);
                        println!("{faults:?}, seed {seed}: {took:?}");
                    }
                }
            }
        }
    }
}

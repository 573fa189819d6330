//! Two stacks on a wire that loses, repeats, delays and reorders, all from one seed.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::time::Duration;

use super::{CLIENT_MAC, Queue, server, stack};
use crate::stack::smoltcp::tcp::Tcp;
use crate::stack::{Key, Sent};

/// What a wire does to frames, each way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// In a thousand.
    pub(super) lost: u64,
    pub(super) repeated: u64,
    /// These come later than others sent after them.
    pub(super) overtaken: u64,
    /// One way.
    pub(super) delay: Duration,
}

/// SplitMix64.
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ it >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ it >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ it >> 31
    }

    fn happens(&mut self, in_a_thousand: u64) -> bool {
        self.next() % 1000 < in_a_thousand
    }
}

/// Both ends: the client is 0, the server 1.
pub(super) struct Wire {
    pub(super) ends: [Tcp; 2],
    pub(super) now: Duration,
    pub(super) faults: Faults,
    rng: Rng,
    /// By arrival, then in the order they were sent.
    under_way: BTreeMap<(Duration, u64), (usize, Vec<u8>)>,
    frames: u64,
}

impl Wire {
    pub(super) fn new(faults: Faults, seed: u64) -> Wire {
        let client = stack(CLIENT_MAC, &["10.0.0.2/24", "fd00::2/64"]);
        Wire {
            ends: [client, server()],
            now: Duration::ZERO,
            faults,
            rng: Rng(seed),
            under_way: BTreeMap::new(),
            frames: 0,
        }
    }

    /// Lets one end write.
    pub(super) fn writes(&mut self, end: usize, key: Key, bytes: &[u8]) -> Sent {
        let mut queue = Queue::default();
        let part = [IoSlice::new(bytes)];
        let sent = self.ends[end].send(self.now, key, &part, &mut queue);
        self.carry(1 - end, queue);
        sent
    }

    /// Lets everything happen that is due.
    pub(super) fn settle(&mut self) {
        for end in 0..2 {
            let mut queue = Queue::default();
            self.ends[end].expire(self.now);
            self.ends[end].flush(self.now, &mut queue);
            self.carry(1 - end, queue);
        }
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (to, mut frame) = entry.remove();
            let mut queue = Queue::default();
            self.ends[to].frame(self.now, &mut frame, &mut queue);
            self.ends[to].flush(self.now, &mut queue);
            self.carry(1 - to, queue);
        }
    }

    /// Moves on to what is due next. `false`: nothing ever will be.
    pub(super) fn sleep(&mut self) -> bool {
        let arrival = self.under_way.keys().next().map(|(at, _)| *at);
        let deadlines = self.ends.iter().filter_map(|end| end.deadline());
        let Some(next) = deadlines.chain(arrival).min() else { return false };
        self.now = self.now.max(next);
        true
    }

    pub(super) fn carry(&mut self, to: usize, queue: Queue) {
        for frame in queue.frames {
            let Faults { lost, repeated, overtaken, delay } = self.faults;
            let copies =
                if self.rng.happens(lost) { 0 } else { 1 + u64::from(self.rng.happens(repeated)) };
            for _ in 0..copies {
                let late = if self.rng.happens(overtaken) {
                    delay / 2 + Duration::from_millis(1)
                } else {
                    Duration::ZERO
                };
                self.frames += 1;
                self.under_way.insert((self.now + delay + late, self.frames), (to, frame.clone()));
            }
        }
    }
}

//! More than some readers take: what a slow one loses, and what that costs everybody else.
//!
//! ```text
//! publisher ── numbered messages, steadily ──► broker, alone or on a card ──► readers that keep up: all, soon
//!                                                                         └─► readers that do not: in order, newest lost
//! ```
//!
//! One [`Cell`] is one way to be overloaded. [`play`] plays it against one broker and returns an [`Outcome`]; a test compares the one of
//! the broker alone with the one of the broker on us. Slow readers have small buffers in the kernel, as far-away clients have, so
//! that a second of messages is too much for them.

mod flood;
mod outcome;
mod publisher;
mod reader;

use std::fmt;

pub use flood::play;
pub use outcome::{Outcome, Share, Watch};

/// Readers of one cell.
pub const READERS: usize = 6;
/// Messages a broker, and a card, may hold for one reader: `max_queued_messages`.
pub const QUEUED_MAX: u64 = 1_000;

/// Who is slow, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Slow {
    /// One reader reads nothing until the flood is over.
    One,
    /// Half of them.
    Half,
    /// One reads a little at a time, far less than comes.
    Trickle,
}

/// Who is to distribute.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Road {
    /// The card, as far as it may.
    Card,
    /// The broker: the messages are retained.
    Broker,
}

/// One way to be overloaded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cell {
    /// Who is slow.
    pub slow: Slow,
    /// Of messages and subscriptions.
    pub qos: u8,
    /// Who distributes.
    pub road: Road,
    /// Bytes of a payload.
    pub payload_bytes: usize,
}

impl Cell {
    /// Every cell.
    #[must_use]
    pub fn all() -> Vec<Cell> {
        let mut all = Vec::new();
        for slow in [Slow::One, Slow::Half, Slow::Trickle] {
            for qos in [0, 1] {
                for road in [Road::Card, Road::Broker] {
                    for payload_bytes in [64, 60 * 1024] {
                        all.push(Cell { slow, qos, road, payload_bytes });
                    }
                }
            }
        }
        all
    }

    /// Readers that do not keep up.
    #[must_use]
    pub fn slow_readers(&self) -> usize {
        if self.slow == Slow::Half { READERS / 2 } else { 1 }
    }

    fn is_large(&self) -> bool {
        self.payload_bytes > 1024
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slow = match self.slow {
            Slow::One => "one",
            Slow::Half => "half",
            Slow::Trickle => "trickle",
        };
        let road = if self.road == Road::Card { "card" } else { "broker" };
        let text = format!("{slow}, QoS {}, {road}, {} B", self.qos, self.payload_bytes);
        f.pad(&text)
    }
}

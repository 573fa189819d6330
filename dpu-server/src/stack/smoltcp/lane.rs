//! A connection as sending small messages sees it: two lines of memory.
//!
//! While nothing else happens to a connection, what can be sent on it is known ahead: the next number, the headers, how many octets the
//! window takes. A lane holds that, and which messages left by it, so that a delivery does not look at the connection at all. It is *open*
//! from the time it was asked for until somebody looks at the connection, who is told of these messages first (`connections`).

use smoltcp::socket::tcp::Allowance;
use smoltcp::time::{Duration, Instant};

use super::clock;
use super::template::{Numbers, Template};

/// No entry in the wheel.
const UNARMED: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Lane {
    /// Octets that may be sent still; a closed lane has none.
    octets: u32,
    /// Most of one segment.
    mss: u16,
    window: u16,
    sequence: u32,
    acknowledged: u32,
    /// The entry in the wheel that is the connection's own.
    armed: u64,
    /// How long after the first message a deadline has to be set, in microseconds by smoltcp's clock; 0: one is.
    delay: u32,
    /// Messages that left, of which the connection does not know.
    run: Run,
    is_open: bool,
    has_refused: bool,
    pub(super) template: Template,
}

const _: () = assert!(size_of::<Lane>() == 128, "two lines of memory");

/// Messages by their numbers: the first one, and a bit for each of it and the 63 behind it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    first: u32,
    bits: u64,
}

impl Run {
    /// Whether a message is newer than all of it, and not too far from the first.
    #[inline]
    fn takes(self, number: u32) -> bool {
        let ahead = number.wrapping_sub(self.first);
        self.bits == 0 || (ahead < u64::BITS && self.bits >> ahead == 0)
    }

    /// Adds a message that it takes.
    #[inline]
    fn push(&mut self, number: u32) {
        debug_assert!(self.takes(number));
        if self.bits == 0 {
            self.first = number;
        }
        self.bits |= 1 << number.wrapping_sub(self.first);
    }

    pub(super) fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// From the oldest on.
    pub(super) fn numbers(self) -> impl Iterator<Item = u32> + Clone {
        let mut bits = self.bits;
        std::iter::from_fn(move || {
            let at = (bits != 0).then(|| bits.trailing_zeros())?;
            bits &= bits - 1;
            Some(self.first.wrapping_add(at))
        })
    }
}

/// A delivery that a lane took.
pub(super) struct Departure {
    pub(super) numbers: Numbers,
    /// A deadline, in milliseconds, that is earlier than all that are set.
    pub(super) deadline: Option<u64>,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane {
            octets: 0,
            mss: 0,
            window: 0,
            sequence: 0,
            acknowledged: 0,
            armed: UNARMED,
            delay: 0,
            run: Run::default(),
            is_open: false,
            has_refused: false,
            template: Template::default(),
        }
    }
}

impl Lane {
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Opens it. `patience`: for how long acknowledgements may be missing. A deadline of what is on its way has to be set by the caller.
    pub(super) fn open(&mut self, allowance: &Allowance, patience: Duration) {
        self.octets = u32::try_from(allowance.octets).unwrap_or(u32::MAX);
        self.mss = u16::try_from(allowance.mss).unwrap_or(u16::MAX);
        self.window = allowance.window_len;
        self.sequence = allowance.seq_number.0 as u32;
        self.acknowledged = allowance.ack_number.0 as u32;
        self.delay = match allowance.poll_at {
            Some(_) => 0,
            None => {
                let delay = allowance.delay.min(patience).total_micros();
                u32::try_from(delay).unwrap_or(u32::MAX).max(1)
            }
        };
        self.is_open = true;
    }

    /// What the connection does not know.
    #[cfg(any(test, fuzzing))]
    pub(super) fn untold(&self) -> Run {
        assert!(self.is_open || self.run.is_empty(), "a closed lane has nothing to tell");
        self.run
    }

    /// Closes it; says what the connection does not know.
    pub(super) fn close(&mut self) -> Run {
        self.is_open = false;
        self.octets = 0;
        std::mem::take(&mut self.run)
    }

    /// It has refused a delivery: until [`Self::forgive`] none passes by what waits for the connection now.
    pub(super) fn refuse(&mut self) {
        self.has_refused = true;
        self.octets = 0;
    }

    pub(super) fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// What it refused was sent the usual way, or will be before the next delivery.
    pub(super) fn forgive(&mut self) {
        self.has_refused = false;
    }

    /// Whether it takes a message of so many bytes.
    #[inline]
    pub(super) fn takes(&self, bytes: usize) -> bool {
        bytes <= (self.octets as usize).min(usize::from(self.mss)) && bytes > 0
    }

    /// Whether a message is newer than those that left, and near enough to be noted beside them.
    #[inline]
    pub(super) fn follows(&self, number: u32) -> bool {
        self.run.takes(number)
    }

    /// Takes a message of so many bytes as it [takes](Self::takes), which [follows](Self::follows).
    #[inline]
    pub(super) fn send(&mut self, now: Instant, number: u32, bytes: usize) -> Departure {
        self.run.push(number);
        let numbers = Numbers {
            sequence: self.sequence,
            acknowledged: self.acknowledged,
            window: self.window,
        };
        self.sequence = self.sequence.wrapping_add(bytes as u32);
        self.octets -= bytes as u32;
        let mut deadline = None;
        if self.delay > 0 {
            let delay = Duration::from_micros(u64::from(std::mem::take(&mut self.delay)));
            deadline = self.arm(clock::millisecond(now + delay));
        }
        Departure { numbers, deadline }
    }

    /// Sets a deadline, in milliseconds; None: an earlier one is set.
    pub(super) fn arm(&mut self, at: u64) -> Option<u64> {
        if at >= self.armed {
            return None;
        }
        self.armed = at;
        Some(at)
    }

    /// A deadline came; whether it is the one that was set.
    pub(super) fn disarm(&mut self, at: u64) -> bool {
        let is_own = self.armed == at;
        if is_own {
            self.armed = UNARMED;
        }
        is_own
    }

    /// Whether a deadline is set that comes by then.
    pub(super) fn is_armed_by(&self, at: u64) -> bool {
        self.armed <= at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_takes_newer_messages_and_gives_them_back_in_order() {
        let mut run = Run::default();
        assert!(run.is_empty());
        for (number, fits) in
            [(u32::MAX - 1, true), (1, true), (1, false), (0, false), (61, true), (62, false)]
        {
            assert_eq!(run.takes(number), fits, "{number}");
            if fits {
                run.push(number);
            }
        }
        assert_eq!(run.numbers().collect::<Vec<_>>(), [u32::MAX - 1, 1, 61]);
        assert!(!run.takes(u32::MAX - 2), "older than the first");
    }

    #[test]
    fn only_an_earlier_deadline_is_news() {
        let mut lane = Lane::default();
        assert_eq!(
            [lane.arm(9), lane.arm(9), lane.arm(10), lane.arm(5)],
            [Some(9), None, None, Some(5)]
        );
        assert!(!lane.disarm(9));
        assert!(lane.is_armed_by(5) && !lane.is_armed_by(4));
        assert!(lane.disarm(5));
        assert!(!lane.is_armed_by(u64::MAX - 1));
    }
}

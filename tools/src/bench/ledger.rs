//! Which subscriber has got which message: exactly once, in order, and when the last one did.
//!
//! ```text
//! issue(0) issue(1) …        deliver(subscriber, sequence, at) …   ──► latency of each message, complete or not
//! ```
//!
//! Every subscriber must see 0, 1, 2, …; anything else is an error that says what was missed or repeated. Messages
//! complete in order because every subscriber's deliveries do. Memory: a counter per subscriber, a record per message
//! under way.

use std::collections::VecDeque;

/// A delivery that should not have been.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum DeliveryError {
    /// At least one message did not come before this one.
    #[error("subscriber {subscriber} got message {got} but never {expected}: lost")]
    Lost {
        /// Which subscriber.
        subscriber: usize,
        /// What it should have got.
        expected: u64,
        /// What it got.
        got: u64,
    },
    /// The message was delivered before.
    #[error("subscriber {subscriber} got message {got} again or late: {expected} was next")]
    Repeated {
        /// Which subscriber.
        subscriber: usize,
        /// What it should have got.
        expected: u64,
        /// What it got.
        got: u64,
    },
    /// Nobody sent this.
    #[error("subscriber {subscriber} got message {got}, which was never published")]
    Unknown {
        /// Which subscriber.
        subscriber: usize,
        /// What it got.
        got: u64,
    },
}

/// A message all subscribers have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Completed {
    /// From issuing it to its arrival at the last subscriber.
    pub(crate) latency_ns: u64,
}

#[derive(Debug)]
struct UnderWay {
    issued_ns: u64,
    last_ns: u64,
    missing: usize,
}

/// The accounts of one topic.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The message each subscriber gets next.
    next: Vec<u64>,
    /// The first message that is not complete.
    first: u64,
    under_way: VecDeque<UnderWay>,
}

impl Ledger {
    /// Accounts for `subscribers` subscribers.
    pub(crate) fn new(subscribers: usize) -> Ledger {
        Ledger { next: vec![0; subscribers], first: 0, under_way: VecDeque::new() }
    }

    /// The number of the next message.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.first + self.under_way.len() as u64
    }

    /// Enters that the next message is being published.
    pub(crate) fn issue(&mut self, now_ns: u64) {
        let missing = self.next.len();
        self.under_way.push_back(UnderWay { issued_ns: now_ns, last_ns: 0, missing });
    }

    /// Enters one delivery.
    pub(crate) fn deliver(
        &mut self,
        subscriber: usize,
        got: u64,
        at_ns: u64,
    ) -> Result<Option<Completed>, DeliveryError> {
        if got >= self.next_sequence() {
            return Err(DeliveryError::Unknown { subscriber, got });
        }
        let expected = self.next[subscriber];
        if got > expected {
            return Err(DeliveryError::Lost { subscriber, expected, got });
        }
        if got < expected {
            return Err(DeliveryError::Repeated { subscriber, expected, got });
        }
        self.next[subscriber] += 1;
        let at = usize::try_from(got - self.first).expect("an incomplete message is under way");
        let message = &mut self.under_way[at];
        message.missing -= 1;
        message.last_ns = message.last_ns.max(at_ns);
        if message.missing > 0 {
            return Ok(None);
        }
        let done = self.under_way.pop_front().expect("the completed message is the first");
        self.first += 1;
        Ok(Some(Completed { latency_ns: done.last_ns.saturating_sub(done.issued_ns) }))
    }

    /// Messages not complete.
    pub(crate) fn outstanding(&self) -> usize {
        self.under_way.len()
    }

    /// Who still waits for the oldest incomplete message, for an error.
    pub(crate) fn missing(&self) -> Vec<usize> {
        let waits = |subscriber: &usize| self.next[*subscriber] <= self.first;
        (0..self.next.len()).filter(waits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_complete_with_its_last_delivery() {
        let mut ledger = Ledger::new(2);
        ledger.issue(100);
        assert_eq!(ledger.deliver(0, 0, 150), Ok(None));
        assert_eq!(ledger.missing(), [1]);
        // Arrivals may be reported out of order; the latest one counts.
        let done = ledger.deliver(1, 0, 140);
        assert_eq!(done, Ok(Some(Completed { latency_ns: 50 })));
        assert_eq!(ledger.outstanding(), 0);
    }

    #[test]
    fn messages_may_overlap() {
        let mut ledger = Ledger::new(2);
        ledger.issue(0);
        ledger.issue(10);
        assert_eq!(ledger.deliver(0, 0, 5), Ok(None));
        assert_eq!(ledger.deliver(0, 1, 12), Ok(None));
        assert_eq!(ledger.deliver(1, 0, 20), Ok(Some(Completed { latency_ns: 20 })));
        assert_eq!(ledger.deliver(1, 1, 21), Ok(Some(Completed { latency_ns: 11 })));
    }

    #[test]
    fn a_gap_a_repetition_and_an_invention_are_errors() {
        let mut ledger = Ledger::new(1);
        ledger.issue(0);
        ledger.issue(0);
        let lost = DeliveryError::Lost { subscriber: 0, expected: 0, got: 1 };
        assert_eq!(ledger.deliver(0, 1, 1), Err(lost));
        ledger.deliver(0, 0, 1).unwrap();
        let repeated = DeliveryError::Repeated { subscriber: 0, expected: 1, got: 0 };
        assert_eq!(ledger.deliver(0, 0, 1), Err(repeated));
        let unknown = DeliveryError::Unknown { subscriber: 0, got: 2 };
        assert_eq!(ledger.deliver(0, 2, 1), Err(unknown));
    }
}

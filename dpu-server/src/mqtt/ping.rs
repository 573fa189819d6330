//! Who asked for the next PINGRESP: the client, or the card.
//!
//! A broker answers PINGREQs in order (it reads one byte stream and writes one), so a queue tells whose an answer is.
//!
//! ```text
//! client PINGREQ ─► [Client 2] [Card 5] [Client 1] ─► next PINGRESP: the client's, pass it on
//! request() = 5 ──►                                   the third: the card's, swallow it; 5 and below are answered
//! ```
//!
//! A request of the card gets the next number; one PINGREQ may answer several requests. Bounded by runs: there are never
//! more entries than twice the card's own outstanding pings plus one.

use std::collections::VecDeque;

/// Number of a request of the card, growing by one for the life of a connection.
pub(crate) type PingSeq = u64;

#[derive(Clone, Copy, Debug)]
enum Outstanding {
    /// So many PINGREQs of the client, one behind the other.
    Client(u32),
    /// A PINGREQ of the card; its answer settles every request up to this one.
    Card(PingSeq),
}

/// Whose an answer is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// The client's, or nobody's: pass it on.
    Client,
    /// The card's: swallow it. Every request up to this one is answered.
    Card(PingSeq),
}

/// The outstanding pings of one connection.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    fifo: VecDeque<Outstanding>,
    /// Last request.
    requested: PingSeq,
    /// Last request that a PINGREQ was sent for.
    sent: PingSeq,
}

impl Pings {
    /// The client sent a PINGREQ.
    pub(crate) fn note_client(&mut self) {
        match self.fifo.back_mut() {
            Some(Outstanding::Client(count)) => *count = count.saturating_add(1),
            _ => self.fifo.push_back(Outstanding::Client(1)),
        }
    }

    /// Asks for a PINGREQ behind everything sent so far.
    pub(crate) fn request(&mut self) -> PingSeq {
        self.requested += 1;
        self.requested
    }

    /// The last request so far.
    pub(crate) fn last_request(&self) -> PingSeq {
        self.requested
    }

    /// Whether a PINGREQ is to be written now; notes that it is.
    pub(crate) fn take_due(&mut self) -> bool {
        let is_due = self.requested > self.sent;
        if is_due {
            self.sent = self.requested;
            self.fifo.push_back(Outstanding::Card(self.sent));
        }
        is_due
    }

    /// A PINGRESP came.
    pub(crate) fn answer(&mut self) -> Answer {
        match self.fifo.front_mut() {
            Some(Outstanding::Client(count)) if *count > 1 => {
                *count -= 1;
                Answer::Client
            }
            Some(Outstanding::Client(_)) => {
                self.fifo.pop_front();
                Answer::Client
            }
            Some(&mut Outstanding::Card(seq)) => {
                self.fifo.pop_front();
                Answer::Card(seq)
            }
            None => Answer::Client,
        }
    }
}

/// A doubt that only an answered PINGREQ clears: after it was raised, a ping has to go out, come back, and nothing may
/// have raised the doubt again in between.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Barrier {
    is_raised: bool,
    out: Option<PingSeq>,
    /// Raised again since the outstanding ping was requested.
    is_spoiled: bool,
}

impl Barrier {
    pub(crate) fn raise(&mut self) {
        self.is_raised = true;
        self.is_spoiled = true;
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.is_raised
    }

    /// Raised, and no ping is out for it.
    pub(crate) fn wants_ping(&self) -> bool {
        self.is_raised && self.out.is_none()
    }

    pub(crate) fn note_ping(&mut self, seq: PingSeq) {
        self.out = Some(seq);
        self.is_spoiled = false;
    }

    /// Every request up to `answered` came back; whether that clears the doubt.
    pub(crate) fn settle(&mut self, answered: PingSeq) -> bool {
        if self.out.is_none_or(|seq| seq > answered) {
            return false;
        }
        self.out = None;
        if !self.is_spoiled {
            self.is_raised = false;
        }
        !self.is_spoiled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_go_to_whoever_asked_first() {
        let mut pings = Pings::default();
        pings.note_client();
        pings.note_client();
        let seq = pings.request();
        assert!(pings.take_due());
        pings.note_client();
        let answers: Vec<_> = (0..4).map(|_| pings.answer()).collect();
        assert_eq!(answers, [Answer::Client, Answer::Client, Answer::Card(seq), Answer::Client]);
    }

    #[test]
    fn an_answer_nobody_asked_for_is_passed_on() {
        assert_eq!(Pings::default().answer(), Answer::Client);
    }

    #[test]
    fn one_ping_answers_every_request_before_it() {
        let mut pings = Pings::default();
        pings.request();
        let second = pings.request();
        assert!(pings.take_due());
        assert!(!pings.take_due());
        assert_eq!(pings.answer(), Answer::Card(second));
    }

    #[test]
    fn a_barrier_raised_again_while_its_ping_is_out_stays_raised() {
        let mut barrier = Barrier::default();
        assert!(!barrier.wants_ping());
        barrier.raise();
        assert!(barrier.wants_ping());
        barrier.note_ping(1);
        assert!(!barrier.wants_ping());
        barrier.raise();
        assert!(!barrier.settle(1));
        assert!(barrier.is_raised() && barrier.wants_ping());
        barrier.note_ping(2);
        assert!(!barrier.settle(1));
        assert!(barrier.settle(2));
        assert!(!barrier.is_raised());
    }
}

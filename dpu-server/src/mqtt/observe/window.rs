//! One PUBLISH of which the card watches what the broker makes of it.
//!
//! ```text
//! PUBLISH, PINGREQ ──► broker ──► copies to subscribers … PINGRESP: the window closes
//!        └─ expected of each subscriber: one copy with this digest
//! ```
//!
//! A subscriber is *served* if it was sent exactly the copies, byte for byte, that the card would have sent it; mostly one. It is *missed* if it was
//! sent nothing that could be the message: a copy the broker changed, with an alias for the topic, say, is neither.

use std::collections::HashMap;

use super::super::ConnId;
use super::super::mutation::{Rule, is_off};
use super::super::packet::{Publish, Variant};
use super::super::ping::PingSeq;
use super::digest::Digest;

/// How large a message is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Size {
    /// Bytes of the payload.
    pub(crate) payload: usize,
    /// Bytes of the packet in version 5.
    pub(crate) packet: usize,
}

impl Size {
    pub(crate) fn of(publish: &Publish<'_>) -> Self {
        Self {
            payload: publish.payload.len(),
            packet: publish.encoded_bytes(Variant::V5 { identifier: None }, 0),
        }
    }

    pub(crate) fn fits(self, max: Self) -> bool {
        self.payload <= max.payload && self.packet <= max.packet
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self { payload: self.payload.max(other.payload), packet: self.packet.max(other.packet) }
    }
}

/// A subscriber as a route names it: its connection, and a number of its subscriptions that no others have.
pub(crate) type Subscriber = (ConnId, u64);

/// A copy that a subscriber is to get. One with several subscriptions may get several, and equal ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) subscriber: Subscriber,
    pub(crate) copy: Digest,
}

/// What a subscriber is to get, and has got.
#[derive(Clone, Debug)]
struct Candidate {
    number: u64,
    /// Mostly one: the copies, with how many of them are still to come. Less than 0: more came.
    copies: Vec<(Digest, i32)>,
    /// A copy came.
    is_served: bool,
    /// It was sent something that may be the message in another form.
    is_unclear: bool,
    /// Its socket was full: what it is sent may be older, and what it is to get may come later.
    is_stalled: bool,
}

/// What became of a message for one subscriber.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    Served,
    Missed,
    Unclear,
}

/// What a window is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// To learn who may receive.
    Probe,
    /// To compare: the card would have left out these, sorted, and served the others.
    Shadow(Box<[ConnId]>),
    /// To know when nothing of it is on its way any more.
    Account,
}

/// What a message says, as digests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Message {
    /// Of topic and payload.
    pub(crate) content: Digest,
    pub(crate) topic: Digest,
    pub(crate) payload: Digest,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) publisher: ConnId,
    pub(crate) topic: Box<str>,
    pub(crate) message: Message,
    pub(crate) size: Size,
    pub(crate) purpose: Purpose,
    /// The request whose answer closes it.
    pub(crate) seq: PingSeq,
    candidates: HashMap<ConnId, Candidate>,
    /// Kinds of copies, over all candidates, of which more or fewer have come than are to come.
    uneven: usize,
    /// Something else could have made the copies.
    pub(crate) is_void: bool,
}

impl Window {
    pub(crate) fn new(
        publisher: ConnId,
        topic: &str,
        message: Message,
        size: Size,
        purpose: Purpose,
        expected: Vec<Expected>,
    ) -> Self {
        let mut window = Self {
            publisher,
            topic: topic.into(),
            message,
            size,
            purpose,
            seq: PingSeq::MAX,
            candidates: HashMap::with_capacity(expected.len()),
            uneven: 0,
            is_void: false,
        };
        expected.into_iter().for_each(|it| window.expect(it.subscriber, it.copy, 1));
        window
    }

    fn expect(&mut self, (conn, number): Subscriber, copy: Digest, count: i32) {
        let candidate = self.candidates.entry(conn).or_insert_with(|| Candidate {
            number,
            copies: Vec::new(),
            is_served: false,
            is_unclear: false,
            is_stalled: false,
        });
        let at = candidate.copies.iter().position(|(known, _)| *known == copy);
        let at = at.unwrap_or_else(|| {
            candidate.copies.push((copy, 0));
            candidate.copies.len() - 1
        });
        let left = &mut candidate.copies[at].1;
        self.uneven -= usize::from(*left != 0);
        *left += count;
        self.uneven += usize::from(*left != 0);
    }

    /// Another message that says the same, of which none of the copies has come: from here on the copies of both are expected, which prove
    /// nothing. Whether both are of the same subscriptions; if not, it is of no use any more.
    pub(crate) fn join(&mut self, other: Self) -> bool {
        self.is_void = true;
        let is_alike = |conn: &ConnId, number| {
            self.candidates.get(conn).is_none_or(|candidate| candidate.number == number)
        };
        if !other.candidates.iter().all(|(conn, candidate)| is_alike(conn, candidate.number)) {
            return false;
        }
        for (conn, candidate) in other.candidates {
            for (copy, count) in candidate.copies {
                self.expect((conn, candidate.number), copy, count);
            }
        }
        true
    }

    /// Whether every subscriber has had exactly the copies it was to get.
    pub(crate) fn is_complete(&self) -> bool {
        self.uneven == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Whether it proves nothing.
    pub(crate) fn is_void(&self) -> bool {
        self.is_void && !is_off(Rule::VoidWindows)
    }

    /// The digests of the copies, each once.
    pub(crate) fn copies(&self) -> Vec<Digest> {
        let all = self.candidates.values().flat_map(|candidate| &candidate.copies);
        let mut copies: Vec<_> = all.map(|(copy, _)| *copy).collect();
        copies.sort_unstable();
        copies.dedup();
        copies
    }

    /// A copy with this digest reached a subscriber; whether it was waited for.
    pub(crate) fn take(&mut self, subscriber: ConnId, copy: Digest) -> bool {
        let Some(candidate) = self.candidates.get_mut(&subscriber) else { return false };
        let is_any = is_off(Rule::ByteEqualCopies);
        let expected = candidate.copies.iter_mut().find(|(known, _)| *known == copy || is_any);
        let Some((_, left)) = expected else { return false };
        self.uneven -= usize::from(*left != 0);
        *left = left.saturating_sub(1);
        self.uneven += usize::from(*left != 0);
        candidate.is_served = true;
        true
    }

    /// A subscriber may have been sent the message in another form.
    pub(crate) fn blur(&mut self, subscriber: ConnId) {
        if let Some(candidate) = self.candidates.get_mut(&subscriber) {
            candidate.is_unclear = true;
        }
    }

    /// A subscriber's socket is full.
    pub(crate) fn stall(&mut self, subscriber: ConnId) {
        if let Some(candidate) = self.candidates.get_mut(&subscriber) {
            candidate.is_stalled = true;
        }
    }

    /// What became of the message for this subscriber; `None` if it was not one when the window was opened.
    pub(crate) fn outcome(&self, (conn, number): Subscriber) -> Option<Outcome> {
        let candidate = self.candidates.get(&conn).filter(|it| it.number == number)?;
        let is_even = candidate.copies.iter().all(|&(_, left)| left == 0);
        Some(match candidate {
            Candidate { is_stalled: true, .. } => Outcome::Unclear,
            Candidate { is_served: true, .. } if is_even => Outcome::Served,
            Candidate { is_served: false, is_unclear: false, .. } => Outcome::Missed,
            _ => Outcome::Unclear,
        })
    }
}

//! What the broker was given and may still make copies of.
//!
//! ```text
//! PUBLISH, PUBREL ──note──► of its connection ──settle(answer to a later PINGREQ there)──► gone
//! CONNECT with a will ─────► of its connection, as long as that lives ─┐
//! end of a connection ─────► orphans ──settle(answer to any later PINGREQ)──► gone
//! ```
//!
//! A copy that reaches a subscriber proves something about one PUBLISH only if nothing else that says the same may be on its way.
//! What is not known, because it was not read, may say anything. Right for a broker of one thread: it has written every copy it
//! will make of what came before a PINGREQ when it answers that.
//!
//! Bounded: a connection with more than `FLIGHTS_MAX` of them has one, which may say anything; so with orphans. More delayed
//! wills than `DELAYED_MAX` and nothing is clear any more.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::ConnId;
use super::super::ping::PingSeq;
use super::digest::Digest;

/// What was given to the broker on one connection since its last answer.
pub(crate) const FLIGHTS_MAX: usize = 1_024;
/// What ended connections left.
const ORPHANS_MAX: usize = 65_536;
/// Different wills that may be sent at any time.
const DELAYED_MAX: usize = 100_000;

/// Stands for what was not read.
const ANYTHING: Digest = 0;

/// What something on its way says, as far as copies of it could be taken for another's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Says {
    /// Nothing a watched PUBLISH could say.
    Nothing,
    /// This, as a digest.
    This(Digest),
    /// Something on the topic that this stands for, which was not read.
    AnythingOn(Digest),
    /// The payload of this digest, on a topic that is not known.
    Somewhere(Digest),
    /// It was not read.
    Anything,
}

/// Something on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// The answer to a later request than this one settles it.
    after: PingSeq,
    content: Digest,
}

/// What a connection's end may make the broker send.
#[derive(Clone, Copy, Debug)]
struct Will {
    content: Digest,
    /// Not at the end, but some time later.
    is_delayed: bool,
}

/// Why a copy could be of something else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Interference {
    /// These connections have something on its way; the answer to a PINGREQ on each clears it. None: that on any connection does.
    Flying(Vec<ConnId>),
    /// It may come at any time.
    Lasting,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    by_conn: HashMap<ConnId, VecDeque<Flight>>,
    /// Whose flights have this content, once each.
    holders: HashMap<Digest, Vec<ConnId>>,
    wills: HashMap<ConnId, Will>,
    /// Contents of `wills`, and how many have them.
    will_contents: HashMap<Digest, usize>,
    delayed: HashSet<Digest>,
    is_lost: bool,
    /// With the number of requests made when they became orphans. Growing.
    orphans: VecDeque<(u64, Digest)>,
    orphan_contents: HashMap<Digest, usize>,
    /// Requests on all connections so far.
    requests: u64,
    /// The unanswered ones of each connection, with their number.
    asked: HashMap<ConnId, VecDeque<(PingSeq, u64)>>,
}

impl Flights {
    /// The broker is given something that says this behind the request `after` on its connection. True: it is time for the next
    /// request.
    pub(crate) fn note(&mut self, conn: ConnId, after: PingSeq, says: Says) -> bool {
        let content = match says {
            Says::Nothing => return false,
            Says::This(content) => content,
            Says::AnythingOn(_) | Says::Somewhere(_) | Says::Anything => ANYTHING,
        };
        let flights = self.by_conn.entry(conn).or_default();
        if flights.len() >= FLIGHTS_MAX {
            for flight in flights.drain(..) {
                drop_holder(&mut self.holders, flight.content, conn);
            }
            self.fly(conn, Flight { after, content: ANYTHING });
        } else if content != ANYTHING || flights.back().is_none_or(|it| it.content != ANYTHING) {
            self.fly(conn, Flight { after, content });
        } else if let Some(last) = flights.back_mut() {
            last.after = after;
        }
        self.by_conn.get(&conn).is_some_and(|flights| flights.len() == FLIGHTS_MAX / 2)
    }

    fn fly(&mut self, conn: ConnId, flight: Flight) {
        self.by_conn.entry(conn).or_default().push_back(flight);
        self.holders.entry(flight.content).or_default().push(conn);
    }

    /// The will of this connection's CONNECT.
    pub(crate) fn note_will(&mut self, conn: ConnId, content: Digest, is_delayed: bool) {
        self.wills.insert(conn, Will { content, is_delayed });
        *self.will_contents.entry(content).or_default() += 1;
    }

    /// A PINGREQ goes out on this connection.
    pub(crate) fn note_request(&mut self, conn: ConnId, seq: PingSeq) {
        self.requests += 1;
        self.asked.entry(conn).or_default().push_back((seq, self.requests));
    }

    /// Every request up to `seq` was answered.
    pub(crate) fn settle(&mut self, conn: ConnId, seq: PingSeq) {
        if let Some(flights) = self.by_conn.get_mut(&conn) {
            while let Some(flight) = flights.pop_front_if(|flight| flight.after < seq) {
                drop_holder(&mut self.holders, flight.content, conn);
            }
            if flights.is_empty() {
                self.by_conn.remove(&conn);
            }
        }
        let Some(asked) = self.asked.get_mut(&conn) else { return };
        let mut answered = 0;
        while let Some((_, number)) = asked.pop_front_if(|&mut (asked, _)| asked <= seq) {
            answered = number;
        }
        if asked.is_empty() {
            self.asked.remove(&conn);
        }
        while let Some((_, content)) = self.orphans.pop_front_if(|&mut (at, _)| at < answered) {
            decrease(&mut self.orphan_contents, content);
        }
    }

    /// The broker has closed this connection. What it does about that, it may be about to do.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.asked.remove(&conn);
        for flight in self.by_conn.remove(&conn).unwrap_or_default() {
            drop_holder(&mut self.holders, flight.content, conn);
            self.orphan(flight.content);
        }
        let Some(will) = self.wills.remove(&conn) else { return };
        decrease(&mut self.will_contents, will.content);
        self.orphan(will.content);
        if will.is_delayed {
            self.delayed.insert(will.content);
            self.is_lost |= self.delayed.len() > DELAYED_MAX;
        }
    }

    /// Something happened after which the broker may send anything, once.
    pub(crate) fn disturb(&mut self) {
        self.orphan(ANYTHING);
    }

    fn orphan(&mut self, content: Digest) {
        if self.orphans.len() >= ORPHANS_MAX {
            self.orphans.clear();
            self.orphan_contents.clear();
            self.orphans.push_back((self.requests, ANYTHING));
            self.orphan_contents.insert(ANYTHING, 1);
        }
        self.orphans.push_back((self.requests, content));
        *self.orphan_contents.entry(content).or_default() += 1;
    }

    /// Whether copies of something that says this could be of something else.
    pub(crate) fn interference(&self, content: Digest) -> Option<Interference> {
        if self.is_lost
            || self.delayed.contains(&content)
            || self.will_contents.contains_key(&content)
        {
            return Some(Interference::Lasting);
        }
        let among = [content, ANYTHING];
        let mut holders: Vec<ConnId> =
            among.iter().filter_map(|it| self.holders.get(it)).flatten().copied().collect();
        holders.sort_unstable();
        holders.dedup();
        let is_orphaned = among.iter().any(|it| self.orphan_contents.contains_key(it));
        (is_orphaned || !holders.is_empty()).then_some(Interference::Flying(holders))
    }

    /// Whether a request made after the last thing on its way of this connection is out.
    pub(crate) fn is_asked(&self, conn: ConnId) -> bool {
        let last = self.by_conn.get(&conn).and_then(VecDeque::back);
        let asked = self.asked.get(&conn).and_then(VecDeque::back);
        asked.is_some_and(|(seq, _)| last.is_none_or(|last| last.after < *seq))
    }
}

fn drop_holder(holders: &mut HashMap<Digest, Vec<ConnId>>, content: Digest, conn: ConnId) {
    let Some(of_content) = holders.get_mut(&content) else { return };
    if let Some(at) = of_content.iter().position(|&holder| holder == conn) {
        of_content.swap_remove(at);
    }
    if of_content.is_empty() {
        holders.remove(&content);
    }
}

fn decrease(counts: &mut HashMap<Digest, usize>, content: Digest) {
    if let Some(count) = counts.get_mut(&content) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnId = ConnId(1);
    const B: ConnId = ConnId(2);

    fn flying(conns: &[ConnId]) -> Option<Interference> {
        Some(Interference::Flying(conns.to_vec()))
    }

    #[test]
    fn what_is_on_its_way_interferes_with_its_like_until_a_later_request_is_answered() {
        let mut flights = Flights::default();
        flights.note(A, 3, Says::This(7));
        flights.note(B, 0, Says::This(8));
        assert_eq!(flights.interference(7), flying(&[A]));
        assert_eq!(flights.interference(9), None);
        flights.settle(A, 3);
        assert_eq!(flights.interference(7), flying(&[A]));
        flights.settle(A, 4);
        assert_eq!(flights.interference(7), None);
        assert_eq!(flights.interference(8), flying(&[B]));
    }

    #[test]
    fn what_was_not_read_interferes_with_everything() {
        let mut flights = Flights::default();
        flights.note(A, 0, Says::Anything);
        flights.note(A, 2, Says::Anything);
        assert_eq!(flights.interference(1), flying(&[A]));
        flights.settle(A, 2);
        assert_eq!(flights.interference(1), flying(&[A]));
        flights.settle(A, 3);
        assert_eq!(flights.interference(1), None);
    }

    #[test]
    fn too_many_of_one_connection_may_say_anything() {
        let mut flights = Flights::default();
        let mut asked_for = Vec::new();
        for content in 1..=FLIGHTS_MAX + 1 {
            if flights.note(A, 0, Says::This(content as Digest)) {
                asked_for.push(content);
            }
        }
        assert_eq!(asked_for, [FLIGHTS_MAX / 2]);
        assert_eq!(flights.interference(Digest::MAX), flying(&[A]));
        flights.settle(A, 1);
        assert!(flights.by_conn.is_empty() && flights.holders.is_empty());
    }

    #[test]
    fn what_an_ended_connection_left_is_settled_by_any_later_request() {
        let mut flights = Flights::default();
        flights.note(A, 0, Says::This(7));
        flights.note_request(B, 1);
        flights.close(A);
        assert_eq!(flights.interference(7), flying(&[]));
        flights.settle(B, 1);
        assert_eq!(flights.interference(7), flying(&[]), "asked before the end");
        flights.note_request(B, 2);
        flights.settle(B, 2);
        assert_eq!(flights.interference(7), None);
        assert!(flights.orphans.is_empty() && flights.asked.is_empty());
    }

    #[test]
    fn a_will_interferes_as_long_as_its_connection_lives_and_a_delayed_one_for_ever() {
        let mut flights = Flights::default();
        flights.note_will(A, 7, false);
        flights.note_will(B, 8, true);
        assert_eq!(flights.interference(7), Some(Interference::Lasting));
        flights.close(A);
        flights.close(B);
        assert_eq!(flights.interference(7), flying(&[]));
        flights.note_request(A, 1);
        flights.settle(A, 1);
        assert_eq!(flights.interference(7), None);
        assert_eq!(flights.interference(8), Some(Interference::Lasting));
    }
}

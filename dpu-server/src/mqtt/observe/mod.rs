//! Permission by observation: who may receive a publisher's messages is learned from what the broker itself delivers.
//!
//! ```text
//! PUBLISH that would be the card's ──► known who gets it? ──► Card
//!            └─ no ─► a window: PUBLISH and PINGREQ to the broker, its copies are watched, the answer closes it
//!                              └─ every subscriber served, or missed again and again ──► known from here on
//! ```
//!
//! An access list is nowhere to be seen: mosquitto grants every SUBSCRIBE, acknowledges a PUBLISH it denies, and filters at
//! delivery. So nothing is assumed, and what was seen must prove it:
//! - (a) Only a copy counts that is, byte for byte, what the card would have sent that subscriber (`window`).
//! - (b) A window is void where anything else could have made the copies (`flights`).
//! - (c) A subscriber is left out only where the answer to a PINGREQ proves that nothing came, and only after several windows
//!   (`knowledge`). Of a broker whose answers prove nothing it is learned only that everybody is served (`late`).
//! - (d) What is known is of one connection, topic, QoS and version, of subscriptions as they are, and of messages no larger than one
//!   that was delivered (`knowledge`).
//! - (e) It ends with every event that may change who may do what: [`Observer::forget_everything`], and while one is under way nothing
//!   is decided; where such events can go unseen, it ends after a time.
//! - (f) A plugin nobody trusts is a blind spot (`core::policy`).
//! - (g) Looked at is a topic from its second PUBLISH on (`acquaintances`); everything is bounded; a PUBLISH that waits for a window to
//!   close waits at most `core::holding`'s time.
//!
//! No I/O and no clock. A known PUBLISH costs one lookup more than without.

mod acquaintances;
mod content;
mod digest;
mod flights;
mod knowledge;
mod late;
mod said;
mod window;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use slab::Slab;

use super::ConnId;
use super::decision::Reason;
use super::mutation::{Rule, is_off};
use super::ping::PingSeq;
use super::routes::Route;
use acquaintances::Acquaintances;
pub(crate) use content::Content;
use digest::Digest;
use digest::Keys;
pub(crate) use flights::{Flights, Interference, Says};
use knowledge::{Audience, Knowledge};
use late::Late;
pub(crate) use window::{Expected, Message, Outcome, Purpose, Size, Window};

/// Windows open at one time. A copy that none of them expects costs a look at each.
const WINDOWS_MAX: usize = 256;
/// Subscribers in all open windows.
const CANDIDATES_MAX: usize = 1_000_000;
/// Publishers' topics of which something is known. With one more all is forgotten, and learned anew.
const KNOWN_MAX: usize = 65_536;
/// Subscribers in all that is known.
const VERDICTS_MAX: usize = 4_000_000;

/// Bytes of a large payload's head, and of its tail, that stand for all of it where messages are only to be kept apart: two that
/// are taken for one cost a window, never a proof, and every PUBLISH that goes to the broker is looked at.
const END_BYTES: usize = 256;

/// How long a payload is, its head and its tail: equal for equal payloads.
fn ends(payload: &[u8]) -> ([u8; 8], &[u8], &[u8]) {
    let head = payload.len().min(END_BYTES);
    let tail = payload.len().saturating_sub(END_BYTES).max(head);
    (payload.len().to_ne_bytes(), &payload[..head], &payload[tail..])
}

/// An open window, and when it was opened.
#[derive(Debug)]
struct Open {
    window: Window,
    at: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    keys: Keys,
    pub(crate) flights: Flights,
    acquaintances: Acquaintances,
    known: HashMap<ConnId, HashMap<Box<str>, Knowledge>>,
    /// Topics in `known`.
    topics: usize,
    /// Subscribers in `known`.
    verdicts: usize,
    windows: Slab<Open>,
    /// Which window waits for a copy with this digest. No two of them do: they would be of equal messages.
    by_copy: HashMap<Digest, usize>,
    by_publisher: HashMap<ConnId, Vec<usize>>,
    /// Subscribers in `windows`.
    candidates: usize,
    /// Changes of who may do what that are under way.
    doubts: usize,
    /// How long something is known where changes may go unseen; `None` where none does.
    ttl: Option<Duration>,
    /// Where the broker's answers prove nothing. Then `flights` are of no use.
    late: Option<Late>,
}

impl Observer {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..Self::default() }
    }

    /// What is known holds until an event from here on, unless the broker is one of which nobody knows what it decides by.
    pub(crate) fn trust_events(&mut self) {
        if !self.is_late() {
            self.ttl = None;
        }
    }

    /// Who may do what may be changing: nothing observed before counts.
    pub(crate) fn forget_everything(&mut self) {
        self.known.clear();
        (self.topics, self.verdicts) = (0, 0);
        self.void_all();
    }

    /// A change is under way, or is over. While one is, nothing is known.
    pub(crate) fn doubt(&mut self, is_under_way: bool) {
        self.doubts = if is_under_way { self.doubts + 1 } else { self.doubts - 1 };
        self.forget_everything();
    }

    /// Whether it is known who gets a message; the targets that do not, sorted.
    pub(crate) fn check(
        &mut self,
        publisher: ConnId,
        topic: &str,
        route: &Route,
        size: Size,
        now: Instant,
    ) -> Result<&[ConnId], Reason> {
        if self.doubts > 0 {
            return Err(Reason::PolicyUnsettled);
        }
        self.give_up_old(now);
        let is_watched = self.by_publisher.get(&publisher).is_some_and(|windows| {
            windows.iter().any(|&at| *self.windows[at].window.topic == *topic)
        });
        let known = self.known.get_mut(&publisher).and_then(|topics| topics.get_mut(topic));
        let Some(known) = known else {
            let digest = self.keys.digest(&[topic.as_bytes()]);
            return Err(match self.acquaintances.meet(publisher, digest) {
                _ if is_watched => Reason::BarrierOut,
                true => Reason::Probe,
                false => Reason::Unobserved,
            });
        };
        let before = known.len();
        let audience = known.audience(publisher, route, size, now, self.ttl);
        self.verdicts = self.verdicts + known.len() - before;
        match known.may_try(now) {
            _ if audience == Audience::Known => Ok(known.left_out()),
            _ if is_watched => Err(Reason::BarrierOut),
            true => Err(Reason::Probe),
            false if audience == Audience::Nobody => Err(Reason::NobodyServed),
            false => Err(Reason::Unproven),
        }
    }

    /// What a message says.
    pub(crate) fn message(&self, topic: &[u8], payload: &[u8]) -> Message {
        Message {
            content: self.content(topic, payload),
            topic: self.keys.digest(&[topic]),
            payload: self.payload(payload),
        }
    }

    /// A payload, whatever its topic.
    pub(crate) fn payload(&self, payload: &[u8]) -> Digest {
        let (bytes, head, tail) = ends(payload);
        self.keys.digest(&[&bytes, head, tail])
    }

    /// Topic and payload. The upper half is the topic's, so that each half may be that of another one: two contents that are taken for
    /// one cost a window.
    pub(crate) fn content(&self, topic: &[u8], payload: &[u8]) -> Digest {
        let (bytes, head, tail) = ends(payload);
        self.keys.digest_below(&[topic], &[topic, &bytes, head, tail])
    }

    /// Something on this topic.
    pub(crate) fn anything_on(&self, topic: &[u8]) -> Says {
        Says::AnythingOn(late::anything_on(self.keys.digest_below(&[topic], &[])))
    }

    pub(crate) fn copy(&self, packet: &[u8]) -> Digest {
        self.keys.digest(&[packet])
    }

    /// Why a window cannot be opened, if so.
    pub(crate) fn obstacle(
        &self,
        message: &Message,
        size: Size,
        targets: usize,
    ) -> Option<Interference> {
        if self.is_late() {
            return self.late_obstacle(message, size);
        }
        let is_full =
            self.windows.len() >= WINDOWS_MAX || self.candidates + targets > CANDIDATES_MAX;
        let interference = self.flights.interference(message.content);
        let interference = interference.filter(|_| !is_off(Rule::VoidWindows));
        interference.or_else(|| is_full.then_some(Interference::Lasting))
    }

    /// A window was given up.
    fn note_failure(&mut self, publisher: ConnId, topic: &str, now: Instant) {
        self.known_mut(publisher, topic).note_failure(now);
    }

    /// A window could not be opened.
    pub(crate) fn note_disturbance(&mut self, publisher: ConnId, topic: &str, now: Instant) {
        self.known_mut(publisher, topic).note_disturbance(now);
    }

    /// Opens a window. The answer to `seq` closes it, or the last of its copies. Its place.
    pub(crate) fn open(&mut self, mut window: Window, seq: PingSeq, now: Instant) -> usize {
        window.seq = seq;
        window.is_void |= self.doubts > 0;
        let (publisher, copies) = (window.publisher, window.copies());
        let is_account = window.purpose == Purpose::Account;
        self.candidates += window.len();
        let at = self.windows.insert(Open { window, at: now });
        if !is_account {
            self.by_publisher.entry(publisher).or_default().push(at);
        }
        self.by_copy.extend(copies.into_iter().map(|copy| (copy, at)));
        at
    }

    /// Whether copies have to be shown.
    pub(crate) fn is_watching(&self) -> bool {
        !self.windows.is_empty()
    }

    /// The last window of this publisher that is open.
    pub(crate) fn last_window(&self, publisher: ConnId) -> Option<PingSeq> {
        let windows = self.by_publisher.get(&publisher)?;
        windows.iter().map(|&at| self.windows[at].window.seq).max()
    }

    /// The broker sent a subscriber a PUBLISH; `None`: it cannot be read.
    pub(crate) fn see(&mut self, subscriber: ConnId, packet: &[u8], content: Option<Content<'_>>) {
        let copy = self.copy(packet);
        if let Some(&at) = self.by_copy.get(&copy)
            && self.windows[at].window.take(subscriber, copy)
        {
            return;
        }
        let Some(content) = content.filter(|content| !content.topic.is_empty()) else {
            self.blur(subscriber);
            return;
        };
        let message = self.message(content.topic, content.payload);
        for (_, Open { window, .. }) in &mut self.windows {
            let is_like = window.message.payload == message.payload;
            if is_like && is_off(Rule::ByteEqualCopies) {
                window.take(subscriber, copy);
            } else if is_like || window.message.topic == message.topic {
                window.blur(subscriber);
            }
        }
    }

    /// A subscriber was sent something that was not read.
    pub(crate) fn blur(&mut self, subscriber: ConnId) {
        for (_, open) in &mut self.windows {
            open.window.blur(subscriber);
        }
    }

    /// A subscriber's socket is full.
    pub(crate) fn stall(&mut self, subscriber: ConnId) {
        for (_, open) in &mut self.windows {
            open.window.stall(subscriber);
        }
    }

    /// Something that says this goes to the broker behind the request `after`. True: it is time for the next request.
    pub(crate) fn note(&mut self, conn: ConnId, after: PingSeq, says: Says) -> bool {
        if self.is_late() {
            self.say(says);
            return false;
        }
        for (_, Open { window, .. }) in &mut self.windows {
            window.is_void |= match says {
                Says::Nothing => false,
                Says::This(content) => content == window.message.content,
                Says::AnythingOn(_) | Says::Somewhere(_) | Says::Anything => true,
            };
        }
        self.flights.note(conn, after, says)
    }

    /// Anything may have made the copies that are seen now.
    pub(crate) fn void_all(&mut self) {
        for (_, open) in &mut self.windows {
            open.window.is_void = true;
        }
    }

    /// The will of this connection's CONNECT.
    pub(crate) fn note_will(&mut self, conn: ConnId, content: Digest, is_delayed: bool) {
        match self.is_late() {
            true => self.say(Says::This(content)),
            false => self.flights.note_will(conn, content, is_delayed),
        }
    }

    /// Something is not read from here on, or no longer: the broker may send anything.
    pub(crate) fn disturb(&mut self) {
        self.void_all();
        self.give_up_all();
        self.flights.disturb();
    }

    /// Requests up to `seq` were answered: takes out a window that this closes, with the time it was opened.
    pub(crate) fn poll_closed(
        &mut self,
        publisher: ConnId,
        seq: PingSeq,
    ) -> Option<(Window, Instant)> {
        let windows = self.by_publisher.get(&publisher)?;
        let at = windows.iter().copied().find(|&at| self.windows[at].window.seq <= seq)?;
        Some(self.remove(at))
    }

    fn remove(&mut self, at: usize) -> (Window, Instant) {
        let Open { window, at: opened } = self.windows.remove(at);
        self.candidates -= window.len();
        self.close_account(window.message.content, at);
        for copy in window.copies() {
            if self.by_copy.get(&copy) == Some(&at) {
                self.by_copy.remove(&copy);
            }
        }
        if let Some(windows) = self.by_publisher.get_mut(&window.publisher) {
            windows.retain(|&other| other != at);
            if windows.is_empty() {
                self.by_publisher.remove(&window.publisher);
            }
        }
        (window, opened)
    }

    /// Learns from a closed window; whether it taught who gets the messages.
    pub(crate) fn learn(
        &mut self,
        window: &Window,
        route: &Route,
        opened: Instant,
        now: Instant,
    ) -> bool {
        let known = self.known_mut(window.publisher, &window.topic);
        let before = known.len();
        let is_whole = known.learn(window, route, opened, now);
        let after = known.len();
        self.verdicts = self.verdicts + after - before;
        is_whole
    }

    fn known_mut(&mut self, publisher: ConnId, topic: &str) -> &mut Knowledge {
        let is_full = self.topics >= KNOWN_MAX || self.verdicts > VERDICTS_MAX;
        let is_known = self.known.get(&publisher).is_some_and(|it| it.contains_key(topic));
        if is_full && !is_known {
            self.known.clear();
            (self.topics, self.verdicts) = (0, 0);
        }
        self.topics += usize::from(!is_known);
        self.known.entry(publisher).or_default().entry(topic.into()).or_default()
    }

    /// Topics of which something is known.
    pub(crate) fn known_count(&self) -> usize {
        self.topics
    }

    /// What is known of this publisher counts no more.
    pub(crate) fn forget(&mut self, publisher: ConnId) {
        for knowledge in self.known.remove(&publisher).unwrap_or_default().into_values() {
            self.topics -= 1;
            self.verdicts -= knowledge.len();
        }
        if self.is_late() {
            self.orphan(publisher);
        }
        for at in self.by_publisher.get(&publisher).cloned().unwrap_or_default() {
            self.remove(at);
        }
    }
}

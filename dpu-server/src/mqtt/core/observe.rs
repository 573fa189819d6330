//! Learning from the broker who may receive what: what goes to it is noted, what comes of it is watched.
//!
//! ```text
//! client ──note_publish──► flights ─┐
//!        ──probe─────────► window ──┴─► broker ──see──► window ──conclude──► known
//! ```
//!
//! The rules, (a) to (g), are in `mqtt::observe`; here they meet the streams. All of it does nothing where the core does not
//! observe: trust is by SUBACK. A broker whose answers prove nothing is `late`'s.

use std::collections::HashMap;
use std::time::Instant;

use super::super::ConnId;
use super::super::config::PUBLISH_HEADER_BYTES_MAX;
use super::super::connection::{Connection, Peek, Phase};
use super::super::framer::Handling;
use super::super::observe::{
    Content, Expected, Interference, Observer, Outcome, Purpose, Says, Size, Window,
};
use super::super::packet::{FixedHeader, Publish, Reader, Variant, Version, Will};
use super::super::ping::PingSeq;
use super::super::routes::{Route, Target};
use super::Core;

/// Topics by which clients tell the broker who may do what.
const CONTROL: &[u8] = b"$CONTROL/";

impl Core {
    /// How a PUBLISH that is the broker's anyway is handled: read, if it can be, to know what it says.
    pub(super) fn handling_of_slow(&self, header: &FixedHeader) -> Handling {
        let held_bytes_max = self.config.limits.inspect_bytes_max + PUBLISH_HEADER_BYTES_MAX;
        match self.observer.is_some() && header.packet_bytes() <= held_bytes_max {
            true => Handling::Whole,
            false => Handling::Stream,
        }
    }

    /// A PUBLISH goes to the broker. A Topic Alias that is known has been resolved.
    pub(super) fn note_publish(&mut self, conn: ConnId, publish: &Publish<'_>, qos: u8) {
        let Some(observer) = &self.observer else { return };
        let Some(connection) = self.connections.get(conn) else { return };
        let topic = publish.topic.as_bytes();
        let (says, may_control) = match topic {
            [] => {
                let payload = observer.payload(publish.payload);
                (Says::Somewhere(payload), connection.has_control_topic)
            }
            _ => {
                let content = observer.content(topic, publish.payload);
                (Says::This(content), topic.starts_with(CONTROL))
            }
        };
        self.note(conn, publish.packet_id.filter(|_| qos == 2), says, may_control);
    }

    /// A PUBLISH that is not held goes to the broker: it is looked at as far as its topic and packet identifier.
    pub(super) fn peek(&mut self, conn: ConnId, header: &FixedHeader) {
        let is_observing = self.observer.is_some();
        if let Some(connection) = self.connections.get_mut(conn).filter(|_| is_observing) {
            connection.peeked = Some(Peek { header: *header, bytes: Vec::new() });
        }
    }

    /// More bytes of a packet that is not held.
    pub(super) fn peek_on(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(peek) = &mut connection.peeked else { return };
        if peek.take(bytes) {
            let Some(Peek { header, bytes }) = connection.peeked.take() else { return };
            self.note_unread(conn, &header, &bytes);
        }
    }

    /// A PUBLISH goes to the broker of which these bytes are the first. It is longer than them.
    fn note_unread(&mut self, conn: ConnId, header: &FixedHeader, bytes: &[u8]) {
        let Some(connection) = self.connections.get(conn) else { return };
        let mut reader = Reader::new(&bytes[header.header_bytes..]);
        let topic_bytes = reader.u16().unwrap_or(0);
        let may_control = match topic_bytes {
            0 => connection.has_control_topic,
            _ => reader.starts_with(CONTROL),
        };
        let topic = reader.take(topic_bytes.into()).ok().filter(|topic| !topic.is_empty());
        let packet_id = (header.qos() > 0).then(|| reader.packet_id().ok()).flatten();
        let properties = reader.variable_byte_integer().unwrap_or(u32::MAX);
        let before_payload = bytes.len() - reader.len() + properties as usize;
        let payload_bytes = header.packet_bytes().saturating_sub(before_payload);
        let says = match (connection.version, topic, &self.observer) {
            // In version 3 nothing of this length says what a watched PUBLISH could say, which is shorter.
            (Version::V31 | Version::V311, ..) => Says::Nothing,
            _ if payload_bytes > self.config.limits.inspect_bytes_max => Says::Nothing,
            (_, Some(topic), Some(observer)) => observer.anything_on(topic),
            _ => Says::Anything,
        };
        self.note(conn, packet_id.filter(|_| header.qos() == 2), says, may_control);
    }

    /// Something goes to the broker that says this. `qos2`: it may be delivered only when this packet identifier is released.
    fn note(&mut self, conn: ConnId, qos2: Option<u16>, says: Says, may_control: bool) {
        let Some(observer) = &mut self.observer else { return };
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.has_control_topic |= may_control;
        connection.wants_answer |= observer.note(conn, connection.pings.last_request(), says);
        if let Some(id) = qos2 {
            connection.unreleased.insert(id, says, may_control);
        }
        if may_control {
            self.raise_policy(conn);
        }
    }

    /// A PUBREL goes to the broker: it may deliver the QoS 2 message only now.
    pub(super) fn note_release(&mut self, conn: ConnId, packet_id: Option<u16>) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let known = packet_id.and_then(|id| connection.unreleased.remove(id));
        let (says, may_control) = known.unwrap_or_else(|| (self.says_unknown_release(conn), true));
        self.note(conn, None, says, may_control);
    }

    /// Behind what was noted: asks for an answer where one is due. Nobody waits for one where nothing is learned any more.
    pub(super) fn ask_for_answers(&mut self, conn: ConnId) {
        if self.observer.as_ref().is_none_or(Observer::is_lost) {
            return;
        }
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if std::mem::take(&mut connection.wants_answer) {
            self.inject_ping(conn);
        }
        self.ask_about(conn, |connection| &mut connection.policy);
    }

    /// A CONNECT goes to the broker.
    pub(super) fn note_will(&mut self, conn: ConnId, will: Option<Will<'_>>) {
        let Some(will) = will else { return };
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.note_apart(will.topic, will.payload);
        }
        let Some(observer) = &mut self.observer else { return };
        let content = observer.content(will.topic.as_bytes(), will.payload);
        observer.note_will(conn, content, will.delay_s > 0);
    }

    /// A window on a PUBLISH that is about to go to the broker; `None`: copies of it could not be told from something else that is on
    /// its way, or too much is watched.
    pub(super) fn watch(
        &mut self,
        conn: ConnId,
        publish: &Publish<'_>,
        purpose: Purpose,
        now: Instant,
    ) -> Option<Window> {
        let route = self.routes.find(publish.topic, &mut self.sessions);
        let observer = self.observer.as_mut()?;
        let message = observer.message(publish.topic.as_bytes(), publish.payload);
        let (size, targets) = (Size::of(publish), route.targets().len());
        let Some(interference) = observer.obstacle(&message, size, targets) else {
            return self.window(conn, publish, purpose);
        };
        if purpose == Purpose::Probe {
            observer.note_disturbance(conn, publish.topic, now);
        }
        if let Interference::Flying(holders) = interference {
            let is_own = holders.is_empty() || holders.contains(&conn);
            if let Some(publisher) = self.connections.get_mut(conn).filter(|_| is_own) {
                publisher.wants_answer = true;
            }
            holders.into_iter().filter(|&it| it != conn).for_each(|it| self.ask_what_flies(it));
        }
        None
    }

    /// A window on a PUBLISH that is about to go to the broker.
    pub(super) fn window(
        &mut self,
        conn: ConnId,
        publish: &Publish<'_>,
        purpose: Purpose,
    ) -> Option<Window> {
        let route = self.routes.find(publish.topic, &mut self.sessions);
        let observer = self.observer.as_ref()?;
        let message = observer.message(publish.topic.as_bytes(), publish.payload);
        let expected = expected(observer, conn, publish, route);
        Some(Window::new(conn, publish.topic, message, Size::of(publish), purpose, expected))
    }

    fn ask_what_flies(&mut self, conn: ConnId) {
        if self.observer.as_ref().is_some_and(|observer| !observer.flights.is_asked(conn)) {
            self.inject_ping(conn);
        }
    }

    /// The window's PUBLISH is on its way: puts the PINGREQ behind it whose answer closes the window.
    pub(super) fn open_window(&mut self, conn: ConnId, window: Window, now: Instant) {
        if let Some(observer) = self.observer.as_mut().filter(|it| it.is_late()) {
            observer.enter(window, now);
            self.counters.shadow_unproven += observer.take_unproven();
            return;
        }
        let Some(seq) = self.inject_ping(conn) else { return };
        if let Some(publisher) = self.connections.get_mut(conn) {
            publisher.slow.note_ping(seq);
        }
        if let Some(observer) = &mut self.observer {
            observer.open(window, seq, now);
        }
    }

    /// Whether a PUBLISH of the broker's has to be shown to [`Self::see`].
    pub(super) fn is_observing(&self) -> bool {
        self.observer.as_ref().is_some_and(Observer::is_watching)
    }

    /// The broker sent a client this PUBLISH. If that was the last of a window's copies: the window.
    pub(super) fn see(
        &mut self,
        conn: ConnId,
        header: &FixedHeader,
        bytes: &[u8],
    ) -> Option<(Window, Instant)> {
        let observer = self.observer.as_mut().filter(|it| it.is_watching())?;
        let connection = self.connections.get(conn)?;
        if observer.is_late() {
            return observer.see_arrive(conn, bytes);
        }
        let body = &bytes[header.header_bytes..];
        observer.see(conn, bytes, Content::read(connection.version, header.qos(), body));
        None
    }

    /// The broker sends a client a PUBLISH that is not read.
    pub(super) fn see_unread(&mut self, conn: ConnId) {
        if let Some(observer) = &mut self.observer {
            observer.blur(conn);
        }
    }

    /// The broker answered on this connection, every request up to `seq`.
    pub(super) fn conclude(&mut self, conn: ConnId, seq: PingSeq, now: Instant) {
        let Some(observer) = &mut self.observer else { return };
        observer.flights.settle(conn, seq);
        while let Some(observer) = self.observer.as_mut().filter(|it| !it.is_late())
            && let Some((window, opened)) = observer.poll_closed(conn, seq)
        {
            self.learn(&window, opened, now);
        }
        let connections = &mut self.connections;
        if connections.get_mut(conn).is_some_and(|connection| connection.policy.settle(seq)) {
            self.doubt(false);
        }
        self.ask_about(conn, |connection| &mut connection.policy);
        self.release_if_concluded(conn, now);
    }

    /// A window is closed.
    pub(super) fn learn(&mut self, window: &Window, opened: Instant, now: Instant) {
        let Self { observer, routes, sessions, counters, .. } = self;
        let Some(observer) = observer else { return };
        let route = routes.find(&window.topic, sessions);
        match &window.purpose {
            Purpose::Probe => match observer.learn(window, route, opened, now) {
                true => counters.windows_whole += 1,
                false => counters.windows_failed += 1,
            },
            Purpose::Shadow(left_out) => match compare(window, left_out, route) {
                Some(true) => counters.shadow_same += 1,
                Some(false) => counters.shadow_different += 1,
                None => counters.shadow_unproven += 1,
            },
            Purpose::Account => {}
        }
    }

    /// A client tells the broker who may do what, or may.
    fn raise_policy(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let was_raised = connection.policy.is_raised();
        connection.policy.raise();
        if !was_raised {
            self.doubt(true);
        }
    }

    /// A change of who may do what is under way, or is over.
    pub(super) fn doubt(&mut self, is_under_way: bool) {
        self.counters.policy_changes += u64::from(is_under_way);
        if let Some(observer) = &mut self.observer {
            observer.doubt(is_under_way);
        }
    }

    /// The client proves its identity anew, or has.
    pub(super) fn set_reauthenticating(&mut self, conn: ConnId, is_so: bool) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if std::mem::replace(&mut connection.is_reauthenticating, is_so) != is_so {
            self.doubt(is_so);
        }
    }

    /// The broker is done with a connection.
    pub(super) fn stop_observing(&mut self, conn: ConnId) {
        self.set_reauthenticating(conn, false);
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if std::mem::take(&mut connection.policy).is_raised() {
            self.doubt(false);
        }
        if let Some(observer) = &mut self.observer {
            observer.forget(conn);
            observer.flights.close(conn);
        }
    }

    /// Copies may come of something that is not read.
    pub(super) fn disturb_observing(&mut self) {
        if let Some(observer) = &mut self.observer {
            observer.disturb();
        }
    }

    /// Whether a CONNECT under way may change who this publisher is.
    pub(super) fn is_identity_unsettled(&self, publisher: &Connection) -> bool {
        let is_claimed = |session| self.sessions.get(session).is_claimed();
        publisher.phase == Phase::Connected && publisher.session.is_some_and(is_claimed)
    }
}

/// The copy that each target is to get. One that is too large for its subscriber neither card nor broker sends: that it does not come
/// proves nothing.
fn expected(
    observer: &Observer,
    publisher: ConnId,
    publish: &Publish<'_>,
    route: &Route,
) -> Vec<Expected> {
    let encode = |&variant: &Variant| {
        let packet = publish.encode(variant, 0).packet;
        (observer.copy(&packet), packet.len())
    };
    let copies: Vec<_> = route.variants().iter().map(encode).collect();
    let of_conn: HashMap<_, _> = route.subscribers(publisher).into_iter().collect();
    let of_target = |target: &Target| {
        let (copy, bytes) = copies[usize::from(target.variant)];
        let subscriber = (target.conn, of_conn[&target.conn]);
        (bytes <= target.packet_bytes_max as usize).then_some(Expected { subscriber, copy })
    };
    route.targets_for(publisher).filter_map(of_target).collect()
}

/// Whether the broker did what the card would have done; `None` if that cannot be told.
fn compare(window: &Window, left_out: &[ConnId], route: &Route) -> Option<bool> {
    if window.is_void() || route.obstacle().is_some() {
        return None;
    }
    let mut is_same = true;
    for subscriber in route.subscribers(window.publisher) {
        let Some(outcome) = window.outcome(subscriber) else { continue };
        let by_card = match left_out.binary_search(&subscriber.0) {
            Ok(_) => Outcome::Missed,
            Err(_) => Outcome::Served,
        };
        if outcome == Outcome::Unclear {
            return None;
        }
        if outcome != by_card {
            is_same = false;
            tracing::warn!(
                topic = window.topic,
                publisher = window.publisher.0,
                subscriber = subscriber.0.0,
                payload_bytes = window.size.payload,
                card = ?by_card,
                broker = ?outcome,
                "shadow: the card would have done something else"
            );
        }
    }
    Some(is_same)
}

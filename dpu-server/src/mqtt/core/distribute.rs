//! One PUBLISH on its way: decided, then queued for every subscriber or passed to the broker.
//!
//! ```text
//! Decision::Card(route) ─► encode once a variant ─┬► list of deliveries, for whoever has nothing waiting (`direct`)
//!                                                └► outbox of each other target (a reference each)
//! Decision::Broker(why) ─► the packet as it came ─► perhaps a PINGREQ that will clear the way for later ones
//!                      └─► or it waits, if that has been done and the answer is near (`holding`)
//! ```
//!
//! The driver takes the dirty connections ([`Core::poll_dirty`]) and sends their outboxes, all in one batch. A PUBLISH that
//! its fixed header rules out never comes here: it streams to the broker from `client`.
//!
//! Cost of a card delivery: an entry in a list; or else a reference count, a queue entry, a place on the list of dirty connections.
//! Allocations: two a variant and PUBLISH, none a subscriber once the queues have their size.

use std::collections::VecDeque;
use std::time::Instant;

use super::super::ConnId;
use super::super::config::{Limits, Mode, Trust};
use super::super::connection::{Connection, Connections};
use super::super::counters::{Counters, DropReason};
use super::super::decision::{Decision, Facts, Reason, decide};
use super::super::direct::Direct;
use super::super::mutation::{Rule, is_off};
use super::super::observe::Purpose;
use super::super::packet::{FixedHeader, Malformed, Publish, puback};
use super::super::ping::Barrier;
use super::super::routes::{Route, Target};
use super::super::session::Sessions;
use super::super::topic;
use super::client::Flow;
use super::{Core, list};

impl Core {
    /// Distributes a PUBLISH, passes it to the broker, or has it wait. On error nothing was done.
    pub(super) fn publish(
        &mut self,
        conn: ConnId,
        header: &FixedHeader,
        bytes: &[u8],
        now: Instant,
    ) -> Result<Flow, Malformed> {
        let Some(publisher) = self.connections.get(conn) else { return Ok(Flow::On) };
        let body = &bytes[header.header_bytes..];
        let mut publish = Publish::parse(publisher.version, header.qos(), body)?;
        let known = publish.topic_alias().and_then(|alias| publisher.aliases.topic(alias)).cloned();
        if let (true, Some(topic)) = (publish.topic.is_empty(), &known) {
            publish.topic = topic;
        }
        let is_alias_news = publish.topic_alias().is_some()
            && known.as_deref() != Some(publish.topic)
            && !is_off(Rule::Alias);
        let is_held_up =
            self.config.mode == Mode::Live && publisher.slow.holds_up(publish.topic, header.qos());
        let facts = Facts { is_alias_news, is_held_up, ..self.facts(publisher) };
        let Self { config, sessions, routes, connections, dirty, counters, direct, .. } = self;
        let arrivals = self.arrivals.as_ref();
        let limits = &config.limits;
        let observer = self.observer.as_mut().filter(|_| config.trust == Trust::Observed);
        let observer = observer.map(|observer| (observer, now));
        let mut purpose = None;
        let facts = &facts;
        let decision = decide(
            facts,
            conn,
            header,
            &publish,
            limits,
            connections,
            sessions,
            routes,
            observer,
            arrivals,
        );
        let is_direct = self.is_direct;
        let mut out =
            FanOut { connections, sessions, dirty, counters, direct, is_direct, limits, now };
        let reason = match decision {
            Decision::Broker(reason) => Some(reason),
            Decision::Card(_, left_out) if config.mode == Mode::Shadow => {
                purpose = Some(Purpose::Shadow(left_out.into()));
                Some(Reason::Shadow)
            }
            Decision::Card(route, left_out) => {
                out.send(route, left_out, conn, &publish);
                None
            }
        };
        match reason {
            None => self.note_taken(conn, &publish, now),
            Some(Reason::BarrierOut) if self.may_hold(conn) => return Ok(Flow::Held),
            Some(Reason::Probe) => {
                self.pass_watched(conn, &publish, bytes, Reason::Probe, Purpose::Probe, now);
            }
            Some(reason) => match purpose {
                Some(purpose) => self.pass_watched(conn, &publish, bytes, reason, purpose, now),
                None => self.pass(conn, &publish, bytes, reason, now),
            },
        }
        self.ask_for_answers(conn);
        Ok(Flow::On)
    }

    /// The card has distributed a PUBLISH: its publisher is told, if it is to be, now that every outbox has it.
    fn note_taken(&mut self, conn: ConnId, publish: &Publish<'_>, now: Instant) {
        if let Some(id) = publish.packet_id
            && let Some(publisher) = self.connections.get_mut(conn)
        {
            publisher.outbox.push_ack(&puback(id));
            list(publisher, conn, &mut self.dirty);
        }
        self.note_eaten(conn, now);
    }

    /// Passes a PUBLISH to the broker and watches what it makes of it, if that can be told.
    fn pass_watched(
        &mut self,
        conn: ConnId,
        publish: &Publish<'_>,
        bytes: &[u8],
        reason: Reason,
        purpose: Purpose,
        now: Instant,
    ) {
        match self.watch(conn, publish, purpose, now) {
            Some(window) => {
                if !self.is_observing_late() {
                    self.note_publish(conn, publish, 0);
                }
                self.pass_noted(conn, publish, bytes, reason);
                self.open_window(conn, window, now);
            }
            None if reason == Reason::Shadow => {
                self.counters.shadow_unproven += 1;
                self.pass(conn, publish, bytes, reason, now);
            }
            None => self.pass(conn, publish, bytes, Reason::Ambiguous, now),
        }
    }

    /// Passes a PUBLISH to the broker, for this reason.
    fn pass(
        &mut self,
        conn: ConnId,
        publish: &Publish<'_>,
        bytes: &[u8],
        reason: Reason,
        now: Instant,
    ) {
        if !self.account(conn, publish, reason, now) {
            let qos = bytes[0] >> 1 & 0x03;
            self.note_publish(conn, publish, qos);
        }
        self.pass_noted(conn, publish, bytes, reason);
    }

    /// The same, when what may come of it is known.
    fn pass_noted(&mut self, conn: ConnId, publish: &Publish<'_>, bytes: &[u8], reason: Reason) {
        self.counters.publishes_broker[reason as usize] += 1;
        self.forward_to_broker(conn, bytes, false);
        if let Some(publisher) = self.connections.get_mut(conn) {
            let after = publisher.pings.last_request();
            // Whoever sends a QoS that is not allowed is disconnected [MQTT-3.2.2-11]; the answer tells that it was not.
            let is_qos_news = publish.packet_id.is_some() && !publisher.may_publish_qos1;
            // Of those before it brokers refuse some. Where answers prove nothing, nothing is ever settled by one.
            let is_late = self.arrivals.is_some();
            // A broker of one thread keeps a publisher's order across topics too, and its clients see that: only what nobody gets
            // lets the others pass.
            let is_for_nobody = matches!(reason, Reason::NoMatch | Reason::NobodyServed);
            if !is_for_nobody || is_qos_news || is_late {
                publisher.slow.note_all(after);
            } else {
                let qos = bytes[0] >> 1 & 0x03;
                publisher.slow.note(publish.topic, qos, bytes.len(), after);
            }
            publisher.may_publish_qos1 |= publish.packet_id.is_some();
            if let Some(alias) = publish.topic_alias()
                && !publish.topic.is_empty()
            {
                publisher.aliases.learn(alias, publish.topic);
            }
        }
        if let Some(arrivals) = &mut self.arrivals {
            let is_routable = match reason {
                Reason::Retained => {
                    topic::levels(publish.topic) <= self.config.limits.topic_levels_max
                }
                // Its route was looked for already.
                reason => reason >= Reason::SubscribePending,
            };
            if is_routable {
                let route = self.routes.find(publish.topic, &mut self.sessions);
                arrivals.note(conn, publish.topic, publish.payload, route);
            } else {
                arrivals.forget(conn);
                arrivals.note_apart(publish.topic, publish.payload);
            }
        }
        match reason {
            Reason::BarrierOut if self.arrivals.is_none() => {
                self.ask_about_order(conn);
            }
            Reason::SubscriberBacklogged => self.ask_about_backlog(publish.topic),
            _ => {}
        }
    }

    /// Asks every backlogged subscriber's connection whether the broker has caught up.
    fn ask_about_backlog(&mut self, topic: &str) {
        let route = self.routes.find(topic, &mut self.sessions);
        let backlogged = route.backlogged().to_vec();
        let queued = route.targets().iter().filter(|it| it.is_queued(&self.connections));
        let queued: Vec<_> = queued.map(|target| target.conn).collect();
        for conn in backlogged {
            self.ask_about(conn, |subscriber| &mut subscriber.backlog);
        }
        for conn in queued {
            if self.connections.get(conn).is_some_and(|it| it.inflight.wants_ping()) {
                self.inject_ping(conn);
            }
        }
    }

    /// Puts a PINGREQ behind a publisher's slow PUBLISHes, unless one is out.
    fn ask_about_order(&mut self, conn: ConnId) {
        let wants_ping = self.connections.get(conn).is_some_and(|it| it.slow.wants_ping());
        if wants_ping
            && let Some(seq) = self.inject_ping(conn)
            && let Some(publisher) = self.connections.get_mut(conn)
        {
            publisher.slow.note_ping(seq);
        }
    }

    /// Puts a PINGREQ behind what the broker is to get of this connection, if one of its barriers waits for that.
    pub(super) fn ask_about(&mut self, conn: ConnId, barrier: fn(&mut Connection) -> &mut Barrier) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if barrier(connection).wants_ping()
            && let Some(seq) = self.inject_ping(conn)
            && let Some(connection) = self.connections.get_mut(conn)
        {
            barrier(connection).note_ping(seq);
        }
    }
}

/// Says once a connection that its client does not keep up, as mosquitto does.
#[cold]
fn say_that_it_drops(connection: &mut Connection, sessions: &Sessions, reason: DropReason) {
    if reason.is_overload() && !connection.is_dropping {
        connection.is_dropping = true;
        let client = connection.session.and_then(|session| sessions.get(session).client_id());
        let client = client.map_or("", |name| name);
        let reason = reason.label();
        tracing::warn!(?client, reason, "messages are dropped for a client that does not keep up");
    }
}

/// How many subscribers ahead a connection is asked for.
const FAR: usize = 16;
/// How many subscribers ahead what a connection points to is asked for, once it is there itself.
const NEAR: usize = 6;

/// What a distribution writes to.
struct FanOut<'c> {
    connections: &'c mut Connections,
    sessions: &'c mut Sessions,
    dirty: &'c mut VecDeque<ConnId>,
    counters: &'c mut Counters,
    direct: &'c mut Direct,
    /// Copies may go past the outboxes.
    is_direct: bool,
    limits: &'c Limits,
    now: Instant,
}

impl FanOut<'_> {
    /// Lists or queues a PUBLISH for every subscriber but those left out, which are sorted.
    #[inline]
    fn send(
        &mut self,
        route: &Route,
        left_out: &[ConnId],
        publisher: ConnId,
        publish: &Publish<'_>,
    ) {
        let variants = route.variants();
        let (first, before) = (self.direct.copies.len(), self.direct.deliveries.len());
        self.is_direct &= self.direct.is_empty();
        self.direct.copies.resize_with(first + variants.len() * 2, || None);
        let mut far = route.targets_for(publisher).skip(FAR);
        let mut near = route.targets_for(publisher).skip(NEAR);
        for target in route.targets_for(publisher) {
            match far.next() {
                Some(later) if self.is_direct => self.connections.expect_idle(later.conn),
                Some(later) => self.connections.expect(later.conn, false),
                None => {}
            }
            match near.next() {
                Some(later) if !self.is_direct => self.connections.expect(later.conn, true),
                _ => {}
            }
            if !left_out.is_empty() && left_out.binary_search(&target.conn).is_ok() {
                continue;
            }
            let (variant, qos) = (usize::from(target.variant), target.qos(publish));
            let place = first + variant * 2 + usize::from(qos);
            self.direct.copies[place].get_or_insert_with(|| publish.encode(variants[variant], qos));
            self.send_one(target, place, qos);
        }
        self.counters.publishes_card += 1;
        self.direct.close(first, before);
    }

    /// The same for one, who gets the copy at `place`.
    #[inline]
    fn send_one(&mut self, target: &Target, place: usize, qos: u8) {
        let Some(copy) = &self.direct.copies[place] else { return };
        let is_too_large = copy.packet.len() > target.packet_bytes_max as usize;
        if self.is_direct && qos == 0 && !is_too_large && self.connections.is_idle(target.conn) {
            self.direct.deliveries.push((target.conn, place as u32));
            return;
        }
        let Some(connection) = self.connections.get_mut(target.conn) else { return };
        let queued = if is_too_large {
            Err(DropReason::MaximumPacketSize)
        } else if qos > 0 {
            connection.send_numbered(copy, self.now, self.limits)
        } else {
            connection.outbox.push_card(copy, self.now, self.limits)
        };
        match queued {
            Ok(()) => {
                self.counters.deliveries_card += 1;
                list(connection, target.conn, self.dirty);
            }
            Err(reason) => {
                self.counters.outbox_dropped[reason as usize] += 1;
                say_that_it_drops(connection, self.sessions, reason);
            }
        }
    }
}

impl Core {
    /// The copies that go past the outboxes: what [`Core::handle_client_directly`] left to send.
    #[must_use]
    pub fn direct(&self) -> &Direct {
        &self.direct
    }

    /// All of [`Core::direct`] were sent but those at the places `refused`, which grow: these wait in their outboxes, before
    /// what came there meanwhile. None is dropped, so that there may be one message more than the bound: what came later would have to
    /// go in its place.
    pub fn settle_direct(&mut self, refused: &[u32], now: Instant) {
        let Self { connections, dirty, counters, direct, .. } = self;
        counters.deliveries_card += direct.deliveries.len() as u64;
        for &place in refused.iter().rev() {
            let (conn, copy) = direct.delivery(place);
            if let (Some(copy), Some(connection)) = (copy, connections.get_mut(conn)) {
                connection.outbox.push_first(copy, now);
                list(connection, conn, dirty);
            }
        }
        direct.clear();
    }
}

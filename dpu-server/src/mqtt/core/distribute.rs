//! One PUBLISH on its way: decided, then queued for every subscriber or passed to the broker.
//!
//! ```text
//! Decision::Card(route) ─► encode once a variant ─► outbox of each target (a reference each)
//! Decision::Broker(why) ─► the packet as it came ─► perhaps a PINGREQ that will clear the way for later ones
//! ```
//!
//! The driver takes the dirty connections ([`Core::poll_dirty`]) and sends their outboxes, all in one batch. A PUBLISH that
//! its fixed header rules out never comes here: it streams to the broker from `client`.
//!
//! Cost of a card delivery: a reference count, a queue entry, a place on the list of dirty connections. Allocations: two
//! a variant and PUBLISH, none a subscriber once the queues have their size.

use std::collections::VecDeque;
use std::time::Instant;

use super::super::ConnId;
use super::super::config::Limits;
use super::super::connection::{Connection, Connections};
use super::super::counters::{Counters, DropReason};
use super::super::decision::{Decision, Facts, Reason, decide};
use super::super::packet::{Encoded, FixedHeader, Malformed, Publish};
use super::super::ping::Barrier;
use super::super::routes::Route;
use super::super::topic;
use super::{Core, list};

impl Core {
    /// Distributes a PUBLISH, or passes it to the broker. On error nothing was done.
    pub(super) fn publish(
        &mut self,
        conn: ConnId,
        header: &FixedHeader,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), Malformed> {
        let Some(publisher) = self.connections.get(conn) else { return Ok(()) };
        let body = &bytes[header.header_bytes..];
        let mut publish = Publish::parse(publisher.version, header.qos(), body)?;
        let known = publish.topic_alias().and_then(|alias| publisher.aliases.topic(alias)).cloned();
        if let (true, Some(topic)) = (publish.topic.is_empty(), &known) {
            publish.topic = topic;
        }
        let is_alias_news =
            publish.topic_alias().is_some() && known.as_deref() != Some(publish.topic);
        let facts = Facts { is_alias_news, ..self.facts(publisher) };
        let mut copies = std::mem::take(&mut self.copies);
        let Self { config, sessions, routes, connections, dirty, counters, arrivals, .. } = self;
        let limits = &config.limits;
        let mut fan_out = |route: &Route| {
            let out = FanOut { connections: &mut *connections, dirty, counters, limits, now };
            out.send(route, conn, &publish, &mut copies);
        };
        let mut reason = match decide(&facts, conn, header, &publish, limits, sessions, routes) {
            Decision::Broker(reason) => Some(reason),
            Decision::Card(route) => {
                fan_out(route);
                None
            }
        };
        if reason == Some(Reason::BarrierOut)
            && let Some(arrivals) = arrivals
        {
            let route = routes.find(publish.topic, sessions);
            if arrivals.is_settled(conn, publish.topic, route) {
                fan_out(route);
                reason = None;
            }
        }
        copies.clear();
        self.copies = copies;
        match reason {
            Some(reason) => self.pass(conn, &publish, bytes, reason),
            None => self.note_eaten(conn, now),
        }
        Ok(())
    }

    /// Passes a PUBLISH to the broker, for this reason.
    fn pass(&mut self, conn: ConnId, publish: &Publish<'_>, bytes: &[u8], reason: Reason) {
        self.counters.publishes_broker[reason as usize] += 1;
        self.forward_to_broker(conn, bytes, false);
        if let Some(publisher) = self.connections.get_mut(conn) {
            publisher.slow_publisher.raise();
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
            }
        }
        match reason {
            Reason::BarrierOut if self.arrivals.is_none() => {
                self.ask_about(conn, |publisher| &mut publisher.slow_publisher);
            }
            Reason::SubscriberBacklogged => self.ask_about_backlog(publish.topic),
            _ => {}
        }
    }

    /// Asks every backlogged subscriber's connection whether the broker has caught up.
    fn ask_about_backlog(&mut self, topic: &str) {
        let backlogged = self.routes.find(topic, &mut self.sessions).backlogged().to_vec();
        for conn in backlogged {
            self.ask_about(conn, |subscriber| &mut subscriber.backlog);
        }
    }

    /// Puts a PINGREQ behind what the broker is to get of this connection, if one of its barriers waits for that.
    fn ask_about(&mut self, conn: ConnId, barrier: fn(&mut Connection) -> &mut Barrier) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if barrier(connection).wants_ping()
            && let Some(seq) = self.inject_ping(conn)
            && let Some(connection) = self.connections.get_mut(conn)
        {
            barrier(connection).note_ping(seq);
        }
    }
}

/// What a distribution writes to.
struct FanOut<'c> {
    connections: &'c mut Connections,
    dirty: &'c mut VecDeque<ConnId>,
    counters: &'c mut Counters,
    limits: &'c Limits,
    now: Instant,
}

impl FanOut<'_> {
    /// Queues a PUBLISH for every subscriber. `copies` is empty before and holds one copy a variant afterwards.
    #[inline]
    fn send(
        self,
        route: &Route,
        publisher: ConnId,
        publish: &Publish<'_>,
        copies: &mut Vec<Option<Encoded>>,
    ) {
        let Self { connections, dirty, counters, limits, now } = self;
        let variants = route.variants();
        copies.resize_with(variants.len(), || None);
        for target in route.targets().iter().filter(|target| !target.is_spared(publisher)) {
            let variant = usize::from(target.variant);
            let copy = copies[variant].get_or_insert_with(|| publish.encode(variants[variant]));
            let Some(connection) = connections.get_mut(target.conn) else { continue };
            let queued = if copy.packet.len() > target.packet_bytes_max as usize {
                Err(DropReason::MaximumPacketSize)
            } else {
                connection.outbox.push_card(copy, now, limits)
            };
            match queued {
                Ok(()) => {
                    counters.deliveries_card += 1;
                    list(connection, target.conn, dirty);
                }
                Err(drop) => counters.outbox_dropped[drop as usize] += 1,
            }
        }
        counters.publishes_card += 1;
    }
}

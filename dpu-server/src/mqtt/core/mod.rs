//! The core itself: one broker's connections, sessions and routes, and the inputs and outputs of design.
//!
//! Split by what flows: `client` what clients send, `broker` what the broker sends, `distribute` a PUBLISH on its way,
//! `exchanges` QoS 1 and 2 towards clients, `attendance` who is there (CONNACK, SUBACK, the end of a connection), `pings` what the card
//! asks of the broker, `observe` what it makes of what it gets, `late` the same where answers prove nothing, `holding` who waits for
//! that, `policy` who may do what, `census` what an operator sees of the sessions.

mod attendance;
mod broker;
mod census;
mod client;
mod distribute;
mod exchanges;
mod holding;
mod late;
mod observe;
mod pings;
mod policy;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

use super::ConnId;
use super::arrivals::Arrivals;
use super::config::{CoreConfig, Mode, Trust};
use super::connection::{Connection, Connections, Phase};
use super::counters::{Counters, DropReason};
use super::decision::{BlindSpots, Facts, OlderSessions, Reason};
use super::direct::Direct;
use super::habits::Habits;
use super::observe::Observer;
use super::outbox::{ByteQueue, Outbox, TotalBytes};
use super::packet::Malformed;
use super::routes::Routes;
use super::session::Sessions;

pub use census::{Forgotten, SessionState, SessionView};

/// Opaque connections that are remembered, to be named.
const OPAQUE_KEPT: usize = 8;

/// The MQTT core of one broker. See the module above for its grammar.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    connections: Connections,
    sessions: Sessions,
    routes: Routes,
    /// `unknown_sessions` is filled in when asked for.
    blind_spots: BlindSpots,
    /// Connections that became opaque, the latest first; some may be gone.
    opaque_latest: VecDeque<ConnId>,
    /// Sessions of the broker there was no room for. They are never learned of again.
    lost_sessions: usize,
    /// The broker may keep sessions from before this core.
    has_older_sessions: bool,
    outbox_total: TotalBytes,
    /// Connections with something new to send, each once.
    dirty: VecDeque<ConnId>,
    /// At most one live entry a connection; entries that no longer hold are skipped.
    timers: BinaryHeap<Reverse<(Instant, ConnId)>>,
    counters: Counters,
    /// The copies of a PUBLISH, and those that go past the outboxes.
    direct: Direct,
    /// Copies may go past the outboxes now.
    is_direct: bool,
    /// Messages with QoS above 0 the broker sends a client at a time if that says nothing of it, once the broker has told.
    brokers_inflight_max: Option<u16>,
    /// For a broker whose answer to a PINGREQ does not prove that it has delivered what came before.
    arrivals: Option<Arrivals>,
    /// Where what the broker makes of a PUBLISH is to be learned or compared.
    observer: Option<Observer>,
    /// Clients that are held back, and until when. Growing in time; entries that no longer hold are skipped.
    holds: VecDeque<(Instant, ConnId)>,
    /// Changes of policy that no client asked for are reported.
    is_policy_watched: bool,
}

/// Why everything goes to the broker, if it does, and how much there is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Status {
    /// The reason that stands against every PUBLISH, whatever its topic.
    pub slow_reason: Option<Reason>,
    /// Connections that cannot be read.
    pub opaque_connections: u32,
    /// Sessions whose subscriptions the card does not know.
    pub unknown_sessions: usize,
    /// Changes of policy are reported, see [`Core::handle_policy_watched`].
    pub is_policy_watched: bool,
}

impl Core {
    /// A core that has seen nothing.
    pub fn new(config: CoreConfig) -> Self {
        let drops_offline_qos0 = config.keeps_offline_qos0 == Some(false);
        let habits = Habits { follows_options: true, drops_offline_qos0 };
        let is_observing = config.trust == Trust::Observed || config.mode == Mode::Shadow;
        Self {
            observer: is_observing.then(|| Observer::new(config.route_ttl)),
            holds: VecDeque::new(),
            routes: Routes::new(config.limits.routes_max, habits),
            has_older_sessions: config.has_older_sessions,
            config,
            connections: Connections::default(),
            sessions: Sessions::default(),
            blind_spots: BlindSpots::default(),
            opaque_latest: VecDeque::new(),
            lost_sessions: 0,
            outbox_total: TotalBytes::default(),
            dirty: VecDeque::new(),
            timers: BinaryHeap::new(),
            counters: Counters::default(),
            direct: Direct::default(),
            is_direct: false,
            brokers_inflight_max: None,
            arrivals: None,
            is_policy_watched: false,
        }
    }

    /// The broker is not one whose ways are known. It may answer a PINGREQ before it has delivered what came before: from here
    /// on only the copies themselves prove that they were, and that somebody gets nothing is proven by nothing. To be called before
    /// the first connection: what it has been given by then could come at any time.
    pub fn expect_late_deliveries(&mut self) {
        self.arrivals.get_or_insert_default();
        let (ttl, is_lost) = (self.config.route_ttl, self.counters.connections > 0);
        self.observer = self.observer.take().map(|_| Observer::of_late_broker(ttl, is_lost));
        let drops_offline_qos0 = self.config.keeps_offline_qos0 == Some(false);
        self.routes.set_habits(Habits { follows_options: false, drops_offline_qos0 });
    }

    /// A client connected. A number that is still in use is closed first.
    pub fn handle_open(&mut self, conn: ConnId, now: Instant) {
        self.handle_close(conn, now);
        self.connections.insert(conn, Connection::new(self.outbox_total.clone()));
        self.counters.connections += 1;
    }

    /// The client closed or reset its side. What is held of its last packet goes to the broker, which decides.
    pub fn handle_client_gone(&mut self, conn: ConnId, now: Instant) {
        self.release(conn, now);
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.is_client_gone = true;
        connection.keep_alive.due = None;
        let held = connection.client_framer.give_up();
        if !held.is_empty() {
            self.forward_to_broker(conn, &held, true);
        }
        self.leave(conn);
        self.note_gauges();
    }

    /// The broker closed or reset its side. What is held of its last packet goes to the client.
    pub fn handle_broker_gone(&mut self, conn: ConnId, now: Instant) {
        self.release(conn, now);
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.is_broker_gone = true;
        connection.keep_alive.due = None;
        let held = connection.broker_framer.give_up();
        if !held.is_empty() {
            self.forward_to_client(conn, &held, true);
        }
        self.drop_deferred(conn);
        self.detach(conn, now);
        self.note_gauges();
    }

    /// Both sides are done: the number is free.
    pub fn handle_close(&mut self, conn: ConnId, now: Instant) {
        if self.connections.get(conn).is_none() {
            return;
        }
        self.detach(conn, now);
        self.connections.remove(conn);
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.forget(conn);
        }
        self.counters.connections -= 1;
        self.note_gauges();
    }

    /// The broker was told that it cannot write more on this connection now: it may hold back messages for it. In
    /// order with [`Self::handle_broker`].
    pub fn handle_broker_blocked(&mut self, conn: ConnId) {
        if let Some(observer) = &mut self.observer {
            observer.stall(conn);
        }
        self.raise_backlog(conn);
    }

    /// The client takes bytes again after it did not: what waits may have waited too long.
    pub fn handle_room(&mut self, conn: ConnId, now: Instant) {
        self.settle_exchanges(conn, now);
    }

    /// The broker opened or closed listeners or connections outside the card: by how many there are more or fewer.
    pub fn handle_outside(&mut self, listeners: i32, connections: i32) {
        let spots = &mut self.blind_spots;
        spots.outside_listeners = spots.outside_listeners.saturating_add_signed(listeners);
        spots.outside_connections = spots.outside_connections.saturating_add_signed(connections);
        self.disturb_observing();
        if let Some(observer) = &mut self.observer {
            observer.lose();
        }
    }

    /// When [`Self::handle_timeout`] wants to be called next. May be early, never late.
    pub fn next_deadline(&self) -> Option<Instant> {
        let ping = self.timers.peek().map(|Reverse((at, _))| *at);
        let hold = self.holds.front().map(|(at, _)| *at);
        ping.into_iter().chain(hold).chain(self.sessions.next_expiry()).min()
    }

    /// A connection with something new to send, to its client or to the broker; each once until it has news again.
    pub fn poll_dirty(&mut self) -> Option<ConnId> {
        while let Some(conn) = self.dirty.pop_front() {
            if let Some(connection) = self.connections.get_mut(conn)
                && std::mem::take(&mut connection.is_listed)
            {
                return Some(conn);
            }
        }
        None
    }

    /// One that [`Self::poll_dirty`] may name after so many others.
    #[must_use]
    pub fn dirty_later(&self, others: usize) -> Option<ConnId> {
        self.dirty.get(others).copied()
    }

    /// What waits to be written to the client.
    ///
    /// # Panics
    /// If the connection is not open.
    pub fn outbox(&self, conn: ConnId) -> &Outbox {
        &self.connections.get(conn).expect("opened by the driver").outbox
    }

    /// The same, to take out what was written.
    ///
    /// # Panics
    /// If the connection is not open.
    pub fn outbox_mut(&mut self, conn: ConnId) -> &mut Outbox {
        &mut self.connections.get_mut(conn).expect("opened by the driver").outbox
    }

    /// What waits to be written to the broker.
    ///
    /// # Panics
    /// If the connection is not open.
    pub fn to_broker(&mut self, conn: ConnId) -> &mut ByteQueue {
        &mut self.connections.get_mut(conn).expect("opened by the driver").to_broker
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Why everything goes to the broker, if it does.
    pub fn status(&self) -> Status {
        let spots = self.blind_spots();
        let untrusted = self.is_untrusted().then_some(Reason::TrustNotEstablished);
        let older = self.older_sessions().reason(0);
        Status {
            slow_reason: spots.reason().or(untrusted).or(older),
            opaque_connections: spots.opaque_connections,
            unknown_sessions: spots.unknown_sessions,
            is_policy_watched: self.is_policy_watched,
        }
    }

    /// What sessions from before the card would get.
    fn older_sessions(&self) -> OlderSessions {
        match self.config.keeps_offline_qos0 {
            _ if !self.has_older_sessions => OlderSessions::None,
            // Nobody has said it: mosquitto's default is to keep none, others' is to keep them.
            None if self.arrivals.is_none() => OlderSessions::TakeQos1,
            Some(false) => OlderSessions::TakeQos1,
            None | Some(true) => OlderSessions::TakeAll,
        }
    }

    /// Trust is by observation, and nothing can be observed.
    fn is_untrusted(&self) -> bool {
        self.config.trust == Trust::Observed
            && self.observer.as_ref().is_some_and(Observer::is_lost)
    }

    /// Connections that cannot be read, the latest few.
    pub fn opaque(&self) -> impl Iterator<Item = ConnId> {
        let is_opaque = |&conn: &ConnId| self.connections.get(conn).is_some_and(|it| it.is_opaque);
        self.opaque_latest.iter().copied().filter(is_opaque)
    }

    fn blind_spots(&self) -> BlindSpots {
        let unknown_sessions = self.sessions.opaque_count() + self.lost_sessions;
        BlindSpots { unknown_sessions, ..self.blind_spots }
    }

    fn facts(&self, publisher: &Connection) -> Facts {
        Facts {
            is_untrusted: self.is_untrusted(),
            is_identity_unsettled: self.is_identity_unsettled(publisher),
            is_connected: publisher.phase == Phase::Connected && !publisher.is_broker_gone,
            is_reauthenticating: publisher.is_reauthenticating,
            broker_packet_bytes_max: publisher.broker_packet_bytes_max,
            is_held_up: false,
            takes_qos1: publisher.may_publish_qos1
                && self.arrivals.is_none()
                && self.config.trust == Trust::Suback
                && self.config.mode == Mode::Live,
            ack_bytes: publisher.outbox.ack_bytes(),
            outbox_total_bytes: self.outbox_total.get(),
            is_alias_news: false,
            older_sessions: self.older_sessions(),
            blind_spots: self.blind_spots(),
        }
    }

    fn forward_to_broker(&mut self, conn: ConnId, bytes: &[u8], is_mid_packet: bool) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.to_broker.push(bytes);
        connection.is_to_broker_mid_packet = is_mid_packet;
        // The broker hears from the client: that is as good as a ping.
        connection.keep_alive.due = None;
        list(connection, conn, &mut self.dirty);
        if !is_mid_packet {
            self.flush_pings(conn);
        }
    }

    fn forward_to_client(&mut self, conn: ConnId, bytes: &[u8], is_mid_packet: bool) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.outbox.push_broker(bytes, is_mid_packet);
        list(connection, conn, &mut self.dirty);
    }

    /// Stops looking at what a connection does: from here on that is a blind spot, unless the broker is done with it anyway.
    fn turn_opaque(&mut self, conn: ConnId, error: &Malformed) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let is_over =
            matches!(connection.phase, Phase::Refused | Phase::Left) || connection.is_broker_gone;
        if !connection.is_opaque && !is_over {
            connection.is_opaque = true;
            self.blind_spots.opaque_connections += 1;
            self.opaque_latest.retain(|&known| known != conn);
            self.opaque_latest.truncate(OPAQUE_KEPT - 1);
            self.opaque_latest.push_front(conn);
            self.counters.turned_opaque += 1;
            tracing::debug!(conn = conn.0, %error, "connection is opaque from here on");
        }
        self.disturb_observing();
        let Some(connection) = self.connections.get_mut(conn) else { return };
        // After the CONNACK both streams stay readable: acknowledgements of the card's messages, and answers to its pings, are still to be
        // taken out of them.
        if connection.is_read_on() {
            connection.client_framer.go_on();
            return;
        }
        let is_raw = matches!(connection.phase, Phase::AwaitConnect | Phase::AwaitConnack);
        let to_broker = connection.client_framer.give_up();
        let to_client = if is_raw { connection.broker_framer.give_up() } else { Vec::new() };
        if !to_broker.is_empty() {
            self.forward_unread(conn, &to_broker, true);
        }
        if !to_client.is_empty() {
            self.forward_to_client(conn, &to_client, true);
        }
    }

    /// Copies that waited for the end of a packet that will never come.
    fn drop_deferred(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let dropped = connection.outbox.drop_deferred() as u64;
        self.counters.outbox_dropped[DropReason::BrokenStream as usize] += dropped;
    }

    fn note_gauges(&mut self) {
        self.counters.sessions = self.sessions.session_count() as u64;
        self.counters.subscriptions = self.sessions.subscription_count() as u64;
        self.counters.routes = self.routes.len() as u64;
        self.counters.learned = self.observer.as_ref().map_or(0, |it| it.known_count() as u64);
    }
}

/// Puts a connection on the list of those with something new, once.
#[inline]
fn list(connection: &mut Connection, conn: ConnId, dirty: &mut VecDeque<ConnId>) {
    if !connection.is_listed {
        connection.is_listed = true;
        dirty.push_back(conn);
    }
}

//! What the card asks of the broker: PINGREQs that prove what has been processed, and that a client is alive.
//!
//! mosquitto reads one packet after the other and writes in the order of what it did. So the answer to a PINGREQ proves that
//! everything before it on this connection has been acted upon, and written as far as it could be. Other brokers answer
//! earlier: there `arrivals` proves what became of a PUBLISH.
//! A PINGREQ is only added between packets, and never for a silent client, which must still time out [MQTT-3.1.2-24].

use std::cmp::Reverse;
use std::time::Instant;

use super::super::ConnId;
use super::super::mutation::{Rule, is_off};
use super::super::packet::PINGREQ;
use super::super::ping::PingSeq;
use super::super::session::{Life, SessionId};
use super::{Core, list};

impl Core {
    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.sessions.expire(now);
        self.release_overdue(now);
        self.note_gauges();
        while let Some(&Reverse((at, conn))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let Some(connection) = self.connections.get_mut(conn) else { continue };
            let keep_alive = &mut connection.keep_alive;
            if keep_alive.timer != Some(at) {
                continue;
            }
            keep_alive.timer = None;
            match (keep_alive.due, keep_alive.delay) {
                (Some(due), Some(delay)) => {
                    let next = if due > now {
                        due
                    } else if keep_alive.ping.is_some() {
                        // The last one is still out; the broker will see it.
                        now + delay
                    } else {
                        self.ping_if_due(conn);
                        continue;
                    };
                    keep_alive.due = Some(next);
                    keep_alive.timer = Some(next);
                    self.timers.push(Reverse((next, conn)));
                }
                _ => keep_alive.due = None,
            }
        }
    }

    /// The card ate a packet of this client.
    pub(super) fn note_eaten(&mut self, conn: ConnId, now: Instant) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let keep_alive = &mut connection.keep_alive;
        let Some(delay) = keep_alive.delay.filter(|_| !is_off(Rule::KeepAlive)) else { return };
        if keep_alive.due.is_none() {
            let due = now + delay;
            keep_alive.due = Some(due);
            if keep_alive.timer.is_none() {
                keep_alive.timer = Some(due);
                self.timers.push(Reverse((due, conn)));
            }
        }
    }

    /// Tells the broker now of what the card ate, if it did.
    pub(super) fn ping_if_due(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.keep_alive.due.take().is_some()
            && let Some(seq) = self.inject_ping(conn)
            && let Some(connection) = self.connections.get_mut(conn)
        {
            connection.keep_alive.ping = Some(seq);
        }
    }

    /// Puts a PINGREQ behind what the broker is to get so far; `None` if it would not be answered.
    pub(super) fn inject_ping(&mut self, conn: ConnId) -> Option<PingSeq> {
        let connection = self.connections.get_mut(conn)?;
        if !connection.can_be_pinged() {
            return None;
        }
        let seq = connection.pings.request();
        connection.inflight.note_ping(seq);
        if let Some(observer) = &mut self.observer {
            observer.flights.note_request(conn, seq);
        }
        self.flush_pings(conn);
        Some(seq)
    }

    /// Writes a requested PINGREQ, unless the broker is in the middle of a packet.
    pub(super) fn flush_pings(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if !connection.is_to_broker_mid_packet
            && connection.can_be_pinged()
            && connection.pings.take_due()
        {
            connection.to_broker.push(&PINGREQ);
            connection.keep_alive.due = None;
            self.counters.pings_injected += 1;
            list(connection, conn, &mut self.dirty);
        }
    }

    /// The broker answered a ping of the card, and with it every request up to `seq`.
    pub(super) fn ping_answered(&mut self, conn: ConnId, seq: PingSeq, now: Instant) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.keep_alive.ping.take_if(|ping| *ping <= seq);
        connection.inflight.settle_ping(seq);
        // Elsewhere an answer says nothing of what was delivered.
        if self.arrivals.is_none() {
            connection.slow.settle(seq);
        }
        if connection.backlog.settle(seq)
            && let Some(session) = connection.session
        {
            self.sessions.set_backlogged(session, false);
        }
        for request in &mut connection.requests {
            request.barrier.take_if(|barrier| *barrier <= seq);
        }
        self.settle_requests(conn);
        self.conclude(conn, seq, now);
    }

    /// The broker may hold messages for this client, or may have lost it.
    pub(super) fn raise_backlog(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.backlog.raise();
        if let Some(session) = connection.session
            && self.sessions.get(session).is_connected_as(conn)
        {
            self.sessions.set_backlogged(session, true);
        }
    }

    /// A CONNECT will not be answered any more: the broker did something with it, or nothing.
    pub(super) fn drop_claim(&mut self, conn: ConnId, session: SessionId, was_opaque: bool) {
        let early = self.forget_early_requests(conn);
        let is_persistent = self.connections.get(conn).is_some_and(|c| c.expiry.is_persistent());
        let life = self.sessions.get(session).life;
        let is_uncertain = was_opaque || !early.is_empty();
        if is_uncertain && (is_persistent || life != Life::Absent) {
            self.sessions.abandon(session);
            return;
        }
        self.sessions.release(session);
        // If the broker let it take the session over, it has closed the other connection; else that one still
        // answers, which is to be seen.
        if let Life::Connected(subscriber) = life {
            self.raise_backlog(subscriber.conn);
        }
    }
}

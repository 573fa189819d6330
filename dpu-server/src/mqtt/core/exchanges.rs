//! QoS 1 and 2 towards clients: two senders, one client that does not know it.
//!
//! ```text
//! card's copy ──────┐                         ┌─► PUBACK of the card's copy: eaten, a sign of life
//!                   ├─► inflight ─► client ───┤
//! broker's PUBLISH ─┘   PUBREL ──►            └─► PUBACK, PUBREC, PUBCOMP of the broker's: passed, under the broker's identifier
//! ```
//!
//! A PUBLISH of the broker's that is too large to be held passes unread, behind all that waits. From then on the card sends that client
//! nothing with QoS 1.

use std::time::Instant;

use bytes::Bytes;

use super::super::ConnId;
use super::super::config::Limits;
use super::super::connection::{Connection, Unsent};
use super::super::counters::DropReason;
use super::super::framer::Handling;
use super::super::identifiers::Owner;
use super::super::outbox::Outbox;
use super::super::packet::{Encoded, FixedHeader, Malformed, PacketType};
use super::{Core, list};

/// Largest PUBLISH of the broker's that is held, where it may have to wait or to be renumbered, in bytes. Half of what a broker may write
/// before the card takes it.
const READ_BYTES_MAX: usize = 128 * 1024;

impl Core {
    /// A client's PUBACK, PUBREC or PUBCOMP of at least two bytes behind its fixed header.
    pub(super) fn client_acknowledges(
        &mut self,
        conn: ConnId,
        header: &FixedHeader,
        bytes: &[u8],
        now: Instant,
    ) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let at = header.header_bytes;
        let id = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        match connection.inflight.owner(id) {
            Owner::Card if header.packet_type == PacketType::Puback => {
                connection.inflight.release(id);
                self.counters.acknowledgements_card += 1;
                self.note_eaten(conn, now);
            }
            Owner::Broker(brokers) => {
                // An error ends the exchange [MQTT-4.3.3-4].
                let is_refusal = bytes.get(at + 2).is_some_and(|&code| code >= 0x80);
                if header.packet_type != PacketType::Pubrec || is_refusal {
                    connection.inflight.release(id);
                }
                if brokers == id {
                    self.forward_to_broker(conn, bytes, false);
                } else {
                    self.forward_to_broker(conn, &bytes[..at], true);
                    self.forward_to_broker(conn, &brokers.to_be_bytes(), true);
                    self.forward_to_broker(conn, &bytes[at + 2..], true);
                    // Whether it was the last of three that ends the packet.
                    self.forward_to_broker(conn, &[], false);
                }
            }
            // What the client makes up is the broker's to judge.
            Owner::Card | Owner::Nobody => self.forward_to_broker(conn, bytes, false),
        }
    }

    /// What to do with a PUBLISH of the broker's that is to be acknowledged.
    pub(super) fn numbered_handling(&self, conn: ConnId, header: &FixedHeader) -> Handling {
        let is_the_brokers =
            self.connections.get(conn).is_some_and(|it| it.inflight.is_the_brokers());
        let bytes_max = self.config.limits.inspect_bytes_max.min(READ_BYTES_MAX);
        let bytes_max = if is_the_brokers { bytes_max } else { READ_BYTES_MAX };
        if header.packet_bytes() <= bytes_max { Handling::Whole } else { Handling::Stream }
    }

    /// A PUBLISH of the broker's that is to be acknowledged. On error nothing was passed on.
    pub(super) fn broker_publishes(
        &mut self,
        conn: ConnId,
        header: &FixedHeader,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        let topic_at = header.header_bytes;
        let topic = bytes.get(topic_at..topic_at + 2).ok_or(Malformed::Truncated)?;
        let at = topic_at + 2 + usize::from(u16::from_be_bytes([topic[0], topic[1]]));
        let brokers = bytes.get(at..at + 2).ok_or(Malformed::Truncated)?;
        let brokers = u16::from_be_bytes([brokers[0], brokers[1]]);
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(()) };
        self.counters.deliveries_broker += 1;
        let taken = connection.inflight.take_for_broker(brokers);
        // Only copies with QoS 0 are waited for where they conclude a window.
        let _ = self.see(conn, header, bytes);
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(()) };
        match taken {
            Some(id) => self.forward_numbered(conn, bytes, at, id),
            None => {
                // Its credit comes back: how much is held is bounded by what the broker sends unacknowledged.
                connection.outbox.swallow_broker(bytes.len());
                connection.outbox.admit_all(bytes.len());
                let held = Unsent::Packet { bytes: bytes.to_vec(), id_at: at };
                connection.inflight.wait(held, Some(brokers));
                self.forward_to_client(conn, &[], false);
            }
        }
        Ok(())
    }

    /// A PUBREL of the broker's. On error nothing was passed on.
    pub(super) fn broker_releases(
        &mut self,
        conn: ConnId,
        header: &FixedHeader,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        let at = header.header_bytes;
        let brokers = bytes.get(at..at + 2).ok_or(Malformed::Truncated)?;
        let brokers = u16::from_be_bytes([brokers[0], brokers[1]]);
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(()) };
        let id = connection.inflight.go_on(brokers).unwrap_or(brokers);
        self.forward_numbered(conn, bytes, at, id);
        Ok(())
    }

    fn forward_numbered(&mut self, conn: ConnId, bytes: &[u8], at: usize, id: u16) {
        let id = id.to_be_bytes();
        if bytes[at..at + 2] == id {
            self.forward_to_client(conn, bytes, false);
        } else {
            self.forward_to_client(conn, &bytes[..at], true);
            self.forward_to_client(conn, &id, true);
            self.forward_to_client(conn, &bytes[at + 2..], false);
        }
    }

    /// A message passes whose Packet Identifier nobody reads. What waits goes before it, room or not.
    pub(super) fn lose_identifiers(&mut self, conn: ConnId, now: Instant) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let (_, expired) = connection.send_waiting(now, true);
        self.counters.outbox_dropped[DropReason::Expired as usize] += expired;
        if connection.inflight.is_unread() {
            return;
        }
        connection.inflight.set_unread();
        if let Some(session) = connection.session
            && self.sessions.get(session).is_connected_as(conn)
        {
            self.sessions.set_unread(session);
        }
    }

    /// Sends what has room now, and lets expire what waited too long.
    pub(super) fn settle_exchanges(&mut self, conn: ConnId, now: Instant) {
        let mut ids = Vec::new();
        loop {
            let Some(connection) = self.connections.get_mut(conn) else { return };
            let (sent, mut expired) = connection.send_waiting(now, false);
            expired += connection.outbox.count_down(now, &mut ids);
            self.counters.outbox_dropped[DropReason::Expired as usize] += expired;
            if sent > 0 {
                list(connection, conn, &mut self.dirty);
            }
            if ids.is_empty() {
                break;
            }
            ids.drain(..).for_each(|id| connection.inflight.release(id));
        }
    }
}

impl Connection {
    /// Queues a copy of the card's that has to be acknowledged, or says why it is dropped.
    #[inline]
    pub(super) fn send_numbered(
        &mut self,
        copy: &Encoded,
        now: Instant,
        limits: &Limits,
    ) -> Result<(), DropReason> {
        if self.inflight.waiting() >= limits.queued_messages_max {
            return Err(DropReason::QueuedMessages);
        }
        self.outbox.admit(copy.packet.len(), limits)?;
        match self.inflight.take_for_card() {
            Some(id) => self.outbox.push_admitted(copy, Some(id), now),
            None => self.inflight.wait(Unsent::Copy { copy: copy.clone(), since: now }, None),
        }
        Ok(())
    }

    /// Sends what waits, as far as the client has room, or all of it; how much that is, and how much has expired.
    fn send_waiting(&mut self, now: Instant, is_forced: bool) -> (u64, u64) {
        let (mut sent, mut expired) = (0, 0);
        while let Some(held) = self.inflight.ready(is_forced) {
            if held.is_expired(now) {
                self.outbox.dismiss(held.bytes());
                self.inflight.discard();
                expired += 1;
                continue;
            }
            let Some((held, id)) = self.inflight.pop() else { break };
            held.send(&mut self.outbox, id, now);
            sent += 1;
        }
        (sent, expired)
    }
}

impl Unsent {
    fn bytes(&self) -> usize {
        match self {
            Self::Copy { copy, .. } => copy.packet.len(),
            Self::Packet { bytes, .. } => bytes.len(),
        }
    }

    fn is_expired(&self, now: Instant) -> bool {
        match self {
            Self::Copy { copy, since } => {
                copy.expiry.is_some_and(|field| field.left_s(*since, now) == 0)
            }
            Self::Packet { .. } => false,
        }
    }

    fn send(self, outbox: &mut Outbox, id: u16, now: Instant) {
        match self {
            Self::Copy { copy, since } => outbox.push_admitted(&copy, Some(id), since),
            Self::Packet { mut bytes, id_at } => {
                bytes[id_at..id_at + 2].copy_from_slice(&id.to_be_bytes());
                let packet = Encoded { packet: Bytes::from(bytes), id_at: None, expiry: None };
                outbox.push_admitted(&packet, None, now);
            }
        }
    }
}

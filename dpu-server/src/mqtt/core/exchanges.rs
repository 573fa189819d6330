//! QoS 1 and 2 towards clients: two senders, one client that does not know it.
//!
//! ```text
//! card's copy ──────┐                         ┌─► PUBACK of the card's copy: eaten, a sign of life
//!                   ├─► inflight ─► client ───┤
//! broker's PUBLISH ─┘   PUBREL ──►            └─► PUBACK, PUBREC, PUBCOMP of the broker's: passed, under the broker's identifier
//! ```
//!
//! A PUBLISH of the broker's that is too large to be held passes unread, once nothing of the card's is in flight; until then the
//! broker's stream pauses before it. From then on the card sends that client nothing with QoS 1.

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
        match self.whole_or_stream(header) {
            Handling::Stream
                if self.connections.get(conn).is_some_and(|it| !it.may_pass_unread()) =>
            {
                Handling::Pause
            }
            handling => handling,
        }
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
        self.see(conn, header, bytes);
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

    /// The broker's stream waits, with these bytes to come.
    pub(super) fn pause(&mut self, conn: ConnId, rest: &[u8]) {
        self.lose_identifiers(conn);
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.is_paused = true;
        connection.paused.extend_from_slice(rest);
    }

    /// A message passes, or will, whose Packet Identifier nobody reads.
    pub(super) fn lose_identifiers(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
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

    /// Sends what has room now, lets expire what waited too long, and lets the broker's stream go on if it may.
    pub(super) fn settle_exchanges(&mut self, conn: ConnId, now: Instant) {
        let mut ids = Vec::new();
        loop {
            let Some(connection) = self.connections.get_mut(conn) else { return };
            let (sent, mut expired) = connection.send_waiting(now);
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
        if let Some(connection) = self.connections.get_mut(conn)
            && connection.is_paused
            && connection.may_pass_unread()
        {
            connection.is_paused = false;
            let bytes = std::mem::take(&mut connection.paused);
            self.read_broker(conn, &bytes, now);
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

    /// Sends what waits, as far as the client has room; how much that is, and how much has expired.
    fn send_waiting(&mut self, now: Instant) -> (u64, u64) {
        let (mut sent, mut expired) = (0, 0);
        // Acknowledgements of a client that is not looked at are not seen either.
        while let Some(held) = self.inflight.ready(self.is_opaque) {
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

    /// Whether a message whose Packet Identifier nobody reads may pass.
    fn may_pass_unread(&self) -> bool {
        self.is_opaque || self.inflight.is_the_brokers()
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

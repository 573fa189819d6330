//! What clients send: read as far as needed, then passed on or, for a PUBLISH, distributed.
//!
//! ```text
//! bytes ─► framer ─► Whole: CONNECT, PUBLISH that may be ours, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT
//!                 └► Stream: everything else, and every PUBLISH whose fixed header rules it out
//! ```
//!
//! The framer (`mqtt::framer`) asks once a packet, when it knows the fixed header. A whole PUBLISH goes on to `distribute`;
//! one that streams is the broker's, and makes its publisher *slow*: until a barrier is back, or its copies have arrived, its
//! next ones go there too, or they would overtake it.
//!
//! A client that broke a rule, or said more than is read, is *opaque* from there on. What it says is the broker's, but what it acknowledges is
//! read to the end: it must not be sent more than it takes at a time, and the broker not be told of messages that were the card's.

use std::time::Instant;

use super::super::ConnId;
use super::super::connection::{Connection, EarlyRequest, Phase, RequestKind};
use super::super::decision::{Reason, rule_out};
use super::super::framer::{Framer, Handling, Piece};
use super::super::packet::{
    Connect, Disconnect, Expiry, FixedHeader, GrantedOptions, Malformed, PacketType, Reader,
    Subscribe, Unsubscribe, Version,
};
use super::super::topic::Filter;
use super::Core;

/// MQTT 3.1.1 §3.1.1: the fixed header of the packet every client begins with.
const CONNECT_FIRST_BYTE: u8 = 0x10;

/// What becomes of a client's stream behind a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flow {
    On,
    /// The packet was not handled: it waits, and so does what comes behind it.
    Held,
}

impl Core {
    /// Bytes from the client's TCP stream.
    pub fn handle_client(&mut self, conn: ConnId, bytes: &[u8], now: Instant) {
        if !self.hold_more(conn, bytes, now) {
            self.read_client(conn, bytes, now);
        }
        self.note_gauges();
    }

    /// The same, for a driver that sends at once: copies for subscribers for whom nothing waits are left in [`Core::direct`]. The
    /// driver sends them and calls [`Core::settle_direct`] before it does anything else with this core.
    pub fn handle_client_directly(&mut self, conn: ConnId, bytes: &[u8], now: Instant) {
        self.is_direct = true;
        self.handle_client(conn, bytes, now);
        self.is_direct = false;
    }

    /// Reads what the client sent, up to a PUBLISH that is held.
    pub(super) fn read_client(&mut self, conn: ConnId, bytes: &[u8], now: Instant) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        // Out of the table while its pieces are borrowed.
        let mut framer = std::mem::take(&mut connection.client_framer);
        // A stream that begins with anything but a CONNECT is not held for even one byte: its fixed header may never be
        // completed.
        if connection.phase == Phase::AwaitConnect
            && framer.is_at_boundary()
            && let Some(&first) = bytes.first()
            && first != CONNECT_FIRST_BYTE
        {
            self.turn_opaque(conn, &Malformed::Type(first >> 4));
            framer.give_up();
        }
        let mut input = bytes;
        while let Some(piece) = framer.next(&mut input, |header| self.client_handling(conn, header))
        {
            match piece {
                Piece::Packet { header, bytes } => {
                    match self.client_packet(conn, &header, bytes, now) {
                        Ok(Flow::On) => {}
                        Ok(Flow::Held) => {
                            self.hold(conn, bytes, input, now);
                            break;
                        }
                        Err(error) => {
                            self.forward_unread(conn, bytes, false);
                            self.turn_opaque(conn, &error);
                            self.read_on(conn, &mut framer);
                        }
                    }
                }
                Piece::Start { header, bytes, is_last } => {
                    self.client_streams(conn, &header);
                    self.pass_part(conn, bytes, is_last);
                }
                Piece::Part { bytes, is_last } => self.pass_part(conn, bytes, is_last),
                Piece::Malformed { held, error } => {
                    self.forward_unread(conn, held, true);
                    self.turn_opaque(conn, &error);
                    self.read_on(conn, &mut framer);
                }
                Piece::Raw(bytes) => self.forward_unread(conn, bytes, true),
            }
        }
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.client_framer = framer;
        }
        self.settle_exchanges(conn, now);
    }

    /// Behind what broke a rule: what a client acknowledges that was connected is still to be read, of any other nothing is.
    fn read_on(&mut self, conn: ConnId, framer: &mut Framer) {
        if self.connections.get(conn).is_some_and(Connection::is_read_on) {
            framer.go_on();
            if framer.is_at_boundary() {
                self.forward_to_broker(conn, &[], false);
            }
        } else {
            framer.give_up();
        }
    }

    /// Passes on some bytes of a packet that is not held.
    fn pass_part(&mut self, conn: ConnId, bytes: &[u8], is_last: bool) {
        if self.connections.get(conn).is_some_and(Connection::is_read_on) {
            self.forward_unread(conn, bytes, !is_last);
            return;
        }
        self.peek_on(conn, bytes);
        self.forward_to_broker(conn, bytes, !is_last);
        if is_last {
            self.ask_for_answers(conn);
        }
    }

    fn client_handling(&self, conn: ConnId, header: &FixedHeader) -> Handling {
        let refusal = Handling::Refuse(Malformed::Type(header.packet_type as u8));
        let Some(connection) = self.connections.get(conn) else { return refusal };
        match (connection.phase, header.packet_type) {
            _ if connection.is_read_on() && !concerns_the_card(header) => Handling::Stream,
            (Phase::AwaitConnect, PacketType::Connect) => self.whole_if_small(header),
            (Phase::AwaitConnect, _) => refusal,
            // Of one that was taken over a broker of several tasks may still read it.
            (Phase::Refused | Phase::Left, PacketType::Publish) if self.is_observing_late() => {
                self.handling_of_slow(header)
            }
            // The broker is done with this client; what it still says changes nothing.
            (Phase::Refused | Phase::Left, _) => Handling::Stream,
            (_, PacketType::Publish) => {
                match rule_out(&self.facts(connection), header, &self.config.limits) {
                    // Its copies will have to be recognised.
                    Some(Reason::Retained)
                        if self.arrivals.is_some() && self.observer.is_none() =>
                    {
                        self.whole_or_stream(header)
                    }
                    // It may set a Topic Alias.
                    Some(_) if connection.aliases.are_possible() => self.whole_or_stream(header),
                    Some(_) => self.handling_of_slow(header),
                    None => Handling::Whole,
                }
            }
            (_, PacketType::Subscribe | PacketType::Unsubscribe | PacketType::Disconnect) => {
                self.whole_if_small(header)
            }
            (_, PacketType::Pingreq) if header.remaining_bytes == 0 => Handling::Whole,
            (_, PacketType::Pubrel) if self.observer.is_some() => self.whole_or_stream(header),
            (Phase::Connected, PacketType::Puback | PacketType::Pubrec | PacketType::Pubcomp)
                if header.remaining_bytes >= 2 =>
            {
                self.whole_or_stream(header)
            }
            (
                _,
                PacketType::Puback | PacketType::Pubrec | PacketType::Pubrel | PacketType::Pubcomp,
            ) => Handling::Stream,
            (_, PacketType::Auth) if connection.version == Version::V5 => Handling::Stream,
            _ => refusal,
        }
    }

    pub(super) fn whole_if_small(&self, header: &FixedHeader) -> Handling {
        if header.packet_bytes() <= self.config.limits.inspect_bytes_max {
            Handling::Whole
        } else {
            Handling::Refuse(Malformed::TooLarge(header.packet_bytes()))
        }
    }

    pub(super) fn whole_or_stream(&self, header: &FixedHeader) -> Handling {
        match header.packet_bytes() <= self.config.limits.inspect_bytes_max {
            true => Handling::Whole,
            false => Handling::Stream,
        }
    }

    /// A packet that is not held starts.
    fn client_streams(&mut self, conn: ConnId, header: &FixedHeader) {
        self.ping_if_due(conn);
        let Some(connection) = self.connections.get(conn) else { return };
        let is_over = matches!(connection.phase, Phase::Refused | Phase::Left);
        match header.packet_type {
            _ if connection.is_read_on() => {}
            PacketType::Publish => {
                let facts = self.facts(connection);
                let reason = rule_out(&facts, header, &self.config.limits);
                if !is_over {
                    self.peek(conn, header);
                }
                if let Some(connection) = self.connections.get_mut(conn) {
                    connection.aliases.forget();
                    // See `pass`.
                    connection.may_publish_qos1 |= header.qos() > 0;
                }
                self.note_slow(conn, reason);
            }
            PacketType::Pubrel => {
                self.note_release(conn, None);
                self.note_slow(conn, None);
            }
            PacketType::Auth if connection.phase == Phase::Connected => {
                self.set_reauthenticating(conn, true);
            }
            _ => {}
        }
    }

    /// A PUBLISH, for this reason, or a PUBREL goes to the broker.
    pub(super) fn note_slow(&mut self, conn: ConnId, reason: Option<Reason>) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.forget(conn);
        }
        if let Some(reason) = reason {
            self.counters.publishes_broker[reason as usize] += 1;
        }
        if let Some(connection) = self.connections.get_mut(conn) {
            // A broker may deliver a QoS 2 message only at its PUBREL (mosquitto does).
            connection.slow.note_all(connection.pings.last_request());
        }
    }

    /// Handles a whole packet and passes it on. On error nothing was passed on.
    fn client_packet(
        &mut self,
        conn: ConnId,
        header: &FixedHeader,
        bytes: &[u8],
        now: Instant,
    ) -> Result<Flow, Malformed> {
        let body = &bytes[header.header_bytes..];
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(Flow::On) };
        let version = connection.version;
        match header.packet_type {
            packet_type if packet_type.is_acknowledgement() => {
                self.client_acknowledges(conn, header, bytes, now);
                return Ok(Flow::On);
            }
            packet_type if connection.is_read_on() => {
                if packet_type == PacketType::Pingreq {
                    connection.pings.note_client();
                }
                self.forward_unread(conn, bytes, false);
                return Ok(Flow::On);
            }
            PacketType::Publish => return self.publish(conn, header, bytes, now),
            PacketType::Pubrel => {
                self.note_release(conn, Reader::new(body).packet_id().ok());
                self.note_slow(conn, None);
            }
            PacketType::Connect => self.client_connects(conn, &Connect::parse(body)?)?,
            PacketType::Pingreq => connection.pings.note_client(),
            PacketType::Subscribe => {
                let Subscribe { packet_id, filters } = Subscribe::parse(version, body)?;
                self.begin_request(conn, RequestKind::Subscribe, packet_id, &filters, bytes.len())?;
            }
            PacketType::Unsubscribe => {
                let Unsubscribe { packet_id, filters } = Unsubscribe::parse(version, body)?;
                let filters: Vec<_> =
                    filters.into_iter().map(|f| (f, GrantedOptions::default())).collect();
                self.begin_request(
                    conn,
                    RequestKind::Unsubscribe,
                    packet_id,
                    &filters,
                    bytes.len(),
                )?;
            }
            PacketType::Disconnect => {
                let disconnect = Disconnect::parse(version, body)?;
                self.client_leaves(conn, &disconnect);
            }
            _ => {}
        }
        self.forward_to_broker(conn, bytes, false);
        if matches!(header.packet_type, PacketType::Subscribe | PacketType::Unsubscribe) {
            self.put_barrier_behind_requests(conn);
        }
        self.ask_for_answers(conn);
        Ok(Flow::On)
    }

    fn client_connects(&mut self, conn: ConnId, connect: &Connect<'_>) -> Result<(), Malformed> {
        let claim = self.sessions.claim(connect.client_id, &self.config.limits);
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(()) };
        if claim.is_err() && connect.expiry.is_persistent() {
            self.lost_sessions += 1;
        }
        connection.session = Some(claim?);
        connection.phase = Phase::AwaitConnack;
        connection.version = connect.version;
        connection.is_clean = connect.is_clean;
        connection.expiry = connect.expiry;
        connection.packet_bytes_max = connect.packet_bytes_max;
        connection.receive_max = connect.receive_max;
        connection.keep_alive_s = connect.keep_alive_s;
        self.note_will(conn, connect.will);
        Ok(())
    }

    fn client_leaves(&mut self, conn: ConnId, disconnect: &Disconnect) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.phase != Phase::Connected {
            // Pipelined before the CONNACK: the end of the connection will settle it.
            return;
        }
        // [MQTT-3.14.2-2]: zero cannot become more.
        if let Some(expiry_s) = disconnect.session_expiry_s
            && connection.expiry.is_persistent()
        {
            connection.expiry = Expiry::from_seconds(expiry_s);
        }
        self.leave(conn);
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.phase = Phase::Left;
        }
    }

    /// A SUBSCRIBE or UNSUBSCRIBE of so many bytes is about to reach the broker.
    fn begin_request(
        &mut self,
        conn: ConnId,
        kind: RequestKind,
        packet_id: u16,
        filters: &[(Filter<'_>, GrantedOptions)],
        bytes: usize,
    ) -> Result<(), Malformed> {
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(()) };
        if connection.phase == Phase::Connected {
            return self.open_request(conn, kind, packet_id, filters);
        }
        connection.early_bytes += bytes;
        if connection.early_bytes > self.config.limits.inspect_bytes_max {
            return Err(Malformed::Limit("requests before the CONNACK"));
        }
        if connection.early_requests.is_empty() {
            self.blind_spots.early_subscribers += 1;
        }
        let filters = filters.iter().map(|&(f, options)| (f.text().into(), options)).collect();
        connection.early_requests.push(EarlyRequest { kind, packet_id, filters });
        Ok(())
    }

    pub(super) fn put_barrier_behind_requests(&mut self, conn: ConnId) {
        if self.is_untrusted() {
            return;
        }
        let Some(seq) = self.inject_ping(conn) else { return };
        let Some(connection) = self.connections.get_mut(conn) else { return };
        for request in connection.requests.iter_mut().rev() {
            if request.has_barrier {
                break;
            }
            request.has_barrier = true;
            request.barrier = Some(seq);
        }
    }
}

/// Whether a packet of a client that broke a rule is read all the same: it may acknowledge a message of the card's, or is answered as a
/// PINGREQ of the card's is.
fn concerns_the_card(header: &FixedHeader) -> bool {
    let is_ping = header.packet_type == PacketType::Pingreq && header.remaining_bytes == 0;
    is_ping || header.packet_type.is_acknowledgement()
}

//! What the broker sends: CONNACK, SUBACK, UNSUBACK, PINGRESP, AUTH and what is acknowledged are read, the rest streams through.
//!
//! The only packets that do not reach the client are answers to the card's own PINGREQs.

use std::time::Instant;

use super::super::ConnId;
use super::super::arrivals::Arrivals;
use super::super::connection::{Phase, RequestKind};
use super::super::framer::{Handling, Piece};
use super::super::packet::{
    AUTH_SUCCESS, Acknowledgement, Auth, Connack, FixedHeader, Malformed, PacketType, Publish,
    Version,
};
use super::super::ping::Answer;
use super::Core;

impl Core {
    /// Bytes the broker wrote on this connection. Across connections in the order it wrote them.
    pub fn handle_broker(&mut self, conn: ConnId, bytes: &[u8], now: Instant) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.was_answered |= !bytes.is_empty();
        // Out of the table while its pieces are borrowed.
        let mut framer = std::mem::take(&mut connection.broker_framer);
        // An MQTT broker never speaks first: not a byte of another protocol's greeting is held.
        if connection.phase == Phase::AwaitConnect && framer.is_at_boundary() && !bytes.is_empty() {
            self.turn_opaque(conn, &Malformed::Type(bytes[0] >> 4));
            framer.give_up();
        }
        let mut input = bytes;
        while let Some(piece) = framer.next(&mut input, |header| self.broker_handling(conn, header))
        {
            match piece {
                Piece::Packet { header, bytes } => {
                    if let Err(error) = self.broker_packet(conn, &header, bytes, now) {
                        // It makes no sense, but it ends where it says: answers to the card's pings are still to be taken out.
                        let is_mqtt = header.packet_type != PacketType::Connack;
                        self.forward_to_client(conn, bytes, !is_mqtt);
                        if !is_mqtt {
                            self.drop_deferred(conn);
                            framer.give_up();
                        }
                        self.turn_opaque(conn, &error);
                    }
                }
                Piece::Start { header, bytes, is_last } => {
                    if header.packet_type == PacketType::Publish {
                        self.counters.deliveries_broker += 1;
                        self.see_unread(conn);
                        if header.qos() > 0 {
                            self.lose_identifiers(conn, now);
                        }
                    }
                    self.forward_to_client(conn, bytes, !is_last);
                }
                Piece::Part { bytes, is_last } => self.forward_to_client(conn, bytes, !is_last),
                Piece::Malformed { held, error } => {
                    self.forward_to_client(conn, held, true);
                    self.drop_deferred(conn);
                    if let Some(connection) = self.connections.get_mut(conn) {
                        connection.is_broker_lost = true;
                    }
                    self.turn_opaque(conn, &error);
                }
                Piece::Raw(bytes) => self.forward_to_client(conn, bytes, true),
            }
        }
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.broker_framer = framer;
        }
        // Copies that waited for the end of a packet may have waited too long.
        self.settle_exchanges(conn, now);
        self.note_gauges();
    }

    fn broker_handling(&self, conn: ConnId, header: &FixedHeader) -> Handling {
        let refusal = Handling::Refuse(Malformed::Type(header.packet_type as u8));
        let Some(connection) = self.connections.get(conn) else { return refusal };
        let is_v5 = connection.version == Version::V5;
        match (connection.phase, header.packet_type) {
            (Phase::AwaitConnect, _) => refusal,
            (Phase::Refused, _) => Handling::Stream,
            (Phase::AwaitConnack, PacketType::Connack) => self.whole_if_small(header),
            (_, PacketType::Auth) if is_v5 => self.whole_if_small(header),
            (_, PacketType::Disconnect) if is_v5 => Handling::Stream,
            (Phase::AwaitConnack, _) => refusal,
            (_, PacketType::Pingresp) if header.remaining_bytes == 0 => Handling::Whole,
            (_, PacketType::Suback | PacketType::Unsuback) => self.whole_if_small(header),
            (_, PacketType::Publish) if header.qos() > 0 => self.numbered_handling(conn, header),
            (_, PacketType::Publish) if self.is_observing() => self.handling_of_slow(header),
            (_, PacketType::Publish)
                if self.is_evidence(header) || self.is_proof(connection.version, header) =>
            {
                self.whole_or_stream(header)
            }
            (_, PacketType::Pubrel) => self.whole_if_small(header),
            (
                _,
                PacketType::Publish | PacketType::Puback | PacketType::Pubrec | PacketType::Pubcomp,
            ) => Handling::Stream,
            _ => refusal,
        }
    }

    /// Whether a PUBLISH of the broker's may be a copy that is waited for.
    fn is_evidence(&self, header: &FixedHeader) -> bool {
        header.qos() == 0 && self.arrivals.as_ref().is_some_and(Arrivals::is_watching)
    }

    /// Whether a PUBLISH of the broker's may prove that a subscription is honoured.
    fn is_proof(&self, version: Version, header: &FixedHeader) -> bool {
        version == Version::V31 && header.qos() == 0 && self.sessions.has_unproven()
    }

    /// Passes a whole packet on and handles it. On error nothing was passed on.
    fn broker_packet(
        &mut self,
        conn: ConnId,
        header: &FixedHeader,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), Malformed> {
        let body = &bytes[header.header_bytes..];
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(()) };
        let (version, session) = (connection.version, connection.session);
        match header.packet_type {
            PacketType::Pingresp => {
                if let Answer::Card(seq) = connection.pings.answer() {
                    connection.outbox.swallow_broker(bytes.len());
                    // Its credit is news.
                    self.forward_to_client(conn, &[], false);
                    self.ping_answered(conn, seq, now);
                    return Ok(());
                }
            }
            PacketType::Connack => {
                let connack = Connack::parse(version, body)?;
                if connack.session_present && connection.is_clean {
                    return Err(Malformed::Value("session present"));
                }
                self.forward_to_client(conn, bytes, false);
                self.handle_connack(conn, &connack);
                return Ok(());
            }
            PacketType::Suback => {
                let suback = Acknowledgement::parse(version, body)?;
                self.acknowledge(conn, RequestKind::Subscribe, &suback)?;
            }
            PacketType::Unsuback => {
                let unsuback = Acknowledgement::parse(version, body)?;
                self.acknowledge(conn, RequestKind::Unsubscribe, &unsuback)?;
            }
            PacketType::Publish if header.qos() > 0 => {
                return self.broker_publishes(conn, header, bytes);
            }
            PacketType::Pubrel => return self.broker_releases(conn, header, bytes),
            PacketType::Publish => {
                self.counters.deliveries_broker += 1;
                let whole = self.see(conn, header, bytes);
                // What cannot be read proves nothing, and is the client's to judge.
                if let Ok(copy) = Publish::parse(version, header.qos(), body) {
                    if let Some(arrivals) = &mut self.arrivals {
                        arrivals.see(conn, copy.topic, copy.payload);
                    }
                    if let (Version::V31, Some(session)) = (version, session) {
                        self.sessions.prove(session, copy.topic);
                    }
                }
                self.forward_to_client(conn, bytes, false);
                self.conclude_whole(whole, now);
                return Ok(());
            }
            PacketType::Auth if Auth::parse(body).reason_code == AUTH_SUCCESS => {
                self.set_reauthenticating(conn, false);
            }
            _ => {}
        }
        self.forward_to_client(conn, bytes, false);
        Ok(())
    }
}

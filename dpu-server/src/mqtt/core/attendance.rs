//! Who is there and who wants what: the broker's CONNACKs, SUBACKs and UNSUBACKs, and the ends of connections.

use std::time::{Duration, Instant};

use super::super::ConnId;
use super::super::aliases::Aliases;
use super::super::connection::{EarlyRequest, Phase, Request, RequestKind};
use super::super::inflight::Inflight;
use super::super::mutation::{Rule, is_off};
use super::super::packet::{Acknowledgement, Connack, Expiry, GrantedOptions, Malformed, Version};
use super::super::session::{Grant, Presence, SessionId, Subscriber};
use super::super::topic::Filter;
use super::Core;

/// Shortest time between an eaten packet and the PINGREQ that tells the broker of it.
const KEEP_ALIVE_DELAY_MIN: Duration = Duration::from_secs(1);

/// How much longer than the broker the card remembers a session. Forgetting it too early would be safe too, but dear:
/// should the broker still know it, it is a session the card does not know.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);

/// Reason Code of an UNSUBACK, MQTT 5 §3.11.3.
const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;

impl Core {
    /// The broker's verdict on a connection; it has been passed on.
    pub(super) fn handle_connack(&mut self, conn: ConnId, connack: &Connack<'_>) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(claimed) = connection.session else { return };
        if !connack.is_accepted {
            connection.phase = Phase::Refused;
            connection.session = None;
            self.sessions.release(claimed);
            self.forget_early_requests(conn);
            return;
        }
        connection.phase = Phase::Connected;
        let keep_alive_s = connack.server_keep_alive_s.unwrap_or(connection.keep_alive_s);
        let keep_alive = Duration::from_secs(u64::from(keep_alive_s));
        // Brokers that count whole seconds find one of a second exceeded by little more than a second of silence.
        connection.keep_alive.delay = (keep_alive_s > 0)
            .then(|| KEEP_ALIVE_DELAY_MIN.max(keep_alive / 10).min(keep_alive / 2));
        connection.broker_packet_bytes_max = connack.packet_bytes_max;
        connection.aliases = Aliases::new(connack.topic_alias_max);
        // mosquitto takes as many at a time as it sends: its max_inflight_messages, and says nothing if it has none.
        if connection.version == Version::V5 {
            self.brokers_inflight_max = Some(connack.receive_max.unwrap_or(u16::MAX));
        }
        let inflight_max = match self.config.limits.inflight_messages_max {
            0 => u16::MAX,
            max => max,
        };
        let inflight_max = self.brokers_inflight_max.unwrap_or(inflight_max);
        let inflight_max = connection.receive_max.unwrap_or(inflight_max);
        let inflight_max = if is_off(Rule::ReceiveMaximum) { u16::MAX } else { inflight_max };
        connection.inflight = Inflight::new(inflight_max);
        // In version 3 only an accepted PUBLISH says it.
        connection.may_publish_qos1 = connection.version == Version::V5 && connack.qos_max >= 1;
        if let Some(expiry_s) = connack.session_expiry_s {
            connection.expiry = Expiry::from_seconds(expiry_s);
        }
        let presence = match connection.version {
            Version::V31 if !connection.is_clean => Presence::Unsaid,
            _ if connack.session_present => Presence::Resumed,
            _ => Presence::Fresh,
        };
        // What waited for the session comes first, and may be older than what the card would add.
        if presence != Presence::Fresh {
            connection.backlog.raise();
            connection.inflight.resume();
        }
        let subscriber = Subscriber {
            conn,
            is_v5: connection.version == Version::V5,
            packet_bytes_max: connection.packet_bytes_max,
            is_backlogged: connection.backlog.is_raised(),
            is_persistent: connection.expiry.is_persistent(),
            is_unread: false,
        };
        let is_client_gone = connection.is_client_gone;
        let session = match connack.assigned_client_id {
            Some(name) if self.sessions.get(claimed).is_anonymous() => {
                self.sessions.rename(claimed, name)
            }
            _ => claimed,
        };
        self.take_over(session);
        self.sessions.accept(session, subscriber, presence);
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.session = Some(session);
        }
        self.open_early_requests(conn);
        if is_client_gone {
            self.leave(conn);
        }
    }

    /// Parts a session from the connection that has it so far. The broker closes that one.
    fn take_over(&mut self, session: SessionId) {
        let Some(old) = self.sessions.get(session).owner() else { return };
        self.abandon_requests(old);
        self.sessions.disown(session, None);
        if let Some(connection) = self.connections.get_mut(old) {
            connection.session = None;
            connection.phase = Phase::Left;
        }
    }

    fn open_early_requests(&mut self, conn: ConnId) {
        let early = self.forget_early_requests(conn);
        for request in &early {
            let filters: Result<Vec<_>, Malformed> = request
                .filters
                .iter()
                .map(|(text, options)| Ok((Filter::parse(text)?, *options)))
                .collect();
            let opened = filters.and_then(|filters| {
                self.open_request(conn, request.kind, request.packet_id, &filters)
            });
            if let Err(error) = opened {
                self.turn_opaque(conn, &error);
                return;
            }
        }
        if !early.is_empty() {
            self.put_barrier_behind_requests(conn);
        }
    }

    pub(super) fn forget_early_requests(&mut self, conn: ConnId) -> Vec<EarlyRequest> {
        let Some(connection) = self.connections.get_mut(conn) else { return Vec::new() };
        connection.early_bytes = 0;
        let early = std::mem::take(&mut connection.early_requests);
        if !early.is_empty() {
            self.blind_spots.early_subscribers -= 1;
        }
        early
    }

    /// A SUBSCRIBE or UNSUBSCRIBE of a connected client is under way.
    pub(super) fn open_request(
        &mut self,
        conn: ConnId,
        kind: RequestKind,
        packet_id: u16,
        filters: &[(Filter<'_>, GrantedOptions)],
    ) -> Result<(), Malformed> {
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(()) };
        let Some(session) = connection.session else { return Ok(()) };
        if connection.requested_filters + filters.len() > self.config.limits.unanswered_max {
            return Err(Malformed::Limit("unanswered requests"));
        }
        let mut entries = Vec::with_capacity(filters.len());
        for &(filter, options) in filters {
            match self.sessions.begin(session, filter, &self.config.limits) {
                Ok(id) => entries.push((id, options)),
                Err(error) => {
                    for (id, _) in entries {
                        self.sessions.doubt(id);
                    }
                    return Err(error);
                }
            }
        }
        connection.requested_filters += entries.len();
        connection.requests.push_back(Request {
            kind,
            packet_id,
            entries,
            is_answered: false,
            has_barrier: false,
            barrier: None,
        });
        Ok(())
    }

    /// The broker answered a SUBSCRIBE or UNSUBSCRIBE.
    pub(super) fn acknowledge(
        &mut self,
        conn: ConnId,
        kind: RequestKind,
        answer: &Acknowledgement<'_>,
    ) -> Result<(), Malformed> {
        let Some(connection) = self.connections.get_mut(conn) else { return Ok(()) };
        let version = connection.version;
        let request = connection.requests.iter_mut().find(|request| {
            !request.is_answered && request.kind == kind && request.packet_id == answer.packet_id
        });
        let Some(request) = request else {
            let (packet_id, times) = &mut connection.answered_again;
            let is_again =
                kind == RequestKind::Unsubscribe && *packet_id == answer.packet_id && *times > 0;
            *times -= usize::from(is_again);
            // Requests of an opaque connection are not read, and a session that ended has none.
            let is_expected = is_again || connection.is_opaque || connection.session.is_none();
            return if is_expected { Ok(()) } else { Err(Malformed::Unsolicited) };
        };
        let has_codes = kind == RequestKind::Subscribe || version == Version::V5;
        if answer.codes.len() != if has_codes { request.entries.len() } else { 0 } {
            // aedes answers a filter that is asked for twice once. Which codes are for what is open; the stream is not another
            // language for it, and has answers to the card's pings in it.
            let entries = std::mem::take(&mut request.entries);
            request.is_answered = true;
            connection.requested_filters -= entries.len();
            entries.iter().for_each(|&(id, _)| self.sessions.doubt(id));
            self.settle_requests(conn);
            return Ok(());
        }
        request.is_answered = true;
        if !has_codes {
            connection.answered_again = (answer.packet_id, request.entries.len().saturating_sub(1));
        }
        for (index, &(id, options)) in request.entries.iter().enumerate() {
            let code = answer.codes.get(index).copied();
            match kind {
                _ if code.is_some_and(|code| code >= 0x80) => {}
                RequestKind::Subscribe => {
                    let is_unproven = version == Version::V31;
                    let qos = code.unwrap_or(options.qos);
                    let options = GrantedOptions { qos, ..options };
                    let grant = Grant { options, is_unproven, is_no_local_unclear: false };
                    self.sessions.grant(id, grant);
                }
                RequestKind::Unsubscribe if code == Some(NO_SUBSCRIPTION_EXISTED) => {
                    self.sessions.contradict(id);
                }
                RequestKind::Unsubscribe => self.sessions.revoke(id),
            }
        }
        self.settle_requests(conn);
        Ok(())
    }

    /// Forgets the requests that are answered and whose barrier is back.
    pub(super) fn settle_requests(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.requests.retain(|request| {
            let is_settled = request.is_answered && request.barrier.is_none();
            if is_settled {
                connection.requested_filters -= request.entries.len();
                for &(id, _) in &request.entries {
                    self.sessions.settle(id);
                }
            }
            !is_settled
        });
    }

    /// No more answers will come on this connection for the session it has.
    fn abandon_requests(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.requested_filters = 0;
        for request in std::mem::take(&mut connection.requests) {
            for (id, _) in request.entries {
                if request.is_answered {
                    self.sessions.settle(id);
                } else {
                    self.sessions.doubt(id);
                }
            }
        }
    }

    /// The client is gone: its session ends, or waits for it. Answers of the broker may still come.
    pub(super) fn leave(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Some(session) = connection.session else { return };
        if connection.phase == Phase::AwaitConnack {
            return;
        }
        if connection.is_opaque {
            self.sessions.set_opaque(session, true);
        }
        if !connection.expiry.is_persistent() {
            connection.session = None;
            connection.requests.clear();
            connection.requested_filters = 0;
        }
        self.sessions.end(session, connection.expiry.is_persistent());
    }

    /// The broker is done with this connection: nothing it was asked will be answered.
    pub(super) fn detach(&mut self, conn: ConnId, now: Instant) {
        self.leave(conn);
        self.stop_observing(conn);
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let was_opaque = std::mem::take(&mut connection.is_opaque);
        if was_opaque {
            let phase = connection.phase;
            // Its messages are read no more than before.
            let held = connection.client_framer.give_up();
            if !held.is_empty() {
                self.forward_unread(conn, &held, true);
            }
            self.blind_spots.opaque_connections -= 1;
            self.disturb_observing();
            self.judge_unread(conn, phase);
        }
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let phase = std::mem::replace(&mut connection.phase, Phase::Left);
        let Some(session) = connection.session.take() else { return };
        if phase == Phase::AwaitConnack {
            self.drop_claim(conn, session, was_opaque);
        } else {
            let expires_at = match connection.expiry {
                Expiry::After(time) => now.checked_add(time + EXPIRY_MARGIN),
                Expiry::AtOnce | Expiry::Never => None,
            };
            self.abandon_requests(conn);
            self.sessions.disown(session, expires_at);
        }
    }
}

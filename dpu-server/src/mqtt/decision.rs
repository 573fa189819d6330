//! Who distributes a PUBLISH: the card or the broker. Decided here and nowhere else.
//!
//! ```text
//! fixed header ─► rule_out ─► topic, properties ─► blind spots ─► route ─► sizes ─► permission ─► order ─► Card
//!                     └────────────┴──────────────────┴────────────┴────────┴─────────┴──────────┴────► Broker(reason)
//! ```
//!
//! The rule behind all rules: the card takes a PUBLISH only where every subscriber provably gets what the broker would
//! have sent it. A message is wholly the card's or wholly the broker's. Checks run from cheap to dear; the first that
//! fails names the reason. [`rule_out`] is asked when the fixed header is there, [`decide`] about a packet that is here
//! whole; who subscribed is `routes`' to find.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use super::ConnId;
use super::arrivals::Arrivals;
use super::config::{ACK_BYTES_MAX, Limits};
use super::connection::Connections;
use super::mutation::{Rule, is_off};
use super::observe::{Observer, Size};
use super::packet::{FixedHeader, Publish};
use super::routes::{Route, Routes};
use super::session::Sessions;
use super::topic;

/// Why a PUBLISH went to the broker. The order is the order of the checks.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(usize)]
pub enum Reason {
    /// Trust is by observation, and of a broker other than mosquitto something was not seen: what it may make of that may still come.
    TrustNotEstablished,
    /// The publisher has no accepted CONNACK, or has said goodbye.
    NotConnected,
    /// The publisher is proving its identity anew.
    Reauthenticating,
    /// QoS 2; or QoS 1 on a broker whose ways are not known, or that has yet to show that it takes QoS 1 from this publisher.
    QosAboveZero,
    /// RETAIN is set.
    Retained,
    /// DUP is set.
    Duplicate,
    /// The publisher does not read its acknowledgements.
    PublisherBlocked,
    /// Larger than what is inspected, or than what the broker said it accepts.
    TooLarge,
    /// Its Topic Alias is news to the broker, or stands for a topic the card does not know.
    TopicAlias,
    /// Its Message Expiry Interval is 0, which brokers understand differently.
    ExpiresAtOnce,
    /// The topic starts with `$`.
    DollarTopic,
    /// Topic or properties hold control or non-characters, which some brokers refuse.
    DiscouragedCharacters,
    /// The topic has too many levels.
    TopicTooDeep,
    /// The broker listens somewhere the card does not see.
    OutsideListener,
    /// The broker has a connection of its own, perhaps a bridge, that the card does not see.
    OutsideConnection,
    /// The broker has loaded a plugin the card does not know, and nobody trusts.
    Plugin,
    /// Some connection cannot be read: TLS, WebSocket, a bridge, a malformed packet, a limit.
    OpaqueConnection,
    /// The broker went on with a session whose subscriptions the card does not know.
    UnknownSession,
    /// The broker may keep sessions from before the card, and this message for them.
    OlderSessions,
    /// A SUBSCRIBE or UNSUBSCRIBE that matches is under way.
    SubscribePending,
    /// A CONNECT with the client identifier of a matching session is under way.
    SessionUnsettled,
    /// A matching session is not connected, and the broker may keep the message for it.
    SubscriberOffline,
    /// A matching subscription is shared.
    SharedSubscription,
    /// A matching subscription has the No Local option, and the broker is not known to honour it, or was told both with and without.
    NoLocal,
    /// A matching subscription has a Subscription Identifier, and the broker is not known to send it; or there are too many.
    SubscriptionIdentifier,
    /// A matching subscription is of MQTT 3.1, whose SUBACK cannot refuse and so proves nothing, and nothing has come of it yet.
    UnprovenGrant,
    /// One client has two matching filters, and the broker may make one copy of that or two.
    OverlappingSubscriptions,
    /// The broker may still hold messages for a matching subscriber.
    SubscriberBacklogged,
    /// Nobody the card knows of.
    NoMatch,
    /// A matching session outlives its connection, and has to be offered a message with QoS 1 again if it is not acknowledged.
    PersistentSession,
    /// A subscriber was sent a message that was too large to be read, so that Packet Identifiers are in use that the card does not know.
    IdentifiersUnknown,
    /// A copy exceeds a subscriber's Maximum Packet Size, and what the broker makes of that is not known; or has QoS 1, and the broker may
    /// have stopped sending those to a subscriber with such a limit.
    MaximumPacketSize,
    /// A copy does not fit into the bytes a subscriber, or all of them, may have waiting, which is a bound of the card's alone.
    SubscriberFull,
    /// Who may do what may be changing: a `$CONTROL` message, an AUTH or a CONNECT with the publisher's client identifier is under way.
    PolicyUnsettled,
    /// The publisher's first PUBLISH on the topic.
    Unobserved,
    /// It shows who gets the publisher's messages on the topic: the broker is watched.
    Probe,
    /// It would have shown that, but copies of it could not be told from something else that is on its way.
    Ambiguous,
    /// Earlier ones did not show who gets the publisher's messages on the topic. Looked at again later.
    Unproven,
    /// Earlier ones showed that nobody gets the publisher's messages on the topic: the broker refuses them. Looked at again later.
    NobodyServed,
    /// The card would have distributed it, and only compares.
    Shadow,
    /// An earlier PUBLISH of this publisher on the topic went to the broker, and may still be on its way.
    BarrierOut,
}

impl Reason {
    /// Every reason, in order.
    pub const ALL: [Self; 41] = [
        Self::TrustNotEstablished,
        Self::NotConnected,
        Self::Reauthenticating,
        Self::QosAboveZero,
        Self::Retained,
        Self::Duplicate,
        Self::PublisherBlocked,
        Self::TooLarge,
        Self::TopicAlias,
        Self::ExpiresAtOnce,
        Self::DollarTopic,
        Self::DiscouragedCharacters,
        Self::TopicTooDeep,
        Self::OutsideListener,
        Self::OutsideConnection,
        Self::Plugin,
        Self::OpaqueConnection,
        Self::UnknownSession,
        Self::OlderSessions,
        Self::SubscribePending,
        Self::SessionUnsettled,
        Self::SubscriberOffline,
        Self::SharedSubscription,
        Self::NoLocal,
        Self::SubscriptionIdentifier,
        Self::UnprovenGrant,
        Self::OverlappingSubscriptions,
        Self::SubscriberBacklogged,
        Self::NoMatch,
        Self::PersistentSession,
        Self::IdentifiersUnknown,
        Self::MaximumPacketSize,
        Self::SubscriberFull,
        Self::PolicyUnsettled,
        Self::Unobserved,
        Self::Probe,
        Self::Ambiguous,
        Self::Unproven,
        Self::NobodyServed,
        Self::Shadow,
        Self::BarrierOut,
    ];

    /// The value of the `reason` label in metrics; stable.
    pub fn label(self) -> &'static str {
        match self {
            Self::TrustNotEstablished => "trust_not_established",
            Self::NotConnected => "not_connected",
            Self::Reauthenticating => "reauthenticating",
            Self::QosAboveZero => "qos_above_zero",
            Self::Retained => "retained",
            Self::Duplicate => "duplicate",
            Self::PublisherBlocked => "publisher_blocked",
            Self::TooLarge => "too_large",
            Self::TopicAlias => "topic_alias",
            Self::ExpiresAtOnce => "expires_at_once",
            Self::DollarTopic => "dollar_topic",
            Self::DiscouragedCharacters => "discouraged_characters",
            Self::TopicTooDeep => "topic_too_deep",
            Self::OutsideListener => "outside_listener",
            Self::OutsideConnection => "outside_connection",
            Self::Plugin => "plugin",
            Self::OpaqueConnection => "opaque_connection",
            Self::UnknownSession => "unknown_session",
            Self::OlderSessions => "older_sessions",
            Self::SubscribePending => "subscribe_pending",
            Self::SessionUnsettled => "session_unsettled",
            Self::SubscriberOffline => "subscriber_offline",
            Self::SharedSubscription => "shared_subscription",
            Self::NoLocal => "no_local",
            Self::SubscriptionIdentifier => "subscription_identifier",
            Self::UnprovenGrant => "unproven_grant",
            Self::OverlappingSubscriptions => "overlapping_subscriptions",
            Self::SubscriberBacklogged => "subscriber_backlogged",
            Self::NoMatch => "no_match",
            Self::PersistentSession => "persistent_session",
            Self::IdentifiersUnknown => "identifiers_unknown",
            Self::MaximumPacketSize => "maximum_packet_size",
            Self::SubscriberFull => "subscriber_full",
            Self::PolicyUnsettled => "policy_unsettled",
            Self::Unobserved => "unobserved",
            Self::Probe => "probe",
            Self::Ambiguous => "ambiguous",
            Self::Unproven => "unproven",
            Self::NobodyServed => "nobody_served",
            Self::Shadow => "shadow",
            Self::BarrierOut => "barrier_out",
        }
    }
}

/// A number for each [`Reason`], indexed by it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ByReason(pub [u64; Reason::ALL.len()]);

impl Default for ByReason {
    fn default() -> Self {
        Self([0; Reason::ALL.len()])
    }
}

impl Deref for ByReason {
    type Target = [u64; Reason::ALL.len()];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for ByReason {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// Who distributes a PUBLISH.
#[derive(Debug)]
pub(crate) enum Decision<'r> {
    /// The card, to the subscribers of this route but for those left out, which are sorted.
    Card(&'r Route, &'r [ConnId]),
    /// The broker.
    Broker(Reason),
}

/// What cannot be seen from here, whatever the topic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlindSpots {
    pub(crate) outside_listeners: u32,
    pub(crate) outside_connections: u32,
    pub(crate) plugins: u32,
    pub(crate) opaque_connections: u32,
    /// Sessions the broker went on with, or the card had no room for.
    pub(crate) unknown_sessions: usize,
    /// Connections with a SUBSCRIBE before their CONNACK: whose session it changes is not known yet.
    pub(crate) early_subscribers: u32,
}

impl BlindSpots {
    /// Why no PUBLISH at all is the card's, if so.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let Self { outside_listeners, outside_connections, opaque_connections, .. } = *self;
        match self {
            _ if outside_listeners > 0 => Some(Reason::OutsideListener),
            _ if outside_connections > 0 => Some(Reason::OutsideConnection),
            _ if self.plugins > 0 => Some(Reason::Plugin),
            _ if opaque_connections > 0 => Some(Reason::OpaqueConnection),
            _ if self.unknown_sessions > 0 => Some(Reason::UnknownSession),
            _ if self.early_subscribers > 0 => Some(Reason::SubscribePending),
            _ => None,
        }
    }
}

/// What sessions from before the card would get that the card does not know of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OlderSessions {
    /// There are none.
    None,
    /// Messages with QoS 1.
    TakeQos1,
    /// Messages with QoS 0 as well.
    TakeAll,
}

impl OlderSessions {
    /// Why a message with this QoS is the broker's whatever its topic, if so.
    pub(crate) fn reason(self, qos: u8) -> Option<Reason> {
        match self {
            Self::None => None,
            Self::TakeQos1 => (qos > 0).then_some(Reason::OlderSessions),
            Self::TakeAll => Some(Reason::OlderSessions),
        }
    }
}

/// What a decision rests on besides the packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Trust is by observation, and there is nothing that can observe.
    pub(crate) is_untrusted: bool,
    /// A CONNECT under way may change who the publisher is.
    pub(crate) is_identity_unsettled: bool,
    pub(crate) is_connected: bool,
    pub(crate) is_reauthenticating: bool,
    /// Largest packet the broker takes from this publisher, in bytes.
    pub(crate) broker_packet_bytes_max: u32,
    /// An earlier PUBLISH of this publisher on the topic may still be on its way through the broker.
    pub(crate) is_held_up: bool,
    /// The broker is known, and known to take QoS 1 from this publisher.
    pub(crate) takes_qos1: bool,
    /// Bytes of the card's acknowledgements that wait for this publisher.
    pub(crate) ack_bytes: usize,
    /// Bytes of copies that wait for all subscribers together.
    pub(crate) outbox_total_bytes: usize,
    /// The PUBLISH teaches the broker a Topic Alias.
    pub(crate) is_alias_news: bool,
    pub(crate) blind_spots: BlindSpots,
    pub(crate) older_sessions: OlderSessions,
}

/// What the fixed header of a PUBLISH alone rules out: such a packet is not even held.
pub(crate) fn rule_out(facts: &Facts, header: &FixedHeader, limits: &Limits) -> Option<Reason> {
    let held_bytes_max = limits.inspect_bytes_max + super::config::PUBLISH_HEADER_BYTES_MAX;
    match header {
        _ if facts.is_untrusted => facts.blind_spots.reason().or(Some(Reason::TrustNotEstablished)),
        _ if !facts.is_connected => Some(Reason::NotConnected),
        _ if facts.is_reauthenticating => Some(Reason::Reauthenticating),
        _ if header.qos() > u8::from(facts.takes_qos1) => Some(Reason::QosAboveZero),
        _ if header.is_retained() => Some(Reason::Retained),
        _ if header.is_duplicate() => Some(Reason::Duplicate),
        _ if header.qos() > 0 && facts.ack_bytes > ACK_BYTES_MAX => Some(Reason::PublisherBlocked),
        _ if header.packet_bytes() > held_bytes_max
            || header.packet_bytes() > facts.broker_packet_bytes_max as usize =>
        {
            Some(Reason::TooLarge)
        }
        _ => None,
    }
}

/// Decides about one PUBLISH of `publisher` that is here whole. A Topic Alias has been resolved, unless it has to be the broker's.
/// With an observer, it has to be known who gets it. With `arrivals`, copies prove that a slow publisher's way is clear.
#[allow(clippy::too_many_arguments, reason = "the packet twice, and what is known in five")]
pub(crate) fn decide<'r>(
    facts: &Facts,
    publisher: ConnId,
    header: &FixedHeader,
    publish: &Publish<'_>,
    limits: &Limits,
    connections: &Connections,
    sessions: &mut Sessions,
    routes: &'r mut Routes,
    observer: Option<(&'r mut Observer, Instant)>,
    arrivals: Option<&Arrivals>,
) -> Decision<'r> {
    let by_itself = match publish {
        _ if publish.payload.len() > limits.inspect_bytes_max => Some(Reason::TooLarge),
        _ if publish.topic.is_empty() || facts.is_alias_news => Some(Reason::TopicAlias),
        _ if publish.expiry_s() == Some(0) => Some(Reason::ExpiresAtOnce),
        _ if publish.topic.starts_with('$') => Some(Reason::DollarTopic),
        _ if publish.has_discouraged_characters => Some(Reason::DiscouragedCharacters),
        _ if topic::levels(publish.topic) > limits.topic_levels_max => Some(Reason::TopicTooDeep),
        _ => None,
    };
    if let Some(reason) =
        rule_out(facts, header, limits).or(by_itself).or_else(|| facts.blind_spots.reason())
    {
        return Decision::Broker(reason);
    }
    if let Some(reason) = facts.older_sessions.reason(header.qos()) {
        return Decision::Broker(reason);
    }
    let route = routes.find(publish.topic, sessions);
    if let Some(reason) = route.obstacle_for(header.qos()) {
        return Decision::Broker(reason);
    }
    if header.qos() > 0 && route.has_queued(connections) {
        return Decision::Broker(Reason::SubscriberBacklogged);
    }
    if !route.reaches_others(publisher) {
        return Decision::Broker(Reason::NoMatch);
    }
    if route.has_doubtful_size(publish) {
        return Decision::Broker(Reason::MaximumPacketSize);
    }
    if route.has_full_subscriber(publish, connections, limits, facts.outbox_total_bytes) {
        return Decision::Broker(Reason::SubscriberFull);
    }
    let left_out = match observer {
        None => &[],
        Some(_) if facts.is_identity_unsettled => return Decision::Broker(Reason::PolicyUnsettled),
        Some((observer, now)) => {
            match observer.check(publisher, publish.topic, route, Size::of(publish), now) {
                Ok(left_out) => left_out,
                Err(reason) => return Decision::Broker(reason),
            }
        }
    };
    let is_settled = || arrivals.is_some_and(|it| it.is_settled(publisher, publish.topic, route));
    if facts.is_held_up && !is_off(Rule::Barrier) && !is_settled() {
        return Decision::Broker(Reason::BarrierOut);
    }
    Decision::Card(route, left_out)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_lists_every_reason_once_and_in_order() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
        assert_eq!(Reason::BarrierOut as usize + 1, Reason::ALL.len());
    }

    #[test]
    fn labels_are_distinct_snake_case() {
        let labels: HashSet<_> = Reason::ALL.iter().map(|reason| reason.label()).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
        for label in labels {
            assert!(label.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()));
        }
    }
}

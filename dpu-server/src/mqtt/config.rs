//! What the operator can set: how far to trust the broker's SUBACK, and a limit on everything that grows.

use std::sync::Arc;
use std::time::Duration;

/// How the card learns who may receive what.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Trust {
    /// A publisher's messages on a topic are distributed by the card once it has seen the broker do the same.
    #[default]
    Observed,
    /// A granted SUBACK is permission. For brokers that authorise at SUBSCRIBE and PUBLISH.
    Suback,
}

/// What becomes of a decision for the card.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// The card distributes.
    #[default]
    Live,
    /// The broker distributes all the same; the card compares what it would have done.
    Shadow,
}

/// Settings of one [`Core`](super::Core).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CoreConfig {
    /// How the card learns who may receive what.
    pub trust: Trust,
    /// Whether the card distributes, or only compares.
    pub mode: Mode,
    /// How long what was observed counts where the broker's policy can change unseen.
    pub route_ttl: Duration,
    /// Plugins of the broker, by file name or path, that neither change nor deny messages unseen.
    pub trusted_plugins: Arc<[String]>,
    /// Whether the broker keeps messages with QoS 0 for a session that is offline. If not, such a session is no reason to pass a
    /// PUBLISH with QoS 0 to the broker. `None`: nobody has said it.
    pub keeps_offline_qos0: Option<bool>,
    /// The broker may keep sessions from before the card, of which nobody here knows what they subscribed to.
    pub has_older_sessions: bool,
    /// Bounds.
    pub limits: Limits,
}

impl Default for CoreConfig {
    fn default() -> Self {
        Self {
            trust: Trust::default(),
            mode: Mode::default(),
            route_ttl: Duration::from_secs(5),
            trusted_plugins: Arc::default(),
            keeps_offline_qos0: None,
            has_older_sessions: false,
            limits: Limits::default(),
        }
    }
}

/// Bounds of one [`Core`](super::Core). Reaching one is an ordinary outcome: the work goes to the broker, or a copy is
/// dropped and counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest payload the card distributes, and largest other packet it holds to read it, in bytes. A larger PUBLISH
    /// goes to the broker; with a larger packet of another kind the connection becomes opaque.
    pub inspect_bytes_max: usize,
    /// Bytes of the card's copies one client may have waiting. The next PUBLISH that would make it more goes to the broker.
    pub outbox_bytes_max: usize,
    /// Copies one client may have waiting. The next copy is dropped.
    pub outbox_messages_max: usize,
    /// Bytes of copies waiting for all clients together, each copy counted in full though they share memory. Beyond, what is for a
    /// client with more than a little waiting goes to the broker.
    pub outbox_total_bytes_max: usize,
    /// Subscriptions of all sessions together. With one more the connection becomes opaque.
    pub subscriptions_max: usize,
    /// Levels of a Topic Name the card distributes, and of a Topic Filter it remembers.
    pub topic_levels_max: usize,
    /// Sessions, connected or not. A client beyond it is opaque.
    pub sessions_max: usize,
    /// Filters in SUBSCRIBEs and UNSUBSCRIBEs of one connection that the broker has not answered. With one more it
    /// becomes opaque.
    pub unanswered_max: usize,
    /// Messages with QoS 1 and 2 a client may have unacknowledged, unless it has said so itself (Receive Maximum); 0: as many as there are
    /// identifiers. Must not be more than the broker's own limit. A CONNACK of MQTT 5 tells that; until one has, this holds.
    pub inflight_messages_max: u16,
    /// Copies with QoS 1 of the card's that may wait for one client's acknowledgements. The next copy is dropped.
    pub queued_messages_max: usize,
    /// Topics whose subscribers are remembered. With one more all are forgotten and found anew.
    pub routes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            inspect_bytes_max: 64 * 1024,
            // As many copies as may wait, of the largest size.
            outbox_bytes_max: 68 * 1024 * 1024,
            // mosquitto's max_queued_messages.
            outbox_messages_max: 1_000,
            outbox_total_bytes_max: 256 * 1024 * 1024,
            subscriptions_max: 1_000_000,
            topic_levels_max: 128,
            sessions_max: 250_000,
            unanswered_max: 16_384,
            // mosquitto's max_inflight_messages and max_queued_messages.
            inflight_messages_max: 20,
            queued_messages_max: 1_000,
            routes_max: 4_096,
        }
    }
}

/// Bytes of the card's acknowledgements that may wait for one publisher. With more, its PUBLISHes go to the broker.
pub(crate) const ACK_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a PUBLISH besides its payload that are held with it: fixed header, topic, properties.
pub(crate) const PUBLISH_HEADER_BYTES_MAX: usize = 4 * 1024;

//! The traps of accelerating MQTT: what goes wrong if a card is not careful. Each has a rule in the card; the oracle counts how often
//! its scenarios walk into each.

/// A trap, by its number from 1 to 34.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Trap(pub usize);

/// How many there are.
pub const TRAPS: usize = NAMES.len();

/// Name; the reasons of the card that answer to it (`mqttshim_publish_total{reason=…}`); where else it is tested, for those no
/// scenario can reach.
type Entry = (&'static str, &'static [&'static str], &'static str);

const NAMES: [Entry; 34] = [
    ("publishing is denied without a word", &[], ""),
    ("reading is denied at delivery, not at SUBSCRIBE", &["unproven_grant"], ""),
    ("packets before the CONNACK", &["not_connected"], ""),
    ("packet identifiers are one space", &["qos_above_zero"], ""),
    ("a session is resumed", &["subscriber_backlogged"], ""),
    ("QoS becomes less on the way", &["qos_above_zero"], ""),
    ("QoS 2 and DUP from the publisher", &["duplicate"], ""),
    ("overlapping subscriptions", &["overlapping_subscriptions"], ""),
    ("No Local", &["no_local"], ""),
    ("shared subscriptions and $ topics", &["shared_subscription", "dollar_topic"], ""),
    ("topic aliases", &["topic_alias"], ""),
    ("subscription identifiers", &["subscription_identifier"], ""),
    ("retained messages", &["retained"], ""),
    ("offline sessions miss it", &["subscriber_offline", "unknown_session"], ""),
    ("order behind what the broker delivers", &["barrier_out"], ""),
    ("the window around SUBSCRIBE", &["subscribe_pending"], ""),
    ("a client identifier is taken over", &["session_unsettled"], ""),
    ("the broker thinks an eaten publisher silent", &[], ""),
    ("Receive Maximum of two senders", &[], ""),
    ("sizes", &["too_large", "maximum_packet_size"], ""),
    ("mount points", &[], ""),
    (
        "subscribers the card does not see",
        &["outside_listener", "outside_connection"],
        "dpu-server mqtt::tests::decisions",
    ),
    ("the broker's counters and logs", &[], "documented, not compared"),
    ("plugins change or deny messages", &["plugin"], "dpu-server mqtt::tests::policy"),
    ("wills", &[], ""),
    ("PUBACK says nobody subscribed", &["no_match"], ""),
    ("message expiry", &["expires_at_once"], ""),
    ("between MQTT 3 and 5", &[], ""),
    ("a subscriber that does not read", &["subscriber_backlogged"], ""),
    ("malformed packets", &["opaque_connection"], ""),
    ("the client's address", &[], "integration tests/parity.rs"),
    ("TLS ends at the broker", &["opaque_connection"], "dpu-server mqtt::tests::streams"),
    ("the card restarts", &["unknown_session"], ""),
    ("no order across topics", &[], ""),
];

impl Trap {
    /// Every one, in order.
    pub fn all() -> impl Iterator<Item = Trap> {
        (1..=TRAPS).map(Trap)
    }

    /// What goes wrong.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[self.0 - 1].0
    }

    /// The labels of the card's reasons for it.
    #[must_use]
    pub fn reasons(self) -> &'static [&'static str] {
        NAMES[self.0 - 1].1
    }

    /// Where it is tested if no scenario reaches it; empty if they do.
    #[must_use]
    pub fn elsewhere(self) -> &'static str {
        NAMES[self.0 - 1].2
    }
}

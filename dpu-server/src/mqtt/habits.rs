//! What is known of a broker's ways, where MQTT leaves room or brokers take it.
//!
//! mosquitto's are known from its source, 2.0 and 2.1 alike, and compared with it by the differential oracle. Of any other
//! program nothing is assumed: what depends on a habit goes to the broker.

/// See the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Habits {
    /// The options of a version 5 subscription and connection are honoured as MQTT 5 says: No Local, Subscription Identifier,
    /// Maximum Packet Size. A client with several matching subscriptions gets a copy for each, in the order of the tree
    /// (`trie`).
    pub(crate) follows_options: bool,
    /// An offline session gets nothing with QoS 0. The operator says so.
    pub(crate) drops_offline_qos0: bool,
}

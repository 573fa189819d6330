//! What the core counts, as plain numbers. Whoever serves metrics reads them; nothing here is shared between threads.

use super::decision::{ByReason, Reason};

/// Why a copy of the card did not reach one subscriber.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub enum DropReason {
    /// The subscriber has too many copies waiting.
    Messages,
    /// Too many copies with QoS 1 wait for the subscriber's acknowledgements.
    QueuedMessages,
    /// The subscriber has too many bytes waiting.
    Bytes,
    /// All subscribers together have too many bytes waiting.
    TotalBytes,
    /// The broker's stream to this subscriber ended or broke in the middle of a packet.
    BrokenStream,
    /// It is larger than the subscriber said it accepts [MQTT-3.1.2-25].
    MaximumPacketSize,
    /// It waited as long as its publisher allowed [MQTT-3.3.2-5].
    Expired,
}

impl DropReason {
    /// Every reason, in order.
    pub const ALL: [Self; 7] = [
        Self::Messages,
        Self::QueuedMessages,
        Self::Bytes,
        Self::TotalBytes,
        Self::BrokenStream,
        Self::MaximumPacketSize,
        Self::Expired,
    ];

    /// The subscriber does not keep up; nothing else is wrong with the copy.
    pub(crate) fn is_overload(self) -> bool {
        matches!(self, Self::Messages | Self::QueuedMessages | Self::Bytes | Self::TotalBytes)
    }

    /// The value of the `reason` label in metrics; stable.
    pub fn label(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::QueuedMessages => "queued_messages",
            Self::Bytes => "bytes",
            Self::TotalBytes => "total_bytes",
            Self::BrokenStream => "broken_stream",
            Self::MaximumPacketSize => "maximum_packet_size",
            Self::Expired => "expired",
        }
    }
}

/// Counts since the core was made, and how many there are of things that come and go.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// PUBLISHes the card distributed.
    pub publishes_card: u64,
    /// PUBLISHes that went to the broker, indexed by [`Reason`].
    pub publishes_broker: ByReason,
    /// Copies the card queued for a subscriber.
    pub deliveries_card: u64,
    /// Acknowledgements of clients that were for copies of the card's.
    pub acknowledgements_card: u64,
    /// PUBLISHes the broker wrote to a client.
    pub deliveries_broker: u64,
    /// Copies that did not reach their subscriber, indexed by [`DropReason`].
    pub outbox_dropped: [u64; DropReason::ALL.len()],
    /// PINGREQs added to a stream towards the broker.
    pub pings_injected: u64,
    /// PUBLISHes that waited for what became of an earlier one.
    pub publishes_held: u64,
    /// PUBLISHes watched on their way through the broker, after which it was known who gets such messages.
    pub windows_whole: u64,
    /// The same, after which it was not.
    pub windows_failed: u64,
    /// PUBLISHes of which the broker made what the card would have made; with decision `shadow` only, as the two below.
    pub shadow_same: u64,
    /// PUBLISHes of which it made something else.
    pub shadow_different: u64,
    /// PUBLISHes of which that cannot be told.
    pub shadow_unproven: u64,
    /// Times that the broker may have changed who may do what.
    pub policy_changes: u64,
    /// Connections that became opaque.
    pub turned_opaque: u64,
    /// Connections now.
    pub connections: u64,
    /// Sessions now, connected or not.
    pub sessions: u64,
    /// Subscriptions now, granted or under way.
    pub subscriptions: u64,
    /// Topics whose subscribers are remembered now.
    pub routes: u64,
    /// Publishers' topics of which something was learned from the broker, now.
    pub learned: u64,
}

impl Counters {
    /// PUBLISHes that went to the broker for this reason.
    pub fn broker(&self, reason: Reason) -> u64 {
        self.publishes_broker[reason as usize]
    }

    /// Copies that did not reach their subscriber for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.outbox_dropped[reason as usize]
    }
}

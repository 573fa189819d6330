//! What the core keeps of one client's connection.
//!
//! ```text
//! AwaitConnect ─CONNECT─► AwaitConnack ─accepted─► Connected ─DISCONNECT─► Left
//!                              └─refused─► Refused
//! ```
//!
//! Orthogonal to the phase a connection may be *opaque*: no longer looked at. State only; the rules are in `core`.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::ConnId;
use super::aliases::Aliases;
use super::config::Limits;
use super::framer::Framer;
use super::inflight::Inflight;
use super::observe::Says;
use super::outbox::{ByteQueue, Outbox, TotalBytes};
use super::packet::{Encoded, Expiry, FixedHeader, GrantedOptions, Version};
use super::ping::{Barrier, PingSeq, Pings};
use super::session::SessionId;
use super::slow::Slow;
use super::trie::SubscriptionId;
use mqttshim_port::prefetch::soon;

/// How far the connection has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Nothing yet.
    AwaitConnect,
    /// The broker has the CONNECT.
    AwaitConnack,
    /// The broker accepted.
    Connected,
    /// The broker refused; it will close.
    Refused,
    /// The client said DISCONNECT.
    Left,
}

/// Which request an acknowledgement must answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RequestKind {
    Subscribe,
    Unsubscribe,
}

/// A SUBSCRIBE or UNSUBSCRIBE under way.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) kind: RequestKind,
    pub(crate) packet_id: u16,
    /// In the packet's order. Options mean nothing for UNSUBSCRIBE.
    pub(crate) entries: Vec<(SubscriptionId, GrantedOptions)>,
    pub(crate) is_answered: bool,
    /// A ping was put behind it.
    pub(crate) has_barrier: bool,
    /// The ping that is still out; without one the answer alone settles it.
    pub(crate) barrier: Option<PingSeq>,
}

/// A SUBSCRIBE or UNSUBSCRIBE that came before the CONNACK: whose session it changes is not known yet.
#[derive(Debug)]
pub(crate) struct EarlyRequest {
    pub(crate) kind: RequestKind,
    pub(crate) packet_id: u16,
    pub(crate) filters: Vec<(Box<str>, GrantedOptions)>,
}

/// When the broker has to be told that a client is alive whose packets the card ate.
#[derive(Debug, Default)]
pub(crate) struct KeepAlive {
    /// Longest time between an eaten packet and the PINGREQ; `None`: the client asked for no keep alive.
    pub(crate) delay: Option<Duration>,
    /// A packet was eaten and nothing went to the broker since.
    pub(crate) due: Option<Instant>,
    /// The entry in the core's heap of timers. Never later than `due`.
    pub(crate) timer: Option<Instant>,
    /// The ping that is out for this.
    pub(crate) ping: Option<PingSeq>,
}

/// What a client sent that waits until it is known whose its first PUBLISH is.
#[derive(Debug)]
pub(crate) struct Held {
    /// From the first byte of that PUBLISH on. Not empty.
    pub(crate) bytes: Vec<u8>,
    /// When it goes on at the latest.
    pub(crate) until: Instant,
}

/// The first bytes of a PUBLISH that is not held.
#[derive(Debug)]
pub(crate) struct Peek {
    pub(crate) header: FixedHeader,
    pub(crate) bytes: Vec<u8>,
}

/// Longest topic behind which a packet identifier is looked for, in bytes.
const PEEKED_TOPIC_BYTES_MAX: usize = 1_024;
/// A packet identifier, and how long the properties are.
const BEHIND_TOPIC_BYTES: usize = 6;

impl Peek {
    /// Takes more of the packet; whether that is enough: its topic, packet identifier and how long its properties are, or, of a
    /// long topic, its beginning.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(2 * PEEKED_TOPIC_BYTES_MAX)]);
        let Some(&[high, low]) =
            self.bytes.get(self.header.header_bytes..).and_then(<[u8]>::first_chunk)
        else {
            return false;
        };
        let topic_bytes = usize::from(u16::from_be_bytes([high, low])).min(PEEKED_TOPIC_BYTES_MAX);
        let wanted = self.header.header_bytes + 2 + topic_bytes + BEHIND_TOPIC_BYTES;
        self.bytes.len() >= wanted.min(self.header.packet_bytes())
    }
}

/// QoS 2 messages a client has sent and not released: what they say, and whether they may change who may do what. One more than
/// [`UNRELEASED_MAX`] is not remembered.
#[derive(Debug, Default)]
pub(crate) struct Unreleased(HashMap<u16, (Says, bool)>);

/// See [`Unreleased`].
const UNRELEASED_MAX: usize = 1_024;

impl Unreleased {
    pub(crate) fn insert(&mut self, packet_id: u16, says: Says, may_control: bool) {
        if self.0.len() < UNRELEASED_MAX || self.0.contains_key(&packet_id) {
            self.0.insert(packet_id, (says, may_control));
        }
    }

    pub(crate) fn remove(&mut self, packet_id: u16) -> Option<(Says, bool)> {
        self.0.remove(&packet_id)
    }
}

/// What is to be acknowledged and waits for a client's acknowledgements.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// A copy of the card's.
    Copy { copy: Encoded, since: Instant },
    /// A PUBLISH of the broker's, and where its Packet Identifier is.
    Packet { bytes: Vec<u8>, id_at: usize },
}

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) phase: Phase,
    pub(crate) version: Version,
    /// What it does is not known, and it is in the count of opaque connections.
    pub(crate) is_opaque: bool,
    /// Where the broker's packets begin is not known any more.
    pub(crate) is_broker_lost: bool,
    pub(crate) is_client_gone: bool,
    pub(crate) is_broker_gone: bool,

    pub(crate) client_framer: Framer,
    pub(crate) broker_framer: Framer,
    pub(crate) to_broker: ByteQueue,
    /// The last byte in `to_broker` does not end a packet.
    pub(crate) is_to_broker_mid_packet: bool,
    pub(crate) outbox: Outbox,
    /// A copy was dropped because the client does not keep up, and that was said.
    pub(crate) is_dropping: bool,
    /// In the core's list of connections with something new.
    pub(crate) is_listed: bool,

    /// Claimed while AwaitConnack, owned afterwards.
    pub(crate) session: Option<SessionId>,
    pub(crate) is_clean: bool,
    /// How long the session outlives this connection.
    pub(crate) expiry: Expiry,
    /// Largest packet the client accepts, in bytes.
    pub(crate) packet_bytes_max: u32,
    /// Largest packet the broker accepts, in bytes.
    pub(crate) broker_packet_bytes_max: u32,
    pub(crate) is_reauthenticating: bool,
    pub(crate) aliases: Aliases,
    /// The broker takes QoS 1 from this client, if everything it was sent so far has been answered for.
    pub(crate) may_publish_qos1: bool,

    /// QoS 1 and 2 towards the client.
    pub(crate) inflight: Inflight<Unsent>,
    pub(crate) receive_max: Option<u16>,

    pub(crate) keep_alive_s: u16,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) pings: Pings,
    /// What went to the broker: PUBLISHes, and PUBRELs.
    pub(crate) slow: Slow,
    /// What is kept back of what the client sent, if something is.
    pub(crate) held: Option<Held>,
    /// Windows up to the one of this request are not waited for any more.
    pub(crate) hold_spent: PingSeq,
    /// Raised by everything that may tell the broker who may do what.
    pub(crate) policy: Barrier,
    /// It has published on a topic by which that is told; an alias may stand for it.
    pub(crate) has_control_topic: bool,
    pub(crate) unreleased: Unreleased,
    /// What the client sent that passed unread, in bytes.
    pub(crate) unread_bytes: usize,
    /// The broker has written something.
    pub(crate) was_answered: bool,
    /// Of a PUBLISH that streams and of which the topic is not there yet.
    pub(crate) peeked: Option<Peek>,
    /// An answer of the broker is due, to know what it has done.
    pub(crate) wants_answer: bool,
    /// Raised when the broker could not write all it wanted.
    pub(crate) backlog: Barrier,
    pub(crate) requests: VecDeque<Request>,
    /// Filters in `requests`.
    pub(crate) requested_filters: usize,
    /// Packet Identifier of the version 3 UNSUBSCRIBE that was answered last, and how often it may be answered again: rumqttd answers
    /// each of its filters.
    pub(crate) answered_again: (u16, usize),
    pub(crate) early_requests: Vec<EarlyRequest>,
    /// Bytes of the packets behind `early_requests`. At most what is inspected of one packet.
    pub(crate) early_bytes: usize,
}

impl Connection {
    pub(crate) fn new(total: TotalBytes) -> Self {
        Self {
            phase: Phase::AwaitConnect,
            version: Version::V311,
            is_opaque: false,
            is_broker_lost: false,
            is_client_gone: false,
            is_broker_gone: false,
            client_framer: Framer::new(),
            broker_framer: Framer::new(),
            to_broker: ByteQueue::default(),
            is_to_broker_mid_packet: false,
            outbox: Outbox::new(total),
            is_dropping: false,
            is_listed: false,
            session: None,
            is_clean: false,
            expiry: Expiry::AtOnce,
            packet_bytes_max: u32::MAX,
            broker_packet_bytes_max: u32::MAX,
            is_reauthenticating: false,
            aliases: Aliases::default(),
            may_publish_qos1: false,
            inflight: Inflight::new(u16::MAX),
            receive_max: None,
            keep_alive_s: 0,
            keep_alive: KeepAlive::default(),
            pings: Pings::default(),
            slow: Slow::default(),
            held: None,
            hold_spent: 0,
            policy: Barrier::default(),
            has_control_topic: false,
            unreleased: Unreleased::default(),
            unread_bytes: 0,
            was_answered: false,
            peeked: None,
            wants_answer: false,
            backlog: Barrier::default(),
            requests: VecDeque::new(),
            requested_filters: 0,
            answered_again: (0, 0),
            early_requests: Vec::new(),
            early_bytes: 0,
        }
    }

    /// Whether a copy of so many bytes may wait for this client, or is one that the broker would drop too: one too many.
    pub(crate) fn has_room(&self, bytes: usize, qos: u8, limits: &Limits) -> bool {
        let is_one_too_many = match qos {
            0 => self.outbox.is_full(limits),
            _ => self.inflight.waiting() >= limits.queued_messages_max,
        };
        is_one_too_many || self.outbox.check_room(bytes, limits).is_ok()
    }

    /// Whether it is opaque, and was connected before: its client may acknowledge messages of the card's, which is read all the same.
    pub(crate) fn is_read_on(&self) -> bool {
        self.is_opaque && !matches!(self.phase, Phase::AwaitConnect | Phase::AwaitConnack)
    }

    /// Whether a PINGREQ of the card would be answered: both ends are there and speak MQTT.
    pub(crate) fn can_be_pinged(&self) -> bool {
        self.phase == Phase::Connected
            && !self.is_broker_lost
            && !self.is_client_gone
            && !self.is_broker_gone
    }
}

/// Connections by the driver's number. Numbers are dense, so this is an array.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Vec<Option<Box<Connection>>>,
    /// Of those the outbox was seen to be idle, and nobody could change that since: a fan-out has these bytes close together, where
    /// the outboxes are far apart.
    known_idle: Vec<bool>,
}

impl Connections {
    pub(crate) fn insert(&mut self, id: ConnId, connection: Connection) {
        let index = id.0 as usize;
        if index >= self.open.len() {
            self.open.resize_with(index + 1, || None);
            self.known_idle.resize(index + 1, false);
        }
        self.open[index] = Some(Box::new(connection));
        self.known_idle[index] = false;
    }

    /// Whether a copy may be sent past the connection's outbox ([`Outbox::is_idle`]). No: if there is none.
    #[inline]
    pub(crate) fn is_idle(&mut self, id: ConnId) -> bool {
        let index = id.0 as usize;
        let Some(known) = self.known_idle.get_mut(index) else { return false };
        *known = *known || self.open[index].as_ref().is_some_and(|it| it.outbox.is_idle());
        *known
    }

    /// Asks for what [`Self::is_idle`] looks at.
    #[inline]
    pub(crate) fn expect_idle(&self, id: ConnId) {
        let index = id.0 as usize;
        if let (Some(false), Some(Some(connection))) =
            (self.known_idle.get(index), self.open.get(index))
        {
            connection.outbox.expect_idle();
        }
    }

    /// Asks for what queueing a copy looks at: the connection, and if `is_next`, of what it points to.
    #[inline]
    pub(crate) fn expect(&self, id: ConnId, is_next: bool) {
        let Some(Some(connection)) = self.open.get(id.0 as usize) else { return };
        if is_next {
            connection.outbox.expect();
        } else {
            soon(&connection.outbox);
            soon(&connection.is_listed);
        }
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Box<Connection>> {
        *self.known_idle.get_mut(id.0 as usize)? = false;
        self.open.get_mut(id.0 as usize)?.take()
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&Connection> {
        self.open.get(id.0 as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        *self.known_idle.get_mut(id.0 as usize)? = false;
        self.open.get_mut(id.0 as usize)?.as_deref_mut()
    }
}

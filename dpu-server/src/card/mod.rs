//! The card's loop body: one pass moves everything that can be moved, in both directions.
//!
//! ```text
//!            ┌── requests: what brokers ask for ──► stack
//! attach ────┤
//!            └── bytes ──► Core::handle_broker ──► outboxes ──► one batch ──► stack
//! stack  ──── bytes ─────► Core::handle_client ──► queues ──► attach.data
//! ```
//!
//! One [`Core`] a broker's session. This driver holds no MQTT rule: it moves bytes, and knows how connections begin
//! (`clients`), stall (`flush`) and end (`endings`). [`Card::turn`] is the whole pass; `server` calls it with what the
//! stack's `wait` reported, and again as long as anything moved.
//!
//! One number names a socket everywhere: [`Key`] here and in the stack, [`ConnId`](crate::mqtt::ConnId) in the core. It is
//! given out here, dense, and free again when both sides are done with it.
//!
//! Bounds of one pass: `MESSAGES_MAX` messages of hosts, `READS_MAX` reads of `READ_BYTES`, `ACCEPTS_MAX`
//! connections a listener. Towards a broker at most `TO_BROKER_BYTES_MAX` of one client and one read wait, then the
//! client is not read; towards a client the broker's credit and the core's limits bound what waits. Nothing is allocated
//! per packet once the tables have their size.

mod blind;
mod clients;
mod control;
mod endings;
mod flush;
mod policy;
mod requests;
mod sockets;
mod survey;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use mqttshim_schema::SessionId;
use slab::Slab;

use crate::attach::Attach;
use crate::mqtt::{Core, CoreConfig, Counters as CoreCounters};
use crate::stack::{Batch, Event, Key, Sent, Stack};
use sockets::Entry;

pub use blind::Blind;
pub use policy::{AsTold, PolicyEpochs};
pub use survey::Survey;

/// Bytes taken from a client in one read.
const READ_BYTES: usize = 64 * 1024;
/// Reads in one pass.
const READS_MAX: usize = 64;
/// Host messages in one pass.
const MESSAGES_MAX: usize = 256;
/// Connections accepted from one listener in one pass.
const ACCEPTS_MAX: usize = 64;
/// A client with more than this waiting for its broker is not read.
const TO_BROKER_BYTES_MAX: usize = 256 * 1024;
/// How long a connection the broker closed may stall before what is left for its client is given up.
const LINGER: Duration = Duration::from_secs(60);
/// How long the connections of an ended session, or of a card that stops, have to take what is left.
const LINGER_ENDED: Duration = Duration::from_secs(5);
/// When accepting is tried again after the machine had nothing left, if nothing was freed before.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Settings of the card.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// For every session's core.
    pub core: CoreConfig,
    /// Sockets of all brokers together, listeners included. At the bound clients wait in their listener's backlog.
    pub sockets_max: usize,
}

/// One broker.
#[derive(Debug)]
struct Session {
    id: SessionId,
    core: Core,
    program: String,
    blind: blind::BlindNames,
    /// The greatest policy epoch the core was told of.
    policy_epoch: u64,
    /// Sockets that belong to it, lingering ones included.
    sockets: usize,
    /// Over: no host knows it any more, its connections linger.
    is_ended: bool,
}

/// What was counted, beside what the cores count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Connections there ever were, accepted or asked for.
    pub connections_begun: u64,
    /// Times that accepting stopped for want of descriptors, memory or sockets.
    pub accept_pauses: u64,
    /// Connections given up with bytes still waiting for their client.
    pub lingers_given_up: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Card<A, S> {
    /// The brokers' side.
    pub attach: A,
    /// The clients' side.
    pub stack: S,
    config: CardConfig,
    sessions: Slab<Session>,
    /// Sessions that are not over, by the host's name for them.
    by_id: HashMap<SessionId, usize>,
    sockets: Slab<Entry>,
    /// Listeners that may have something to accept.
    accepting: VecDeque<Key>,
    /// Since when accepting stands still, and when to try again.
    accept_retry: Option<Instant>,
    /// Connections that may have bytes to read. Each key once, as in all the queues below.
    readable: VecDeque<Key>,
    /// Connections with bytes for their broker.
    upward: VecDeque<Key>,
    /// Connections with bytes for their client and room to send them.
    sendable: Vec<Key>,
    /// Connections that close once their client has taken what is left, with the time they are given up.
    lingering: BTreeSet<(Instant, Key)>,
    counters: Counters,
    /// What ended sessions' cores counted.
    past: CoreCounters,
    read_buffer: Vec<u8>,
    message: Vec<u8>,
    /// Of one flush, kept for their memory: this, and the two below.
    batch: Batch<'static>,
    sent: Vec<Sent>,
    /// Places of copies that the stack did not take at once.
    refused: Vec<u32>,
    /// What was offered of each connection, and what became of it.
    outcomes: Vec<(Key, usize, Sent)>,
}

impl<A: Attach, S: Stack> Card<A, S> {
    /// A card without sessions.
    pub fn new(attach: A, stack: S, config: CardConfig) -> Card<A, S> {
        Card {
            attach,
            stack,
            config,
            sessions: Slab::new(),
            by_id: HashMap::new(),
            sockets: Slab::new(),
            accepting: VecDeque::new(),
            accept_retry: None,
            readable: VecDeque::new(),
            upward: VecDeque::new(),
            sendable: Vec::new(),
            lingering: BTreeSet::new(),
            counters: Counters::default(),
            past: CoreCounters::default(),
            read_buffer: vec![0; READ_BYTES],
            message: Vec::new(),
            batch: Batch::default(),
            sent: Vec::new(),
            refused: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    /// One pass over everything that changed; true if anything moved, so that another pass may find more.
    ///
    /// A PUBLISH passes through it in one go: `read` hands it to the core, which fills outboxes or the queue to the
    /// broker, and `flush` empties them.
    pub fn turn(&mut self, events: &[Event], now: Instant, epochs: &dyn PolicyEpochs) -> bool {
        self.note_events(events, now);
        let mut moved = self.take_requests(now);
        while let Some(session) = self.attach.poll_lost() {
            self.end_session(session, now);
            moved = true;
        }
        moved |= self.accept(now);
        moved |= self.read(now, epochs);
        self.keep_time(now);
        moved |= self.flush(now);
        moved | self.attach.flush(now)
    }

    /// When a pass has something to do by time.
    pub fn next_deadline(&self) -> Option<Instant> {
        let cores = self.sessions.iter().filter_map(|(_, session)| session.core.next_deadline());
        let linger = self.lingering.first().map(|(at, _)| *at);
        let others = [linger, self.accept_retry, self.attach.next_deadline()];
        cores.chain(others.into_iter().flatten()).min()
    }

    /// Sockets that are open, lingering ones included.
    pub fn sockets_open(&self) -> usize {
        self.sockets.len()
    }

    fn keep_time(&mut self, now: Instant) {
        for (_, session) in &mut self.sessions {
            if session.core.next_deadline().is_some_and(|deadline| deadline <= now) {
                session.core.handle_timeout(now);
            }
        }
        while let Some(&(at, key)) = self.lingering.first()
            && at <= now
        {
            self.give_up(key, now);
        }
    }
}

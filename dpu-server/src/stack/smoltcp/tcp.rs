//! The stack without its port and its clock: frames in, frames out, and sockets named by keys.
//!
//! ```text
//! frame ─► link ─► flow? ──yes─► guard ─► connection ─┬─► dirty list ─► flush ─► frames   (egress)
//!           │        └─no─► listener: half open       └─► wheel: deadlines
//!           └─ ARP, NDP                                └─► events for its holder
//! ```
//!
//! A segment costs one look-up and touches one connection. What has nothing to send is on no list; what waits for time is in
//! the wheel.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use rustix::io::Errno;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{PacketMeta, SegmentationCapabilities};
use smoltcp::socket::tcp::State;
use smoltcp::wire::{HardwareAddress, IpCidr, TcpControl, TcpSeqNumber as Number};

use super::budget::{Budget, BufferBytes};
use super::clock;
use super::connection::{Connection, Stage};
use super::connections::Connections;
use super::device::{OnePacket, capabilities};
use super::emit::emit;
use super::flows::Flows;
use super::guard::{Verdict, judge};
use super::link::{Frame, Link};
use super::listener::HALF_OPEN_MAX;
use super::neighbors::Search;
use super::path::news;
use super::segment::{Arrival, Flow, Segment, arrival};
use super::sockets::Sockets;
use super::wheel::{Due, Wheel};
use crate::stack::{Event, Key};
use mqttshim_port::{Capabilities, Mac, Transmit};

/// How far beyond the numbers of a connection the next one of its flow begins at least (RFC 9293 §3.10.7.4, TIME-WAIT).
const NUMBERS_APART: usize = 1 << 17;

/// What a stack is made with.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) mac: Mac,
    pub(super) addresses: Vec<IpCidr>,
    pub(super) gateway: Option<IpAddr>,
    pub(super) capabilities: Capabilities,
    /// From the machine's source of randomness: initial sequence numbers and ports follow from it.
    pub(super) seed: u64,
}

/// What became of a segment of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    Dropped,
    /// The connection was in this state.
    Heard(State),
    /// The connection is over, and the segment begins another.
    Opens,
}

/// See the module.
pub(super) struct Tcp {
    /// smoltcp's, for its time and its addresses.
    pub(super) iface: Interface,
    /// What has no connection is answered from here: ICMP, and segments of unknown flows.
    nobody: SocketSet<'static>,
    pub(super) link: Link,
    pub(super) capabilities: Capabilities,
    pub(super) flows: Flows,
    pub(super) connections: Connections,
    pub(super) budget: Budget,
    pub(super) sockets: Sockets,
    pub(super) wheel: Wheel,
    pub(super) due: Vec<Due>,
    pub(super) dirty: VecDeque<u32>,
    pub(super) searches: Vec<Search>,
    pub(super) events: Vec<Event>,
    /// Answers for which the port had no room; nobody makes them again.
    pub(super) unsent: u64,
}

impl Tcp {
    pub(super) fn new(setup: Setup) -> Tcp {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = setup.seed;
        let mut iface = Interface::new(
            config,
            &mut Nowhere(setup.capabilities),
            clock::instant(Duration::ZERO),
        );
        iface.update_ip_addrs(|own| {
            for address in &setup.addresses {
                // As many as smoltcp has room for; the configuration allows no more.
                let _ = own.push(*address);
            }
        });
        Tcp {
            iface,
            nobody: SocketSet::new(Vec::new()),
            link: Link::new(setup.mac, setup.addresses, setup.gateway),
            capabilities: setup.capabilities,
            flows: Flows::default(),
            connections: Connections::default(),
            budget: Budget::new(BufferBytes::default().total_max),
            sockets: Sockets::new(setup.seed),
            wheel: Wheel::new(),
            due: Vec::new(),
            dirty: VecDeque::new(),
            searches: Vec::new(),
            events: Vec::new(),
            unsent: 0,
        }
    }

    /// Bounds buffers from now on.
    pub(super) fn bound_buffers(&mut self, bytes: &BufferBytes) {
        self.budget.bound(bytes.total_max);
        self.sockets.usual = bytes.each();
    }

    /// Lets packets of at most so many bytes be cut into segments by the port.
    pub(super) fn leave_cutting(&mut self, packet_bytes_max: usize) {
        let mut left = SegmentationCapabilities::default();
        left.tcpv4 = NonZeroUsize::new(packet_bytes_max);
        left.tcpv6 = left.tcpv4;
        self.iface.context().set_segmentation(left);
    }

    /// A frame arrived.
    pub(super) fn frame(&mut self, now: Duration, frame: &mut [u8], out: &mut impl Transmit) {
        let Frame::Packet(packet, from) = self.link.receive(now, frame, out) else {
            return self.found(now);
        };
        let packet = &*packet;
        match arrival(packet, self.capabilities.checksums) {
            Arrival::Segment(segment) if self.link.is_own(segment.flow.local.ip()) => {
                self.segment(now, segment, packet, from, out);
            }
            Arrival::Other => match news(packet) {
                Some(news) => self.heed(&news),
                None => self.answer(now, packet, from, out),
            },
            Arrival::Segment(_) | Arrival::Broken => {}
        }
    }

    fn segment(
        &mut self,
        now: Duration,
        mut segment: Segment<'_>,
        packet: &[u8],
        from: Mac,
        out: &mut impl Transmit,
    ) {
        let mut first = self.flows.first_number(&segment.flow, now);
        if let Some(id) = self.flows.find(&segment.flow, &self.connections) {
            if self.known(now, id, &mut segment, from, out) {
                return;
            }
            // It was told in `known`.
            let used = self.connections[id].socket.send_unacknowledged();
            first = first.max(used + NUMBERS_APART);
            self.make_way(id);
        }
        match self.sockets.listener(segment.flow.local) {
            Some(listener) if segment.opens() => {
                self.open(now, listener, &segment, from, first, out);
            }
            _ => self.answer(now, packet, from, out),
        }
    }

    /// A segment of a connection. `false`: the connection is over, and the segment opens another.
    fn known(
        &mut self,
        now: Duration,
        id: u32,
        segment: &mut Segment<'_>,
        from: Mac,
        out: &mut impl Transmit,
    ) -> bool {
        let is_reset = segment.says.control == TcpControl::Rst;
        let owed = self.connections.close_lane(id);
        let outcome = self.hear(now, id, segment, from, out);
        self.connections.pay(id, owed);
        self.budget.message_bytes = self.connections.messages.bytes();
        if let Outcome::Heard(state) = outcome {
            self.touched(now, id, is_reset.then_some(state));
        }
        outcome != Outcome::Opens
    }

    /// Lets a connection have a segment, if it is to.
    fn hear(
        &mut self,
        now: Duration,
        id: u32,
        segment: &mut Segment<'_>,
        from: Mac,
        out: &mut impl Transmit,
    ) -> Outcome {
        let connection = &mut self.connections[id];
        if let Some(place) = connection.place() {
            match judge(&mut segment.says, &place, &mut connection.window_told) {
                Verdict::Pass => connection.follow(&place, &segment.says, from),
                Verdict::Drop => return Outcome::Dropped,
                Verdict::Reopen => return Outcome::Opens,
                Verdict::Challenge => segment.make_probe(place.expected, place.unacknowledged),
            }
        }
        if !self.budget.takes(&segment.says, &connection.socket) {
            return Outcome::Dropped;
        }
        let state = connection.socket.state();
        self.feed(now, id, segment, out);
        Outcome::Heard(state)
    }

    /// Lets smoltcp have a segment of a connection.
    fn feed(&mut self, now: Duration, id: u32, segment: &Segment<'_>, out: &mut impl Transmit) {
        let connection = &mut self.connections[id];
        let context = self.iface.context();
        context.set_now(clock::instant(now));
        let answer = connection.socket.process(context, &segment.ip(), &segment.says);
        if let Some((ip, says)) = answer {
            if !out.has_room() {
                self.unsent += 1;
                return;
            }
            let header = self.link.header(connection.mac.unwrap_or_default());
            emit(out, &header, &ip, &says, PacketMeta::default());
        }
    }

    /// Answers a packet that belongs to no connection: a ping, or a segment, with RST.
    fn answer(&mut self, now: Duration, packet: &[u8], from: Mac, out: &mut impl Transmit) {
        if !out.has_room() {
            self.unsent += 1;
            return;
        }
        let mut device = OnePacket {
            arrived: Some(packet),
            out,
            header: self.link.header(from),
            capabilities: self.capabilities,
        };
        self.iface.poll_ingress_single(clock::instant(now), &mut device, &mut self.nobody);
    }

    /// The first segment of a connection.
    fn open(
        &mut self,
        now: Duration,
        key: Key,
        segment: &Segment<'_>,
        from: Mac,
        first: Number,
        out: &mut impl Transmit,
    ) {
        if !self.make_room(now, key) {
            return;
        }
        let Some((listener, buffers)) = self.sockets.listening(key) else { return };
        if !listener.has_room() || !self.budget.takes_another() {
            return;
        }
        let Ok(name) = self.sockets.get(key).map(|socket| socket.name) else { return };
        let stage = Stage::HalfOpen(key);
        let mut connection = Connection::new(segment.flow, name, Some(from), stage, buffers, first);
        let local = segment.flow.local;
        if connection.socket.listen((local.ip(), local.port())).is_err() {
            return;
        }
        let id = self.insert(connection);
        let serial = self.connections[id].serial;
        if let Some((listener, _)) = self.sockets.listening(key) {
            listener.begin(id, serial);
        }
        self.feed(now, id, segment, out);
        self.touched(now, id, None);
    }

    /// Keeps the half-open connections of a listener within their bound; whether there may be one more.
    fn make_room(&mut self, now: Duration, key: Key) -> bool {
        let connections = &self.connections;
        let is_half_open = |id: u32, serial: u64| {
            connections
                .get(id)
                .is_some_and(|it| it.serial == serial && it.stage == Stage::HalfOpen(key))
        };
        let Some((listener, _)) = self.sockets.listening(key) else { return false };
        if listener.is_worth_tidying() {
            listener.tidy(is_half_open);
        }
        if listener.half_open_count < HALF_OPEN_MAX {
            return true;
        }
        if !listener.may_make_room(now) {
            return false;
        }
        while let Some((id, serial)) = listener.oldest() {
            if is_half_open(id, serial) {
                self.remove(id);
                return true;
            }
        }
        false
    }

    /// Takes a connection in.
    pub(super) fn insert(&mut self, mut connection: Connection) -> u32 {
        connection.serial = self.sockets.next_serial();
        let id = self.connections.insert(connection);
        self.flows.insert(id, &self.connections);
        id
    }

    /// The longest packet that leaves, in bytes.
    pub(super) fn mtu(&self) -> usize {
        self.capabilities.mtu
    }

    /// Whether there is such a connection.
    pub(super) fn has_flow(&self, flow: Flow) -> bool {
        self.flows.find(&flow, &self.connections).is_some()
    }

    /// Lets smoltcp begin the card's own connect.
    pub(super) fn begin_connect(
        &mut self,
        connection: &mut Connection,
        flow: Flow,
    ) -> Result<(), Errno> {
        let context = self.iface.context();
        connection.socket.connect(context, flow.remote, flow.local).map_err(|_| Errno::ADDRNOTAVAIL)
    }

    /// A connection that is over leaves its flow to the next. Whoever holds it has still to read what it received.
    fn make_way(&mut self, id: u32) {
        if self.connections[id].stage == Stage::Held {
            self.flows.remove(id, &self.connections);
        } else {
            self.remove(id);
        }
    }

    /// Forgets a connection without a word to its client.
    pub(super) fn remove(&mut self, id: u32) {
        self.flows.remove(id, &self.connections);
        let connection = self.connections.remove(id);
        self.budget.give_back(&connection);
        match connection.stage {
            Stage::HalfOpen(key) => self.sockets.half_open_over(key),
            Stage::Queued(key) => {
                if let Some((listener, _)) = self.sockets.listening(key) {
                    listener.queue.retain(|queued| *queued != id);
                }
            }
            Stage::Connecting | Stage::Held | Stage::Orphaned => {
                if let Some(key) = connection.key {
                    self.sockets.lost(key);
                }
            }
        }
    }

    /// Something happened to a connection: whoever is concerned is told, and what is due is noted. `reset_in`: a reset came,
    /// and in which state.
    pub(super) fn touched(&mut self, now: Duration, id: u32, reset_in: Option<State>) {
        self.noted(now, id, reset_in);
        self.schedule(now, id);
    }

    /// Something happened to a connection: whoever is concerned is told.
    pub(super) fn noted(&mut self, now: Duration, id: u32, reset_in: Option<State>) {
        self.advance_stage(id);
        let connection = &mut self.connections[id];
        connection.note_fin();
        if connection.has_bytes_for_nobody() {
            connection.socket.abort();
            connection.fail(Errno::CONNRESET);
        } else if connection.is_over() {
            match (reset_in, connection.stage) {
                (Some(_), Stage::Connecting) => connection.fail(Errno::CONNREFUSED),
                // As Linux has it (tcp_reset): who heard the end before can only be told on writing.
                (Some(State::CloseWait), _) => connection.fail(Errno::PIPE),
                (Some(_), _) => connection.fail(Errno::CONNRESET),
                (None, _) if !connection.is_end_told => connection.fail(Errno::TIMEDOUT),
                (None, _) => {}
            }
        }
        if connection.stage == Stage::Orphaned && connection.socket.recv_queue() > 0 {
            // Nobody will ever read it (RFC 9293 §3.10.4; RFC 1122 §4.2.2.13).
            connection.socket.abort();
        }
        self.free_flow(id);
        self.tell(id);
        self.shrink(now, id);
    }

    /// A connection that is over keeps nobody from the next one of its flow.
    pub(super) fn free_flow(&mut self, id: u32) {
        if self.connections[id].is_over() {
            self.flows.remove(id, &self.connections);
        }
    }

    /// Handshakes that are over.
    fn advance_stage(&mut self, id: u32) {
        let connection = &mut self.connections[id];
        let Stage::HalfOpen(key) = connection.stage else { return };
        let state = connection.socket.state();
        if matches!(state, State::SynReceived | State::Listen | State::Closed) {
            return;
        }
        connection.stage = Stage::Queued(key);
        self.sockets.half_open_over(key);
        if let Some((listener, _)) = self.sockets.listening(key) {
            listener.queue.push_back(id);
            self.events.push(Event::Socket { key, readable: true, writable: false, ended: false });
        }
    }

    /// Tells the holder what it does not know.
    pub(super) fn tell(&mut self, id: u32) {
        let connection = &mut self.connections[id];
        let Some(key) = connection.key else { return };
        let unread = connection.socket.recv_queue();
        let is_gone = connection.error.is_some();
        let has_ended = is_gone || connection.is_finished;
        let is_connected = connection.stage == Stage::Connecting
            && (is_gone || connection.socket.state() == State::Established);
        let is_news = has_ended && !connection.is_end_told || is_gone && !connection.is_error_told;
        let readable = unread > connection.told_bytes || is_news;
        let writable = is_connected
            || (connection.is_full && (is_gone || connection.socket.can_send()))
            || (is_news && is_gone);
        connection.told_bytes = unread;
        connection.is_end_told |= has_ended;
        connection.is_error_told |= is_gone;
        if writable {
            connection.is_full = false;
        }
        if readable || writable {
            self.events.push(Event::Socket { key, readable, writable, ended: has_ended });
        }
    }

    /// The ends of a connection, for whoever got it from `name`.
    pub(super) fn flow(&self, id: u32) -> (SocketAddr, SocketAddr) {
        let flow = &self.connections[id].flow;
        (flow.local, flow.remote)
    }
}

/// A port for the moment the interface is made, when nothing moves.
struct Nowhere(Capabilities);

impl smoltcp::phy::Device for Nowhere {
    type RxToken<'a> = super::device::Arrived<'a>;
    type TxToken<'a> = Lost;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Self::RxToken<'_>, Lost)> {
        None
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Lost> {
        None
    }

    fn capabilities(&self) -> smoltcp::phy::DeviceCapabilities {
        capabilities(&self.0)
    }
}

/// A token that is never made.
enum Lost {}

impl smoltcp::phy::TxToken for Lost {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, _: usize, _: F) -> R {
        match self {}
    }
}

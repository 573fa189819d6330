//! A card that does what it is told: answers requests, keeps what programs wrote, sends within its credit.
//!
//! It speaks mqttshim-schema over a real channel and checks what a card may rely on: credit, stamps, numbers. What is wrong
//! ends up in [`Card::faults`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mqttshim_channel::in_process::InProcess;
use mqttshim_channel::{CommChannel, SendError};
use mqttshim_schema::{
    DATA_OVERHEAD_BYTES, HEARTBEAT_SECONDS, Hello, How, Message, Notice, OptionAction, RequestId,
    SessionId, SocketId, Stamp, VERSION_MAX, VERSION_MIN, decode, encode,
};

/// Bytes of one socket that may be under way towards the card.
pub(crate) const CARD_WINDOW: u32 = 64 * 1024;
/// Largest message of the channels these tests use.
pub(crate) const MESSAGE_BYTES: usize = 4080;

/// What the host said, in the order it was said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Said {
    Bind { socket: SocketId, address: SocketAddr },
    Listen { socket: SocketId },
    Connect { socket: SocketId },
    Data { socket: SocketId, stamp: Stamp, read: Stamp, bytes: Vec<u8> },
    Blocked { socket: SocketId, stamp: Stamp },
    Shutdown { socket: SocketId, how: How },
    Close { socket: SocketId, unread: bool },
    Notice { session: SessionId, what: Notice },
    Policy { session: SessionId, epoch: u64 },
    Option { socket: SocketId },
}

/// What the card knows of a connection.
struct Stream {
    session: SessionId,
    /// Bytes the host may still be sent.
    credit: u64,
    /// Bytes the host may still send.
    window: u64,
    /// What waits for credit or room.
    outgoing: VecDeque<u8>,
    eof: bool,
}

pub(crate) struct Card {
    channel: InProcess,
    backlog: VecDeque<Vec<u8>>,
    window_of_host: u64,
    bound: BTreeMap<SocketId, (SessionId, SocketAddr)>,
    streams: BTreeMap<SocketId, Stream>,
    stamps: BTreeMap<SessionId, Stamp>,
    /// Numbers whose Close was answered.
    closed: BTreeSet<SocketId>,
    next_port: u16,
    next_socket: u32,
    stamp: Stamp,
    beaten: Instant,
    pub(crate) said: Vec<Said>,
    pub(crate) faults: Vec<String>,
    /// Every byte is granted again as soon as it arrives.
    pub(crate) grants: bool,
    /// Every byte is sent back.
    pub(crate) echoes: bool,
    /// Requests are kept unanswered.
    pub(crate) is_mute: bool,
}

impl Card {
    pub(crate) fn new(channel: InProcess) -> Card {
        let mut card = Card {
            channel,
            backlog: VecDeque::new(),
            window_of_host: 0,
            bound: BTreeMap::new(),
            streams: BTreeMap::new(),
            stamps: BTreeMap::new(),
            closed: BTreeSet::new(),
            next_port: 40_000,
            next_socket: 2,
            stamp: 0,
            beaten: Instant::now(),
            said: Vec::new(),
            faults: Vec::new(),
            grants: true,
            echoes: false,
            is_mute: false,
        };
        card.send(&Message::Hello(Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            max_message_bytes: MESSAGE_BYTES as u32,
            window_bytes: CARD_WINDOW,
            layout_min: 0,
            layout_max: 0,
            program: "scripted card",
        }));
        card
    }

    /// Sends what waits and takes what came. Says whether anything moved.
    pub(crate) fn turn(&mut self) -> bool {
        let mut has_moved = self.flush();
        let mut bytes = Vec::new();
        while self.channel.recv(&mut bytes).is_ok() {
            has_moved = true;
            match decode(&bytes) {
                Ok(message) => self.hear(&message),
                Err(error) => self.faults.push(format!("no message: {error}")),
            }
        }
        if self.beaten.elapsed() >= Duration::from_secs(HEARTBEAT_SECONDS) {
            self.beaten = Instant::now();
            self.send(&Message::Heartbeat { sequence: 0 });
        }
        self.pump();
        has_moved | self.flush()
    }

    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    fn send(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).expect("the card says only what is well formed");
        self.backlog.push_back(bytes);
    }

    fn flush(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(bytes) = self.backlog.front() {
            if self.channel.send(bytes) == Err(SendError::WouldBlock) {
                break;
            }
            self.backlog.pop_front();
            has_moved = true;
        }
        has_moved
    }

    fn hear(&mut self, message: &Message<'_>) {
        match *message {
            Message::Hello(ref hello) => self.window_of_host = u64::from(hello.window_bytes),
            Message::Bind { request, session, socket, address, .. } => {
                self.said.push(Said::Bind { socket, address });
                self.bind(request, session, socket, address);
            }
            Message::Listen { request, socket, .. } => {
                self.said.push(Said::Listen { socket });
                let address = self.bound.get(&socket).map(|&(_, address)| address);
                let errno = if address.is_some() { 0 } else { 9 };
                self.reply(request, errno, address.unwrap_or(any()), &[]);
            }
            Message::Connect { request, session, socket, .. } => {
                self.said.push(Said::Connect { socket });
                self.open_stream(session, socket);
                self.reply(request, 0, any(), &[]);
            }
            Message::Option { request, socket, action, .. } => {
                self.said.push(Said::Option { socket });
                let value: &[u8] = match action {
                    OptionAction::Get(_) => &[7, 0, 0, 0],
                    OptionAction::Set(_) => &[],
                };
                self.reply(request, 0, any(), value);
            }
            Message::Data { socket, stamp, read, bytes } => {
                self.take_data(socket, stamp, read, bytes);
            }
            Message::Blocked { socket, stamp } => {
                self.check_stamp(socket, stamp);
                self.said.push(Said::Blocked { socket, stamp });
            }
            Message::Shutdown { socket, stamp, how } => {
                self.check_stamp(socket, stamp);
                self.said.push(Said::Shutdown { socket, how });
            }
            Message::Credit { socket, bytes } => match self.streams.get_mut(&socket) {
                Some(stream) => stream.credit += u64::from(bytes),
                None if self.closed.contains(&socket) => {
                    self.faults.push("credit after close".into())
                }
                None => {}
            },
            Message::Close { socket, unread, .. } => {
                self.said.push(Said::Close { socket, unread });
                self.bound.remove(&socket);
                self.streams.remove(&socket);
                if !self.closed.insert(socket) {
                    self.faults.push(format!("{socket:?} was closed twice"));
                }
                self.send(&Message::Close { socket, stamp: 0, unread: false });
            }
            Message::Notice { session, what, .. } => self.said.push(Said::Notice { session, what }),
            Message::PolicyChanged { session, epoch, .. } => {
                self.said.push(Said::Policy { session, epoch });
            }
            Message::Heartbeat { .. } => {}
            _ => self.faults.push(format!("only a card says {message:?}")),
        }
    }

    fn bind(
        &mut self,
        request: RequestId,
        session: SessionId,
        socket: SocketId,
        mut address: SocketAddr,
    ) {
        if self.is_mute {
            return;
        }
        if self.bound.values().any(|(_, other)| *other == address) {
            self.reply(request, 98, any(), &[]);
            return;
        }
        if address.port() == 0 {
            address.set_port(self.next_port);
            self.next_port += 1;
        }
        self.bound.insert(socket, (session, address));
        self.reply(request, 0, address, &[]);
    }

    fn reply(&mut self, request: RequestId, errno: i32, address: SocketAddr, value: &[u8]) {
        self.send(&Message::Reply { request, errno, address, value });
    }

    fn open_stream(&mut self, session: SessionId, socket: SocketId) {
        let stream = Stream {
            session,
            credit: self.window_of_host,
            window: u64::from(CARD_WINDOW),
            outgoing: VecDeque::new(),
            eof: false,
        };
        self.streams.insert(socket, stream);
    }

    fn check_stamp(&mut self, socket: SocketId, stamp: Stamp) {
        let Some(stream) = self.streams.get(&socket) else {
            self.faults.push(format!("something about {socket:?}, which is no connection"));
            return;
        };
        let last = self.stamps.entry(stream.session).or_default();
        if stamp < *last {
            self.faults.push(format!("stamp {stamp} after {last}"));
        }
        *last = stamp;
    }

    fn take_data(&mut self, socket: SocketId, stamp: Stamp, read: Stamp, bytes: &[u8]) {
        self.check_stamp(socket, stamp);
        let Some(stream) = self.streams.get_mut(&socket) else { return };
        match stream.window.checked_sub(bytes.len() as u64) {
            Some(left) => stream.window = left,
            None => self.faults.push(format!("more data on {socket:?} than was granted")),
        }
        if self.echoes {
            stream.outgoing.extend(bytes);
        } else {
            self.said.push(Said::Data { socket, stamp, read, bytes: bytes.to_vec() });
        }
        if self.grants {
            self.grant(socket, bytes.len() as u32);
        }
    }

    /// Sends what credit and channel allow.
    fn pump(&mut self) {
        let sockets: Vec<_> = self.streams.keys().copied().collect();
        for socket in sockets {
            while self.backlog.len() < 4 {
                let Some(stream) = self.streams.get_mut(&socket) else { break };
                let length = (stream.credit as usize)
                    .min(stream.outgoing.len())
                    .min(MESSAGE_BYTES - DATA_OVERHEAD_BYTES);
                if length == 0 {
                    break;
                }
                stream.credit -= length as u64;
                let bytes: Vec<u8> = stream.outgoing.drain(..length).collect();
                self.stamp += length as u64;
                let stamp = self.stamp;
                self.send(&Message::Data { socket, stamp, read: 0, bytes: &bytes });
            }
            if let Some(stream) = self.streams.get_mut(&socket)
                && stream.eof
                && stream.outgoing.is_empty()
            {
                stream.eof = false;
                let stamp = self.stamp;
                self.send(&Message::Eof { socket, stamp });
            }
        }
    }
}

/// What a test has it do.
impl Card {
    /// A client connects to the listener that was bound last.
    pub(crate) fn accept(&mut self) -> SocketId {
        let (&listener, &(session, local)) = self.bound.iter().next_back().expect("a listener");
        self.accept_on(listener, session, local)
    }

    pub(crate) fn accept_on(
        &mut self,
        listener: SocketId,
        session: SessionId,
        local: SocketAddr,
    ) -> SocketId {
        let socket = SocketId(self.next_socket);
        self.next_socket += 2;
        self.open_stream(session, socket);
        let peer = SocketAddr::from(([192, 0, 2, 1], 50_000));
        self.send(&Message::Accepted { listener, socket, local, peer });
        socket
    }

    /// A client connects to a listener of this program, if it has one.
    pub(crate) fn accept_for(&mut self, session: SessionId) {
        let of_it = |(&socket, &(of, local)): (&SocketId, &(SessionId, SocketAddr))| {
            (of == session).then_some((socket, local))
        };
        if let Some((listener, local)) = self.bound.iter().find_map(of_it) {
            self.accept_on(listener, session, local);
        }
    }

    /// Connections and listeners of one program.
    pub(crate) fn sockets_of(&self, session: SessionId) -> Vec<SocketId> {
        let bound = self.bound.iter().filter(|(_, (of, _))| *of == session);
        let streams = self.streams.iter().filter(|(_, stream)| stream.session == session);
        bound.map(|(socket, _)| *socket).chain(streams.map(|(socket, _)| *socket)).collect()
    }

    pub(crate) fn connected(&mut self, socket: SocketId, errno: i32) {
        self.send(&Message::Connected { socket, errno, local: any(), peer: any() });
    }

    pub(crate) fn data(&mut self, socket: SocketId, bytes: &[u8]) {
        if let Some(stream) = self.streams.get_mut(&socket) {
            stream.outgoing.extend(bytes);
        }
    }

    pub(crate) fn eof(&mut self, socket: SocketId) {
        if let Some(stream) = self.streams.get_mut(&socket) {
            stream.eof = true;
        }
    }

    pub(crate) fn reset(&mut self, socket: SocketId) {
        self.send(&Message::Reset { socket, errno: 104 });
    }

    pub(crate) fn grant(&mut self, socket: SocketId, bytes: u32) {
        if let Some(stream) = self.streams.get_mut(&socket) {
            stream.window += u64::from(bytes);
            self.send(&Message::Credit { socket, bytes });
        }
    }

    /// Connections and listeners that are open.
    pub(crate) fn open(&self) -> usize {
        self.bound.len() + self.streams.len()
    }

    pub(crate) fn is_closed(&self, socket: SocketId) -> bool {
        self.closed.contains(&socket)
    }

    /// What a program wrote to a socket.
    pub(crate) fn received(&self, socket: SocketId) -> Vec<u8> {
        let mut all = Vec::new();
        for said in &self.said {
            if let Said::Data { socket: of, bytes, .. } = said
                && *of == socket
            {
                all.extend_from_slice(bytes);
            }
        }
        all
    }
}

fn any() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

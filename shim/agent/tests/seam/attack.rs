//! A program that obeys nothing: it writes what it likes over its session's memory and says what it likes on its control
//! socket, as a tape of bytes tells it, between the agent's turns.
//!
//! Whatever the tape, the agent comes to rest, says nothing to the card that the card may not be told, and serves the other
//! program as if nothing had happened.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use mqttshim_schema::{
    Hello, Message, Notice, OptionAction, RequestId, SessionId, SocketId, VERSION_MAX, VERSION_MIN,
};
use mqttshim_session::frame;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::card::Said;
use crate::program::{Connection, Listener, Program, placeholder};
use crate::stage::Stage;

/// Where things lie in the memory, as anybody who looks at it finds out.
const SLOTS_AT: u64 = 4096;
const SLOT_BYTES: u64 = 256;
const TX_BYTES: u64 = 2 * 1024 * 1024;
pub(crate) const TX_HEAD: u64 = 128;
const TX_TAIL: u64 = 192;
/// Slots the tape can reach by name; it has used fewer.
const SLOTS_NEAR: u64 = 8;

/// A program that behaves, on the same agent.
pub(crate) struct Good {
    _listener: Listener,
    connection: Connection,
}

impl Good {
    pub(crate) fn new(stage: &mut Stage) -> Good {
        stage.settle();
        let path = stage.agent.session_path().to_path_buf();
        let listener = stage.serve(|| Program::open(&path).listen(1).expect("a port"));
        stage.card().echoes = true;
        stage.card().accept();
        stage.settle();
        let connection = listener.accept();
        Good { _listener: listener, connection }
    }

    /// A request is answered.
    pub(crate) fn binds(&self, stage: &mut Stage) {
        let session = &self.connection.session;
        let bound = stage.serve(|| session.bind(([127, 0, 0, 1], 0).into(), &[]));
        session.close(bound.expect("a port").0);
        stage.settle();
    }

    /// A round trip through agent and card.
    pub(crate) fn works(&self, stage: &mut Stage) {
        let bytes: Vec<u8> = (0..10_000).map(|at| at as u8).collect();
        self.connection.write_all(&bytes);
        stage.settle();
        assert_eq!(self.connection.read_exactly(bytes.len()), bytes);
    }
}

/// The tape. At its end it reads as zeros.
struct Tape<'a>(&'a [u8]);

impl Tape<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn word(&mut self) -> u32 {
        match self.byte() {
            0 => 0,
            1 => 1,
            2 => u32::MAX,
            3 => 1 << 31,
            4 => u32::from(self.byte()),
            _ => u32::from_ne_bytes([self.byte(), self.byte(), self.byte(), self.byte()]),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes.to_vec()
    }
}

pub(crate) struct Hostile {
    pub(crate) control: Option<OwnedFd>,
    memory: File,
    doorbell: OwnedFd,
    tx_at: u64,
    pub(crate) id: SessionId,
    pub(crate) replies: Vec<OwnedFd>,
    pub(crate) placeholders: Vec<OwnedFd>,
}

impl Hostile {
    /// Connects to the session path, and says nothing.
    pub(crate) fn knock(stage: &Stage) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let control = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
        let control = control.expect("a socket");
        let path = SocketAddrUnix::new(stage.agent.session_path()).expect("a short path");
        rustix::net::connect(&control, &path).expect("the agent listens");
        control
    }

    pub(crate) fn open(stage: &mut Stage) -> Hostile {
        let control = Hostile::knock(stage);
        send(&control, &hello(), &[]);
        stage.settle();
        let mut buffer = vec![0; frame::FRAME_BYTES_MAX];
        let answer = frame::receive(&control, &mut buffer, RecvFlags::DONTWAIT).expect("a Hello");
        let [Some(memory), Some(doorbell), ..] = answer.fds else { panic!("no memory") };
        let memory = File::from(memory);
        let mut slots = [0; 4];
        memory.read_exact_at(&mut slots, 12).expect("inside the memory");
        let slots = u64::from(u32::from_ne_bytes(slots));
        let tx_at = (SLOTS_AT + slots * SLOT_BYTES).next_multiple_of(4096);
        let opened = stage.card().said.iter().rev().find_map(|said| match said {
            Said::Notice { session, what: Notice::SessionOpened } => Some(*session),
            _ => None,
        });
        Hostile {
            control: Some(control),
            memory,
            doorbell,
            tx_at,
            id: opened.expect("the card was told"),
            replies: Vec::new(),
            placeholders: Vec::new(),
        }
    }

    /// A listener and two connections of its own: slots 0, 1 and 2.
    pub(crate) fn settle_in(&mut self, stage: &mut Stage) {
        self.request(&bind(SocketId(u32::MAX), 0), None);
        stage.settle();
        self.request(&listen(SocketId(0)), None);
        stage.settle();
        for slot in [1, 2] {
            stage.card().accept_for(self.id);
            stage.settle();
            self.attach(slot, true);
        }
        stage.settle();
    }

    /// A listener of its own: its placeholder and its name.
    pub(crate) fn listen(&mut self, stage: &mut Stage) -> (OwnedFd, String) {
        self.request(&bind(SocketId(u32::MAX), 0), None);
        stage.settle();
        self.request(&listen(SocketId(0)), None);
        stage.settle();
        let mut buffer = vec![0; frame::FRAME_BYTES_MAX];
        let answer = self.replies.last().expect("asked");
        let answer = frame::receive(answer, &mut buffer, RecvFlags::DONTWAIT).expect("answered");
        let Ok(Message::Reply { value, .. }) = mqttshim_schema::decode(&buffer[..answer.length])
        else {
            panic!("no Reply")
        };
        let name = String::from_utf8_lossy(value).into_owned();
        let placeholder = answer.fds.into_iter().flatten().next();
        (placeholder.expect("a placeholder"), name)
    }

    pub(crate) fn get(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, at).expect("inside the memory");
        u64::from_ne_bytes(word)
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).expect("inside the memory");
    }

    fn put_ring(&self, position: u64, bytes: &[u8]) {
        for (position, byte) in (position..).zip(bytes) {
            self.put(self.tx_at + position % TX_BYTES, &[*byte]);
        }
    }

    pub(crate) fn frame(&self, bytes: &[u8], fds: &[&OwnedFd]) {
        if let Some(control) = &self.control {
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            // The agent may have closed it.
            let _ = frame::send(control, bytes, &fds, SendFlags::DONTWAIT);
        }
    }

    pub(crate) fn request(&mut self, message: &Message<'_>, wire: Option<OwnedFd>) {
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::SEQPACKET;
        let (own, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).expect("a pair");
        let mut bytes = Vec::new();
        mqttshim_schema::encode(message, &mut bytes).expect("well formed");
        match &wire {
            Some(wire) => self.frame(&bytes, &[&theirs, wire]),
            None => self.frame(&bytes, &[&theirs]),
        }
        self.replies.push(own);
    }

    pub(crate) fn attach(&mut self, slot: u32, has_wire: bool) {
        let (fd, wire) = placeholder(1);
        let bytes = attached(slot);
        let fds: &[&OwnedFd] = if has_wire { &[&wire] } else { &[] };
        self.frame(&bytes, fds);
        self.placeholders.push(fd);
    }

    /// Accepts one more connection, and keeps a copy of its wire.
    pub(crate) fn attach_keeping_the_wire(&mut self, stage: &mut Stage) -> OwnedFd {
        stage.card().accept_for(self.id);
        stage.settle();
        let (fd, wire) = placeholder(1);
        self.frame(&attached(3), &[&wire]);
        self.placeholders.push(fd);
        wire
    }

    /// An entry as the contract has it, but for what it says.
    fn entry(&self, tape: &mut Tape<'_>) {
        let slot = u32::from(tape.byte() % SLOTS_NEAR as u8);
        let generation = match tape.byte() {
            0..200 => self.get(SLOTS_AT + u64::from(slot) * SLOT_BYTES) as u32,
            _ => tape.word(),
        };
        let kind = u32::from(tape.byte() % 12);
        let payload = tape.bytes();
        let length = match tape.byte() {
            0..200 => payload.len() as u32,
            200..230 => u32::from(tape.byte()) * 256,
            _ => tape.word(),
        };
        let mut words = Vec::new();
        for word in [kind, slot, generation, length, tape.word(), 0] {
            words.extend_from_slice(&word.to_ne_bytes());
        }
        words.extend_from_slice(&payload);
        let head = self.get(TX_HEAD);
        self.put_ring(head, &words);
        let end = head.wrapping_add((24 + u64::from(length)).next_multiple_of(8));
        self.put(TX_HEAD, &end.to_ne_bytes());
    }

    fn say(&mut self, tape: &mut Tape<'_>) {
        let socket = SocketId(tape.word() % 16);
        let wire = (tape.byte().is_multiple_of(2)).then(|| {
            let (fd, wire) = placeholder(2);
            self.placeholders.push(fd);
            wire
        });
        match tape.byte() % 6 {
            0 => self.request(&bind(socket, u16::from(tape.byte())), wire),
            1 => self.request(&listen(socket), wire),
            2 => {
                let socket =
                    if tape.byte().is_multiple_of(2) { SocketId(u32::MAX) } else { socket };
                self.request(&connect(socket), wire);
            }
            3 => {
                let action = OptionAction::Get(4);
                let request = RequestId(0);
                let message = Message::Option { request, socket, level: 1, name: 2, action };
                self.request(&message, wire);
            }
            4 => self.request(&hello(), wire),
            _ => self.frame(&tape.bytes(), &[]),
        }
    }

    /// One step of the tape.
    fn step(&mut self, tape: &mut Tape<'_>, stage: &mut Stage) {
        match tape.byte() % 16 {
            0 => self.put(u64::from(tape.byte()) * 4, &tape.word().to_ne_bytes()),
            1 => {
                let slot = u64::from(tape.byte()) % SLOTS_NEAR;
                let at = SLOTS_AT + slot * SLOT_BYTES + u64::from(tape.byte() % 64) * 4;
                self.put(at, &tape.word().to_ne_bytes());
            }
            2..=4 => self.entry(tape),
            5 => {
                let by = u64::from(tape.word()) << (tape.byte() % 33);
                let at = if tape.byte().is_multiple_of(4) { TX_TAIL } else { TX_HEAD };
                self.put(at, &self.get(at).wrapping_add(by).to_ne_bytes());
            }
            6 => self.put_ring(self.get(TX_HEAD), &tape.bytes()),
            7 => self.say(tape),
            8 => self.attach(u32::from(tape.byte() % 8), !tape.byte().is_multiple_of(4)),
            9 => {
                if !self.placeholders.is_empty() {
                    let at = usize::from(tape.byte()) % self.placeholders.len();
                    self.placeholders.swap_remove(at);
                }
            }
            10 => self.let_card_act(tape, stage),
            11 if tape.byte() == 0 => self.control = None,
            12 => {
                let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
            }
            _ => {
                stage.turn();
            }
        }
    }

    /// What the card does meanwhile, by the rules.
    fn let_card_act(&self, tape: &mut Tape<'_>, stage: &mut Stage) {
        let card = stage.card();
        let sockets = card.sockets_of(self.id);
        let Some(&socket) = sockets.get(usize::from(tape.byte()) % sockets.len().max(1)) else {
            card.accept_for(self.id);
            return;
        };
        match tape.byte() % 6 {
            0 => card.accept_for(self.id),
            1 => card.data(socket, &vec![5; usize::from(tape.byte()) * 100]),
            2 => card.eof(socket),
            3 => card.reset(socket),
            4 => card.grant(socket, 1 + u32::from(tape.byte())),
            _ => card.connected(socket, i32::from(tape.byte() % 2) * 111),
        }
    }
}

/// Plays a tape against an agent that also serves `good`.
pub(crate) fn play(tape: &[u8], stage: &mut Stage, good: &Good) {
    let mut hostile = Hostile::open(stage);
    hostile.settle_in(stage);
    let mut tape = Tape(tape);
    while !tape.0.is_empty() {
        hostile.step(&mut tape, stage);
    }
    good.works(stage);
    let id = hostile.id;
    drop(hostile);
    stage.settle();
    good.works(stage);
    let card = stage.card();
    assert_eq!(card.sockets_of(id), [], "its sockets are closed");
    assert!(card.faults.is_empty(), "the card found fault: {:?}", card.faults);
    card.said.clear();
}

pub(crate) fn hello() -> Message<'static> {
    Message::Hello(Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        max_message_bytes: frame::FRAME_BYTES_MAX as u32,
        window_bytes: 65_536,
        layout_min: 1,
        layout_max: 1,
        program: "hostile",
    })
}

pub(crate) fn bind(socket: SocketId, port: u16) -> Message<'static> {
    let (request, session, uid) = (RequestId(0), SessionId(0), 0);
    let address = ([127, 0, 0, 1], port).into();
    Message::Bind { request, session, socket, uid, address, options: Vec::new() }
}

/// The frame that hands over a wire.
fn attached(slot: u32) -> Vec<u8> {
    let unspecified = ([0, 0, 0, 0], 0).into();
    let message = Message::Accepted {
        // Whatever is in that slot.
        listener: mqttshim_session::NEW_SOCKET,
        socket: SocketId(slot),
        local: unspecified,
        peer: unspecified,
    };
    let mut bytes = Vec::new();
    mqttshim_schema::encode(&message, &mut bytes).expect("well formed");
    bytes
}

fn listen(socket: SocketId) -> Message<'static> {
    let (request, options) = (RequestId(0), Vec::new());
    Message::Listen { request, socket, backlog: 5, placeholder: "", options }
}

fn connect(socket: SocketId) -> Message<'static> {
    let (request, session, uid) = (RequestId(0), SessionId(0), 0);
    let address = ([192, 0, 2, 7], 1883).into();
    Message::Connect { request, session, socket, uid, address, options: Vec::new() }
}

pub(crate) fn send(control: &OwnedFd, message: &Message<'_>, fds: &[&OwnedFd]) {
    let mut bytes = Vec::new();
    mqttshim_schema::encode(message, &mut bytes).expect("well formed");
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    frame::send(control, &bytes, &fds, SendFlags::DONTWAIT).expect("room for a frame");
}

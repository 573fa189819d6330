//! What programs ask: rendezvous, requests, wires of accepted connections.
//!
//! The agent grants nothing that the kernel would not: who sends a frame is told by the kernel with every frame, and a low port
//! needs root or CAP_NET_BIND_SERVICE.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use mqttshim_schema::{Message, Notice, RequestId, SessionId, SocketId};
use mqttshim_session::frame::{self, FRAME_BYTES_MAX, Received};
use mqttshim_session::host::Host;
use mqttshim_session::{LAYOUT_MAX, LAYOUT_MIN, NEW_SOCKET, SlotId, State};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, UCred, sockopt};

use crate::agent::{Agent, Asked, Pending};
use crate::entries::{Violation, state_of};
use crate::lease::Lease;
use crate::listener;
use crate::peer::{Peer, Role, Socket};
use crate::token::Token;

const UNSPECIFIED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Frames taken from one program in one go.
const FRAMES_PER_EVENT: usize = 64;

/// A request that cannot be acted on yet.
pub(crate) struct Frame {
    session: SessionId,
    bytes: Vec<u8>,
    reply: OwnedFd,
    wire: Option<OwnedFd>,
    sender: Option<UCred>,
}

/// The first port that needs no privilege: ip(7).
pub(crate) fn unprivileged_port_start() -> u16 {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024)
}

/// The request in an encoded message, if it is one.
pub(crate) fn request_of(message: &[u8]) -> Option<RequestId> {
    match mqttshim_schema::decode(message).ok()? {
        Message::Bind { request, .. }
        | Message::Listen { request, .. }
        | Message::Connect { request, .. }
        | Message::Option { request, .. } => Some(request),
        _ => None,
    }
}

/// Answers a request. A program that no longer waits is none of our business.
fn answer(reply: &OwnedFd, errno: i32, address: SocketAddr, value: &[u8], fd: Option<OwnedFd>) {
    let message = Message::Reply { request: RequestId(0), errno, address, value };
    let mut bytes = Vec::new();
    if mqttshim_schema::encode(&message, &mut bytes).is_ok() {
        let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
        let _ = frame::send(reply, &bytes, &fds, SendFlags::DONTWAIT);
    }
}

fn answer_errno(reply: &OwnedFd, errno: Errno) {
    answer(reply, errno.raw_os_error(), UNSPECIFIED, &[], None);
}

impl Agent {
    /// Programs that knock.
    pub(crate) fn accept_programs(&mut self) {
        if self.card.is_none() && self.lease.is_fresh(Instant::now()) {
            // Level-triggered: they are asked in as soon as the card has answered, or after the wait.
            return;
        }
        while let Ok(Some(control)) = self.rendezvous.accept() {
            if let Err(reason) = self.open_session(control) {
                tracing::warn!(%reason, "refused a session");
            }
        }
    }

    fn open_session(&mut self, control: OwnedFd) -> Result<(), String> {
        let who = sockopt::socket_peercred(&control).map_err(|errno| errno.to_string())?;
        let uid = who.uid.as_raw();
        let refuse = |reason: String| {
            answer(&control, Errno::PERM.raw_os_error(), UNSPECIFIED, reason.as_bytes(), None);
            Err(reason)
        };
        if self.card.is_none() {
            return refuse("the card is not connected".into());
        }
        let open = self.peers.values().filter(|peer| peer.uid == uid).count();
        if open >= self.config.sessions_per_uid_max as usize {
            return refuse(format!("uid {uid} has {open} sessions, the most one user may have"));
        }
        let made = Host::create(self.config.sockets_max, u64::from(self.card_window));
        let host = match made {
            Ok(host) => host,
            Err(error) => return refuse(error.to_string()),
        };
        let id = SessionId(self.next_session);
        match self.register(id, &control, &host) {
            Ok(()) => {}
            Err(errno) => return refuse(format!("the agent is out of descriptors: {errno}")),
        }
        self.next_session = self.next_session.wrapping_add(1);
        let pid = who.pid.as_raw_nonzero().get();
        tracing::info!(session = id.0, uid, pid, "session opened");
        self.peers.insert(id, Peer::new(id, uid, host, control));
        Ok(())
    }

    fn register(&self, id: SessionId, control: &OwnedFd, host: &Host) -> Result<(), Errno> {
        sockopt::set_socket_passcred(control, true)?;
        epoll::add(&self.epoll, control, Token::Control(id).data(), EventFlags::IN)?;
        epoll::add(&self.epoll, host.doorbell(), Token::Doorbell(id).data(), EventFlags::IN)
    }

    /// Frames of a program.
    pub(crate) fn read_control(&mut self, id: SessionId) {
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        for _ in 0..FRAMES_PER_EVENT {
            let Some(peer) = self.peers.get_mut(&id) else { return };
            match frame::receive(&peer.control, &mut buffer, RecvFlags::DONTWAIT) {
                Ok(Received { length: 0, .. }) | Err(Errno::CONNRESET) => {
                    peer.is_ending = true;
                    // Reported for ever otherwise.
                    let _ = epoll::delete(&self.epoll, &peer.control);
                    return;
                }
                Ok(received) => {
                    let bytes = &buffer[..received.length];
                    if let Err(violation) =
                        self.handle_frame(id, bytes, received.fds, received.sender)
                    {
                        tracing::error!(session = id.0, %violation, "a program broke its session's contract; the session is ended");
                        if let Some(peer) = self.peers.get_mut(&id) {
                            peer.host.end();
                            peer.is_ending = true;
                            let _ = epoll::delete(&self.epoll, &peer.control);
                        }
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    fn handle_frame(
        &mut self,
        id: SessionId,
        bytes: &[u8],
        fds: frame::FrameFds,
        sender: Option<UCred>,
    ) -> Result<(), Violation> {
        let [first, second] = fds;
        match mqttshim_schema::decode(bytes).map_err(Violation::Frame)? {
            Message::Hello(hello) => {
                self.greet_program(id, &hello);
                Ok(())
            }
            Message::Accepted { socket, .. } => {
                self.attach(id, socket.0, first.ok_or(Violation::Control)?);
                Ok(())
            }
            Message::Bind { .. }
            | Message::Listen { .. }
            | Message::Connect { .. }
            | Message::Option { .. } => {
                let reply = first.ok_or(Violation::Control)?;
                let frame =
                    Frame { session: id, bytes: bytes.to_vec(), reply, wire: second, sender };
                if self.peers.values().any(|peer| peer.is_ending) {
                    self.deferred.push_back(frame);
                } else {
                    self.ask(frame);
                }
                Ok(())
            }
            _ => Err(Violation::Control),
        }
    }

    /// The program's Hello: answered with the memory and the doorbell, or with the reason why not.
    fn greet_program(&mut self, id: SessionId, hello: &mqttshim_schema::Hello<'_>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let mut ours = Lease::hello(FRAME_BYTES_MAX);
        (ours.layout_min, ours.layout_max) = (LAYOUT_MIN, LAYOUT_MAX);
        let agreed = mqttshim_schema::negotiate(&ours, hello);
        if let Err(error) = agreed {
            tracing::warn!(session = id.0, program = hello.program, %error, "refused a session");
            let reason = error.to_string();
            let errno = Errno::PROTO.raw_os_error();
            answer(&peer.control, errno, UNSPECIFIED, reason.as_bytes(), None);
            peer.is_ending = true;
            return;
        }
        let mut bytes = Vec::new();
        if mqttshim_schema::encode(&Message::Hello(ours), &mut bytes).is_ok() {
            // A program that left meanwhile shows on its control socket.
            let _ = frame::send(&peer.control, &bytes, &peer.host.fds(), SendFlags::DONTWAIT);
        }
        peer.is_open = true;
        let what = Notice::SessionOpened;
        let message = Message::Notice { session: id, stamp: 0, what, detail: hello.program };
        // A Notice fits every channel.
        let _ = self.line.queue(&message);
    }

    fn attach(&mut self, id: SessionId, index: u32, wire: OwnedFd) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(slot) = peer.host.current(index) else { return };
        // Without the socket the wire is dropped here: the placeholder reports ECONNRESET.
        let Some(wire) = peer.attach(slot, wire) else { return };
        let token = Token::Wire(id, index).data();
        if let Err(errno) = epoll::add(&self.epoll, wire, token, EventFlags::empty()) {
            tracing::error!(%errno, "cannot watch a wire");
            peer.fail(slot, Errno::CONNRESET.raw_os_error());
        }
    }

    /// Requests that waited for sessions to end.
    pub(crate) fn run_deferred(&mut self) -> bool {
        if self.deferred.is_empty() || self.peers.values().any(|peer| peer.is_ending) {
            return false;
        }
        while let Some(frame) = self.deferred.pop_front() {
            self.ask(frame);
        }
        true
    }

    /// Checks a request and passes it on to the card.
    fn ask(&mut self, frame: Frame) {
        let Ok(message) = mqttshim_schema::decode(&frame.bytes) else { return };
        let asked = match message {
            Message::Bind { address, options, .. } => self.ask_bind(&frame, address, options),
            Message::Listen { socket, backlog, placeholder, options, .. } => {
                self.ask_listen(&frame, socket.0, backlog, placeholder, options)
            }
            Message::Connect { socket, address, options, .. } => {
                self.ask_connect(&frame, socket, address, options)
            }
            Message::Option { socket, level, name, action, .. } => {
                self.place(frame.session, socket.0).and_then(|(slot, socket)| {
                    let request = self.next_request();
                    let message = Message::Option { request, socket, level, name, action };
                    self.send_request(request, &message)?;
                    Ok((request, slot, Asked::Option))
                })
            }
            _ => Err(Errno::INVAL),
        };
        let Frame { session, reply, wire, .. } = frame;
        match asked {
            Ok((request, slot, what)) => {
                if let (Asked::Connect { .. }, Some(wire)) = (&what, wire) {
                    self.hold_wire(session, slot, wire);
                }
                self.pending.insert(request, Pending { session, slot, reply, what });
            }
            Err(errno) => answer_errno(&reply, errno),
        }
    }

    fn ask_bind(
        &mut self,
        frame: &Frame,
        address: SocketAddr,
        options: Vec<mqttshim_schema::SocketOption<'_>>,
    ) -> Result<(RequestId, SlotId, Asked), Errno> {
        let is_low = (1..self.unprivileged_port_start).contains(&address.port());
        if is_low && !frame.sender.as_ref().is_some_and(may_bind_low_ports) {
            return Err(Errno::ACCESS);
        }
        let uid = frame.sender.as_ref().map_or(u32::MAX, |sender| sender.uid.as_raw());
        let (slot, socket) = self.new_socket(frame.session, Role::Bound)?;
        let request = self.next_request();
        let session = frame.session;
        let message = Message::Bind { request, session, socket, uid, address, options };
        self.send_request(request, &message).inspect_err(|_| self.forget(session, slot))?;
        Ok((request, slot, Asked::Bind))
    }

    fn ask_listen(
        &mut self,
        frame: &Frame,
        index: u32,
        backlog: i32,
        name: &str,
        options: Vec<mqttshim_schema::SocketOption<'_>>,
    ) -> Result<(RequestId, SlotId, Asked), Errno> {
        let (slot, socket) = self.place(frame.session, index)?;
        let directory = self.rendezvous.directory();
        let (placeholder, name) = if name.is_empty() {
            let (placeholder, name) = listener::make(directory, &mut self.listeners_made)?;
            (Some(placeholder), name)
        } else if listener::is_valid_name(name) && listener::is_held(directory, name) {
            (None, name.to_owned())
        } else {
            return Err(Errno::INVAL);
        };
        let peer = self.peers.get_mut(&frame.session).ok_or(Errno::CONNRESET)?;
        let place = peer.socket_at(slot).ok_or(Errno::INVAL)?;
        // listen(2) on a listener only changes its backlog.
        let is_again = matches!(place.role, Role::Listener(_));
        if !is_again {
            place.role = Role::Listener(name.clone());
        }
        let request = self.next_request();
        let message = Message::Listen { request, socket, backlog, placeholder: "", options };
        self.send_request(request, &message)?;
        Ok((request, slot, Asked::Listen { placeholder, name }))
    }

    fn ask_connect(
        &mut self,
        frame: &Frame,
        socket: SocketId,
        address: SocketAddr,
        options: Vec<mqttshim_schema::SocketOption<'_>>,
    ) -> Result<(RequestId, SlotId, Asked), Errno> {
        let session = frame.session;
        let is_new = socket == NEW_SOCKET;
        let (slot, socket) = if is_new {
            self.new_socket(session, Role::Bound)?
        } else {
            self.place(session, socket.0)?
        };
        let uid = frame.sender.as_ref().map_or(u32::MAX, |sender| sender.uid.as_raw());
        let request = self.next_request();
        let message = Message::Connect { request, session, socket, uid, address, options };
        self.send_request(request, &message)?;
        Ok((request, slot, Asked::Connect { is_new }))
    }

    /// The wire of a connection being made.
    fn hold_wire(&mut self, session: SessionId, slot: SlotId, wire: OwnedFd) {
        let Some(peer) = self.peers.get_mut(&session) else { return };
        let token = Token::Wire(session, slot.index).data();
        if epoll::add(&self.epoll, &wire, token, EventFlags::empty()).is_ok() {
            peer.host.set(slot, None, None, State::Connecting);
            if let Some(socket) = peer.socket_at(slot) {
                socket.role = Role::Wired(wire);
            }
        }
    }

    fn next_request(&mut self) -> RequestId {
        self.next_request = self.next_request.wrapping_add(1);
        RequestId(self.next_request)
    }

    fn send_request(&mut self, request: RequestId, message: &Message<'_>) -> Result<(), Errno> {
        debug_assert!(!self.pending.contains_key(&request));
        self.line.queue(message).map_err(|_| Errno::NOBUFS)
    }

    /// The card's number of a program's socket.
    fn place(&mut self, session: SessionId, index: u32) -> Result<(SlotId, SocketId), Errno> {
        let peer = self.peers.get_mut(&session).ok_or(Errno::CONNRESET)?;
        let socket = peer.socket(index).filter(|socket| !socket.is_closed);
        socket.map(|socket| (socket.slot, socket.id)).ok_or(Errno::CONNRESET)
    }

    /// A slot and a number for a socket the program makes.
    fn new_socket(&mut self, session: SessionId, role: Role) -> Result<(SlotId, SocketId), Errno> {
        let peer = self.peers.get_mut(&session).ok_or(Errno::CONNRESET)?;
        let slot = peer.host.allocate(state_of(&role)).ok_or(Errno::NOBUFS)?;
        while self.places.contains_key(&SocketId(self.next_socket)) {
            self.next_socket = self.next_socket.wrapping_add(2);
        }
        let id = SocketId(self.next_socket);
        self.next_socket = self.next_socket.wrapping_add(2);
        self.places.insert(id, (session, slot));
        peer.insert(Socket::new(slot, id, role));
        Ok((slot, id))
    }

    /// Undoes [`new_socket`](Self::new_socket) for a number the card never heard of.
    fn forget(&mut self, session: SessionId, slot: SlotId) {
        if let Some(socket) = self.peers.get_mut(&session).and_then(|peer| peer.release(slot)) {
            self.places.remove(&socket.id);
        }
    }

    /// A request that could not be sent.
    pub(crate) fn refuse(&mut self, request: RequestId, errno: Errno) {
        let Some(pending) = self.pending.remove(&request) else { return };
        answer_errno(&pending.reply, errno);
        if matches!(pending.what, Asked::Bind | Asked::Connect { is_new: true }) {
            self.forget(pending.session, pending.slot);
        }
    }

    /// The card's answer.
    pub(crate) fn handle_reply(
        &mut self,
        request: RequestId,
        errno: i32,
        address: SocketAddr,
        value: &[u8],
    ) {
        let Some(pending) = self.pending.remove(&request) else { return };
        let Pending { session, slot, reply, what } = pending;
        let Some(peer) = self.peers.get_mut(&session) else { return };
        let mut number = [0_u8; 8];
        number[..4].copy_from_slice(&slot.index.to_ne_bytes());
        number[4..].copy_from_slice(&slot.generation.to_ne_bytes());
        match (what, errno) {
            (Asked::Bind, 0) => {
                peer.host.set(slot, Some(address), None, State::Bound);
                answer(&reply, 0, address, &number, None);
            }
            (Asked::Listen { placeholder, name }, 0) => {
                peer.host.set(slot, None, None, State::Listening);
                answer(&reply, 0, address, name.as_bytes(), placeholder);
            }
            (Asked::Connect { .. }, 0) => answer(&reply, 0, address, &number, None),
            (Asked::Option, 0) => answer(&reply, 0, address, value, None),
            (what, errno) => {
                answer(&reply, errno, address, &[], None);
                self.undo(session, slot, what);
            }
        }
    }

    /// What a refused request leaves behind.
    fn undo(&mut self, session: SessionId, slot: SlotId, what: Asked) {
        let Some(peer) = self.peers.get_mut(&session) else { return };
        match what {
            Asked::Bind | Asked::Connect { is_new: true } => self.forget(session, slot),
            Asked::Listen { placeholder: Some(_), name } => {
                // Nobody else holds it: its file is of no use.
                let _ = std::fs::remove_file(self.rendezvous.directory().join(name));
                if let Some(socket) = peer.socket_at(slot) {
                    socket.role = Role::Bound;
                }
            }
            Asked::Connect { is_new: false } => {
                if let Some(socket) = peer.socket_at(slot) {
                    socket.role = Role::Bound;
                }
                peer.host.set(slot, None, None, State::Bound);
            }
            Asked::Listen { placeholder: None, .. } | Asked::Option => {}
        }
    }
}

/// Root, or CAP_NET_BIND_SERVICE (bit 10 of capabilities(7)) among the sender's effective capabilities.
fn may_bind_low_ports(sender: &UCred) -> bool {
    const NET_BIND_SERVICE: u64 = 1 << 10;
    if sender.uid.is_root() {
        return true;
    }
    let path = format!("/proc/{}/status", sender.pid.as_raw_nonzero());
    let Ok(status) = std::fs::read_to_string(path) else { return false };
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits & NET_BIND_SERVICE != 0)
}

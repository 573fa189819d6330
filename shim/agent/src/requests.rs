//! What programs ask the card for, and what its answers mean.
//!
//! The agent grants nothing that the kernel would not: who sends a frame is told by the kernel with every frame, and a low port
//! needs root or CAP_NET_BIND_SERVICE.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mqttshim_channel::CommChannel;
use mqttshim_schema::{Message, RequestId, SessionId, SocketId, SocketOption, Stamp};
use mqttshim_session::{NEW_SOCKET, SlotId, State, frame};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, UCred};

use crate::agent::Agent;
use crate::listener;
use crate::socket::{Role, Socket};
use crate::token::Token;
use crate::watch::Watched;

const UNSPECIFIED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Requests one program may have under way. Each thread of it waits for one, and each costs the agent a descriptor.
pub(crate) const REQUESTS_PER_SESSION_MAX: usize = 256;

/// A request that has not been passed on yet.
pub(crate) struct Frame {
    pub(crate) session: SessionId,
    /// Which of the session's control sockets it came on.
    pub(crate) number: u32,
    /// What the program had written when it asked goes first.
    pub(crate) after: Stamp,
    pub(crate) bytes: Vec<u8>,
    pub(crate) reply: OwnedFd,
    /// The wire of a connection, or the placeholder of a listener.
    pub(crate) file: Option<OwnedFd>,
    pub(crate) sender: Option<UCred>,
}

/// A request that the card has yet to answer.
pub(crate) struct Pending {
    session: SessionId,
    slot: SlotId,
    reply: OwnedFd,
    what: Asked,
}

impl Pending {
    pub(crate) fn is_of(&self, session: SessionId) -> bool {
        self.session == session
    }
}

/// What was asked, with what is needed to act on the answer.
pub(crate) enum Asked {
    Bind,
    Listen { placeholder: Option<OwnedFd>, name: String, is_again: bool },
    Connect { is_new: bool },
    Option,
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

/// Answers a request. `false`: the program waits no longer.
fn answer(
    reply: BorrowedFd<'_>,
    errno: i32,
    address: SocketAddr,
    value: &[u8],
    fd: Option<&OwnedFd>,
) -> bool {
    let message = Message::Reply { request: RequestId(0), errno, address, value };
    let mut bytes = Vec::new();
    let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
    mqttshim_schema::encode(&message, &mut bytes).is_ok()
        && frame::send(reply, &bytes, &fds, SendFlags::DONTWAIT).is_ok()
}

pub(crate) fn answer_errno(reply: &OwnedFd, errno: Errno) {
    answer(reply.as_fd(), errno.raw_os_error(), UNSPECIFIED, &[], None);
}

/// Answers a program that knocked with a sentence for its operator.
pub(crate) fn answer_reason(control: BorrowedFd<'_>, errno: Errno, reason: &str) {
    let mut end = reason.len().min(mqttshim_schema::OPTION_VALUE_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    answer(control, errno.raw_os_error(), UNSPECIFIED, &reason.as_bytes()[..end], None);
}

impl Agent {
    /// Requests of this program that are under way.
    pub(crate) fn requests_of(&self, session: SessionId) -> usize {
        let waiting = self.requests.iter().filter(|frame| frame.session == session).count();
        waiting + self.pending.values().filter(|pending| pending.is_of(session)).count()
    }

    /// Passes on the requests whose turn it is. Those of all programs wait while a session ends: its ports become free first.
    pub(crate) fn run_requests(&mut self, channel: &mut dyn CommChannel) -> bool {
        let is_ending = self.peers.values().any(|peer| peer.ending.is_some());
        let mut has_moved = false;
        for _ in 0..self.requests.len() {
            let Some(frame) = self.requests.pop_front() else { break };
            let Some(peer) = self.peers.get(&frame.session) else { continue };
            if is_ending || frame.after > peer.host.consumed() {
                self.requests.push_back(frame);
            } else {
                self.ask(channel, frame);
                has_moved = true;
            }
        }
        has_moved
    }

    /// Checks a request and passes it on to the card.
    fn ask(&mut self, channel: &mut dyn CommChannel, mut frame: Frame) {
        let bytes = std::mem::take(&mut frame.bytes);
        let Ok(message) = mqttshim_schema::decode(&bytes) else { return };
        let asked = match message {
            Message::Bind { address, options, .. } => {
                self.ask_bind(channel, &frame, address, options)
            }
            Message::Listen { socket: NEW_SOCKET, placeholder, .. } => {
                match self.find_listener(&frame, placeholder) {
                    Ok(slot) => {
                        answer(frame.reply.as_fd(), 0, UNSPECIFIED, &number_of(slot), None);
                        return;
                    }
                    Err(errno) => Err(errno),
                }
            }
            Message::Listen { socket, backlog, placeholder, options, .. } => {
                self.ask_listen(channel, &frame, socket.0, (backlog, placeholder, options))
            }
            Message::Connect { socket, address, options, .. } => {
                self.ask_connect(channel, &mut frame, socket, address, options)
            }
            Message::Option { socket, level, name, action, .. } => {
                self.place(frame.session, socket.0).and_then(|(slot, socket)| {
                    let request = self.next_request();
                    let message = Message::Option { request, socket, level, name, action };
                    self.send_request(channel, &message)?;
                    Ok((request, slot, Asked::Option))
                })
            }
            _ => Err(Errno::INVAL),
        };
        let Frame { session, reply, .. } = frame;
        match asked {
            Ok((request, slot, what)) => {
                self.pending.insert(request, Pending { session, slot, reply, what });
            }
            Err(errno) => answer_errno(&reply, errno),
        }
    }

    fn ask_bind(
        &mut self,
        channel: &mut dyn CommChannel,
        frame: &Frame,
        address: SocketAddr,
        options: Vec<SocketOption<'_>>,
    ) -> Result<(RequestId, SlotId, Asked), Errno> {
        let is_low = (1..self.unprivileged_port_start).contains(&address.port());
        if is_low && !frame.sender.as_ref().is_some_and(may_bind_low_ports) {
            return Err(Errno::ACCESS);
        }
        self.close_listeners_gone_from(channel, address.port());
        let (session, uid) = (frame.session, uid_of(frame));
        let (slot, socket) = self.new_socket(session)?;
        let request = self.next_request();
        let message = Message::Bind { request, session, socket, uid, address, options };
        self.send_request(channel, &message).inspect_err(|_| self.forget(session, slot))?;
        Ok((request, slot, Asked::Bind))
    }

    /// Closes the listeners on `port` that nobody holds any more. One whose process was killed says nothing while another
    /// process shares its session, and must not be in the way of the next.
    fn close_listeners_gone_from(&mut self, channel: &mut dyn CommChannel, port: u16) {
        let listeners: Vec<_> =
            self.peers.values().flat_map(|peer| peer.listeners_on(port)).collect();
        for (session, slot) in listeners {
            self.close_listener_if_gone(channel, session, slot);
        }
    }

    fn ask_listen(
        &mut self,
        channel: &mut dyn CommChannel,
        frame: &Frame,
        index: u32,
        (backlog, name, options): (i32, &str, Vec<SocketOption<'_>>),
    ) -> Result<(RequestId, SlotId, Asked), Errno> {
        let session = frame.session;
        let (slot, socket) = self.place(session, index)?;
        let directory = self.rendezvous.directory();
        let file = frame.file.as_ref();
        let peer = self.peers.get_mut(&session).ok_or(Errno::CONNRESET)?;
        let place = peer.socket_at(slot).ok_or(Errno::INVAL)?;
        let asked = match &place.role {
            // listen(2) on a listener only changes its backlog.
            Role::Listener(own) => {
                Asked::Listen { placeholder: None, name: own.clone(), is_again: true }
            }
            Role::Bound if name.is_empty() => {
                let (placeholder, name) = listener::make(directory, &mut self.listeners_made)?;
                Asked::Listen { placeholder: Some(placeholder), name, is_again: false }
            }
            // Whoever does not hold it may not have it woken, nor take the place of those who do.
            Role::Bound if file.is_some_and(|it| listener::is_held_by(directory, name, it)) => {
                Asked::Listen { placeholder: None, name: name.into(), is_again: false }
            }
            _ => return Err(Errno::INVAL),
        };
        if let Asked::Listen { name, is_again: false, .. } = &asked {
            place.role = Role::Listener(name.clone());
            peer.controls.settle(name);
        }
        let request = self.next_request();
        let message = Message::Listen { request, socket, backlog, placeholder: "", options };
        match self.send_request(channel, &message) {
            Ok(()) => Ok((request, slot, asked)),
            Err(errno) => {
                self.undo(session, slot, asked);
                Err(errno)
            }
        }
    }

    fn ask_connect(
        &mut self,
        channel: &mut dyn CommChannel,
        frame: &mut Frame,
        socket: SocketId,
        address: SocketAddr,
        options: Vec<SocketOption<'_>>,
    ) -> Result<(RequestId, SlotId, Asked), Errno> {
        let (session, uid) = (frame.session, uid_of(frame));
        // Without a wire: this process has no descriptor left for it.
        let wire = frame.file.take().ok_or(Errno::NOBUFS)?;
        let is_new = socket == NEW_SOCKET;
        let (slot, socket) = match is_new {
            true => self.new_socket(session)?,
            false => self.place(session, socket.0)?,
        };
        let place = self.peers.get_mut(&session).and_then(|peer| peer.socket_at(slot));
        if !place.is_some_and(|socket| matches!(socket.role, Role::Bound)) {
            return Err(Errno::ISCONN);
        }
        let asked = Asked::Connect { is_new };
        let request = self.next_request();
        let message = Message::Connect { request, session, socket, uid, address, options };
        let sent = self.hold_wire(session, slot, wire);
        match sent.and_then(|()| self.send_request(channel, &message)) {
            Ok(()) => Ok((request, slot, asked)),
            Err(errno) => {
                self.undo(session, slot, asked);
                Err(errno)
            }
        }
    }

    /// The wire of a connection being made.
    fn hold_wire(&mut self, session: SessionId, slot: SlotId, wire: OwnedFd) -> Result<(), Errno> {
        let token = Token::Wire(session, slot.index);
        let wire = Watched::new(&self.epoll, wire, token, EventFlags::empty())
            .map_err(|_| Errno::NOBUFS)?;
        let peer = self.peers.get_mut(&session).ok_or(Errno::CONNRESET)?;
        peer.host.set(slot, None, None, State::Connecting);
        peer.socket_at(slot).ok_or(Errno::CONNRESET)?.role = Role::Wired(wire);
        Ok(())
    }

    pub(crate) fn next_request(&mut self) -> RequestId {
        self.next_request = self.next_request.wrapping_add(1);
        RequestId(self.next_request)
    }

    fn send_request(
        &mut self,
        channel: &mut dyn CommChannel,
        message: &Message<'_>,
    ) -> Result<(), Errno> {
        self.line.emit(channel, message).map_err(|_| Errno::NOBUFS)
    }

    /// The card's number of a program's socket.
    fn place(&mut self, session: SessionId, index: u32) -> Result<(SlotId, SocketId), Errno> {
        let peer = self.peers.get_mut(&session).ok_or(Errno::CONNRESET)?;
        let socket = peer.socket(index).filter(|socket| !socket.is_closed);
        socket.map(|socket| (socket.slot, socket.id)).ok_or(Errno::CONNRESET)
    }

    /// A slot and a number for a socket the program makes.
    fn new_socket(&mut self, session: SessionId) -> Result<(SlotId, SocketId), Errno> {
        let peer = self.peers.get_mut(&session).ok_or(Errno::CONNRESET)?;
        let slot = peer.host.allocate(Role::Bound.state()).ok_or(Errno::NOBUFS)?;
        while self.places.contains_key(&SocketId(self.next_socket)) {
            self.next_socket = self.next_socket.wrapping_add(2);
        }
        let id = SocketId(self.next_socket);
        self.next_socket = self.next_socket.wrapping_add(2);
        self.places.insert(id, (session, slot));
        peer.insert(Socket::new(slot, id, Role::Bound, self.card_window));
        Ok((slot, id))
    }

    /// Undoes [`new_socket`](Self::new_socket) for a number the card does not know.
    fn forget(&mut self, session: SessionId, slot: SlotId) {
        if let Some(socket) = self.peers.get_mut(&session).and_then(|peer| peer.release(slot)) {
            self.places.remove(&socket.id);
        }
    }

    /// A request that could not be sent.
    pub(crate) fn refuse(&mut self, request: RequestId, errno: Errno) {
        let Some(Pending { session, slot, reply, what }) = self.pending.remove(&request) else {
            return;
        };
        answer_errno(&reply, errno);
        self.undo(session, slot, what);
    }

    /// The card's answer.
    pub(crate) fn handle_reply(
        &mut self,
        channel: &mut dyn CommChannel,
        request: RequestId,
        errno: i32,
        address: SocketAddr,
        value: &[u8],
    ) {
        let Some(pending) = self.pending.remove(&request) else { return };
        let Pending { session, slot, reply, what } = pending;
        let Some(peer) = self.peers.get_mut(&session) else { return };
        let reply = reply.as_fd();
        let number = number_of(slot);
        match (what, errno) {
            (Asked::Bind, 0) => {
                peer.host.set(slot, Some(address), None, State::Bound);
                if let Some(socket) = peer.socket_at(slot) {
                    socket.port = address.port();
                }
                if !answer(reply, 0, address, &number, None) {
                    // Whoever asked died, or gave up: nobody knows the socket.
                    self.close_socket(channel, session, slot);
                }
            }
            (Asked::Listen { placeholder, name, .. }, 0) => {
                peer.host.set(slot, None, None, State::Listening);
                // Unanswered, the placeholder is gone: the next look at its name closes the listener.
                answer(reply, 0, address, name.as_bytes(), placeholder.as_ref());
            }
            (Asked::Connect { .. }, 0) => {
                peer.host.set(slot, Some(address), None, State::Connecting);
                // Unanswered, the wire hangs up.
                answer(reply, 0, address, &number, None);
            }
            (Asked::Option, 0) => {
                answer(reply, 0, address, value, None);
            }
            (what, errno) => {
                answer(reply, errno, address, &[], None);
                self.undo(session, slot, what);
            }
        }
    }

    /// What a refused request leaves behind.
    fn undo(&mut self, session: SessionId, slot: SlotId, what: Asked) {
        let Some(peer) = self.peers.get_mut(&session) else { return };
        match what {
            Asked::Bind | Asked::Connect { is_new: true } => self.forget(session, slot),
            Asked::Listen { placeholder, name, is_again: false } => {
                if placeholder.is_some() {
                    // Nobody else holds it: its file is of no use.
                    let _ = std::fs::remove_file(self.rendezvous.directory().join(name));
                }
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
            Asked::Listen { is_again: true, .. } | Asked::Option => {}
        }
    }
}

/// A slot as programs read it in an answer.
fn number_of(slot: SlotId) -> [u8; 8] {
    let mut number = [0_u8; 8];
    number[..4].copy_from_slice(&slot.index.to_ne_bytes());
    number[4..].copy_from_slice(&slot.generation.to_ne_bytes());
    number
}

fn uid_of(frame: &Frame) -> u32 {
    frame.sender.as_ref().map_or(u32::MAX, |sender| sender.uid.as_raw())
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

//! Requests to the card. Each carries a socket of its own for the answer, so threads and forked children that share the
//! session never take each other's, and a thread that waits stops nobody's events.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use mqttshim_schema::{
    Message, Notice, OptionAction, RequestId, SessionId, SocketId, SocketOption,
};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::frame::{self, FRAME_BYTES_MAX, FrameFds, Received};
use crate::program::{Session, SlotId};

/// How long the card may take to answer; one second more than the lease after which it counts as gone.
const ANSWER_SECONDS_MAX: u64 = mqttshim_schema::LEASE_SECONDS + 1;
/// The agent fills in the session's number.
const OWN_SESSION: SessionId = SessionId(0);
/// The answer comes on a socket of its own, so it needs no number.
const ONLY_REQUEST: RequestId = RequestId(0);
/// "No socket yet" in a request.
pub const NEW_SOCKET: SocketId = SocketId(u32::MAX);
pub(super) const UNSPECIFIED: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

thread_local! {
    // Const and without a destructor: usable in signal handlers and after thread-local storage is torn down.
    static REQUESTS: Cell<(u64, Duration)> = const { Cell::new((0, Duration::ZERO)) };
}

/// How many requests the calling thread has made so far, of any session, and how long it waited for their answers.
#[must_use]
pub fn requests_of_thread() -> (u64, Duration) {
    REQUESTS.get()
}

/// A listening socket's placeholder.
#[derive(Debug)]
pub struct Listening {
    /// The datagram socket to put on the listener's number. `None` when one that outlived an agent was named.
    pub placeholder: Option<OwnedFd>,
    /// Its file name in the session directory, for the next agent.
    pub name: String,
}

/// Where a listener is that another process may have made again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found {
    /// In this session.
    Here(SlotId),
    /// Nobody has it: it is the caller's to make.
    Nowhere,
    /// Another process is making it.
    Soon,
    /// In a session of the same user that [`Session::join`] opens.
    Elsewhere,
}

/// An answer, copied out of its frame.
struct Answer {
    address: SocketAddr,
    value: Vec<u8>,
    fds: FrameFds,
}

impl Answer {
    fn slot(&self) -> Result<SlotId, Errno> {
        match *self.value.as_slice() {
            [a, b, c, d, e, f, g, h] => Ok(SlotId {
                index: u32::from_ne_bytes([a, b, c, d]),
                generation: u32::from_ne_bytes([e, f, g, h]),
            }),
            _ => Err(Errno::PROTO),
        }
    }
}

impl Session {
    /// Binds a new socket on the card.
    ///
    /// # Errors
    /// As `bind(2)`, and ECONNRESET when the session is gone.
    pub fn bind(
        &self,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<(SlotId, SocketAddr), Errno> {
        let message = Message::Bind {
            request: ONLY_REQUEST,
            session: OWN_SESSION,
            socket: NEW_SOCKET,
            uid: 0,
            address,
            options: options.to_vec(),
        };
        let answer = self.request(&message, None)?;
        Ok((answer.slot()?, answer.address))
    }

    /// Listens on a bound socket. `placeholder`: one that outlived an agent, with its name.
    ///
    /// # Errors
    /// As `listen(2)`, and ECONNRESET when the session is gone.
    pub fn listen(
        &self,
        slot: SlotId,
        backlog: i32,
        placeholder: Option<(&str, BorrowedFd<'_>)>,
        options: &[SocketOption<'_>],
    ) -> Result<Listening, Errno> {
        let (name, file) = placeholder.map_or(("", None), |(name, file)| (name, Some(file)));
        let message = Message::Listen {
            request: ONLY_REQUEST,
            socket: self.socket(slot)?,
            backlog,
            placeholder: name,
            options: options.to_vec(),
        };
        let answer = self.request(&message, file)?;
        let name = String::from_utf8(answer.value).map_err(|_| Errno::PROTO)?;
        let [fd, ..] = answer.fds;
        Ok(Listening { placeholder: fd, name })
    }

    /// Asks for the listener of a placeholder that outlived an agent: another process that holds it may have made it again.
    ///
    /// # Errors
    /// EADDRINUSE when another user's session has it, and ECONNRESET when the session is gone.
    pub fn find_listener(&self, name: &str, placeholder: BorrowedFd<'_>) -> Result<Found, Errno> {
        let message = Message::Listen {
            request: ONLY_REQUEST,
            socket: NEW_SOCKET,
            backlog: 0,
            placeholder: name,
            options: Vec::new(),
        };
        match self.request(&message, Some(placeholder)) {
            Ok(answer) => answer.slot().map(Found::Here),
            Err(Errno::NOENT) => Ok(Found::Nowhere),
            Err(Errno::AGAIN) => Ok(Found::Soon),
            Err(Errno::XDEV) => Ok(Found::Elsewhere),
            Err(errno) => Err(errno),
        }
    }

    /// Connects, from a bound socket or a new one. `wire` is the other end of the program's placeholder, on which two fillers
    /// lie. The outcome shows on the placeholder.
    ///
    /// # Errors
    /// As `connect(2)` where it fails at once, and ECONNRESET when the session is gone.
    pub fn connect(
        &self,
        slot: Option<SlotId>,
        address: SocketAddr,
        options: &[SocketOption<'_>],
        wire: OwnedFd,
    ) -> Result<SlotId, Errno> {
        let socket = slot.map_or(Ok(NEW_SOCKET), |slot| self.socket(slot))?;
        let message = Message::Connect {
            request: ONLY_REQUEST,
            session: OWN_SESSION,
            socket,
            uid: 0,
            address,
            options: options.to_vec(),
        };
        self.request(&message, Some(wire.as_fd()))?.slot()
    }

    /// `setsockopt(2)` on the card's socket.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn set_option(
        &self,
        slot: SlotId,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        let action = OptionAction::Set(value);
        let socket = self.socket(slot)?;
        let message = Message::Option { request: ONLY_REQUEST, socket, level, name, action };
        self.request(&message, None).map(|_| ())
    }

    /// `getsockopt(2)` on the card's socket, into `out`. Returns the value's length.
    ///
    /// # Errors
    /// As `getsockopt(2)`.
    pub fn get_option(
        &self,
        slot: SlotId,
        level: i32,
        name: i32,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let action = OptionAction::Get(u32::try_from(out.len()).unwrap_or(u32::MAX));
        let socket = self.socket(slot)?;
        let message = Message::Option { request: ONLY_REQUEST, socket, level, name, action };
        let answer = self.request(&message, None)?;
        let length = answer.value.len().min(out.len());
        out[..length].copy_from_slice(&answer.value[..length]);
        Ok(length)
    }

    /// Hands over the wire of an accepted connection.
    ///
    /// # Errors
    /// ECONNRESET when the session is gone.
    pub fn attach(&self, slot: SlotId, wire: OwnedFd) -> Result<(), Errno> {
        let message = Message::Accepted {
            // Which of the sockets that were ever in this slot: the agent may have given up on a program that was stopped here.
            listener: SocketId(slot.generation),
            socket: self.socket(slot)?,
            local: UNSPECIFIED,
            peer: UNSPECIFIED,
        };
        self.send(&message, &[wire.as_fd()])
    }

    /// Between program and agent a socket's number is its slot's index.
    fn socket(&self, slot: SlotId) -> Result<SocketId, Errno> {
        self.slot(slot).map(|_| SocketId(slot.index)).ok_or(Errno::CONNRESET)
    }

    fn send(&self, message: &Message<'_>, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut bytes = Vec::with_capacity(256);
        mqttshim_schema::encode(message, &mut bytes).map_err(|_| Errno::INVAL)?;
        frame::send(&self.control, &bytes, fds, SendFlags::empty()).map_err(|_| Errno::CONNRESET)
    }

    fn request(
        &self,
        message: &Message<'_>,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<Answer, Errno> {
        let started = Instant::now();
        let answer = self.ask(message, file);
        let (count, time) = REQUESTS.get();
        REQUESTS.set((count.wrapping_add(1), time.saturating_add(started.elapsed())));
        answer
    }

    fn ask(&self, message: &Message<'_>, file: Option<BorrowedFd<'_>>) -> Result<Answer, Errno> {
        let (own, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|_| Errno::NOBUFS)?;
        let timeout = Some(Duration::from_secs(ANSWER_SECONDS_MAX));
        sockopt::set_socket_timeout(&own, Timeout::Recv, timeout).map_err(|_| Errno::NOBUFS)?;
        match file {
            Some(file) => self.send(message, &[theirs.as_fd(), file])?,
            None => self.send(message, &[theirs.as_fd()])?,
        }
        // The agent's copy is now the only one: its death ends the wait.
        drop(theirs);
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let Received { length, fds, is_cut, .. } =
            frame::receive(&own, &mut buffer, RecvFlags::empty()).map_err(|_| Errno::CONNRESET)?;
        if is_cut {
            return Err(Errno::MFILE);
        }
        match mqttshim_schema::decode(&buffer[..length]) {
            Ok(Message::Reply { errno: 0, address, value, .. }) => {
                Ok(Answer { address, value: value.to_vec(), fds })
            }
            Ok(Message::Reply { errno, .. }) => Err(Errno::from_raw_os_error(errno)),
            _ => Err(Errno::CONNRESET),
        }
    }
}

/// A Notice as it travels in the send ring. `None` if it does not fit its limits, which no caller's does.
pub(crate) fn encode_notice(what: Notice, detail: &str) -> Option<Vec<u8>> {
    let message = Message::Notice { session: OWN_SESSION, stamp: 0, what, detail };
    let mut bytes = Vec::new();
    mqttshim_schema::encode(&message, &mut bytes).ok()?;
    Some(bytes)
}

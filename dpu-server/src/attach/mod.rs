//! The broker's side of every connection, as ordered byte streams.
//!
//! ```text
//! recv ──► interpret ──► Input ──► card            (what brokers ask for and write)
//!                        card ──► accepted, data, eof, reset, drained, closed, reply
//! ```
//!
//! Two implementations: [`intercept`] (brokers under the shim, reached over a Comm Channel) and [`memory`] (a scripted
//! broker, for tests). Whatever a host sends is checked here: the card gets inputs that fit the state it knows, and a
//! violation is an [`Input::SessionEnded`], never a panic. No socket and no MQTT here.
//!
//! Sockets are named by the card's keys. A number of the host's own is a [`Token`] until the card has bound it to a key.

pub mod intercept;
pub mod memory;

use std::net::SocketAddr;
use std::time::Instant;

use mqttshim_schema::{How, OptionAction, RequestId, SessionId, SocketOption};
use rustix::io::Errno;

use crate::stack::{Ends, Key};

/// The host's name for a socket it asks the card to make. Means nothing to the card.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Token(pub u32);

/// Something that a broker asks for or did, in its own order. Borrowed from the message it came in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Input<'a> {
    /// A broker's session is there.
    SessionOpened {
        /// Which.
        session: SessionId,
        /// The broker's name, for logs.
        program: &'a str,
    },
    /// A session is over: its program is gone, or it broke the protocol. None of its keys is known to the attach any more.
    SessionEnded {
        /// Which.
        session: SessionId,
    },
    /// The broker has listeners or outgoing connections that the card does not carry: more (positive) or fewer.
    Outside {
        /// Whose.
        session: SessionId,
        /// Change of the number of listeners.
        listeners: i32,
        /// Change of the number of outgoing connections.
        connections: i32,
        /// Of one more: where it listens, or leads to. May be empty.
        name: &'a str,
    },
    /// The broker may permit something else than before: it opened a file for reading, or loads a library.
    PolicyEpoch {
        /// Whose.
        session: SessionId,
        /// How often so far. 0: never, and each time will be told.
        epoch: u64,
    },
    /// The broker loaded a shared object, perhaps a plugin.
    LibraryLoaded {
        /// Whose.
        session: SessionId,
        /// Its file, as the broker named it.
        path: &'a str,
    },
    /// Bind a new socket. Answered by [`Attach::opened`], if it worked, and [`Attach::reply`].
    Bind {
        /// For the reply.
        request: RequestId,
        /// Whose.
        session: SessionId,
        /// For [`Attach::opened`].
        token: Token,
        /// The program's user.
        uid: u32,
        /// Where.
        address: SocketAddr,
        /// Set before binding.
        options: Vec<SocketOption<'a>>,
    },
    /// Listen on a bound socket. Answered by a reply.
    Listen {
        /// For the reply.
        request: RequestId,
        /// Which.
        key: Key,
        /// As `listen(2)` takes it.
        backlog: i32,
        /// Set before listening.
        options: Vec<SocketOption<'a>>,
    },
    /// Connect a bound socket or a new one. Answered by [`Attach::opened`], if new, and [`Attach::connecting`], where it
    /// began, and by a reply; then by [`Attach::connected`].
    Connect {
        /// For the reply.
        request: RequestId,
        /// Whose.
        session: SessionId,
        /// For [`Attach::opened`] where `key` is none.
        token: Token,
        /// The bound socket.
        key: Option<Key>,
        /// The program's user.
        uid: u32,
        /// Where to.
        address: SocketAddr,
        /// Set before connecting.
        options: Vec<SocketOption<'a>>,
    },
    /// Get or set an option. Answered by a reply.
    Option {
        /// For the reply.
        request: RequestId,
        /// Which.
        key: Key,
        /// Protocol level.
        level: i32,
        /// Option name.
        name: i32,
        /// What to do.
        action: OptionAction<'a>,
    },
    /// The broker wrote.
    Data {
        /// To which connection.
        key: Key,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// The broker was told that a write to this connection would block.
    Blocked {
        /// Which.
        key: Key,
    },
    /// There is credit for bytes towards the broker again.
    Room {
        /// Of which connection.
        key: Key,
    },
    /// The broker ended one half.
    Shutdown {
        /// Of which connection.
        key: Key,
        /// Which half.
        how: How,
    },
    /// The broker closed its last descriptor. The attach forgot the key: nothing may be sent to it any more.
    Close {
        /// Which.
        key: Key,
        /// Bytes that were handed over were left unread.
        unread: bool,
    },
}

/// A request's successful answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer<'a> {
    /// Nothing but success.
    Done,
    /// The bound address.
    Address(SocketAddr),
    /// An option's value.
    Value(&'a [u8]),
}

/// The broker side of the card.
pub trait Attach {
    /// Takes the next message of the host into `buffer`; false when there is none.
    fn recv(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool;

    /// What the message says, if it concerns the card.
    fn interpret<'b>(&mut self, message: &'b [u8]) -> Option<Input<'b>>;

    /// The next session that ended because its host is gone.
    fn poll_lost(&mut self) -> Option<SessionId>;

    /// The socket the host calls `token` is `key` from now on.
    fn opened(&mut self, session: SessionId, token: Token, key: Key);

    /// A connect of this socket is under way.
    fn connecting(&mut self, key: Key);

    /// Answers a request.
    fn reply(&mut self, request: RequestId, answer: Result<Answer<'_>, Errno>);

    /// Announces a client's connection.
    fn accepted(&mut self, listener: Key, key: Key, ends: Ends);

    /// Announces the outcome of a connect.
    fn connected(&mut self, key: Key, outcome: Result<Ends, Errno>);

    /// Hands client bytes to the broker; returns how many were taken. Fewer than all: wait for [`Input::Room`], or, if
    /// [`Attach::is_blocked`], until it is not.
    fn data(&mut self, key: Key, bytes: &[u8]) -> usize;

    /// The client sent its FIN; every byte before it was taken by [`Attach::data`].
    fn eof(&mut self, key: Key);

    /// The connection is gone.
    fn reset(&mut self, key: Key, errno: Errno);

    /// This many bytes of the broker's have left the card, so it may write as many more.
    fn drained(&mut self, key: Key, bytes: usize);

    /// Whether the way to the host is full.
    fn is_blocked(&self) -> bool;

    /// Sends what waited for room on the way to the host, and what is due by time. True if anything moved.
    fn flush(&mut self, now: Instant) -> bool;

    /// When [`Attach::flush`] has something to do by time.
    fn next_deadline(&self) -> Option<Instant>;
}

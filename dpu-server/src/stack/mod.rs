//! The TCP stack as the card sees it: sockets named by dense keys, readiness as events, sends in batches.
//!
//! ```text
//! wait ──► Event ──► card ──► recv / accept / connect_result
//!                    card ──► send(Batch): all dirty outboxes at once ──► Sent, one a connection
//! ```
//!
//! Three implementations: [`kernel`] (the machine's own sockets), [`smoltcp`] (TCP/IP of our own on a port) and [`memory`] (both
//! ends in one process, for tests). The caller gives out the keys, so one number names a socket here, in the card and in the MQTT core. An operation on a key
//! that is not open fails with `EBADF` and touches nothing else.
//!
//! Readiness is edge-like: an event says that something changed, and the caller tries until the answer is "empty" or
//! "full". Bytes that leave room in the buffer say that nothing more was there, unless the event said `ended`.

mod batch;
pub mod kernel;
pub mod memory;
pub mod smoltcp;
mod watches;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use mqttshim_port::Lost;
use mqttshim_schema::{How, SocketOption};
use rustix::io::Errno;

pub use batch::Batch;

/// Names one socket of the card: a listener or a connection. Dense and small; free again after the card let go of it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key(pub u32);

impl Key {
    /// The key as an index into a table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names a descriptor that is not a socket of the stack but wakes its loop: a channel, a signal pipe.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Watch(pub u32);

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ends {
    /// The card's end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
}

/// Something that changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// A socket changed.
    Socket {
        /// Which.
        key: Key,
        /// A listener has connections to accept; a connection has bytes, an end or an error.
        readable: bool,
        /// A connection may take bytes again, or a connect has an outcome.
        writable: bool,
        /// A FIN or an error is behind what can be read: a short read does not mean that nothing is left.
        ended: bool,
    },
    /// A watched descriptor is ready.
    Watched(Watch),
}

/// The outcome of [`Stack::recv`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Received {
    /// This many bytes, at least one.
    Bytes(usize),
    /// Nothing now.
    Empty,
    /// The client sent its FIN and everything before it was read.
    Fin,
    /// The connection is gone.
    Gone(Errno),
}

/// The outcome of one connection's part of a [`Batch`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// This many bytes were taken; fewer than offered means that the connection is full now.
    Bytes(usize),
    /// The connection is full.
    Full,
    /// The connection is gone.
    Gone(Errno),
}

/// Why nothing was accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AcceptError {
    /// No connection is waiting.
    #[error("no connection is waiting")]
    Empty,
    /// The machine has no descriptor or memory left; a wait for a freed one is due.
    #[error("no descriptor or memory is left to accept a connection: {0}")]
    Exhausted(Errno),
    /// The listener failed.
    #[error("the listener failed: {0}")]
    Failed(Errno),
}

/// How a socket ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// As `close(2)` does: FIN after what was sent, RST where received bytes are unread or the program set a zero linger.
    Close,
    /// RST at once.
    Reset,
}

/// A TCP stack.
pub trait Stack {
    /// Makes a socket and binds it, after setting `options`. `uid` is the program's: SO_REUSEPORT is shared between equal
    /// uids only.
    ///
    /// # Errors
    /// What `socket`, `setsockopt` or `bind` report; no socket is left then.
    fn bind(
        &mut self,
        key: Key,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno>;

    /// Sets `options` on a bound socket and listens. The address is the bound one.
    ///
    /// # Errors
    /// What `setsockopt` or `listen` report; the socket stays bound.
    fn listen(
        &mut self,
        key: Key,
        backlog: i32,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno>;

    /// Takes one established connection of `listener` and calls it `key`.
    ///
    /// # Errors
    /// See [`AcceptError`].
    fn accept(&mut self, listener: Key, key: Key) -> Result<Ends, AcceptError>;

    /// Starts to connect `key`: a bound socket, or a new one. A writable event says when to ask for the result.
    ///
    /// # Errors
    /// What the calls report at once; a socket that is new is not left then, a bound one stays bound.
    fn connect(
        &mut self,
        key: Key,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno>;

    /// The outcome of a connect, or `None` while it is under way.
    fn connect_result(&mut self, key: Key) -> Option<Result<Ends, Errno>>;

    /// `getsockopt(2)` into `value`; the length is what the option has, at most the buffer's.
    ///
    /// # Errors
    /// What the call reports.
    fn option(&mut self, key: Key, level: i32, name: i32, value: &mut [u8])
    -> Result<usize, Errno>;

    /// `setsockopt(2)`.
    ///
    /// # Errors
    /// What the call reports.
    fn set_option(&mut self, key: Key, level: i32, name: i32, value: &[u8]) -> Result<(), Errno>;

    /// Takes received bytes.
    fn recv(&mut self, key: Key, buffer: &mut [u8]) -> Received;

    /// How many connections are best sent to at once.
    const SENDS_TOGETHER: usize;

    /// Offers the bytes of many connections at once. `sent` is cleared and gets one outcome a part of the batch, in order. They are on
    /// their way at the latest when [`Stack::wait`] is called.
    fn send(&mut self, batch: &Batch<'_>, sent: &mut Vec<Sent>);

    /// Whether [`Stack::deliver`] is worth calling.
    const DELIVERS: bool = false;

    /// Sends copies of few messages to many connections: to whom, which message, and its bytes. Each is sent whole and at once, or
    /// refused: `refused` is cleared and gets their places, growing. Behind one that is refused every later one to the same
    /// connection is too, until the next [`Stack::send`] on it; nothing of an earlier `send` may wait with the caller.
    fn deliver<'c>(
        &mut self,
        deliveries: impl Iterator<Item = (Key, u32, &'c [u8])> + Clone,
        refused: &mut Vec<u32>,
    ) {
        refused.clear();
        refused.extend(deliveries.enumerate().map(|(place, _)| place as u32));
    }

    /// Something will be sent on `key` soon: a stack may ask for the memory.
    fn expect(&self, key: Key) {
        let _ = key;
    }

    /// `shutdown(2)`: ends one half of a connection.
    ///
    /// # Errors
    /// What the call reports.
    fn shutdown(&mut self, key: Key, how: How) -> Result<(), Errno>;

    /// Ends a socket. The key names nothing afterwards.
    fn close(&mut self, key: Key, end: End);

    /// Lets `watch` be reported while `descriptor` is readable, or, if `writable`, takes bytes. Called again for the same
    /// watch it replaces what was asked for.
    ///
    /// # Errors
    /// What the machine reports, for example too many watches.
    fn watch(
        &mut self,
        watch: Watch,
        descriptor: BorrowedFd<'_>,
        writable: bool,
    ) -> Result<(), Errno>;

    /// Ends a watch. The descriptor must be the one given to [`Stack::watch`].
    fn unwatch(&mut self, descriptor: BorrowedFd<'_>);

    /// Waits until something changes or the time is up (`None`: no limit), and appends what changed to `events`.
    ///
    /// # Errors
    /// What the machine reports; an interruption by a signal is not an error.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<(), Errno>;

    /// How often parts of batches were sent, by the way they took.
    fn sends(&self) -> Sends;

    /// Frames for which there was no room. A stack of the kernel's has nothing to tell.
    fn lost(&self) -> Lost {
        Lost::default()
    }

    /// What its connections' buffers hold, and what their bound has turned away. A stack of the kernel's has nothing to tell.
    fn memory(&self) -> Memory {
        Memory::default()
    }
}

/// The memory of all connections' buffers together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Memory {
    /// Bytes they have now, or would have to take for messages under way.
    pub bytes: u64,
    /// Connections that were not begun, because the bound was reached.
    pub connections_refused: u64,
    /// Segments that were dropped for the same reason.
    pub segments_dropped: u64,
}

/// Parts of batches by the way they were sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sends {
    /// Through an io_uring, many in one system call.
    pub batched: u64,
    /// One system call each.
    pub plain: u64,
    /// As frames of our own TCP/IP.
    pub framed: u64,
}

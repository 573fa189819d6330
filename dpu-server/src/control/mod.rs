//! What an operator can ask of the running server: which MQTT sessions are known, to forget some, to forget routes.
//!
//! ```text
//! mqttshim sessions ──a line──►  socket ──Order──► data plane: one order a pass, each bounded
//!                   ◄────lines──  thread ◄─Reply──┘
//! ```
//!
//! A socket of its own, not a page of the metrics: forgetting a session changes who gets which message, so only root and the
//! server's own user may (`socket`). One request a connection, one connection at a time. What would take long is asked for in
//! steps, so that the data plane is never held up by more than [`STEP`] sessions.

mod protocol;
mod socket;

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::mqtt::{Forgotten, SessionView};

pub use socket::{ControlError, Served, path_beside, serve};

/// Sessions that one order looks at.
pub const STEP: usize = 1_024;
/// Longest wait for the data plane.
const REPLY_TIME_MAX: Duration = Duration::from_secs(5);

/// Which brokers are meant: one, by the number of its session, or all.
pub type Which = Option<u32>;

/// Where a walk over all sessions of all brokers goes on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Place {
    /// Among the brokers.
    pub broker: usize,
    /// Among the broker's sessions.
    pub session: usize,
}

/// What the data plane is asked to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Order {
    /// Name the sessions from here on.
    List(Which, Place),
    /// Forget the session of this client, if it is offline.
    Forget(Which, Box<str>),
    /// Forget the sessions that are offline, from here on; behind the last, what there may be from before the card, too.
    ForgetAll(Which, Place),
    /// Forget who gets what.
    FlushRoutes(Which),
}

/// One session and its broker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// Number of the broker's session.
    pub broker: u32,
    /// Its program.
    pub program: String,
    /// The MQTT session.
    pub session: SessionView,
}

/// What became of an order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// Sessions, and where the walk goes on, if it does.
    Sessions(Vec<Listed>, Option<Place>),
    /// What became of the session at each broker.
    Forgotten(Vec<Forgotten>),
    /// So many were forgotten, and where the walk goes on, if it does.
    Count(usize, Option<Place>),
}

/// The asking end, for the thread that serves the socket.
#[derive(Debug)]
pub struct Counter {
    orders: SyncSender<(Order, SyncSender<Reply>)>,
    bell: UnixStream,
}

/// The data plane's end.
#[derive(Debug)]
pub struct Desk {
    orders: Receiver<(Order, SyncSender<Reply>)>,
    bell: UnixStream,
}

/// Both ends.
///
/// # Errors
/// As the system says of two sockets.
pub fn counter() -> io::Result<(Counter, Desk)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    let (sender, receiver) = sync_channel(1);
    Ok((Counter { orders: sender, bell: ours }, Desk { orders: receiver, bell: theirs }))
}

impl Counter {
    /// Has an order carried out; `None`: the data plane does not answer.
    fn ask(&mut self, order: Order) -> Option<Reply> {
        let (sender, reply) = sync_channel(1);
        match self.orders.try_send((order, sender)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return None,
        }
        // A full bell rings already.
        let _ = self.bell.write(&[1]);
        reply.recv_timeout(REPLY_TIME_MAX).ok()
    }
}

impl Desk {
    /// Readable when an order waits.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The next order, and where its reply goes.
    pub fn poll(&mut self) -> Option<(Order, SyncSender<Reply>)> {
        // At most one ring an order, and one order at a time.
        let _ = self.bell.read(&mut [0; 16]);
        self.orders.try_recv().ok()
    }
}

#[cfg(test)]
mod tests;

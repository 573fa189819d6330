//! How the load generator reaches its targets.
//!
//! Two ways: [`kernel`](super::kernel), ordinary sockets of this machine, and [`wire`](super::wire), TCP of our own over
//! Ethernet frames, so that only the server's kernel is measured. Time is the wall clock in nanoseconds, because that
//! is what the kernel stamps on received frames.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};

/// A connection of a transport: dense numbers from 0, never reused.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Connection(pub(crate) u32);

impl Connection {
    /// For indexing tables.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Something that happened on a connection.
#[derive(Debug)]
pub(crate) enum What<'a> {
    /// The connection is open.
    Connected,
    /// These bytes arrived, in order.
    Data(&'a [u8]),
    /// The server closed it, or it failed; no more events follow.
    Closed(String),
}

/// One event of [`Transport::poll`].
#[derive(Debug)]
pub(crate) struct Event<'a> {
    /// Where.
    pub(crate) connection: Connection,
    /// When: for `wire` as stamped by the kernel on the frame, for `kernel` when the socket was read.
    pub(crate) at_ns: u64,
    /// What.
    pub(crate) what: What<'a>,
}

/// A set of TCP connections driven by one thread.
pub(crate) trait Transport {
    /// Starts a connection; [`What::Connected`] or [`What::Closed`] follows.
    fn open(&mut self, target: SocketAddr) -> Result<Connection>;

    /// Queues `bytes` behind everything sent before on `connection`; a closed connection drops them.
    fn send(&mut self, connection: Connection, bytes: &[u8]) -> Result<()>;

    /// Hands everything queued to the network.
    fn flush(&mut self) -> Result<()>;

    /// Reports what came, after waiting at most `wait` for it.
    fn poll(&mut self, wait: Duration, sink: &mut dyn FnMut(Event<'_>)) -> Result<()>;

    /// Closes in order (FIN).
    fn close(&mut self, connection: Connection) -> Result<()>;

    /// Whether `poll` returns at the first arrival (an echo must), or may nap to stay cheap.
    fn set_prompt(&mut self, prompt: bool);

    /// One line for the report: what of the client's work is inside the figures, and what was lost on the way.
    fn describe(&mut self) -> String;
}

/// The wall clock, nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).expect("the clock is past 1970");
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).expect("0..1e9")
}

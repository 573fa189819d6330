//! The machine's own sockets.
//!
//! ```text
//! epoll ──► events        recvmsg ◄── one reused buffer        io_uring ◄── all dirty outboxes in one submission
//! ```
//!
//! No privileges, the default, and the honest baseline. Readiness is edge-triggered: one `epoll_ctl` in a connection's
//! life. Sends of a flush go into one `io_uring_enter` (`uring`); where the machine refuses it, one `sendmsg` each
//! (`plain`). Options reach the real socket, so values and errors are the kernel's (`options`), but for TCP_NODELAY:
//! the card always sends whole batches, so its sockets never wait for an acknowledgement (the bytes are the same, sooner),
//! and the program reads back what it asked for.
//!
//! What it does not do: decide anything. Bounds: one descriptor a socket; events are taken 256 at a time.

#[allow(unsafe_code, reason = "no crate carries any option by its number")]
pub(in crate::stack) mod options;
mod plain;
mod ports;
mod sockets;
#[allow(
    unsafe_code,
    reason = "a submission holds pointers; the module's head says why they are good"
)]
mod uring;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use mqttshim_schema::{How, SocketOption};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketFlags, sockopt};

use super::{
    AcceptError, Batch, End, Ends, Event, Key, Received, Sends, Sent, Stack, Watch, watches,
};
use sockets::{Socket, Sockets, Stage};

pub use uring::{Refused, Uring};

/// Events taken from the kernel in one wait.
const EVENTS_MAX: usize = 256;
/// Below this many parts a batch is sent by plain calls: one `io_uring_enter` saves nothing there.
const BATCH_PARTS_MIN: usize = 3;
/// Marks a watch in the 64 bits an epoll entry carries.
const WATCH_BIT: u64 = 1 << 63;

/// The kernel's sockets as a [`Stack`].
pub struct Kernel {
    epoll: OwnedFd,
    sockets: Sockets,
    uring: Option<Uring>,
    ready: Vec<epoll::Event>,
    sends: Sends,
}

impl Kernel {
    /// With an io_uring for batches, or `None` to send by plain calls.
    ///
    /// # Errors
    /// What `epoll_create1` reports.
    pub fn new(uring: Option<Uring>) -> Result<Kernel, Errno> {
        Ok(Kernel {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sockets: Sockets::default(),
            uring,
            ready: Vec::with_capacity(EVENTS_MAX),
            sends: Sends::default(),
        })
    }

    fn socket(&self, key: Key) -> Result<&Socket, Errno> {
        self.sockets.get(key).ok_or(Errno::BADF)
    }

    /// A new socket with the program's options set.
    fn create(
        &self,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<Socket, Errno> {
        let mut socket = Socket::new(uid, address)?;
        for option in options {
            socket.set_option(option.level, option.name, option.value)?;
        }
        Ok(socket)
    }

    /// Lets the kernel report `key`'s edges from now on.
    fn register(&self, key: Key, flags: epoll::EventFlags) -> Result<(), Errno> {
        let socket = self.socket(key)?;
        let data = epoll::EventData::new_u64(socket.tag(key));
        epoll::add(&self.epoll, &socket.descriptor, data, flags | epoll::EventFlags::ET)
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("uring", &self.uring).finish_non_exhaustive()
    }
}

/// What a connection reports.
fn connection_flags() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP
}

impl Stack for Kernel {
    fn bind(
        &mut self,
        key: Key,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let mut socket = self.create(uid, address, options)?;
        ports::check(&self.sockets, key, &socket, address)?;
        rustix::net::bind(&socket.descriptor, &address)?;
        let bound = socket.local()?;
        socket.stage = Stage::Bound(bound);
        self.sockets.insert(key, socket);
        Ok(bound)
    }

    fn listen(
        &mut self,
        key: Key,
        backlog: i32,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let socket = self.sockets.get_mut(key).ok_or(Errno::BADF)?;
        for option in options {
            socket.set_option(option.level, option.name, option.value)?;
        }
        let (Stage::Bound(bound) | Stage::Listening(bound)) = socket.stage else {
            return Err(Errno::INVAL);
        };
        let first = matches!(socket.stage, Stage::Bound(_));
        ports::check(&self.sockets, key, self.socket(key)?, bound)?;
        rustix::net::listen(&self.socket(key)?.descriptor, backlog)?;
        if first {
            self.register(key, epoll::EventFlags::IN)?;
        }
        self.sockets.get_mut(key).ok_or(Errno::BADF)?.stage = Stage::Listening(bound);
        Ok(bound)
    }

    fn accept(&mut self, listener: Key, key: Key) -> Result<Ends, AcceptError> {
        let (accepted, ends) = {
            let from = self.socket(listener).map_err(AcceptError::Failed)?;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (descriptor, peer) = loop {
                match rustix::net::acceptfrom_with(&from.descriptor, flags) {
                    Ok(accepted) => break accepted,
                    // accept(2): a connection that died in the queue; look at the next.
                    Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                    Err(Errno::AGAIN) => return Err(AcceptError::Empty),
                    Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                        return Err(AcceptError::Exhausted(error));
                    }
                    Err(error) => return Err(AcceptError::Failed(error)),
                }
            };
            let accepted = from.accepted(descriptor);
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            // No address: the client reset the connection before it was accepted. It is reported like any other, and
            // its first read tells.
            let peer = peer.unwrap_or_else(|| sockets::unspecified_like(from));
            let local = accepted.local().unwrap_or(peer);
            (accepted, Ends { local, peer })
        };
        self.sockets.insert(key, accepted);
        if let Err(error) = self.register(key, connection_flags()) {
            self.close(key, End::Reset);
            return Err(AcceptError::Exhausted(error));
        }
        Ok(ends)
    }

    fn connect(
        &mut self,
        key: Key,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        let new = self.sockets.get(key).is_none();
        if new {
            let socket = self.create(uid, address, options)?;
            self.sockets.insert(key, socket);
        } else {
            let socket = self.sockets.get_mut(key).ok_or(Errno::BADF)?;
            for option in options {
                socket.set_option(option.level, option.name, option.value)?;
            }
        }
        let started = match rustix::net::connect(&self.socket(key)?.descriptor, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => self.register(key, connection_flags()),
            Err(error) => Err(error),
        };
        match started {
            // A second connect after a failed one: the registration is still there.
            Ok(()) | Err(Errno::EXIST) => {
                let socket = self.sockets.get_mut(key).ok_or(Errno::BADF)?;
                socket.stage = Stage::Connecting;
                socket.local()
            }
            Err(error) => {
                if new {
                    self.sockets.remove(key);
                }
                Err(error)
            }
        }
    }

    fn connect_result(&mut self, key: Key) -> Option<Result<Ends, Errno>> {
        let socket = self.sockets.get_mut(key)?;
        if !matches!(socket.stage, Stage::Connecting) {
            return None;
        }
        let ends = socket.connect_result()?;
        socket.stage = Stage::Connected;
        Some(ends)
    }

    fn option(
        &mut self,
        key: Key,
        level: i32,
        name: i32,
        value: &mut [u8],
    ) -> Result<usize, Errno> {
        self.socket(key)?.option(level, name, value)
    }

    fn set_option(&mut self, key: Key, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        self.sockets.get_mut(key).ok_or(Errno::BADF)?.set_option(level, name, value)
    }

    fn recv(&mut self, key: Key, buffer: &mut [u8]) -> Received {
        let Some(socket) = self.sockets.get(key) else { return Received::Gone(Errno::BADF) };
        loop {
            match rustix::net::recv(&socket.descriptor, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Received::Fin,
                Ok((bytes, _)) => return Received::Bytes(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Received::Empty,
                Err(error) => return Received::Gone(error),
            }
        }
    }

    /// One call of the system for all.
    const SENDS_TOGETHER: usize = usize::MAX;

    fn send(&mut self, batch: &Batch<'_>, sent: &mut Vec<Sent>) {
        sent.clear();
        match &mut self.uring {
            Some(uring) if batch.len() >= BATCH_PARTS_MIN => {
                uring.send(&self.sockets, batch, sent);
                self.sends.batched += batch.len() as u64;
            }
            _ => {
                sent.extend(batch.iter().map(|(key, part)| plain::send(&self.sockets, key, part)));
                self.sends.plain += batch.len() as u64;
            }
        }
    }

    fn shutdown(&mut self, key: Key, how: How) -> Result<(), Errno> {
        let how = match how {
            How::Read => Shutdown::Read,
            How::Write => Shutdown::Write,
            How::Both => Shutdown::Both,
        };
        rustix::net::shutdown(&self.socket(key)?.descriptor, how)
    }

    fn close(&mut self, key: Key, end: End) {
        let Some(socket) = self.sockets.remove(key) else { return };
        if end == End::Reset {
            // A failure means that the connection is gone already.
            let _ = sockopt::set_socket_linger(&socket.descriptor, Some(Duration::ZERO));
        }
    }

    fn watch(
        &mut self,
        watch: Watch,
        descriptor: BorrowedFd<'_>,
        writable: bool,
    ) -> Result<(), Errno> {
        watches::add(&self.epoll, WATCH_BIT | u64::from(watch.0), descriptor, writable)
    }

    fn unwatch(&mut self, descriptor: BorrowedFd<'_>) {
        watches::remove(&self.epoll, descriptor);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<(), Errno> {
        let timeout = timeout.map(watches::timespec);
        self.ready.clear();
        match epoll::wait(self.epoll.as_fd(), spare_capacity(&mut self.ready), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        for ready in &self.ready {
            let (data, flags) = (ready.data.u64(), ready.flags);
            if data & WATCH_BIT != 0 {
                events.push(Event::Watched(Watch((data & u64::from(u32::MAX)) as u32)));
            } else if let Some(key) = self.sockets.tagged(data) {
                use epoll::EventFlags as F;
                let ended = flags.intersects(F::RDHUP | F::HUP | F::ERR);
                let readable = ended || flags.contains(F::IN);
                let writable = ended || flags.contains(F::OUT);
                events.push(Event::Socket { key, readable, writable, ended });
            }
        }
        Ok(())
    }

    fn sends(&self) -> Sends {
        self.sends
    }
}

#[cfg(test)]
mod tests;

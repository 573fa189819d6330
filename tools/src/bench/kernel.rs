//! Ordinary non-blocking sockets of this machine, one epoll set, one thread.
//!
//! The cost of the clients' kernel is inside every figure taken this way. IPv4 and IPv6.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, ipproto, sockopt,
};

use super::transport::{Connection, Event, Transport, What, now_ns};

/// Bytes read from one socket at a time.
const READ_BYTES: usize = 256 << 10;
/// Events taken from epoll at a time.
const EVENTS_MAX: usize = 1024;

/// The transport.
pub(crate) struct KernelTransport {
    epoll: OwnedFd,
    sockets: Vec<Option<Socket>>,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    /// Connections whose failure was seen while sending; reported by the next `poll`.
    failed: Vec<(Connection, String)>,
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    connected: bool,
    /// Bytes the kernel did not take yet.
    backlog: Vec<u8>,
}

impl KernelTransport {
    /// An empty set.
    pub(crate) fn new() -> Result<KernelTransport> {
        Ok(KernelTransport {
            epoll: epoll::create(CreateFlags::CLOEXEC).context("epoll_create")?,
            sockets: Vec::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            buffer: vec![0; READ_BYTES],
            failed: Vec::new(),
        })
    }

    fn watch(&self, connection: Connection, flags: EventFlags) -> Result<()> {
        let Some(Some(socket)) = self.sockets.get(connection.index()) else { return Ok(()) };
        let data = EventData::new_u64(u64::from(connection.0));
        epoll::modify(&self.epoll, &socket.fd, data, flags).context("epoll_ctl")
    }

    /// Handles one readiness report. Returns the event it amounts to.
    fn advance(&mut self, connection: Connection, flags: EventFlags) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        let Some(Some(socket)) = self.sockets.get_mut(connection.index()) else {
            return Ok(steps);
        };
        if !socket.connected {
            match sockopt::socket_error(&socket.fd).context("SO_ERROR")? {
                Err(error) => {
                    self.sockets[connection.index()] = None;
                    return Ok(vec![Step::Closed(error.to_string())]);
                }
                Ok(()) if !flags.contains(EventFlags::OUT) => return Ok(steps),
                Ok(()) => socket.connected = true,
            }
            self.watch(connection, EventFlags::IN)?;
            steps.push(Step::Connected);
        } else if flags.contains(EventFlags::OUT) {
            self.drain(connection)?;
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            steps.push(Step::Readable);
        }
        Ok(steps)
    }

    fn drain(&mut self, connection: Connection) -> Result<()> {
        let backlog = match self.sockets.get_mut(connection.index()) {
            Some(Some(socket)) => std::mem::take(&mut socket.backlog),
            _ => return Ok(()),
        };
        self.watch(connection, EventFlags::IN)?;
        self.send(connection, &backlog)
    }
}

/// What a readiness report means.
#[derive(Debug)]
enum Step {
    Connected,
    Readable,
    Closed(String),
}

impl Transport for KernelTransport {
    fn open(&mut self, target: SocketAddr) -> Result<Connection> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
            .context("cannot make a socket (too few descriptors? see `ulimit -n`)")?;
        sockopt::set_tcp_nodelay(&fd, true).context("TCP_NODELAY")?;
        let connection = Connection(u32::try_from(self.sockets.len()).context("connections")?);
        match rustix::net::connect(&fd, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error).with_context(|| format!("connect to {target}")),
        }
        let data = EventData::new_u64(u64::from(connection.0));
        epoll::add(&self.epoll, &fd, data, EventFlags::IN | EventFlags::OUT)
            .context("epoll_ctl")?;
        self.sockets.push(Some(Socket { fd, connected: false, backlog: Vec::new() }));
        Ok(connection)
    }

    fn send(&mut self, connection: Connection, bytes: &[u8]) -> Result<()> {
        let Some(Some(socket)) = self.sockets.get_mut(connection.index()) else { return Ok(()) };
        let mut rest = bytes;
        while socket.backlog.is_empty() && !rest.is_empty() {
            match rustix::net::send(&socket.fd, rest, SendFlags::NOSIGNAL) {
                Ok(taken) => rest = &rest[taken..],
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    self.failed.push((connection, format!("send: {error}")));
                    return Ok(());
                }
            }
        }
        if !rest.is_empty() {
            socket.backlog.extend_from_slice(rest);
            self.watch(connection, EventFlags::IN | EventFlags::OUT)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self, wait: Duration, sink: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let mut reported = HashSet::new();
        for (connection, reason) in std::mem::take(&mut self.failed) {
            self.sockets[connection.index()] = None;
            if reported.insert(connection) {
                sink(Event { connection, at_ns: now_ns(), what: What::Closed(reason) });
            }
        }
        // epoll_wait(2) counts milliseconds; ppoll(2) on the set is exact.
        let timeout = wait.try_into().context("timeout")?;
        let mut set = [PollFd::new(&self.epoll, PollFlags::IN)];
        match rustix::event::poll(&mut set, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
        self.events.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&at_once)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("epoll_wait"),
        }
        for at in 0..self.events.len() {
            let event = self.events[at];
            let number = u32::try_from(event.data.u64()).context("epoll data")?;
            let connection = Connection(number);
            for step in self.advance(connection, event.flags)? {
                self.report(connection, step, sink);
            }
        }
        Ok(())
    }

    fn close(&mut self, connection: Connection) -> Result<()> {
        if let Some(Some(socket)) = self.sockets.get_mut(connection.index()) {
            // The descriptor goes when the server's FIN arrives, or with the transport.
            let _ = rustix::net::shutdown(&socket.fd, Shutdown::Write);
        }
        Ok(())
    }

    fn set_prompt(&mut self, _prompt: bool) {}

    fn describe(&mut self) -> String {
        "kernel sockets: the clients' own kernel is inside these figures".to_owned()
    }
}

impl KernelTransport {
    fn report(&mut self, connection: Connection, step: Step, sink: &mut dyn FnMut(Event<'_>)) {
        let closed = match step {
            Step::Connected => {
                sink(Event { connection, at_ns: now_ns(), what: What::Connected });
                return;
            }
            Step::Closed(reason) => reason,
            Step::Readable => {
                let Some(Some(socket)) = self.sockets.get(connection.index()) else { return };
                match rustix::net::recv(&socket.fd, &mut self.buffer[..], RecvFlags::empty()) {
                    Ok((_, 0)) => "the server closed the connection".to_owned(),
                    Ok((_, taken)) => {
                        let what = What::Data(&self.buffer[..taken]);
                        sink(Event { connection, at_ns: now_ns(), what });
                        return;
                    }
                    Err(Errno::AGAIN | Errno::INTR) => return,
                    Err(error) => error.to_string(),
                }
            }
        };
        self.sockets[connection.index()] = None;
        sink(Event { connection, at_ns: now_ns(), what: What::Closed(closed) });
    }
}

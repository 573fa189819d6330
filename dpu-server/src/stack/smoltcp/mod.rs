//! Our own TCP/IP over a port: smoltcp's state machine for each connection, everything around it ours.
//!
//! | | |
//! |---|---|
//! | `tcp`, `egress` | from a frame to its connection, and back; pure: no port, no clock |
//! | `flows`, `names` | which connection a segment is of, and which names are taken |
//! | `calls`, `sockets`, `listener`, `options` | the socket calls on it |
//! | `deliver`, `lane`, `template`, `messages` | the short way of one message to many connections |
//! | `ahead` | what these will look at, asked for before |
//! | `link`, `neighbors`, `path` | Ethernet, ARP, neighbour discovery; what routers tell of the way |
//! | `segment`, `guard` | what is looked at, and put right, before smoltcp sees a segment |
//! | `connection`, `connections`, `emit`, `device`, `clock` | one smoltcp socket and what it needs |
//! | `budget` | the memory of all buffers together |
//! | `wheel` | deadlines |
//!
//! This module adds the port and the clock: bursts of frames, one wake-up of the port for all that leaves.

mod ahead;
mod budget;
mod calls;
mod clock;
mod connection;
mod connections;
mod deliver;
mod device;
mod egress;
mod emit;
mod flows;
mod guard;
#[cfg(fuzzing)]
pub mod harness;
mod lane;
mod link;
mod listener;
mod messages;
mod names;
mod neighbors;
mod options;
mod path;
mod segment;
mod sockets;
mod tcp;
mod template;
mod wheel;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use mqttshim_schema::{How, SocketOption};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use smoltcp::wire::IpCidr;

pub use self::budget::BufferBytes;
use self::tcp::{Setup, Tcp};
use super::{
    AcceptError, Batch, End, Ends, Event, Key, Memory, Received, Sends, Sent, Stack, Watch, watches,
};
use mqttshim_port::{Lost, Port, Receive, Transmit};

/// Frames taken between two looks at what is to be sent.
const BURST_FRAMES: usize = 64;
/// Bursts of one wait: then the card has its turn.
const BURSTS_MAX: usize = 16;
/// Descriptors looked at in one wait.
const EVENTS_MAX: usize = 64;
/// How soon a port that takes no more frames is tried again.
const FULL_PAUSE: Duration = Duration::from_micros(200);

/// Of an epoll set that is only looked at.
const NOT_AT_ALL: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// So many frames of one fan-out are not left for the kick at the end of all that the card does now.
const WORTH_A_KICK: u64 = 64;

/// How many deliveries ahead a lane is asked for.
const FAR: usize = 24;

/// See the module.
pub struct Smoltcp<P> {
    tcp: Tcp,
    port: P,
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    start: Instant,
    /// Taken from bursts that went on after the last wait.
    may_have_more: bool,
    sends: Sends,
}

impl<P: Port> Smoltcp<P> {
    /// A stack on `port` with these addresses. `gateway`: who takes what is for elsewhere.
    ///
    /// # Errors
    /// What `epoll_create1` or `getrandom` report.
    pub fn new(port: P, addresses: Vec<IpCidr>, gateway: Option<IpAddr>) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
        let setup = Setup {
            mac: port.mac(),
            addresses,
            gateway,
            capabilities: port.capabilities(),
            seed: u64::from_ne_bytes(seed),
        };
        let mut tcp = Tcp::new(setup);
        if let Some(bytes) = P::Transmit::UNFINISHED_BYTES_MAX {
            tcp.leave_cutting(bytes);
        }
        Ok(Smoltcp {
            tcp,
            port,
            epoll,
            ready: Vec::with_capacity(EVENTS_MAX),
            start: Instant::now(),
            may_have_more: true,
            sends: Sends::default(),
        })
    }

    /// Bounds the buffers of connections that begin from now on, and the memory of all.
    #[must_use]
    pub fn with_buffers(mut self, bytes: &BufferBytes) -> Self {
        self.tcp.bound_buffers(bytes);
        self
    }

    /// The port, for whoever plays the network on its other side.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Frames in, deadlines, frames out.
    fn turn(&mut self) -> Result<(), Errno> {
        let mut bursts = 0;
        loop {
            let now = self.start.elapsed();
            let (receive, transmit) = self.port.halves();
            let tcp = &mut self.tcp;
            let frames = receive.burst(BURST_FRAMES, |frame| tcp.frame(now, frame, transmit))?;
            tcp.expire(now);
            tcp.flush(now, transmit);
            transmit.kick()?;
            bursts += 1;
            self.may_have_more = frames == BURST_FRAMES;
            if !self.may_have_more || bursts == BURSTS_MAX {
                return Ok(());
            }
        }
    }

    /// Sleeps until a frame comes or a watched descriptor is ready; whether one may be.
    ///
    /// The port is in no epoll set of ours: the kernel would look through it for every frame that has left, whether anybody sleeps or not
    /// (`sock_wfree`, net/core/sock.c). An interface of several queues has one of its own, where it does.
    fn sleep(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let port = self.port.readiness();
        let mut sources =
            [PollFd::new(&port, PollFlags::IN), PollFd::new(&self.epoll, PollFlags::IN)];
        match poll(&mut sources, timeout.map(watches::timespec).as_ref()) {
            Ok(_) => Ok(!sources[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// How long nothing is due.
    fn rest(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        if self.may_have_more || !self.tcp.events.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.now();
        let (_, transmit) = self.port.halves();
        let pending = transmit.is_pending().then_some(FULL_PAUSE);
        let due = self.tcp.deadline().map(|at| {
            let pause = at.saturating_sub(now);
            // Due now, and still not done: the port takes no more.
            if pause.is_zero() { FULL_PAUSE } else { pause }
        });
        [timeout, due, pending].into_iter().flatten().min()
    }
}

impl<P> std::fmt::Debug for Smoltcp<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Smoltcp").finish_non_exhaustive()
    }
}

impl<P: Port> Stack for Smoltcp<P> {
    fn bind(
        &mut self,
        key: Key,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        self.tcp.bind(key, uid, address, options)
    }

    fn listen(
        &mut self,
        key: Key,
        backlog: i32,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        self.tcp.listen(key, backlog, options)
    }

    fn accept(&mut self, listener: Key, key: Key) -> Result<Ends, AcceptError> {
        self.tcp.accept(self.now(), listener, key)
    }

    fn connect(
        &mut self,
        key: Key,
        uid: u32,
        address: SocketAddr,
        options: &[SocketOption<'_>],
    ) -> Result<SocketAddr, Errno> {
        self.tcp.connect(self.now(), key, uid, address, options)
    }

    fn connect_result(&mut self, key: Key) -> Option<Result<Ends, Errno>> {
        self.tcp.connect_result(key)
    }

    fn option(
        &mut self,
        key: Key,
        level: i32,
        name: i32,
        value: &mut [u8],
    ) -> Result<usize, Errno> {
        self.tcp.option(key, level, name, value)
    }

    fn set_option(&mut self, key: Key, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        self.tcp.set_option(self.now(), key, level, name, value)
    }

    fn recv(&mut self, key: Key, buffer: &mut [u8]) -> Received {
        self.tcp.recv(self.now(), key, buffer)
    }

    /// What some connections need, from outbox to frame, fits the processor's nearest cache.
    const SENDS_TOGETHER: usize = 16;

    fn send(&mut self, batch: &Batch<'_>, sent: &mut Vec<Sent>) {
        sent.clear();
        let now = self.now();
        let (_, transmit) = self.port.halves();
        self.tcp.expect_connections(batch.iter().map(|(key, _)| key));
        for (key, part) in batch.iter() {
            sent.push(self.tcp.send(now, key, part, transmit));
        }
        self.sends.framed += batch.len() as u64;
        // Kicked when the card waits: once for all it has to send now.
        self.tcp.flush(now, transmit);
    }

    const DELIVERS: bool = true;

    fn deliver<'c>(
        &mut self,
        deliveries: impl Iterator<Item = (Key, u32, &'c [u8])> + Clone,
        refused: &mut Vec<u32>,
    ) {
        refused.clear();
        let now = clock::instant(self.now());
        let (_, transmit) = self.port.halves();
        let mut far = deliveries.clone().skip(FAR);
        let (mut may_kick, mut sent) = (true, 0);
        for (place, (key, message, bytes)) in deliveries.enumerate() {
            if let Some((later, ..)) = far.next() {
                self.tcp.expect_delivery(later);
            }
            if may_kick && !transmit.has_room() {
                // More than the port holds are to leave. If that made no room the rest waits, and what is wrong with the port the next
                // `wait` tells.
                may_kick = transmit.kick().is_ok() && transmit.has_room();
            }
            if self.tcp.deliver(now, key, message, bytes, transmit) {
                sent += 1;
            } else {
                refused.push(place as u32);
            }
        }
        self.sends.framed += sent;
        if sent >= WORTH_A_KICK {
            // Whoever comes last need not wait for what else the card has to do. What is wrong with the port the next `wait` tells.
            let _ = transmit.kick();
        }
        self.tcp.end_batch();
    }

    fn expect(&self, key: Key) {
        self.tcp.expect_socket(key);
    }

    fn shutdown(&mut self, key: Key, how: How) -> Result<(), Errno> {
        self.tcp.shutdown(key, how)
    }

    fn close(&mut self, key: Key, end: End) {
        self.tcp.close(key, end);
    }

    fn watch(
        &mut self,
        watch: Watch,
        descriptor: BorrowedFd<'_>,
        writable: bool,
    ) -> Result<(), Errno> {
        watches::add(&self.epoll, u64::from(watch.0), descriptor, writable)
    }

    fn unwatch(&mut self, descriptor: BorrowedFd<'_>) {
        watches::remove(&self.epoll, descriptor);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> Result<(), Errno> {
        self.turn()?;
        let timeout = self.rest(timeout);
        let has_slept = timeout != Some(Duration::ZERO);
        self.ready.clear();
        if !has_slept || self.sleep(timeout)? {
            let ready = spare_capacity(&mut self.ready);
            match epoll::wait(self.epoll.as_fd(), ready, Some(&NOT_AT_ALL)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        let watched = self.ready.iter().map(|ready| Watch(ready.data.u64() as u32));
        events.extend(watched.map(Event::Watched));
        if has_slept || self.tcp.events.is_empty() {
            self.turn()?;
        }
        events.append(&mut self.tcp.events);
        Ok(())
    }

    fn sends(&self) -> Sends {
        self.sends
    }

    fn lost(&self) -> Lost {
        let Lost { arrived, leaving } = self.port.lost();
        Lost { arrived, leaving: leaving + self.tcp.unsent }
    }

    fn memory(&self) -> Memory {
        let budget = &self.tcp.budget;
        Memory {
            bytes: (budget.bytes + budget.message_bytes) as u64,
            connections_refused: budget.refused,
            segments_dropped: budget.dropped,
        }
    }
}

#[cfg(test)]
mod tests;

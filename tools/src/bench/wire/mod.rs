//! TCP clients of our own on raw frames, so that only the server's kernel is in the figures.
//!
//! ```text
//! send() ──► Tcp ──► frame ──► AF_PACKET ──► veth ──► the server's kernel, or the card's AF_XDP ──► server
//!                                 ◄── ring, stamped by the kernel on arrival ◄──
//!                          └─► memory shared with the card
//! ```
//!
//! Addresses that no kernel owns, so nobody else answers for them; a hardware address that is not the interface's, so
//! the interface's own kernel ignores the frames; one connection per port. Arrivals are read in bursts while napping
//! between them: no frame wakes this process, so the server does not pay for the wake-ups of its clients. Acknowledgements
//! wait for the end of a burst, since the server's kernel handles them on this process's CPU and they would get in the way
//! of what is measured. IPv4, one link, no router.

pub(crate) mod frame;
mod packet;
mod port;
mod tcp;
pub(crate) mod veth;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::frame::{Frame, Mac, Path, Segment, flags};
use self::packet::FrameBatch;
use self::port::Port;
use self::tcp::{AckDue, Progress, Tcp};
use super::transport::{Connection, Event, Transport, What, now_ns};

pub(crate) use self::port::PortName;

/// Our first port.
const PORT_FIRST: u16 = 10_000;
/// Connections one address carries.
pub(crate) const CONNECTIONS_PER_ADDRESS: u32 = 50_000;
/// How often retransmission timers are looked at.
const TIMERS_EVERY_NS: u64 = 50_000_000;
/// How long to look for a hardware address.
const RESOLVE_NS: u64 = 2_000_000_000;
/// How long somebody else may claim our address before we use it.
const PROBE_NS: u64 = 60_000_000;
/// Longest wait of an acknowledgement for the end of a burst. RFC 9293 (MUST-58) allows 500 ms.
const ACK_NS_MAX: u64 = 5_000_000;
/// Frames read in one pass.
const BURST: usize = 4096;

/// How a [`WireTransport`] is set up.
#[derive(Clone, Debug)]
pub(crate) struct WireConfig {
    /// Where the frames go.
    pub(crate) port: PortName,
    /// Our address, the first of [`WireConfig::addresses`].
    pub(crate) address: Ipv4Addr,
    /// How many addresses we have, one after the other.
    pub(crate) addresses: u32,
    /// How long an acknowledgement waits; `None` is until a burst of frames ends, at most [`ACK_NS_MAX`].
    pub(crate) ack_delay: Option<Duration>,
}

impl WireConfig {
    /// One of our addresses.
    fn nth(&self, at: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.address).wrapping_add(at))
    }

    /// Which of our addresses this is.
    fn place(&self, address: Ipv4Addr) -> Option<u32> {
        let at = u32::from(address).wrapping_sub(u32::from(self.address));
        (at < self.addresses).then_some(at)
    }

    /// The connection that a path leads to.
    fn connection(&self, path: Path) -> Option<Connection> {
        let port = u32::from(path.to_port.checked_sub(PORT_FIRST)?);
        let address = self.place(path.to)?;
        (port < CONNECTIONS_PER_ADDRESS)
            .then(|| Connection(address * CONNECTIONS_PER_ADDRESS + port))
    }
}

/// The transport.
#[derive(Debug)]
pub(crate) struct WireTransport {
    port: Port,
    link: Link,
    lost: u64,
    prompt: bool,
}

/// Everything but the socket, so that frames may be handled while they are borrowed from the ring.
#[derive(Debug)]
struct Link {
    config: WireConfig,
    mac: Mac,
    peers: Vec<(Ipv4Addr, Mac)>,
    connections: Vec<Line>,
    out: FrameBatch,
    /// Connections with something to send.
    dirty: Vec<Connection>,
    /// Acknowledgements that may wait, oldest first.
    delayed: VecDeque<(u64, Connection)>,
    timers_at_ns: u64,
    /// An address of ours that somebody else has.
    claimed: Option<(Ipv4Addr, Mac)>,
    /// Connections that ended outside a received frame.
    ended: Vec<(Connection, &'static str)>,
}

#[derive(Debug)]
struct Line {
    tcp: Tcp,
    path: Path,
    to: Mac,
    is_dirty: bool,
    is_delayed: bool,
}

impl WireTransport {
    /// Opens the interface and makes sure nobody owns our address.
    pub(crate) fn new(config: WireConfig) -> Result<WireTransport> {
        let port = Port::open(&config.port)?;
        let id = std::process::id().to_be_bytes();
        let link = Link {
            // Locally administered, unicast (IEEE 802 §8.2).
            mac: [0x02, 0x6d, id[0], id[1], id[2], id[3]],
            config,
            peers: Vec::new(),
            connections: Vec::new(),
            out: FrameBatch::default(),
            dirty: Vec::new(),
            delayed: VecDeque::new(),
            timers_at_ns: 0,
            claimed: None,
            ended: Vec::new(),
        };
        let mut wire = WireTransport { port, link, lost: 0, prompt: false };
        wire.probe()?;
        Ok(wire)
    }

    /// RFC 5227 §2.1: asks, from no address, whether somebody has ours.
    fn probe(&mut self) -> Result<()> {
        let mac = self.link.mac;
        for at in 0..self.link.config.addresses {
            let ours = self.link.config.nth(at);
            self.link.out.push(|out| frame::put_arp_request(out, mac, Ipv4Addr::UNSPECIFIED, ours));
        }
        let until = now_ns() + PROBE_NS;
        while now_ns() < until {
            self.pass(&mut |_| ())?;
            if let Some((ours, owner)) = self.link.claimed {
                let at = owner.map(|byte| format!("{byte:02x}")).join(":");
                bail!("{ours} is taken by {at}: name a free one with --client-address");
            }
            self.port.wait(Duration::from_millis(5), true)?;
        }
        Ok(())
    }

    fn resolve(&mut self, target: Ipv4Addr) -> Result<Mac> {
        let (started, mut asked) = (now_ns(), 0);
        loop {
            if let Some(&(_, mac)) = self.link.peers.iter().find(|(peer, _)| *peer == target) {
                return Ok(mac);
            }
            let now = now_ns();
            if now > started + RESOLVE_NS {
                let on = &self.link.config.port;
                bail!("nobody on {on} answers for {target}: is it the address of the other end?");
            }
            if now > asked + 200_000_000 {
                asked = now;
                let (mac, ours) = (self.link.mac, self.link.config.address);
                self.link.out.push(|out| frame::put_arp_request(out, mac, ours, target));
            }
            self.pass(&mut |_| ())?;
            self.port.wait(Duration::from_millis(5), true)?;
        }
    }

    /// Handles what is in the ring and sends what that asks for. Returns the number of frames.
    fn pass(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize> {
        let link = &mut self.link;
        let count = self.port.receive(BURST, self.prompt, &mut |frame, at_ns| {
            link.handle_frame(frame, at_ns, &mut *sink)
        })?;
        self.link.handle_timers(now_ns(), count == 0 || self.prompt);
        self.flush()?;
        for (connection, reason) in std::mem::take(&mut self.link.ended) {
            let what = What::Closed(reason.to_owned());
            sink(Event { connection, at_ns: now_ns(), what });
        }
        Ok(count)
    }
}

impl Link {
    fn handle_frame(&mut self, bytes: &[u8], at_ns: u64, sink: &mut dyn FnMut(Event<'_>)) {
        match frame::parse(bytes) {
            Some(Frame::ArpRequest { sender_mac, sender, target })
                if self.config.place(target).is_some() =>
            {
                if self.config.place(sender).is_some() {
                    self.claimed = Some((sender, sender_mac));
                }
                let mac = self.mac;
                self.out.push(|out| frame::put_arp_reply(out, mac, target, sender_mac, sender));
            }
            Some(Frame::ArpReply { sender_mac, sender }) => {
                if self.config.place(sender).is_some() {
                    self.claimed = Some((sender, sender_mac));
                } else if self.peers.iter().all(|(peer, _)| *peer != sender) {
                    self.peers.push((sender, sender_mac));
                }
            }
            Some(Frame::Tcp(path, segment)) => self.handle_segment(path, &segment, at_ns, sink),
            _ => {}
        }
    }

    fn handle_segment(
        &mut self,
        path: Path,
        segment: &Segment<'_>,
        at_ns: u64,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let Some(connection) = self.config.connection(path) else { return };
        let Some(line) = self.connections.get_mut(connection.index()) else { return };
        let expected = (line.path.to, line.path.to_port);
        if expected != (path.from, path.from_port) {
            return;
        }
        if line.tcp.is_closed() {
            self.refuse(path, segment);
            return;
        }
        let what = match line.tcp.handle_segment(segment) {
            Progress::Stale => {
                self.reset(path, segment);
                return;
            }
            Progress::None => None,
            Progress::Connected => Some(What::Connected),
            Progress::Data(bytes) => Some(What::Data(bytes)),
            Progress::Closed(reason) => Some(What::Closed(reason.to_owned())),
        };
        if let Some(what) = what {
            sink(Event { connection, at_ns, what });
        }
        self.schedule(connection, at_ns);
    }

    /// RFC 9293 §3.10.7.1: a segment for a connection that is over is answered with a reset.
    fn refuse(&mut self, path: Path, segment: &Segment<'_>) {
        if segment.flags & flags::RST != 0 || segment.flags & flags::ACK == 0 {
            return;
        }
        // The last acknowledgement of a finished connection is no reason to reset anything.
        if segment.payload.is_empty() && segment.flags & (flags::FIN | flags::SYN) == 0 {
            return;
        }
        self.reset(path, segment);
    }

    fn reset(&mut self, path: Path, segment: &Segment<'_>) {
        let Some(&(_, to)) = self.peers.iter().find(|(peer, _)| *peer == path.from) else { return };
        let back =
            Path { from: path.to, from_port: path.to_port, to: path.from, to_port: path.from_port };
        let reset = Segment { seq: segment.ack, flags: flags::RST, ..Segment::default() };
        let mac = self.mac;
        self.out.push(|out| frame::put_tcp(out, mac, to, back, &reset));
    }

    /// Remembers that `connection` may have segments to send.
    fn schedule(&mut self, connection: Connection, now: u64) {
        let delay = self.config.ack_delay.map_or(ACK_NS_MAX, nanoseconds);
        let line = &mut self.connections[connection.index()];
        if delay > 0 && matches!(line.tcp.ack_due(), AckDue::Later(_)) {
            if !line.is_delayed {
                line.is_delayed = true;
                self.delayed.push_back((now.saturating_add(delay), connection));
            }
            return;
        }
        self.mark(connection);
    }

    fn mark(&mut self, connection: Connection) {
        let line = &mut self.connections[connection.index()];
        if !line.is_dirty {
            line.is_dirty = true;
            self.dirty.push(connection);
        }
    }

    /// Lets time pass; `quiet` says that no frames are coming in just now.
    fn handle_timers(&mut self, now: u64, quiet: bool) {
        let burst_ended = quiet && self.config.ack_delay.is_none();
        while let Some(&(due, connection)) = self.delayed.front() {
            if due > now && !burst_ended {
                break;
            }
            self.delayed.pop_front();
            self.connections[connection.index()].is_delayed = false;
            self.mark(connection);
        }
        if now < self.timers_at_ns {
            return;
        }
        self.timers_at_ns = now + TIMERS_EVERY_NS;
        for index in 0..self.connections.len() {
            let line = &mut self.connections[index];
            if line.tcp.next_deadline().is_none_or(|deadline| now < deadline) {
                continue;
            }
            let connection = Connection(u32::try_from(index).expect("they are numbered by u32"));
            if let Progress::Closed(reason) = line.tcp.handle_timeout(now) {
                self.ended.push((connection, reason));
            }
            self.mark(connection);
        }
    }

    /// Turns everything the connections have to say into frames.
    fn build(&mut self, now: u64) {
        let mac = self.mac;
        for connection in std::mem::take(&mut self.dirty) {
            let line = &mut self.connections[connection.index()];
            line.is_dirty = false;
            while let Some(segment) = line.tcp.poll_segment(now) {
                self.out.push(|out| frame::put_tcp(out, mac, line.to, line.path, &segment));
            }
            if let Progress::Closed(reason) = line.tcp.finished() {
                self.ended.push((connection, reason));
            }
        }
    }
}

impl Transport for WireTransport {
    fn open(&mut self, target: SocketAddr) -> Result<Connection> {
        let SocketAddr::V4(target) = target else {
            bail!("--client wire speaks IPv4 only, not {target}");
        };
        let index = self.link.connections.len();
        let connection = Connection(u32::try_from(index).context("too many connections")?);
        let address = connection.0 / CONNECTIONS_PER_ADDRESS;
        if address >= self.link.config.addresses {
            bail!("there are {index} connections, and no address for more");
        }
        let to = self.resolve(*target.ip())?;
        let place = u16::try_from(connection.0 % CONNECTIONS_PER_ADDRESS).context("bounded")?;
        let path = Path {
            from: self.link.config.nth(address),
            from_port: PORT_FIRST + place,
            to: *target.ip(),
            to_port: target.port(),
        };
        // RFC 9293 §3.4.1: the clock drives initial sequence numbers, so a reused port starts further on.
        let clock = u32::try_from((now_ns() / 4000) & u64::from(u32::MAX)).context("masked")?;
        let tcp = Tcp::connect(clock.wrapping_add(connection.0 << 12));
        self.link.connections.push(Line { tcp, path, to, is_dirty: false, is_delayed: false });
        self.link.mark(connection);
        Ok(connection)
    }

    fn send(&mut self, connection: Connection, bytes: &[u8]) -> Result<()> {
        self.link.connections[connection.index()].tcp.write(bytes);
        self.link.mark(connection);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.link.build(now_ns());
        if self.link.out.len() > 0 { self.port.send(&mut self.link.out) } else { Ok(()) }
    }

    fn poll(&mut self, wait: Duration, sink: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        self.flush()?;
        if self.pass(sink)? > 0 || wait.is_zero() {
            return Ok(());
        }
        self.port.wait(wait, self.prompt)?;
        self.pass(sink)?;
        Ok(())
    }

    fn close(&mut self, connection: Connection) -> Result<()> {
        self.link.connections[connection.index()].tcp.close();
        self.link.mark(connection);
        Ok(())
    }

    fn set_prompt(&mut self, prompt: bool) {
        self.prompt = prompt;
    }

    fn describe(&mut self) -> String {
        self.lost += self.port.take_lost();
        let port = &self.link.config.port;
        let what = match port {
            PortName::Packet(_) => "the clients' kernel is not in these figures",
            PortName::Mem(_) => "no kernel carries these frames, and this program stamps them",
        };
        format!("own TCP on frames of {port}: {what}; {} frames lost", self.lost)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

//! A reference target inside this program: a card that sends frames which are ready, and does nothing else.
//!
//! What the port itself costs, with no stack at all: on a PUBLISH each subscriber's frame is a header made beforehand, with a new
//! sequence number, and the payload. No retransmission, no window, no look at an acknowledgement, no TCP checksum: nothing may be
//! lost on the way, and a client that does not read misses nothing here. The thread sleeps on its port as a card does.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use mqttshim_port::{Mac, Port, Receive, Transmit};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::answer::{Answer, answer};
use super::mqtt;
use super::rounds::Stop;
use super::wire::frame::{self, Frame, Path, Segment, flags};

/// Frames taken between two rounds of sending.
const BURST: usize = 64;
/// Bytes of Ethernet, IPv4 and TCP headers without options.
const HEADER_BYTES: usize = 54;
/// Where the sequence number and the acknowledgement lie in a header.
const SEQUENCE_AT: usize = 38;
/// Our initial sequence number.
const FIRST: u32 = 1_000_000;
const PORT: u16 = 1883;

/// The running thread.
#[derive(Debug)]
pub(crate) struct ReadyFrames {
    /// Where it answers.
    pub(crate) address: SocketAddr,
    /// The thread whose CPU is its cost.
    pub(crate) thread: u32,
    stop: Stop,
    join: Option<JoinHandle<Result<()>>>,
}

impl ReadyFrames {
    /// Answers at `address` on `port`.
    pub(crate) fn start(port: impl Port + Send + 'static, address: Ipv4Addr) -> Result<Self> {
        let stop = Stop::default();
        let stopped = stop.clone();
        let (tell, told) = mpsc::channel();
        let join = std::thread::Builder::new()
            .name("ready-frames".to_owned())
            .spawn(move || {
                let id = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get())
                    .context("thread id")?;
                tell.send(id).context("the starter is gone")?;
                run(port, address, &stopped)
            })
            .context("cannot start a thread")?;
        let thread = told.recv().context("the sender of ready frames ended at once")?;
        let address = SocketAddr::from((address, PORT));
        Ok(ReadyFrames { address, thread, stop, join: Some(join) })
    }
}

impl Drop for ReadyFrames {
    fn drop(&mut self) {
        self.stop.request();
        match self.join.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => eprintln!("mqttshim: ready frames: {error:#}"),
            Some(Err(_)) => eprintln!("mqttshim: the sender of ready frames panicked"),
            _ => {}
        }
    }
}

fn run(mut port: impl Port, address: Ipv4Addr, stop: &Stop) -> Result<()> {
    let mut room = Room { mac: port.mac(), address, peers: Vec::new(), places: HashMap::new() };
    let timeout = Duration::from_millis(100).try_into().context("timeout")?;
    while !stop.is_requested() {
        let (receive, transmit) = port.halves();
        let taken = receive.burst(BURST, |frame| room.handle(frame, transmit)).context("port")?;
        transmit.kick().context("port")?;
        if taken > 0 {
            continue;
        }
        let readiness = port.readiness();
        match rustix::event::poll(&mut [PollFd::new(&readiness, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Peer {
    mac: Mac,
    path: Path,
    next: u32,
    expected: u32,
    partial: Vec<u8>,
    is_subscribed: bool,
    /// The frame's header, for `ready_bytes` of payload.
    header: [u8; HEADER_BYTES],
    ready_bytes: usize,
}

#[derive(Debug)]
struct Room {
    mac: Mac,
    address: Ipv4Addr,
    peers: Vec<Peer>,
    places: HashMap<(Ipv4Addr, u16), usize>,
}

impl Room {
    fn handle(&mut self, bytes: &[u8], out: &mut impl Transmit) {
        match frame::parse(bytes) {
            Some(Frame::ArpRequest { sender_mac, sender, target }) if target == self.address => {
                let mut reply = Vec::new();
                frame::put_arp_reply(&mut reply, self.mac, target, sender_mac, sender);
                send(out, &reply);
            }
            Some(Frame::Tcp(path, segment)) if path.to == self.address && path.to_port == PORT => {
                let from: Option<Mac> = bytes.get(6..12).and_then(|mac| mac.try_into().ok());
                if let Some(mac) = from {
                    self.segment(mac, path, &segment, out);
                }
            }
            _ => {}
        }
    }

    fn segment(&mut self, mac: Mac, path: Path, segment: &Segment<'_>, out: &mut impl Transmit) {
        let name = (path.from, path.from_port);
        if segment.flags & flags::SYN != 0 {
            let at = *self.places.entry(name).or_insert(self.peers.len());
            let back = Path { from: path.to, from_port: PORT, to: path.from, to_port: name.1 };
            let peer = Peer::new(mac, back, segment.seq.wrapping_add(1));
            peer.say(self.mac, flags::SYN | flags::ACK, FIRST, &[], out);
            if at == self.peers.len() {
                self.peers.push(peer)
            } else {
                self.peers[at] = peer
            }
            return;
        }
        let Some(&at) = self.places.get(&name) else { return };
        let peer = &mut self.peers[at];
        let is_fin = segment.flags & flags::FIN != 0;
        if segment.seq != peer.expected || (segment.payload.is_empty() && !is_fin) {
            return;
        }
        let length = segment.payload.len() as u32 + u32::from(is_fin);
        peer.expected = peer.expected.wrapping_add(length);
        if is_fin {
            peer.is_subscribed = false;
            peer.say(self.mac, flags::FIN | flags::ACK, peer.next, &[], out);
            return;
        }
        let mut bytes = std::mem::take(&mut peer.partial);
        bytes.extend_from_slice(segment.payload);
        let mut used = 0;
        while let Ok(Some(length)) = mqtt::whole_packet(&bytes[used..]) {
            self.packet(at, &bytes[used..used + length], out);
            used += length;
        }
        bytes.drain(..used);
        self.peers[at].partial = bytes;
    }

    fn packet(&mut self, at: usize, packet: &[u8], out: &mut impl Transmit) {
        let mut reply = Vec::new();
        match answer(packet) {
            Answer::Bytes(bytes) => reply = bytes,
            Answer::Subscribed(bytes) => {
                self.peers[at].is_subscribed = true;
                reply = bytes;
            }
            Answer::Distribute(puback) => {
                for peer in self.peers.iter_mut().filter(|peer| peer.is_subscribed) {
                    peer.send_ready(self.mac, packet, out);
                }
                reply.extend(puback.into_iter().flatten());
            }
            Answer::Nothing | Answer::End => {}
        }
        let peer = &mut self.peers[at];
        peer.say(self.mac, flags::ACK | flags::PSH, peer.next, &reply, out);
        peer.next = peer.next.wrapping_add(reply.len() as u32);
    }
}

impl Peer {
    fn new(mac: Mac, path: Path, expected: u32) -> Peer {
        Peer {
            mac,
            path,
            next: FIRST.wrapping_add(1),
            expected,
            partial: Vec::new(),
            is_subscribed: false,
            header: [0; HEADER_BYTES],
            ready_bytes: 0,
        }
    }

    fn put(&self, own: Mac, flags: u8, seq: u32, payload: &[u8], out: &mut Vec<u8>) {
        let mss = (flags & flags::SYN != 0).then_some(1460);
        let window = u16::MAX;
        let ack = self.expected;
        let segment = Segment { seq, ack, flags, window, mss, payload, ..Segment::default() };
        frame::put_tcp(out, own, self.mac, self.path, &segment);
    }

    fn say(&self, own: Mac, flags: u8, seq: u32, payload: &[u8], out: &mut impl Transmit) {
        let mut frame = Vec::new();
        self.put(own, flags, seq, payload, &mut frame);
        send(out, &frame);
    }

    fn send_ready(&mut self, own: Mac, payload: &[u8], out: &mut impl Transmit) {
        if self.ready_bytes != payload.len() {
            let mut whole = Vec::new();
            self.put(own, flags::ACK | flags::PSH, self.next, payload, &mut whole);
            self.header.copy_from_slice(&whole[..HEADER_BYTES]);
            self.ready_bytes = payload.len();
        }
        await_room(out);
        out.frame(HEADER_BYTES + payload.len(), |frame| {
            let (header, body) = frame.split_at_mut(HEADER_BYTES);
            header.copy_from_slice(&self.header);
            header[SEQUENCE_AT..SEQUENCE_AT + 4].copy_from_slice(&self.next.to_be_bytes());
            header[SEQUENCE_AT + 4..SEQUENCE_AT + 8].copy_from_slice(&self.expected.to_be_bytes());
            body.copy_from_slice(payload);
        });
        self.next = self.next.wrapping_add(payload.len() as u32);
    }
}

fn send(out: &mut impl Transmit, frame: &[u8]) {
    await_room(out);
    out.frame(frame.len(), |room| room.copy_from_slice(frame));
}

/// There is room as soon as the other end has read; one that does not read loses frames.
fn await_room(out: &mut impl Transmit) {
    for _ in 0..100_000 {
        if out.has_room() || out.kick().is_err() {
            return;
        }
        std::thread::yield_now();
    }
}

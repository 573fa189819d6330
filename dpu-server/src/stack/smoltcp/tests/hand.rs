//! Packets made and read by hand, against one stack on a virtual clock.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr,
    TcpSeqNumber as Number,
};

use super::{CLIENT_MAC, LISTENER, PORT, Queue, SERVER_MAC, milliseconds, server};
use crate::stack::smoltcp::tcp::Tcp;
use crate::stack::{End, Key, Received};

pub(super) const SERVED: Key = Key(9);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// A segment, as it is sent or was received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Said<'a> {
    pub(super) flags: &'static str,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) payload: &'a [u8],
}

/// `flags` of `SFRA`.
pub(super) fn said<'a>(
    flags: &'static str,
    sequence: u32,
    acknowledged: u32,
    payload: &'a [u8],
) -> Said<'a> {
    Said { flags, sequence, acknowledged, payload }
}

/// An answer: flags, sequence, acknowledgement, payload, window.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Heard {
    pub(super) to: SocketAddr,
    pub(super) flags: String,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) payload: Vec<u8>,
    pub(super) window: u16,
}

/// One stack, and clients played by hand.
pub(super) struct Hand {
    pub(super) tcp: Tcp,
    pub(super) now: Duration,
    pub(super) from: SocketAddr,
    pub(super) window: u16,
    /// ISS of the stack in the last handshake.
    pub(super) theirs: u32,
}

impl Hand {
    pub(super) fn new() -> Hand {
        let from = SocketAddr::from(([10, 0, 0, 7], 40_000));
        Hand { tcp: server(), now: milliseconds(1), from, window: 8000, theirs: 0 }
    }

    /// Sends a segment and returns what comes at once.
    pub(super) fn says(&mut self, segment: Said<'_>) -> Vec<Heard> {
        let mut queue = Queue::default();
        let mut frame = frame(self.from, self.window, segment);
        self.tcp.frame(self.now, &mut frame, &mut queue);
        self.tcp.flush(self.now, &mut queue);
        queue.frames.iter().map(|frame| heard(frame)).collect()
    }

    /// Lets time pass, step by step, and returns what comes.
    pub(super) fn waits(&mut self, time: Duration) -> Vec<Heard> {
        let end = self.now + time;
        let mut queue = Queue::default();
        loop {
            self.tcp.expire(self.now);
            self.tcp.flush(self.now, &mut queue);
            match self.tcp.deadline() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => break,
            }
        }
        self.now = end;
        queue.frames.iter().map(|frame| heard(frame)).collect()
    }

    /// A connection whose client begins at `own`; accepted as [`SERVED`].
    pub(super) fn connects(&mut self, own: u32) {
        let answer = self.says(said("S", own, 0, b""));
        assert_eq!(answer.len(), 1, "{answer:?}");
        assert_eq!((&answer[0].flags[..], answer[0].acknowledged), ("SA", own + 1));
        self.theirs = answer[0].sequence;
        let answer = self.says(said("A", own + 1, self.theirs.wrapping_add(1), b""));
        assert!(answer.is_empty(), "{answer:?}");
        self.tcp.accept(self.now, LISTENER, SERVED).unwrap();
    }

    /// What the holder of [`SERVED`] reads.
    pub(super) fn read(&mut self) -> Vec<u8> {
        let mut buffer = [0; 9000];
        match self.tcp.recv(self.now, SERVED, &mut buffer) {
            Received::Bytes(count) => buffer[..count].to_vec(),
            Received::Empty => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn sends(&mut self, bytes: &[u8]) -> Vec<Heard> {
        let mut queue = Queue::default();
        let part = [std::io::IoSlice::new(bytes)];
        let outcome = self.tcp.send(self.now, SERVED, &part, &mut queue);
        assert_eq!(outcome, crate::stack::Sent::Bytes(bytes.len()));
        self.tcp.flush(self.now, &mut queue);
        queue.frames.iter().map(|frame| heard(frame)).collect()
    }

    pub(super) fn closes(&mut self) -> Vec<Heard> {
        self.tcp.close(SERVED, End::Close);
        self.waits(Duration::ZERO)
    }
}

pub(super) fn frame(from: SocketAddr, window: u16, segment: Said<'_>) -> Vec<u8> {
    let has = |flag| segment.flags.contains(flag);
    let repr = TcpRepr {
        src_port: from.port(),
        dst_port: PORT,
        control: if has('S') {
            TcpControl::Syn
        } else if has('F') {
            TcpControl::Fin
        } else if has('R') {
            TcpControl::Rst
        } else {
            TcpControl::None
        },
        seq_number: Number(segment.sequence as i32),
        ack_number: has('A').then_some(Number(segment.acknowledged as i32)),
        window_len: window,
        window_scale: None,
        max_seg_size: has('S').then_some(1460),
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: segment.payload,
    };
    frame_of(from.ip(), &repr)
}

/// A segment from this address.
pub(super) fn frame_of(from: IpAddr, repr: &TcpRepr<'_>) -> Vec<u8> {
    let IpAddr::V4(source) = from else { panic!("{from}") };
    let ip = Ipv4Repr {
        src_addr: source,
        dst_addr: OWN,
        next_header: IpProtocol::Tcp,
        payload_len: repr.buffer_len(),
        hop_limit: 64,
    };
    let mut frame = vec![0; 14 + ip.buffer_len() + repr.buffer_len()];
    frame[..6].copy_from_slice(&SERVER_MAC);
    frame[6..12].copy_from_slice(&CLIENT_MAC);
    frame[12] = 8;
    let checksums = ChecksumCapabilities::default();
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
    ip.emit(&mut packet, &checksums);
    let mut tcp = TcpPacket::new_unchecked(packet.payload_mut());
    repr.emit(&mut tcp, &IpAddress::from(source), &IpAddress::from(OWN), &checksums);
    frame
}

pub(super) fn heard(frame: &[u8]) -> Heard {
    let ip = Ipv4Packet::new_checked(&frame[14..]).unwrap();
    assert!(ip.verify_checksum());
    let tcp = TcpPacket::new_checked(ip.payload()).unwrap();
    let ends = (IpAddress::Ipv4(ip.src_addr()), IpAddress::Ipv4(ip.dst_addr()));
    assert!(tcp.verify_checksum(&ends.0, &ends.1));
    let flags = [('S', tcp.syn()), ('F', tcp.fin()), ('R', tcp.rst()), ('A', tcp.ack())];
    Heard {
        to: SocketAddr::from((ip.dst_addr(), tcp.dst_port())),
        flags: flags.iter().filter(|(_, is)| *is).map(|(flag, _)| flag).collect(),
        sequence: tcp.seq_number().0 as u32,
        acknowledged: tcp.ack_number().0 as u32,
        payload: tcp.payload().to_vec(),
        window: tcp.window_len(),
    }
}

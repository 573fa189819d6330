//! The stack, its clients and its program.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dpu_server::stack::smoltcp::harness::{Harness, PORT};
use dpu_server::stack::{End, Key};
use mqttshim_port::Checksums;

use crate::checks::{Heard, check};
use crate::choices::Choices;
use crate::frames::{self, Segment};

const CLIENTS: usize = 4;
const SYN: u8 = 2;
const FIN: u8 = 1;
/// Far from what is expected, near it, and around the corners of windows and numbers.
const DELTAS: [i64; 16] =
    [0, 0, 0, 0, 0, -1, 1, -100, 100, -1460, 1460, 16_384, -16_384, 65_535, 1 << 30, 1 << 31];
const FLAGS: [u8; 16] =
    [0x10, 0x10, 0x18, 0x18, 0x10, SYN, SYN, 0x12, 0x11, 0x19, 0x04, 0x14, 0x00, 0x30, 0xff, 0x13];
const WINDOWS: [u16; 6] = [8000, 65_535, 0, 1, 100, 1460];
const LENGTHS: [usize; 8] = [0, 0, 1, 10, 100, 536, 1400, 1460];
/// As Linux sends them with a SYN and later, and as nobody does.
const OPTIONS: [&[u8]; 8] = [
    &[],
    &[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 16, 0, 0, 0, 0, 0, 1, 3, 3, 7],
    &[1, 1, 8, 10, 0, 0, 16, 1, 0, 0, 32, 1],
    SELECTIVE,
    &[2, 4, 0, 0],
    &[2, 4, 0, 1, 3, 3, 255],
    &[8, 1, 5, 0],
    &[5, 200, 1, 2],
];
/// A selective acknowledgement (RFC 2018), whose blocks are made when it is sent.
const SELECTIVE: &[u8] = &[1, 1, 5, 10];
const PAUSES_MS: [u64; 8] = [0, 1, 10, 100, 250, 1_000, 10_000, 100_000];
/// After which nothing that nobody holds is left: more than every time-out.
const REST: Duration = Duration::from_secs(7_200);

/// One client's port on one address.
struct Client {
    at: SocketAddr,
    card: IpAddr,
    /// Of the next byte it would send.
    next: u32,
    /// What the stack is known to have sent up to.
    heard: u32,
    /// Beginnings of connections that the stack agreed to: the client's, and its own.
    agreed: Vec<[u32; 2]>,
    /// The last packet it was sent.
    last: Vec<u8>,
}

/// A connection the program holds.
struct Held {
    key: Key,
    client: usize,
    /// Of the client's beginnings, those that what was read can have come from.
    beginnings: Vec<u32>,
    read: u32,
    written: u32,
}

pub struct Stage {
    stack: Harness,
    clients: Vec<Client>,
    held: Vec<Held>,
    checksums: Checksums,
    /// Noise may be a right segment of a client that never sent it.
    is_noisy: bool,
}

/// The byte a client sends under a sequence number.
fn sent(sequence: u32) -> u8 {
    (sequence.wrapping_mul(2_654_435_761) >> 24) as u8
}

/// The byte the program writes at a place of its stream.
fn written(place: u32) -> u8 {
    (place.wrapping_mul(0x9e37_79b1) >> 23) as u8
}

impl Stage {
    pub fn new(choices: &mut Choices<'_>) -> Stage {
        let checksums =
            choices.one(&[Checksums::Unknown, Checksums::Right, Checksums::MayBePartial]);
        let clients = (0..CLIENTS).map(|number| {
            let port = 40_000 + number as u16;
            let [client, card] = match number % 2 {
                0 => ["10.0.0.2", "10.0.0.1"],
                _ => ["fd00::2", "fd00::1"],
            }
            .map(|text| text.parse().unwrap());
            let next = choices.one(&[1_000, u32::MAX - 5, 0x7fff_fff0, 0]);
            let at = SocketAddr::new(client, port);
            Client { at, card, next, heard: 0, agreed: Vec::new(), last: Vec::new() }
        });
        let clients = clients.collect();
        Stage {
            stack: Harness::new(checksums),
            clients,
            held: Vec::new(),
            checksums,
            is_noisy: false,
        }
    }

    pub fn play(&mut self, choices: &mut Choices<'_>) {
        match choices.below(20) {
            0..=6 => self.segment(choices),
            7 => self.wait(Duration::from_millis(choices.one(&PAUSES_MS))),
            8 => self.accept(),
            9 => self.read(choices),
            10 => self.write(choices),
            11 => self.close(choices),
            12 => self.neighbours(choices),
            13 => self.router(choices),
            14 => self.ping(choices),
            15 => self.noise(choices),
            16 => self.shutdown(choices),
            _ => self.deliver(choices),
        }
    }

    /// The program lets go of everything, and the clients are silent.
    pub fn end(mut self) {
        for held in std::mem::take(&mut self.held) {
            self.stack.close(held.key, End::Close);
        }
        self.stack.close_listener();
        self.wait(REST);
        assert_eq!((self.stack.connections(), self.stack.message_bytes()), (0, 0));
    }

    fn arrives(&mut self, mut frame: Vec<u8>) {
        self.stack.frame(&mut frame);
        self.listen();
    }

    fn wait(&mut self, time: Duration) {
        self.stack.wait(time);
        self.listen();
    }

    fn listen(&mut self) {
        for frame in self.stack.sent() {
            if let Some(heard) = check(&frame) {
                self.hears(&heard);
            }
        }
    }

    fn hears(&mut self, heard: &Heard<'_>) {
        let at = SocketAddr::new(heard.to, heard.port);
        let Some(client) = self.clients.iter_mut().find(|it| it.at == at) else { return };
        if heard.is_syn {
            client.agreed.push([heard.acknowledged.wrapping_sub(1), heard.sequence]);
        }
        let length = heard.payload.len() as u32 + u32::from(heard.is_syn);
        client.heard = heard.sequence.wrapping_add(length);
        client.last = heard.packet.to_vec();
        // A segment without a right one cannot be told from those before it.
        let is_written = |[_, own]: &[u32; 2]| {
            let first = heard.sequence.wrapping_sub(own.wrapping_add(1));
            (0..).zip(heard.payload).all(|(at, byte)| *byte == written(first.wrapping_add(at)))
        };
        assert!(
            heard.payload.is_empty() || client.agreed.iter().any(is_written),
            "nobody wrote {:?}",
            heard.payload
        );
    }

    fn segment(&mut self, choices: &mut Choices<'_>) {
        let spoil = choices.byte();
        let client = &mut self.clients[usize::from(spoil & 3) % CLIENTS];
        let flags = choices.one(&FLAGS);
        let deltas = choices.byte();
        let [sequence, acknowledged] = [deltas & 15, deltas >> 4].map(|it| DELTAS[usize::from(it)]);
        let sequence = (i64::from(client.next) + sequence) as u32;
        let first = sequence.wrapping_add(u32::from(flags & SYN != 0));
        let length = choices.one(&LENGTHS);
        let payload: Vec<u8> = (0..length as u32).map(|at| sent(first.wrapping_add(at))).collect();
        if deltas & 15 < 5 {
            let ends = u32::from(flags & FIN != 0);
            client.next = first.wrapping_add(length as u32 + ends);
        }
        let acknowledged = (i64::from(client.heard) + acknowledged) as u32;
        let port = choices.one(&[PORT, PORT, PORT, PORT, 0, 99]);
        let window = choices.one(&WINDOWS);
        let mut options = choices.one(&OPTIONS).to_vec();
        if options == SELECTIVE {
            for _ in 0..2 {
                let delta = DELTAS[usize::from(choices.byte() & 15)];
                options.extend(((i64::from(acknowledged) + delta) as u32).to_be_bytes());
            }
        }
        let segment = Segment {
            ports: [client.at.port(), port],
            sequence,
            acknowledged,
            flags,
            window,
            options: &options,
            payload: &payload,
        };
        let mut frame = segment.frame(client.at.ip(), client.card);
        // Only where a spoilt one is found out.
        if spoil >> 4 == 15 && self.checksums == Checksums::Unknown {
            match choices.below(3) {
                0 => frame.truncate(usize::from(choices.byte())),
                1 => frame.extend(choices.noise()),
                _ => {
                    let at = choices.below(frame.len().min(256));
                    frame[at] ^= 1 << choices.below(8);
                }
            }
        }
        self.arrives(frame);
    }

    fn accept(&mut self) {
        let Some((key, peer)) = self.stack.accept() else { return };
        // A listener at :: tells of clients over IPv4 in IPv6's clothes.
        let plain = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if let Some(client) = self.clients.iter().position(|it| it.at == plain) {
            let beginnings =
                self.clients[client].agreed.iter().map(|[theirs, _]| *theirs).collect();
            self.held.push(Held { key, client, beginnings, read: 0, written: 0 });
        } else {
            self.stack.close(key, End::Reset);
            self.listen();
        }
    }

    fn read(&mut self, choices: &mut Choices<'_>) {
        let (which, bytes_max) = (choices.below(8), choices.one(&[1, 100, 5_000, 70_000]));
        let count = self.held.len().max(1);
        let Some(held) = self.held.get_mut(which % count) else { return };
        let bytes = self.stack.recv(held.key, bytes_max);
        let from = held.read;
        held.beginnings.retain(|beginning| {
            let first = beginning.wrapping_add(1).wrapping_add(from);
            (0..).zip(&bytes).all(|(at, byte)| *byte == sent(first.wrapping_add(at)))
        });
        held.read = from.wrapping_add(bytes.len() as u32);
        assert!(
            self.is_noisy || !held.beginnings.is_empty(),
            "client {} did not send {bytes:?}",
            held.client
        );
        self.wait(Duration::ZERO);
    }

    fn write(&mut self, choices: &mut Choices<'_>) {
        let (which, length) = (choices.below(8), choices.one(&[1, 10, 2_000, 50_000]));
        let count = self.held.len().max(1);
        let Some(held) = self.held.get_mut(which % count) else { return };
        let bytes: Vec<u8> = (0..length).map(|at| written(held.written.wrapping_add(at))).collect();
        held.written = held.written.wrapping_add(self.stack.send(held.key, &bytes) as u32);
        self.wait(Duration::ZERO);
    }

    /// The program has something for all it holds: those that wrote equally much get the same message. What does not leave
    /// at once goes the usual way.
    fn deliver(&mut self, choices: &mut Choices<'_>) {
        let (length, rounds) = (choices.one(&[1, 10, 100, 1_400]), choices.one(&[1, 2, 70]));
        for _ in 0..rounds {
            let message = |held: &Held| -> Vec<u8> {
                (0..length).map(|at| written(held.written.wrapping_add(at))).collect()
            };
            let messages: Vec<Vec<u8>> = self.held.iter().map(message).collect();
            let places: Vec<u32> = self.held.iter().map(|held| held.written).collect();
            let first = |own: &u32| places.iter().position(|place| place == own).unwrap();
            let deliveries: Vec<_> = (self.held.iter().zip(&places).zip(&messages))
                .map(|((held, place), bytes)| (held.key, first(place) as u32, &bytes[..]))
                .collect();
            let sent = self.stack.deliver(&deliveries);
            for ((held, bytes), is_sent) in self.held.iter_mut().zip(&messages).zip(sent) {
                let count = if is_sent { bytes.len() } else { self.stack.send(held.key, bytes) };
                held.written = held.written.wrapping_add(count as u32);
            }
        }
        if choices.below(2) == 0 {
            self.wait(Duration::ZERO);
        } else {
            self.listen();
        }
    }

    fn shutdown(&mut self, choices: &mut Choices<'_>) {
        let which = choices.below(8) % self.held.len().max(1);
        let Some(held) = self.held.get(which) else { return };
        self.stack.shutdown(held.key);
        self.wait(Duration::ZERO);
    }

    fn close(&mut self, choices: &mut Choices<'_>) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.swap_remove(choices.below(8) % self.held.len());
        self.stack.close(held.key, choices.one(&[End::Close, End::Reset]));
        self.wait(Duration::ZERO);
    }

    fn neighbours(&mut self, choices: &mut Choices<'_>) {
        let v4 = ["10.0.0.1", "10.0.0.2", "10.0.0.9", "0.0.0.0", "224.0.0.1"];
        let v6 = ["fd00::1", "fd00::2", "::", "ff02::1:ff00:1", "fe80::1"];
        let frame = if choices.below(2) == 0 {
            let [sender, target] = [0; 2].map(|_| choices.one(&v4).parse().unwrap());
            frames::arp(choices.byte() % 4, sender, target)
        } else {
            let [from, to, target] = [0; 3].map(|_| choices.one(&v6).parse().unwrap());
            frames::discovery(choices.one(&[135, 136]), from, to, target)
        };
        self.arrives(frame);
    }

    /// A router that says that the last packet was too long.
    fn router(&mut self, choices: &mut Choices<'_>) {
        let client = &self.clients[choices.below(CLIENTS)];
        let mtu: u32 = choices.one(&[1_400, 1_280, 1_000, 576, 500, 68, 0, 9_000]);
        let quoted = choices.one(&[28, 48, 60, 548, 10]).min(client.last.len());
        let mut rest = mtu.to_be_bytes().to_vec();
        rest.extend(&client.last[..quoted]);
        let (kind, code) = if client.at.is_ipv4() { (3, 4) } else { (2, 0) };
        let (kind, code) = choices.one(&[(kind, code), (kind, 1), (kind ^ 1, code)]);
        let frame = frames::icmp(client.at.ip(), client.card, kind, code, &rest);
        self.arrives(frame);
    }

    fn ping(&mut self, choices: &mut Choices<'_>) {
        let client = &self.clients[choices.below(CLIENTS)];
        let kind = if client.at.is_ipv4() { 8 } else { 128 };
        let rest = vec![7; choices.one(&[4, 60, 1_400, 1_472, 0])];
        let frame = frames::icmp(client.at.ip(), client.card, kind, 0, &rest);
        self.arrives(frame);
    }

    fn noise(&mut self, choices: &mut Choices<'_>) {
        self.is_noisy = true;
        let frame = match choices.below(3) {
            0 => choices.noise(),
            1 => {
                let kind = choices.one(&[0x0800, 0x86dd, 0x0806, 0x8100]);
                frames::ethernet(dpu_server::stack::smoltcp::harness::MAC, kind, &choices.noise())
            }
            _ => {
                let client = &self.clients[choices.below(CLIENTS)];
                let protocol = choices.one(&[frames::TCP, frames::ICMP, frames::ICMPV6, 17, 0, 44]);
                frames::packet(client.at.ip(), client.card, protocol, &choices.noise())
            }
        };
        self.arrives(frame);
    }
}

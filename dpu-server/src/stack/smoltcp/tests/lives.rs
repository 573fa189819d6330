//! Two lives of a server and its clients, with everything that can happen to a connection: one delivers where it may, one only sends.

use std::io::IoSlice;
use std::time::Duration;

use smoltcp::socket::PollAt;

use super::paths::too_big;
use super::wire::{Faults, Rng, Wire};
use super::{LISTENER, Narrow, PORT, Queue, at, milliseconds};
use crate::stack::smoltcp::budget::BufferBytes;
use crate::stack::smoltcp::clock;
use crate::stack::{End, Key, Received, Sent};
use mqttshim_schema::How;

const SEEDS: u64 = 300;
const CONNECTIONS: usize = 5;
/// Where the client's keys begin, and the server's.
const KEYS: [u32; 2] = [1, 1000];

/// One connection, as its two programs see it.
struct Link {
    keys: [Key; 2],
    reads_slowly: bool,
    written: Vec<u8>,
    /// Of what was written, what the stack has not taken.
    waiting: Vec<u8>,
    received: Vec<u8>,
    /// The server writes no more.
    is_shut: bool,
    /// One end has let go.
    is_over: bool,
}

impl Link {
    fn new(keys: [Key; 2], reads_slowly: bool) -> Link {
        let (written, waiting, received) = (Vec::new(), Vec::new(), Vec::new());
        Link { keys, reads_slowly, written, waiting, received, is_shut: false, is_over: false }
    }
}

struct Life {
    wire: Wire,
    rng: Rng,
    links: Vec<Link>,
    opened: u32,
    delivers: bool,
    delivered: usize,
    /// A packet that left not long ago.
    packet: Vec<u8>,
}

impl Life {
    fn new(seed: u64, delivers: bool) -> Life {
        let faults = Faults {
            lost: [0, 5, 60][seed as usize % 3],
            repeated: 20,
            overtaken: 50,
            delay: milliseconds(seed % 7 * 3),
        };
        let mut wire = Wire::new(faults, seed);
        let mut rng = Rng(!seed);
        if seed.is_multiple_of(2) {
            let bytes = BufferBytes { receive: 3000, ..BufferBytes::default() };
            wire.ends[0].bound_buffers(&bytes);
        }
        if seed % 5 == 4 {
            wire.ends[1].budget.bound(20_000 + rng.next() as usize % 40_000);
        }
        let packet = vec![0; 28];
        Life { wire, rng, links: Vec::new(), opened: 0, delivers, delivered: 0, packet }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next() % bound
    }

    /// One more connection, perhaps with the number of one that is gone.
    fn connect(&mut self) {
        let keys = KEYS.map(|first| Key(first + self.opened));
        let address = ["10.0.0.1", "fd00::1"][self.opened as usize % 2];
        self.opened += 1;
        let now = self.wire.now;
        let own = self.wire.ends[0].connect(now, keys[0], 0, at(address, PORT), &[]).unwrap();
        for _ in 0..60 {
            self.wire.settle();
            if let Ok(ends) = self.wire.ends[1].accept(self.wire.now, LISTENER, keys[1]) {
                if ends.peer.port() != own.port() {
                    // An earlier one that was given up.
                    self.wire.ends[1].close(keys[1], End::Reset);
                    continue;
                }
                self.wire.ends[0].connect_result(keys[0]).expect("both ends know").unwrap();
                let reads_slowly = self.below(3) == 0;
                return self.links.push(Link::new(keys, reads_slowly));
            }
            if !self.wire.sleep() {
                break;
            }
        }
        self.wire.ends[0].close(keys[0], End::Reset);
    }

    /// Messages to many, some of them twice.
    fn publish(&mut self) {
        let count = 1 + self.below(3);
        let messages: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let length = if self.below(3) == 0 { 1600 } else { 200 };
                let length = 1 + self.below(length);
                (0..length).map(|_| self.rng.next() as u8).collect()
            })
            .collect();
        let room = if self.below(8) == 0 { self.below(4) } else { u64::MAX } as usize;
        let mut out = Narrow { queue: Queue::default(), room };
        let now = clock::instant(self.wire.now);
        for _ in 0..1 + self.below(8) {
            let which = self.below(self.links.len() as u64) as usize;
            let place = self.below(count) as usize;
            let link = &mut self.links[which];
            if link.is_shut || link.is_over || link.written.len() > 200_000 {
                continue;
            }
            let message = &messages[place];
            link.written.extend_from_slice(message);
            let server = &mut self.wire.ends[1];
            if self.delivers
                && link.waiting.is_empty()
                && server.deliver(now, link.keys[1], place as u32, message, &mut out)
            {
                self.delivered += 1;
            } else {
                link.waiting.extend_from_slice(message);
            }
        }
        self.wire.ends[1].end_batch();
        if let Some(frame) = out.queue.frames.last() {
            self.packet = frame[14..].to_vec();
        }
        self.wire.carry(0, out.queue);
        self.check();
    }

    /// What waits goes the usual way.
    fn send(&mut self) {
        for link in &mut self.links {
            if link.waiting.is_empty() {
                continue;
            }
            let mut queue = Queue::default();
            let part = [IoSlice::new(&link.waiting)];
            match self.wire.ends[1].send(self.wire.now, link.keys[1], &part, &mut queue) {
                Sent::Bytes(count) => drop(link.waiting.drain(..count)),
                Sent::Full => {}
                Sent::Gone(error) => {
                    assert!(link.is_over, "{error}");
                    link.waiting.clear();
                }
            }
            if let Some(frame) = queue.frames.last() {
                self.packet = frame[14..].to_vec();
            }
            self.wire.carry(0, queue);
        }
    }

    fn read(&mut self, reads_all: bool) {
        for link in &mut self.links {
            let bytes = match (reads_all || !link.reads_slowly, self.rng.next() % 4) {
                (true, _) => 100_000,
                (false, 0) => 700,
                (false, _) => continue,
            };
            let mut buffer = vec![0; bytes];
            if let Received::Bytes(count) =
                self.wire.ends[0].recv(self.wire.now, link.keys[0], &mut buffer)
            {
                link.received.extend_from_slice(&buffer[..count]);
            }
            let mut buffer = [0; 500];
            let got = self.wire.ends[1].recv(self.wire.now, link.keys[1], &mut buffer);
            assert!(link.is_over || !matches!(got, Received::Gone(_)), "{got:?}");
            assert!(link.written.starts_with(&link.received));
        }
    }

    /// Something else happens to one of the connections.
    fn meddle(&mut self) {
        let (what, which) = (self.below(14), self.below(self.links.len() as u64) as usize);
        let value = [1, 7, 30, 60][self.below(4) as usize];
        let [client, server] = self.links[which].keys;
        let now = self.wire.now;
        let mut set = |level, name, value: i32| {
            // It may be gone.
            let _ = self.wire.ends[1].set_option(now, server, level, name, &value.to_ne_bytes());
        };
        match what {
            0 => set(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, value),
            1 => set(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, value * 100_000),
            2 => set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, value % 2),
            3 => set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, value),
            4..=7 => drop(self.wire.writes(0, client, &[5; 300][..10 * value as usize / 2])),
            8 | 9 if self.packet[0] >> 4 == 4 => {
                let mut frame = too_big(&self.packet[..28], 500 + 20 * value as u16);
                self.wire.ends[1].frame(now, &mut frame, &mut Queue::default());
            }
            10 if self.links[which].waiting.is_empty() && value == 7 => {
                self.links[which].is_shut |= self.wire.ends[1].shutdown(server, How::Write).is_ok();
            }
            11 | 12 if value == 30 => {
                let (end, key) = [(0, client), (1, server)][what as usize - 11];
                let how = if now.as_millis().is_multiple_of(2) { End::Reset } else { End::Close };
                self.wire.ends[end].close(key, how);
                self.links[which].is_over = true;
            }
            13 if value == 60 => self.wire.now += milliseconds(400),
            _ => {}
        }
        self.check();
    }

    /// Nobody holds a message too many, and what a connection waits for comes.
    fn check(&mut self) {
        let server = &mut self.wire.ends[1];
        server.connections.check();
        let context = server.iface.context();
        for (id, connection) in server.connections.iter() {
            let lane = server.connections.lane(id);
            let soon = clock::millisecond(clock::instant(self.wire.now + milliseconds(12_000)));
            assert!(lane.untold().is_empty() || lane.is_armed_by(soon), "a deadline");
            match connection.socket.poll_at(context) {
                _ if connection.is_dirty || !lane.untold().is_empty() => {}
                PollAt::Now => assert!(lane.is_armed_by(soon), "{id} has something to send"),
                PollAt::Time(at) => assert!(lane.is_armed_by(clock::millisecond(at)), "{at}"),
                PollAt::Ingress => {}
            }
        }
    }

    fn settle(&mut self) {
        self.wire.settle();
        let server = &mut self.wire.ends[1];
        let storage = server.connections.iter().map(|(_, it)| it.socket.buffer_storage());
        let buffered: usize = storage.map(|(receive, send)| receive + send).sum();
        assert_eq!(server.budget.bytes, buffered);
        assert_eq!(server.budget.message_bytes, server.connections.messages.bytes());
        self.check();
    }

    /// All of it; how long it took until everything had arrived, and how many messages were delivered.
    fn play(mut self, seed: u64) -> (Duration, usize) {
        for step in 0..400 {
            let living = self.links.iter().filter(|link| !link.is_over).count();
            if living < CONNECTIONS && self.below(10) == 0 || self.links.is_empty() {
                self.connect();
                continue;
            }
            self.publish();
            match self.below(4) {
                0 => self.meddle(),
                1 => self.read(false),
                _ => {}
            }
            self.send();
            if step % 3 == 0 || self.below(2) == 0 {
                self.settle();
                self.wire.sleep();
                self.settle();
            }
        }
        let start = self.wire.now;
        let is_done = |link: &Link| link.is_over || link.received.len() == link.written.len();
        while !self.links.iter().all(is_done) {
            self.send();
            self.read(true);
            self.settle();
            // What is due next, when all is done, is not waited for.
            if self.links.iter().all(is_done) {
                break;
            }
            assert!(self.wire.sleep(), "seed {seed}: stuck");
            self.settle();
            let time = self.wire.now - start;
            assert!(time < milliseconds(120_000), "seed {seed}, {}: too long", self.delivers);
        }
        let time = self.wire.now - start;
        for link in &self.links {
            self.wire.ends[0].close(link.keys[0], End::Close);
            self.wire.ends[1].close(link.keys[1], End::Close);
        }
        while self.wire.sleep() {
            self.settle();
        }
        let server = &self.wire.ends[1];
        let left = (server.connections.len(), server.connections.messages.bytes());
        assert_eq!((left, server.budget.bytes), ((0, 0), 0), "seed {seed}");
        (time, self.delivered)
    }
}

#[test]
fn a_life_with_deliveries_is_as_right_as_one_without_and_no_longer() {
    let (mut times, mut delivered) = ([Duration::ZERO; 2], 0);
    for seed in 0..SEEDS {
        for delivers in [false, true] {
            let (time, count) = Life::new(seed, delivers).play(seed);
            times[usize::from(delivers)] += time;
            delivered += count;
        }
    }
    assert!(delivered > 5000, "{delivered}");
    assert!(times[1] < times[0].mul_f64(1.1), "{times:?}");
}

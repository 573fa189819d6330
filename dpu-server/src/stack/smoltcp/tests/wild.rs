//! A client that is wild for a while: windows that open, shrink and close, selective acknowledgements that are taken back or were never
//! true, old acknowledgements, late segments, tales of routers. Once it is tame it has every byte, soon.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::time::Duration;

use mqttshim_schema::{How, SocketOption};
use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber as Number};

use super::hand::{SERVED, frame_of, heard};
use super::paths::too_big;
use super::wire::Rng;
use super::{LISTENER, Narrow, PORT, Queue, at, ip, milliseconds, server};
use crate::stack::smoltcp::clock;
use crate::stack::smoltcp::tcp::Tcp;
use crate::stack::{End, Received, Sent};

const SEEDS: u64 = 400;
/// A few time-outs, each after twice the time of the one before.
const SOON: Duration = Duration::from_secs(40);

/// What says nothing yet.
const SILENT: TcpRepr<'static> = TcpRepr {
    src_port: 40_000,
    dst_port: PORT,
    control: TcpControl::None,
    seq_number: Number(0),
    ack_number: None,
    window_len: 0,
    window_scale: None,
    max_seg_size: None,
    sack_permitted: false,
    sack_ranges: [None; 3],
    timestamp: None,
    payload: &[],
};

struct Client {
    tcp: Tcp,
    now: Duration,
    rng: Rng,
    /// Initial numbers, ours and theirs.
    own: u32,
    theirs: u32,
    shift: u8,
    has_sack: bool,
    /// In a thousand, both ways.
    lost: u64,
    /// What the server wrote, and what of it its stack has not taken.
    written: Vec<u8>,
    waiting: Vec<u8>,
    /// How much of it is here, what is beyond a gap, and how far windows that were told reach.
    next: u32,
    beyond: BTreeMap<u32, u32>,
    edge: u32,
    window: u32,
    /// What was sent to the server, and what it has read.
    sent: Vec<u8>,
    read: Vec<u8>,
    /// The last packet that came.
    packet: Vec<u8>,
}

impl Client {
    fn new(seed: u64) -> Client {
        let mut rng = Rng(seed);
        let mut any_of = |all: &[u64]| all[(rng.next() % all.len() as u64) as usize];
        let mut tcp = server();
        tcp.close(LISTENER, End::Close);
        let asked = (any_of(&[2000, 30_000, 100_000, 400_000]) as i32).to_ne_bytes();
        let buffers = [libc::SO_RCVBUF, libc::SO_SNDBUF].map(|name| SocketOption {
            level: libc::SOL_SOCKET,
            name,
            value: &asked,
        });
        tcp.bind(LISTENER, 0, at("::", PORT), &buffers).unwrap();
        tcp.listen(LISTENER, 16, &[]).unwrap();
        let (own, shift) = (any_of(&[0, 20_000]) as u32, any_of(&[0, 0, 1, 7, 14]) as u8);
        let (has_sack, lost) = (any_of(&[0, 1, 1]) == 1, any_of(&[0, 20, 200]));
        let mss = any_of(&[1460, 536, 60]) as u16;
        let mut client = Client {
            tcp,
            now: milliseconds(1),
            rng,
            own: own.wrapping_sub(10_000),
            theirs: 0,
            shift,
            has_sack,
            lost,
            written: Vec::new(),
            waiting: Vec::new(),
            next: 0,
            beyond: BTreeMap::new(),
            edge: 8000,
            window: 60_000,
            sent: Vec::new(),
            read: Vec::new(),
            packet: Vec::new(),
        };
        client.says(&TcpRepr {
            control: TcpControl::Syn,
            seq_number: Number(client.own as i32),
            window_len: 8000,
            window_scale: (shift > 0).then_some(shift),
            max_seg_size: Some(mss),
            sack_permitted: has_sack,
            ..SILENT
        });
        client.acknowledges(false);
        client.tcp.accept(client.now, LISTENER, SERVED).unwrap();
        client
    }

    fn below(&mut self, bound: u64) -> u32 {
        (self.rng.next() % bound) as u32
    }

    fn some_bytes(&mut self, most: u64) -> Vec<u8> {
        (0..=self.below(most)).map(|_| self.rng.next() as u8).collect()
    }

    fn says(&mut self, segment: &TcpRepr<'_>) {
        self.gets(&mut frame_of(ip("10.0.0.7"), segment));
    }

    /// The server gets a frame.
    fn gets(&mut self, frame: &mut [u8]) {
        let mut queue = Queue::default();
        self.tcp.frame(self.now, frame, &mut queue);
        self.tcp.flush(self.now, &mut queue);
        self.takes(queue);
        self.tcp.connections.check();
    }

    fn takes(&mut self, queue: Queue) {
        for frame in queue.frames {
            let heard = heard(&frame);
            self.packet = frame[14..].to_vec();
            assert!(!heard.flags.contains('R'), "a reset");
            if heard.flags.contains('S') {
                self.theirs = heard.sequence;
            }
            let from = heard.sequence.wrapping_sub(self.theirs.wrapping_add(1));
            let payload = heard.payload;
            if payload.is_empty() || payload == [0] && from.wrapping_add(1) == self.next {
                continue;
            }
            let to = from + payload.len() as u32;
            assert!(self.written[from as usize..to as usize] == payload, "at {from}");
            if u64::from(self.below(1000)) >= self.lost {
                self.keeps(from, to.min(self.edge));
            }
        }
    }

    fn keeps(&mut self, mut from: u32, mut to: u32) {
        if from >= to {
            return;
        }
        while let Some((&start, &end)) = self.beyond.range(..=to).next_back()
            && end >= from
        {
            self.beyond.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        if from <= self.next {
            self.next = self.next.max(to);
        } else {
            self.beyond.insert(from, to);
        }
    }

    /// Wild: perhaps of old, or of what did not come.
    fn acknowledges(&mut self, is_wild: bool) {
        let first = self.theirs.wrapping_add(1);
        let mut segment = SILENT;
        if self.has_sack {
            let mut blocks: Vec<_> = self.beyond.iter().map(|(from, to)| (*from, *to)).collect();
            if is_wild && self.below(4) == 0 {
                let from = self.next + self.below(100_000);
                blocks.push((from, from + self.below(5000)));
            }
            for (told, block) in segment.sack_ranges.iter_mut().zip(blocks.iter().rev()) {
                *told = Some((first.wrapping_add(block.0), first.wrapping_add(block.1)));
            }
        }
        let old = if is_wild && self.below(10) == 0 { self.below(3000) } else { 0 };
        self.says_next(segment, self.next.wrapping_sub(old));
    }

    /// Says the next thing, and its window.
    fn says_next(&mut self, segment: TcpRepr<'_>, acknowledged: u32) {
        let window = (self.window >> self.shift).min(65_535);
        self.edge = self.edge.max(self.next + (window << self.shift));
        let told = self.sent.len() - segment.payload.len();
        self.says(&TcpRepr {
            seq_number: Number(self.own as i32) + 1 + told,
            ack_number: Some(Number(self.theirs.wrapping_add(1).wrapping_add(acknowledged) as i32)),
            window_len: window as u16,
            ..segment
        });
    }

    fn waits(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..10_000 {
            let mut queue = Queue::default();
            self.tcp.expire(self.now);
            self.tcp.flush(self.now, &mut queue);
            self.takes(queue);
            match self.tcp.deadline() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("something is due for ever");
    }

    /// The server writes what it can, in the usual way.
    fn writes(&mut self) {
        let mut queue = Queue::default();
        if !self.waiting.is_empty() {
            let part = [IoSlice::new(&self.waiting)];
            match self.tcp.send(self.now, SERVED, &part, &mut queue) {
                Sent::Bytes(count) => drop(self.waiting.drain(..count)),
                Sent::Full => {}
                Sent::Gone(error) => panic!("{error}"),
            }
        }
        self.tcp.flush(self.now, &mut queue);
        self.takes(queue);
    }

    /// The server delivers some messages; its port may be full.
    fn delivers(&mut self) {
        let room = if self.below(10) == 0 { self.below(3) as usize } else { usize::MAX };
        let mut out = Narrow { queue: Queue::default(), room };
        for place in 0..=self.below(5) {
            let message = self.some_bytes(300);
            self.written.extend(&message);
            let now = clock::instant(self.now);
            if !self.waiting.is_empty() || !self.tcp.deliver(now, SERVED, place, &message, &mut out)
            {
                self.waiting.extend(message);
            }
        }
        self.tcp.end_batch();
        self.takes(out.queue);
        self.writes();
    }

    fn reads(&mut self) {
        let mut buffer = vec![0; 1 + self.below(9000) as usize];
        if let Received::Bytes(count) = self.tcp.recv(self.now, SERVED, &mut buffer) {
            self.read.extend(&buffer[..count]);
        }
        assert!(self.sent.starts_with(&self.read), "what was read differs");
    }

    fn sends(&mut self) {
        // Less than any window: what is lost is sent again when the client is tame.
        if self.sent.len() - self.read.len() < 1000 {
            let bytes = self.some_bytes(500);
            self.sent.extend(&bytes);
            self.says_next(TcpRepr { payload: &bytes, ..SILENT }, self.next);
        }
    }

    fn does_something(&mut self) {
        match self.below(20) {
            0..=3 if self.written.len() < 300_000 => {
                let most = if self.below(4) == 0 { 20_000 } else { 1000 };
                let message = self.some_bytes(most);
                self.written.extend(&message);
                self.waiting.extend(message);
                self.writes();
            }
            4..=8 if self.written.len() < 300_000 => self.delivers(),
            9..=12 => {
                let windows = [0, 1, 100, 3000, 8000, 60_000, 500_000, self.window];
                self.window = windows[self.below(8) as usize];
                self.acknowledges(true);
            }
            13 | 14 => self.sends(),
            15 => self.reads(),
            16 | 17 => {
                let times = [0, 1, 20, 250, 1500];
                let time = times[self.below(5) as usize];
                self.waits(milliseconds(time));
            }
            18 if !self.packet.is_empty() => {
                let mtu = 400 + self.below(1200) as u16;
                self.gets(&mut too_big(&self.packet[..28], mtu));
            }
            19 => match self.below(3) {
                0 => self.beyond.clear(),
                1 => self.says(&TcpRepr { control: TcpControl::Syn, ..SILENT }),
                // Of what was never written, and a window that is not one.
                _ => {
                    let (edge, window) = (self.edge, std::mem::take(&mut self.window));
                    self.says_next(SILENT, self.written.len() as u32 + 7);
                    (self.edge, self.window) = (edge, window);
                }
            },
            _ => {}
        }
    }
}

#[test]
fn a_client_that_was_wild_has_every_byte_soon_after_it_is_tame() {
    for seed in 0..SEEDS {
        let mut client = Client::new(seed);
        for _ in 0..400 {
            client.does_something();
        }
        let is_shut = client.waiting.is_empty() && client.below(2) == 0;
        if is_shut {
            client.tcp.shutdown(SERVED, How::Write).unwrap();
        }
        (client.lost, client.window) = (0, 60_000);
        let start = client.now;
        while (client.next as usize) < client.written.len() {
            client.acknowledges(false);
            client.writes();
            client.reads();
            client.waits(milliseconds(20));
            let Client { now, next, shift, .. } = client;
            assert!(now - start < SOON, "seed {seed}, {shift}: {next} of {}", client.written.len());
        }
        client.acknowledges(false);
        client.waits(milliseconds(20));
        assert_eq!(
            (client.tcp.connections.messages.bytes(), client.tcp.budget.message_bytes),
            (0, 0)
        );
    }
}

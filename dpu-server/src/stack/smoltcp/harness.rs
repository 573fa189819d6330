//! The stack without its port, for fuzzing: frames in, frames out, on a clock that only its holder moves.

use std::io::IoSlice;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use mqttshim_port::{Capabilities, Checksums, Mac, Transmit};
use mqttshim_schema::How;
use rustix::io::Errno;

use super::clock;
use super::tcp::{Setup, Tcp};
use crate::stack::{End, Key, Received, Sent};

/// The card's Ethernet address.
pub const MAC: Mac = [2, 0, 0, 0, 0, 1];
/// Its IP addresses.
pub const ADDRESSES: [&str; 2] = ["10.0.0.1/24", "fd00::1/64"];
/// Where it listens.
pub const PORT: u16 = 1883;
/// The longest frame it may send.
pub const FRAME_BYTES_MAX: usize = 14 + MTU;
const MTU: usize = 1500;
const BACKLOG: i32 = 16;
const LISTENER: Key = Key(0);
/// Deadlines within one wait. More: it comes back at once, for ever.
const STEPS_MAX: usize = 100_000;

/// See the module.
#[allow(missing_debug_implementations, reason = "it lives in a fuzz target alone")]
pub struct Harness {
    tcp: Tcp,
    now: Duration,
    out: Frames,
    key_next: u32,
}

#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl Transmit for Frames {
    fn has_room(&mut self) -> bool {
        true
    }

    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut frame = vec![0; length];
        let outcome = fill(&mut frame);
        self.0.push(frame);
        outcome
    }

    fn kick(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

impl Harness {
    /// A stack that listens at [`PORT`] of all its addresses.
    ///
    /// # Panics
    /// If it cannot, which is a finding.
    #[must_use]
    pub fn new(checksums: Checksums) -> Harness {
        let mut tcp = Tcp::new(Setup {
            mac: MAC,
            addresses: ADDRESSES.map(|text| text.parse().expect("an address")).to_vec(),
            gateway: None,
            capabilities: Capabilities { mtu: MTU, checksums },
            seed: 7,
        });
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
        tcp.bind(LISTENER, 0, any, &[]).expect("nobody has the name");
        tcp.listen(LISTENER, BACKLOG, &[]).expect("nobody listens");
        let now = Duration::from_secs(1);
        Harness { tcp, now, out: Frames::default(), key_next: 1 }
    }

    /// A frame arrives.
    pub fn frame(&mut self, frame: &mut [u8]) {
        self.tcp.frame(self.now, frame, &mut self.out);
        self.tcp.flush(self.now, &mut self.out);
        self.tcp.events.clear();
    }

    /// Time passes.
    ///
    /// # Panics
    /// If something is due again and again without end.
    pub fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..STEPS_MAX {
            self.tcp.expire(self.now);
            self.tcp.flush(self.now, &mut self.out);
            self.tcp.events.clear();
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

    /// What was sent since the last time.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.out.0)
    }

    /// The next connection that waits: its key, and its client.
    pub fn accept(&mut self) -> Option<(Key, SocketAddr)> {
        let key = Key(self.key_next);
        let ends = self.tcp.accept(self.now, LISTENER, key).ok()?;
        self.key_next += 1;
        Some((key, ends.peer))
    }

    /// What the client of a connection has sent.
    pub fn recv(&mut self, key: Key, bytes_max: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes_max];
        match self.tcp.recv(self.now, key, &mut buffer) {
            Received::Bytes(count) => buffer[..count].to_vec(),
            _ => Vec::new(),
        }
    }

    /// Offers bytes to the client of a connection; says how many were taken.
    pub fn send(&mut self, key: Key, bytes: &[u8]) -> usize {
        match self.tcp.send(self.now, key, &[IoSlice::new(bytes)], &mut self.out) {
            Sent::Bytes(count) => count,
            _ => 0,
        }
    }

    /// Delivers a batch: to whom, which message of it, and its bytes. Says of each whether it left.
    pub fn deliver(&mut self, deliveries: &[(Key, u32, &[u8])]) -> Vec<bool> {
        let now = clock::instant(self.now);
        let (tcp, out) = (&mut self.tcp, &mut self.out);
        let sent =
            deliveries.iter().map(|&(key, place, bytes)| tcp.deliver(now, key, place, bytes, out));
        let sent = sent.collect();
        self.tcp.end_batch();
        self.tcp.connections.check();
        sent
    }

    /// Ends the program's half of a connection.
    pub fn shutdown(&mut self, key: Key) {
        // It may be over already.
        let _ = self.tcp.shutdown(key, How::Write);
    }

    /// Bytes of messages that some connection was not told of.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        self.tcp.connections.check();
        self.tcp.connections.messages.bytes()
    }

    /// Lets a connection go.
    pub fn close(&mut self, key: Key, end: End) {
        self.tcp.close(key, end);
    }

    /// Listens no more.
    pub fn close_listener(&mut self) {
        self.tcp.close(LISTENER, End::Close);
    }

    /// Connections there are, half-open ones and those that nobody holds included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.tcp.connections.len()
    }
}

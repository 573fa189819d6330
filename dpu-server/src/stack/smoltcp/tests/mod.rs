//! The stack on a virtual clock: two of it on one wire, or one of it and packets made by hand.

mod checksums;
mod crossings;
mod deliveries;
mod ends;
mod floods;
mod hand;
mod handshakes;
mod headers;
mod lanes;
mod links;
mod lives;
mod memory;
mod moves;
mod paths;
mod silence;
mod small_port;
mod streams;
mod unfinished;
mod wild;
mod wire;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::tcp::{Setup, Tcp};
use crate::stack::Key;
use mqttshim_port::{Capabilities, Checksums, Mac, Transmit};

const SERVER_MAC: Mac = [2, 0, 0, 0, 0, 1];
const CLIENT_MAC: Mac = [2, 0, 0, 0, 0, 2];
const PORT: u16 = 1883;
const LISTENER: Key = Key(0);

/// Frames that left.
#[derive(Debug, Default)]
struct Queue {
    frames: Vec<Vec<u8>>,
}

impl Transmit for Queue {
    fn has_room(&mut self) -> bool {
        true
    }

    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut frame = vec![0; length];
        let outcome = fill(&mut frame);
        self.frames.push(frame);
        outcome
    }

    fn kick(&mut self) -> Result<(), rustix::io::Errno> {
        Ok(())
    }
}

/// A port that takes so many frames.
struct Narrow {
    queue: Queue,
    room: usize,
}

impl Transmit for Narrow {
    fn has_room(&mut self) -> bool {
        self.room > 0
    }

    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.room = self.room.checked_sub(1).expect("room");
        self.queue.frame(length, fill)
    }

    fn kick(&mut self) -> Result<(), rustix::io::Errno> {
        Ok(())
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(text), port)
}

fn stack(mac: Mac, addresses: &[&str]) -> Tcp {
    Tcp::new(Setup {
        mac,
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        gateway: None,
        capabilities: Capabilities { mtu: 1500, checksums: Checksums::Unknown },
        seed: 7,
    })
}

fn server() -> Tcp {
    let mut tcp = stack(SERVER_MAC, &["10.0.0.1/24", "fd00::1/64"]);
    let any = at("::", PORT);
    tcp.bind(LISTENER, 0, any, &[]).unwrap();
    tcp.listen(LISTENER, 1024, &[]).unwrap();
    tcp
}

const fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

//! Where the wire client's frames go: raw frames of an interface, or memory shared with the card.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use mqttshim_port::mem::Mem;
use mqttshim_port::{Port as _, Receive, Transmit};

use super::packet::{FrameBatch, PacketSocket};
use crate::bench::transport::now_ns;

/// Frames taken out of shared memory between two looks at the clock: that far a stamp may be late.
const STAMPED_TOGETHER: usize = 32;
/// A pause between frames that ends a burst: what came is then handled.
const LULL_NS: u64 = 20_000;
/// How long a card may leave its ring full before frames are lost.
const FULL_NS: u64 = 100_000_000;
/// Longest nap between two looks at the frames of an interface.
const NAP: Duration = Duration::from_micros(100);

/// A port's name: `packet:INTERFACE` or `mem:PATH`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum PortName {
    /// Raw frames of this interface.
    Packet(String),
    /// Memory shared with the card that waits under this path.
    Mem(PathBuf),
}

impl FromStr for PortName {
    type Err = String;

    fn from_str(text: &str) -> Result<PortName, String> {
        match text.split_once(':') {
            Some(("packet", name)) if !name.is_empty() => Ok(PortName::Packet(name.to_owned())),
            Some(("mem", path)) if !path.is_empty() => Ok(PortName::Mem(path.into())),
            _ => Err(format!("{text:?} is no port: packet:INTERFACE or mem:PATH")),
        }
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortName::Packet(name) => write!(f, "packet:{name}"),
            PortName::Mem(path) => write!(f, "mem:{}", path.display()),
        }
    }
}

/// An open port.
#[derive(Debug)]
pub(super) enum Port {
    /// The kernel stamps arrivals.
    Packet(PacketSocket),
    /// We stamp arrivals when we take them out.
    Mem(Box<Shared>),
}

/// Memory shared with the card.
#[derive(Debug)]
pub(super) struct Shared {
    mem: Mem,
    /// Taken out and not handled yet.
    batch: FrameBatch,
    /// When each frame of `batch` arrived.
    stamps: Vec<u64>,
    lost: u64,
}

impl Port {
    /// Opens it.
    pub(super) fn open(name: &PortName) -> Result<Port> {
        Ok(match name {
            PortName::Packet(interface) => Port::Packet(PacketSocket::open(interface)?),
            PortName::Mem(path) => Port::Mem(Box::new(Shared {
                mem: Mem::connect(path)?,
                batch: FrameBatch::default(),
                stamps: Vec::new(),
                lost: 0,
            })),
        })
    }

    /// Hands about `max` received frames at most, with their arrival time, to `sink`; returns how many there were.
    pub(super) fn receive(
        &mut self,
        max: usize,
        is_prompt: bool,
        sink: &mut dyn FnMut(&[u8], u64),
    ) -> Result<usize> {
        match self {
            Port::Packet(socket) => socket.receive(max, sink),
            Port::Mem(shared) => {
                shared.collect(max, if is_prompt { 0 } else { LULL_NS })?;
                let count = shared.batch.len();
                for (frame, at_ns) in shared.batch.frames().zip(&shared.stamps) {
                    sink(frame, *at_ns);
                }
                shared.batch.clear();
                shared.stamps.clear();
                Ok(count)
            }
        }
    }

    /// Waits for frames, at most `wait`. `is_prompt`: returns at the first one; otherwise it may nap, so that no frame has to wake
    /// this process. Shared memory is always looked at: who naps cannot stamp.
    pub(super) fn wait(&mut self, wait: Duration, is_prompt: bool) -> Result<()> {
        match self {
            Port::Packet(socket) if is_prompt => socket.wait(wait),
            Port::Packet(_) => {
                std::thread::sleep(wait.min(NAP));
                Ok(())
            }
            Port::Mem(shared) => {
                let until = now_ns() + u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX / 2);
                while !shared.take()? && now_ns() < until {
                    std::thread::yield_now();
                }
                Ok(())
            }
        }
    }

    /// Sends every frame of `batch` and empties it. A frame for which there is no room is lost, as on a wire.
    pub(super) fn send(&mut self, batch: &mut FrameBatch) -> Result<()> {
        match self {
            Port::Packet(socket) => socket.send(batch),
            Port::Mem(shared) => shared.send(batch),
        }
    }

    /// Frames lost since last asked, because there was no room for them.
    pub(super) fn take_lost(&mut self) -> u64 {
        match self {
            Port::Packet(socket) => u64::from(socket.take_lost()),
            Port::Mem(shared) => std::mem::take(&mut shared.lost),
        }
    }
}

impl Shared {
    /// Takes out what is there now; `false` if there was nothing.
    fn take(&mut self) -> Result<bool> {
        let batch = &mut self.batch;
        let taken = self
            .mem
            .halves()
            .0
            .burst(STAMPED_TOGETHER, |frame| batch.push(|out| out.extend_from_slice(frame)))
            .context("the card is gone")?;
        if taken > 0 {
            self.stamps.resize(self.batch.len(), now_ns());
        }
        Ok(taken > 0)
    }

    /// Takes out what comes until nothing came for `lull_ns`, or there are `max`.
    fn collect(&mut self, max: usize, lull_ns: u64) -> Result<()> {
        while self.batch.len() < max {
            let is_over =
                !self.take()? && self.stamps.last().is_none_or(|last| now_ns() >= last + lull_ns);
            if is_over {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, batch: &mut FrameBatch) -> Result<()> {
        let mut full_since = None;
        for frame in batch.frames() {
            while !self.mem.halves().1.has_room() {
                // The card may wait for room itself.
                self.mem.halves().1.kick()?;
                self.take()?;
                if now_ns() > *full_since.get_or_insert_with(now_ns) + FULL_NS {
                    self.lost += 1;
                    break;
                }
            }
            self.mem.halves().1.frame(frame.len(), |out| out.copy_from_slice(frame));
        }
        self.mem.halves().1.kick()?;
        batch.clear();
        Ok(())
    }
}

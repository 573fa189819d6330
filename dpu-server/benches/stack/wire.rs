//! A port that is memory: frames made beforehand come in, frames that leave are written over one another.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mqttshim_port::{Capabilities, Checksums, Mac, Port, Receive, Transmit};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

pub(super) const CARD: Mac = [2, 0, 0, 0, 0, 1];
/// Bytes of a frame that comes in: a segment without payload.
pub(super) const FRAME_BYTES: usize = 60;
/// Frames that leave are written into so many places in turn, as a card's ring has them.
const PLACES: usize = 256;
const PLACE_BYTES: usize = 2048;

/// Frames that come in.
#[derive(Default)]
pub(super) struct Incoming {
    /// Made beforehand, one after the other.
    pub(super) frames: Vec<[u8; FRAME_BYTES]>,
    next: usize,
}

impl Incoming {
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.next = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next == self.frames.len()
    }
}

impl Receive for Incoming {
    fn burst(
        &mut self,
        frames_max: usize,
        mut each: impl FnMut(&mut [u8]),
    ) -> Result<usize, Errno> {
        let end = self.frames.len().min(self.next + frames_max);
        let frames = &mut self.frames[self.next..end];
        for frame in &mut *frames {
            each(frame);
        }
        self.next = end;
        Ok(frames.len())
    }
}

/// Frames that leave.
pub(super) struct Outgoing {
    memory: Vec<u8>,
    pub(super) count: u64,
    /// The heads of frames, while somebody wants to know them.
    pub(super) heads: Option<Vec<[u8; FRAME_BYTES]>>,
}

impl Transmit for Outgoing {
    fn has_room(&mut self) -> bool {
        true
    }

    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let place = self.count as usize % PLACES * PLACE_BYTES;
        self.count += 1;
        let frame = &mut self.memory[place..place + length];
        let outcome = fill(frame);
        if let Some(heads) = &mut self.heads {
            let mut head = [0; FRAME_BYTES];
            let bytes = frame.len().min(FRAME_BYTES);
            head[..bytes].copy_from_slice(&frame[..bytes]);
            heads.push(head);
        }
        outcome
    }

    fn kick(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

/// See the module.
pub(super) struct Memory {
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    /// Never readable: the bench does not sleep.
    readiness: OwnedFd,
}

impl Memory {
    pub(super) fn new() -> Memory {
        let readiness = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let memory = vec![0; PLACES * PLACE_BYTES];
        let outgoing = Outgoing { memory, count: 0, heads: None };
        Memory { incoming: Incoming::default(), outgoing, readiness }
    }
}

impl Port for Memory {
    type Receive = Incoming;
    type Transmit = Outgoing;

    fn halves(&mut self) -> (&mut Incoming, &mut Outgoing) {
        (&mut self.incoming, &mut self.outgoing)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 1500, checksums: Checksums::Right }
    }

    fn mac(&self) -> Mac {
        CARD
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

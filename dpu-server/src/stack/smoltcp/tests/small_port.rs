//! More is to leave at once than the port holds.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::SERVER_MAC;
use super::deliveries::{SERVED, connected, is_right};
use super::wire::Faults;
use crate::stack::Stack;
use crate::stack::smoltcp::Smoltcp;
use mqttshim_port::{Capabilities, Checksums, Mac, Port, Receive, Transmit};

/// A port that holds few frames until they are let go.
struct Small {
    queue: Few,
    silence: Silence,
    readiness: OwnedFd,
}

/// See [`Small`].
struct Few {
    held: usize,
    /// How often it lets go.
    kicks_left: usize,
    frames: Vec<Vec<u8>>,
}

/// No frame arrives.
struct Silence;

const FEW: usize = 4;

impl Transmit for Few {
    fn has_room(&mut self) -> bool {
        self.held < FEW
    }

    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(self.has_room(), "{length} bytes, and there is no room");
        self.held += 1;
        self.frames.push(vec![0; length]);
        fill(self.frames.last_mut().unwrap())
    }

    fn kick(&mut self) -> Result<(), Errno> {
        self.kicks_left = self.kicks_left.checked_sub(1).ok_or(Errno::NETDOWN)?;
        self.held = 0;
        Ok(())
    }
}

impl Receive for Silence {
    fn burst(&mut self, _: usize, _: impl FnMut(&mut [u8])) -> Result<usize, Errno> {
        Ok(0)
    }
}

impl Port for Small {
    type Receive = Silence;
    type Transmit = Few;

    fn halves(&mut self) -> (&mut Silence, &mut Few) {
        (&mut self.silence, &mut self.queue)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 1500, checksums: Checksums::Unknown }
    }

    fn mac(&self) -> Mac {
        SERVER_MAC
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

#[test]
fn a_port_that_is_full_in_the_middle_of_a_fan_out_is_kicked_until_that_helps_no_more() {
    for (kicks_left, leave) in [(100, 19), (2, 3 * FEW), (0, FEW)] {
        let wire = connected("10.0.0.1", Faults::default(), 1);
        let queue = Few { held: 0, kicks_left, frames: Vec::new() };
        let readiness = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let port = Small { queue, silence: Silence, readiness };
        let mut stack = Smoltcp::new(port, Vec::new(), None).unwrap();
        stack.start -= wire.now;
        [_, stack.tcp] = wire.ends;
        let messages: Vec<[u8; 1]> = (0..19).map(|at| [at]).collect();
        let mut refused = Vec::new();
        let deliveries =
            messages.iter().map(|message| (SERVED, u32::from(message[0]), &message[..]));
        stack.deliver(deliveries, &mut refused);
        assert_eq!(refused, (leave as u32..19).collect::<Vec<_>>());
        let frames = &stack.port.queue.frames;
        let left: Vec<u8> = frames.iter().map(|frame| frame[frame.len() - 1]).collect();
        assert_eq!(left, (0..leave as u8).collect::<Vec<_>>());
        assert!(frames.iter().all(|frame| is_right(frame)));
    }
}

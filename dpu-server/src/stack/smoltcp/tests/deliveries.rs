//! Messages that leave at once are what the long way would have made of them, or they are refused.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use smoltcp::wire::checksum;

use super::wire::{Faults, Rng, Wire};
use super::{LISTENER, PORT, Queue, SERVER_MAC, at, milliseconds};
use crate::stack::smoltcp::segment::{Arrival, arrival};
use crate::stack::smoltcp::{Smoltcp, clock};
use crate::stack::{Key, Received, Sent, Stack};
use mqttshim_port::{Capabilities, Checksums, Mac, Port, Receive, Transmit};

const CLIENT: Key = Key(1);
const SERVED: Key = Key(2);

fn connected(address: &str, faults: Faults, seed: u64) -> Wire {
    let mut wire = Wire::new(faults, seed);
    wire.ends[0].connect(wire.now, CLIENT, 0, at(address, PORT), &[]).unwrap();
    wire.settle();
    while wire.ends[1].accept(wire.now, LISTENER, SERVED).is_err() {
        assert!(wire.sleep());
        wire.settle();
    }
    wire
}

/// The frames of the server's send of a message.
fn sent(wire: &mut Wire, message: &[u8]) -> Vec<Vec<u8>> {
    let mut queue = Queue::default();
    let sent = wire.ends[1].send(wire.now, SERVED, &[IoSlice::new(message)], &mut queue);
    assert_eq!(sent, Sent::Bytes(message.len()));
    queue.frames
}

/// The frame of its delivery, if it was not refused.
fn delivered(wire: &mut Wire, message: &[u8]) -> Option<Vec<u8>> {
    let mut queue = Queue::default();
    let now = clock::instant(wire.now);
    let sum = || checksum::data(message);
    let is_sent = wire.ends[1].deliver(now, SERVED, message, sum, &mut queue);
    assert_eq!(queue.frames.len(), usize::from(is_sent));
    queue.frames.pop()
}

/// Whether its checksums are, and it is a whole segment.
fn is_right(frame: &[u8]) -> bool {
    matches!(arrival(&frame[14..], Checksums::Unknown), Arrival::Segment(_))
}

/// Two connections begin with other numbers.
fn without_numbers(frame: &Vec<u8>) -> Vec<u8> {
    let tcp_at = if frame[12..14] == [8, 0] { 34 } else { 54 };
    let mut frame = frame.clone();
    frame[tcp_at + 4..tcp_at + 12].fill(0);
    frame[tcp_at + 16..tcp_at + 18].fill(0);
    frame
}

#[test]
fn a_delivery_is_the_frame_that_a_send_makes() {
    for address in ["10.0.0.1", "fd00::1"] {
        for length in [1, 2, 7, 64, 99, 1000] {
            let (mut one, mut other) = (
                connected(address, Faults::default(), 1),
                connected(address, Faults::default(), 1),
            );
            let mut rng = Rng(length as u64);
            for round in 0..20 {
                let message: Vec<u8> = (0..length).map(|_| rng.next() as u8).collect();
                let expected = sent(&mut one, &message);
                let frame = delivered(&mut other, &message);
                // Ten full segments are the first window (RFC 6928); what does not fit goes the long way.
                match frame {
                    Some(frame) => {
                        assert!(is_right(&frame), "{address}, {length}, {round}: {frame:?}");
                        let expected: Vec<_> = expected.iter().map(without_numbers).collect();
                        let got = vec![without_numbers(&frame)];
                        assert_eq!(got, expected, "{address}, {length}, {round}");
                    }
                    None => {
                        assert_eq!(sent(&mut other, &message).len(), expected.len());
                    }
                }
            }
        }
    }
}

#[test]
fn a_message_of_more_than_a_segment_is_refused() {
    for (address, most) in [("10.0.0.1", 1460), ("fd00::1", 1440)] {
        let mut wire = connected(address, Faults::default(), 1);
        assert!(delivered(&mut wire, &vec![1; most + 1]).is_none());
        sent(&mut wire, b"x");
        assert!(delivered(&mut wire, &vec![1; most]).is_some());
    }
}

#[test]
fn behind_a_refused_delivery_every_later_one_is_refused_until_the_next_send() {
    let mut wire = connected("10.0.0.1", Faults::default(), 1);
    assert!(delivered(&mut wire, &[1; 5000]).is_none());
    assert!(delivered(&mut wire, b"short").is_none());
    sent(&mut wire, &[1; 1000]);
    assert!(delivered(&mut wire, b"short").is_some());
}

#[test]
fn a_connection_that_is_gone_or_shut_refuses() {
    let mut wire = connected("10.0.0.1", Faults::default(), 1);
    wire.ends[1].shutdown(SERVED, mqttshim_schema::How::Write).unwrap();
    assert!(delivered(&mut wire, b"late").is_none());
    wire.ends[1].close(SERVED, crate::stack::End::Reset);
    assert!(delivered(&mut wire, b"later").is_none());
}

#[test]
fn messages_arrive_in_order_over_any_wire_whichever_way_each_of_them_goes() {
    let mut direct = 0;
    for seed in 0..150 {
        let lost = [0, 10, 100][seed as usize % 3];
        let faults = Faults { lost, repeated: 20, overtaken: 50, delay: milliseconds(seed % 20) };
        let mut wire = connected(["10.0.0.1", "fd00::1"][seed as usize % 2], faults, seed);
        let mut rng = Rng(!seed);
        let (mut written, mut received, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        while written.len() < 60_000 || received.len() < written.len() {
            if written.len() < 60_000 && waiting.is_empty() {
                let length = 1 + rng.next() as usize % 1600;
                let message: Vec<u8> = (0..length).map(|_| rng.next() as u8).collect();
                written.extend_from_slice(&message);
                let now = clock::instant(wire.now);
                let mut queue = Queue::default();
                let sum = || checksum::data(&message);
                if rng.next() % 4 > 0
                    && wire.ends[1].deliver(now, SERVED, &message, sum, &mut queue)
                {
                    direct += 1;
                    wire.carry(0, queue);
                } else {
                    waiting = message;
                }
            }
            if let Sent::Bytes(count) = wire.writes(1, SERVED, &waiting) {
                waiting.drain(..count);
            }
            wire.settle();
            let mut buffer = [0; 4096];
            while let Received::Bytes(count) = wire.ends[0].recv(wire.now, CLIENT, &mut buffer) {
                received.extend_from_slice(&buffer[..count]);
            }
            if !waiting.is_empty() || rng.next().is_multiple_of(3) || written.len() >= 60_000 {
                wire.sleep();
                wire.settle();
            }
            assert!(wire.now < milliseconds(120_000), "seed {seed}: {} bytes", received.len());
        }
        assert!(received == written, "seed {seed}: the bytes differ");
    }
    assert!(direct > 1000, "{direct} of all left at once");
}

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

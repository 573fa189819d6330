//! Packets of several segments, which are left to a port that cuts them.

use std::io::IoSlice;

use mqttshim_port::{Checksums, Transmit, Unfinished};
use rustix::io::Errno;

use super::hand::{Hand, SERVED, frame, said};
use crate::stack::Sent;
use crate::stack::smoltcp::segment::{Arrival, arrival};

const ETHERNET_BYTES: usize = 14;
const SEGMENT_BYTES: u16 = 1460;

/// Frames, and what was left to be done to them.
#[derive(Default)]
struct Device(Vec<(Option<Unfinished>, Vec<u8>)>);

impl Device {
    fn take<R>(
        &mut self,
        length: usize,
        left: Option<Unfinished>,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut frame = vec![0xaa; length];
        let outcome = fill(&mut frame);
        self.0.push((left, frame));
        outcome
    }
}

impl Transmit for Device {
    const UNFINISHED_BYTES_MAX: Option<usize> = Some(65_535);

    fn has_room(&mut self) -> bool {
        true
    }

    fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.take(length, None, fill)
    }

    fn unfinished<R>(
        &mut self,
        length: usize,
        left: Unfinished,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        self.take(length, Some(left), fill)
    }

    fn kick(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

/// What a client makes of a frame: its number, and its payload.
fn received(left: Option<&Unfinished>, frame: &[u8]) -> (u32, Vec<u8>) {
    let packet = &frame[ETHERNET_BYTES..];
    let is_finished = matches!(arrival(packet, Checksums::Unknown), Arrival::Segment(_));
    let Arrival::Segment(segment) = arrival(packet, Checksums::MayBePartial) else {
        panic!("{left:?} of {} bytes", frame.len());
    };
    let payload = segment.says.payload.to_vec();
    assert_eq!(is_finished, payload.len() <= usize::from(SEGMENT_BYTES));
    assert_eq!(is_finished, left.is_none());
    if let Some(left) = left {
        let said = (left.is_v6, left.tcp_at, left.payload_at, left.segment_bytes.get());
        assert_eq!(said, (false, 34, 54, SEGMENT_BYTES));
    }
    (segment.says.seq_number.0 as u32, payload)
}

#[test]
fn what_a_port_cuts_leaves_as_one_packet_of_many_segments() {
    let mut hand = Hand::new();
    hand.tcp.leave_cutting(65_535);
    hand.window = 65_000;
    hand.connects(10);
    let bytes: Vec<u8> = (0..60_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    let mut device = Device::default();
    let sent = hand.tcp.send(hand.now, SERVED, &[IoSlice::new(&bytes)], &mut device);
    assert_eq!(sent, Sent::Bytes(bytes.len()));
    let (mut back, mut frames) = (Vec::new(), 0);
    let first = hand.theirs.wrapping_add(1);
    while back.len() < bytes.len() {
        assert!(!device.0.is_empty(), "{} bytes came", back.len());
        for (left, frame) in device.0.drain(..) {
            let (number, payload) = received(left.as_ref(), &frame);
            assert_eq!(number, first.wrapping_add(back.len() as u32));
            back.extend(payload);
            frames += 1;
        }
        let known = said("A", 11, first.wrapping_add(back.len() as u32), b"");
        hand.tcp.frame(hand.now, &mut frame(hand.from, hand.window, known), &mut device);
        hand.tcp.flush(hand.now, &mut device);
    }
    assert!(back == bytes, "the bytes differ");
    assert!(frames < 10, "{frames} frames");
}

#[test]
fn a_port_that_cuts_nothing_gets_segments_that_fit() {
    let mut hand = Hand::new();
    hand.window = 65_000;
    hand.connects(10);
    let sent = hand.sends(&[7; 10_000]);
    assert!(sent.iter().all(|one| one.payload.len() <= usize::from(SEGMENT_BYTES)));
}

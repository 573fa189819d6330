//! Messages that leave at once are what the long way would have made of them, or they are refused.

use std::io::IoSlice;

use rustix::io::Errno;

use super::wire::{Faults, Rng, Wire};
use super::{LISTENER, PORT, Queue, at, milliseconds};
use crate::stack::smoltcp::clock;
use crate::stack::smoltcp::segment::{Arrival, arrival};
use crate::stack::{Key, Received, Sent};
use mqttshim_port::Checksums;

const CLIENT: Key = Key(1);
pub(super) const SERVED: Key = Key(2);

pub(super) fn connected(address: &str, faults: Faults, seed: u64) -> Wire {
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
    let is_sent = wire.ends[1].deliver(now, SERVED, 0, message, &mut queue);
    wire.ends[1].end_batch();
    assert_eq!(queue.frames.len(), usize::from(is_sent));
    queue.frames.pop()
}

/// Whether its checksums are, and it is a whole segment.
pub(super) fn is_right(frame: &[u8]) -> bool {
    matches!(arrival(&frame[14..], Checksums::Unknown), Arrival::Segment(_))
}

/// Two connections begin with other numbers.
fn without_numbers(frame: &[u8]) -> Vec<u8> {
    let tcp_at = if frame[12..14] == [8, 0] { 34 } else { 54 };
    let mut frame = frame.to_owned();
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
                        let expected: Vec<_> =
                            expected.iter().map(|frame| without_numbers(frame)).collect();
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
fn a_message_that_a_lowered_way_does_not_carry_is_refused() {
    for address in ["10.0.0.1", "fd00::1"] {
        let mut wire = connected(address, Faults::default(), 1);
        assert!(delivered(&mut wire, &[1; 1000]).is_some());
        let id = wire.ends[1].sockets.connection(SERVED).unwrap();
        wire.ends[1].connections[id].socket.limit_mss(500);
        assert!(delivered(&mut wire, &[1; 501]).is_none());
        assert_eq!(sent(&mut wire, &[1; 501]).len(), 2);
        assert!(delivered(&mut wire, &[1; 500]).is_some());
    }
}

#[test]
fn an_option_that_is_set_between_two_deliveries_holds_for_the_second() {
    // The listener is one of IPv6, whose option holds for both.
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS);
    for (address, place) in [("10.0.0.1", 22), ("fd00::1", 21)] {
        let mut wire = connected(address, Faults::default(), 1);
        assert_eq!(delivered(&mut wire, b"x").unwrap()[place], 64);
        let seven = 7_i32.to_ne_bytes();
        wire.ends[1].set_option(wire.now, SERVED, level, name, &seven).unwrap();
        let frame = delivered(&mut wire, b"y").unwrap();
        assert!(is_right(&frame));
        assert_eq!(frame[place], 7);
    }
}

#[test]
fn a_delivery_leaves_the_deadlines_of_a_send() {
    for keeps_alive in [false, true] {
        let mut wires = [1, 1].map(|seed| connected("10.0.0.1", Faults::default(), seed));
        for wire in &mut wires {
            let on = i32::from(keeps_alive).to_ne_bytes();
            let (level, name) = (libc::SOL_SOCKET, libc::SO_KEEPALIVE);
            wire.ends[1].set_option(wire.now, SERVED, level, name, &on).unwrap();
            wire.now += milliseconds(5000);
            wire.ends[1].expire(wire.now);
        }
        let [one, other] = &mut wires;
        sent(one, b"lost");
        assert!(delivered(other, b"lost").is_some());
        // Nobody answers any more, until the connection is given up.
        loop {
            let [deadline, same] = [&one.ends[1], &other.ends[1]].map(|end| end.deadline());
            assert_eq!(deadline, same);
            let Some(now) = deadline else { break };
            let left = [&mut *one, &mut *other].map(|wire| {
                let mut queue = Queue::default();
                wire.ends[1].expire(now);
                wire.ends[1].flush(now, &mut queue);
                queue.frames.iter().map(|frame| without_numbers(frame)).collect::<Vec<_>>()
            });
            assert_eq!(left[0], left[1], "{now:?}");
        }
        let state = |wire: &Wire| {
            let id = wire.ends[1].sockets.connection(SERVED).unwrap();
            wire.ends[1].connections[id].error
        };
        assert_eq!([state(one), state(other)], [Some(Errno::TIMEDOUT); 2]);
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

/// What the server's buffer of unacknowledged bytes takes.
fn buffered(wire: &Wire) -> usize {
    let id = wire.ends[1].sockets.connection(SERVED).unwrap();
    wire.ends[1].connections.get(id).unwrap().socket.buffer_storage().1
}

fn received(wire: &mut Wire) -> Vec<u8> {
    let mut buffer = [0; 8192];
    match wire.ends[0].recv(wire.now, CLIENT, &mut buffer) {
        Received::Bytes(count) => buffer[..count].to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_acknowledged_in_time_is_never_buffered_and_then_forgotten() {
    let mut wire = connected("10.0.0.1", Faults::default(), 1);
    let mut expected = Vec::new();
    for number in 0..15 {
        for _ in 0..3 {
            let frame = delivered(&mut wire, &[number; 100]).unwrap();
            expected.extend([number; 100]);
            wire.carry(0, Queue { frames: vec![frame] });
        }
        assert_eq!(wire.ends[1].connections.messages.bytes(), 300);
        wire.settle();
        assert!(wire.sleep(), "an acknowledgement is on its way");
        wire.settle();
        assert_eq!((buffered(&wire), wire.ends[1].connections.messages.bytes()), (0, 0));
    }
    assert!(wire.now < milliseconds(200), "{:?}", wire.now);
    assert_eq!(received(&mut wire), expected);
}

#[test]
fn what_is_not_acknowledged_in_time_is_buffered_and_sent_again() {
    let mut wire = connected("fd00::1", Faults::default(), 1);
    let mut frames = [1, 2, 3].map(|number| delivered(&mut wire, &[number; 100]).unwrap());
    // The first one arrives; of the others none, nor the first acknowledgement, which is of a part of them.
    wire.carry(0, Queue { frames: vec![std::mem::take(&mut frames[0])] });
    while buffered(&wire) == 0 {
        assert!(wire.sleep());
        wire.settle();
    }
    assert!(wire.now >= milliseconds(10), "{:?}", wire.now);
    assert_eq!(wire.ends[1].connections.messages.bytes(), 0);
    let mut all = received(&mut wire);
    while all.len() < 300 {
        assert!(wire.sleep());
        wire.settle();
        let mut buffer = [0; 1000];
        if let Received::Bytes(count) = wire.ends[0].recv(wire.now, CLIENT, &mut buffer) {
            all.extend_from_slice(&buffer[..count]);
        }
    }
    assert_eq!(all, [[1; 100], [2; 100], [3; 100]].concat());
}

#[test]
fn more_messages_than_a_run_holds_leave_one_by_one_all_the_same() {
    let mut wire = connected("10.0.0.1", Faults::default(), 1);
    let mut expected = Vec::new();
    for number in 0..200 {
        // Some in between go to others, or to nobody.
        wire.ends[1].connections.messages.number(0, b"apart", clock::instant(wire.now));
        wire.ends[1].end_batch();
        let message = [number; 20];
        let frame = delivered(&mut wire, &message).expect("the window takes it");
        assert!(is_right(&frame));
        expected.extend(message);
        wire.carry(0, Queue { frames: vec![frame] });
    }
    wire.settle();
    wire.settle();
    assert_eq!(received(&mut wire), expected);
}

#[test]
fn messages_of_a_batch_may_come_in_any_order_and_more_than_once() {
    let mut wire = connected("10.0.0.1", Faults::default(), 1);
    let now = clock::instant(wire.now);
    let mut queue = Queue::default();
    assert!(wire.ends[1].deliver(now, SERVED, 7, b"seven ", &mut queue));
    let id = wire.ends[1].sockets.connection(SERVED).unwrap();
    // Another connection had it before.
    wire.ends[1].connections.messages.number(3, b"three ", now);
    for (place, message) in [(9, b"nine! "), (3, b"three "), (3, b"three "), (7, b"seven ")] {
        assert!(wire.ends[1].deliver(now, SERVED, place, message, &mut queue), "{place}");
    }
    wire.ends[1].end_batch();
    wire.carry(0, queue);
    wire.settle();
    wire.settle();
    assert_eq!(received(&mut wire), b"seven nine! three three seven ");
    assert!(wire.ends[1].connections.lane(id).is_open());
}

#[test]
fn a_connection_that_goes_lets_go_of_messages() {
    let mut wire = connected("10.0.0.1", Faults::default(), 1);
    assert!(delivered(&mut wire, b"for nobody").is_some());
    let id = wire.ends[1].sockets.connection(SERVED).unwrap();
    wire.ends[1].remove(id);
    assert_eq!(wire.ends[1].connections.messages.bytes(), 0);
    assert!(delivered(&mut wire, b"late").is_none());
}

#[test]
fn messages_under_way_count_as_memory_of_buffers() {
    let mut wire = connected("10.0.0.1", Faults::default(), 1);
    wire.ends[1].budget.bound(1000);
    assert!(delivered(&mut wire, &[1; 900]).is_some());
    assert!(delivered(&mut wire, &[2; 200]).is_some());
    assert!(delivered(&mut wire, b"more").is_none());
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
                if !rng.next().is_multiple_of(4)
                    && wire.ends[1].deliver(now, SERVED, 0, &message, &mut queue)
                {
                    direct += 1;
                    wire.carry(0, queue);
                } else {
                    waiting = message;
                }
                wire.ends[1].end_batch();
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
        while wire.sleep() {
            wire.settle();
        }
        assert_eq!(wire.ends[1].connections.messages.bytes(), 0, "seed {seed}");
    }
    assert!(direct > 1000, "{direct} of all left at once");
}

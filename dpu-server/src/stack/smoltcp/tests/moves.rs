//! Neighbours that move: a client behind another router, a broker on another machine.

use super::hand::{Hand, SERVED, frame, said};
use super::links::arp_of;
use super::{CLIENT_MAC, Queue, SERVER_MAC, at, milliseconds, stack};
use crate::stack::smoltcp::clock;
use crate::stack::smoltcp::tcp::Tcp;
use crate::stack::{End, Key};
use mqttshim_port::Mac;
use smoltcp::wire::ArpOperation;

const ELSEWHERE: Mac = [2, 0, 0, 0, 0, 99];
const BROKER: Key = Key(1);
const ADDRESS: [u8; 4] = [10, 0, 0, 7];

/// Where a message goes that is sent, and one that is delivered.
fn targets(hand: &mut Hand) -> Vec<Vec<u8>> {
    let mut queue = Queue::default();
    hand.tcp.send(hand.now, SERVED, &[std::io::IoSlice::new(b"sent")], &mut queue);
    assert!(hand.tcp.deliver(clock::instant(hand.now), SERVED, 0, b"delivered", &mut queue));
    hand.tcp.end_batch();
    assert_eq!(queue.frames.len(), 2);
    queue.frames.iter().map(|frame| frame[..6].to_vec()).collect()
}

#[test]
fn frames_go_where_a_client_s_segments_come_from() {
    let mut hand = Hand::new();
    hand.connects(10);
    assert_eq!(targets(&mut hand), [CLIENT_MAC; 2]);
    let first = hand.theirs.wrapping_add(1);
    // Not in the window; acknowledges what was never sent.
    for other in [said("A", 11 + 100_000, first, b"x"), said("A", 11, first + 1000, b"x")] {
        let mut frame = frame(hand.from, hand.window, other);
        frame[6..12].copy_from_slice(&ELSEWHERE);
        hand.tcp.frame(hand.now, &mut frame, &mut Queue::default());
        hand.tcp.flush(hand.now, &mut Queue::default());
        assert_eq!(targets(&mut hand), [CLIENT_MAC; 2]);
    }
    // One that can only be the client's; what left before by the lane is told.
    let mut frame = frame(hand.from, hand.window, said("A", 11, first, b"moved"));
    frame[6..12].copy_from_slice(&ELSEWHERE);
    let mut queue = Queue::default();
    hand.tcp.frame(hand.now, &mut frame, &mut queue);
    hand.tcp.flush(hand.now, &mut queue);
    assert_eq!(targets(&mut hand), [ELSEWHERE; 2]);
    assert_eq!(hand.read(), b"moved");
    let again = hand.waits(milliseconds(300));
    assert!(!again.is_empty(), "what was sent before is sent again");
}

/// An answer by ARP of the broker, which is there.
fn answer(mac: Mac) -> Vec<u8> {
    arp_of(ArpOperation::Reply, (mac, ADDRESS), (SERVER_MAC, [10, 0, 0, 1]))
}

/// Lets a stack do what is due; returns what leaves.
fn flush(tcp: &mut Tcp, at: u64) -> Vec<Vec<u8>> {
    let mut queue = Queue::default();
    tcp.expire(milliseconds(at));
    tcp.flush(milliseconds(at), &mut queue);
    queue.frames
}

fn connects(tcp: &mut Tcp, now: u64) {
    tcp.connect(milliseconds(now), BROKER, 0, at("10.0.0.7", 1883), &[]).unwrap();
}

/// A stack that has connected to the broker once, an hour ago.
fn acquainted() -> (Tcp, u64) {
    let mut tcp = stack(SERVER_MAC, &["10.0.0.1/24"]);
    connects(&mut tcp, 0);
    assert_eq!(flush(&mut tcp, 0).len(), 1);
    tcp.frame(milliseconds(1), &mut answer(CLIENT_MAC), &mut Queue::default());
    assert_eq!(flush(&mut tcp, 1)[0][..6], CLIENT_MAC);
    tcp.close(BROKER, End::Reset);
    flush(&mut tcp, 2);
    (tcp, 3_600_000)
}

fn is_arp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 6]
}

#[test]
fn a_neighbour_that_was_silent_for_long_is_asked_again_while_frames_go_where_it_was() {
    let (mut tcp, later) = acquainted();
    connects(&mut tcp, later);
    let frames = flush(&mut tcp, later);
    let (asked, syn): (Vec<_>, Vec<_>) = frames.iter().partition(|frame| is_arp(frame));
    assert_eq!((asked.len(), syn.len()), (1, 1));
    assert_eq!(syn[0][..6], CLIENT_MAC);
    tcp.frame(milliseconds(later + 1), &mut answer(ELSEWHERE), &mut Queue::default());
    let again: Vec<_> = (1..300).flat_map(|step| flush(&mut tcp, later + step)).collect();
    assert_eq!(again.len(), 1, "a SYN, and no question");
    assert_eq!(again[0][..6], ELSEWHERE);
}

#[test]
fn a_neighbour_that_is_gone_is_unreachable_after_three_questions_again() {
    let (mut tcp, later) = acquainted();
    connects(&mut tcp, later);
    let steps = (0..80).map(|step| later + step * 50);
    let asked = steps.flat_map(|at| flush(&mut tcp, at)).filter(|frame| is_arp(frame)).count();
    assert!(asked >= 3, "{asked}");
    assert_eq!(tcp.connect_result(BROKER), Some(Err(rustix::io::Errno::HOSTUNREACH)));
}

#[test]
fn a_neighbour_that_tells_all_that_it_has_moved_is_believed_if_it_is_known() {
    let (mut tcp, later) = acquainted();
    for (address, is_known) in [(ADDRESS, true), ([10, 0, 0, 8], false)] {
        let mut told = arp_of(ArpOperation::Request, (ELSEWHERE, address), ([0; 6], address));
        tcp.frame(milliseconds(later), &mut told, &mut Queue::default());
        let known = tcp.link.neighbor(address.into());
        assert_eq!(known, is_known.then_some(ELSEWHERE), "{address:?}");
    }
    connects(&mut tcp, later + 1);
    let frames = flush(&mut tcp, later + 1);
    assert_eq!((frames.len(), &frames[0][..6]), (1, &ELSEWHERE[..]));
}

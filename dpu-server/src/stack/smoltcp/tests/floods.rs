//! SYNs from nowhere.

use std::net::SocketAddr;
use std::time::Duration;

use super::hand::{Hand, SERVED, said};
use super::milliseconds;
use crate::stack::smoltcp::listener::HALF_OPEN_MAX;

/// A hundred thousand within a second.
const FLOOD_INTERVAL: Duration = Duration::from_micros(10);

#[test]
fn a_flood_of_syns_leaves_the_others_alone_and_costs_bounded_memory() {
    let mut hand = Hand::new();
    hand.connects(10);
    let client = hand.from;
    let mut answers = 0;
    for number in 0..100_000_u32 {
        let [_, a, b, c] = number.to_be_bytes();
        hand.from = SocketAddr::from(([10, 1, b, c], 1024 + u16::from(a)));
        hand.now += FLOOD_INTERVAL;
        answers += hand.says(said("S", number, 0, b"")).len();
    }
    // Of a second, one a millisecond beyond those there is room for: the others cost no answer.
    assert!((HALF_OPEN_MAX..HALF_OPEN_MAX + 1_000).contains(&answers), "{answers} answers");
    assert!(hand.tcp.connections.len() <= HALF_OPEN_MAX + 1);
    hand.from = client;
    hand.says(said("A", 11, hand.theirs + 1, b"still here"));
    assert_eq!(hand.read(), b"still here");
    // And who comes now is let in at once.
    hand.tcp.close(SERVED, crate::stack::End::Reset);
    hand.waits(milliseconds(1));
    hand.from = SocketAddr::from(([10, 0, 0, 8], 40_001));
    hand.connects(99);
}

#[test]
fn a_syn_that_finds_the_queue_full_is_let_in_when_it_comes_again() {
    let mut hand = Hand::new();
    hand.tcp.listen(super::LISTENER, 1, &[]).unwrap();
    for port in 1..=2 {
        hand.from.set_port(port);
        let theirs = hand.says(said("S", 10, 0, b""))[0].sequence;
        hand.says(said("A", 11, theirs + 1, b""));
    }
    hand.from.set_port(3);
    assert!(hand.says(said("S", 10, 0, b"")).is_empty());
    hand.tcp.accept(hand.now, super::LISTENER, SERVED).unwrap();
    assert_eq!(hand.says(said("S", 10, 0, b""))[0].flags, "SA");
}

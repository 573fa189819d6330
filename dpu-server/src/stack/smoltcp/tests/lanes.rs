//! What lanes promise: memory, deadlines, and messages that nobody holds for ever.

use super::hand::{Hand, frame, said};
use super::{LISTENER, Queue, milliseconds};
use crate::stack::Key;
use crate::stack::smoltcp::clock;

/// Clients by hand, that say nothing of their own accord; served as key 9 and on.
fn clients(hand: &mut Hand, count: u16) -> Vec<Key> {
    hand.window = 60_000;
    (0..count)
        .map(|number| {
            hand.from.set_port(40_000 + number);
            let theirs = hand.says(said("S", 10, 0, b""))[0].sequence;
            hand.says(said("A", 11, theirs.wrapping_add(1), b""));
            let key = Key(9 + u32::from(number));
            hand.tcp.accept(hand.now, LISTENER, key).unwrap();
            hand.theirs = theirs;
            key
        })
        .collect()
}

/// One message to some; how many got it.
fn delivers(hand: &mut Hand, keys: &[Key], message: &[u8]) -> usize {
    let (mut queue, now) = (Queue::default(), clock::instant(hand.now));
    for key in keys {
        hand.tcp.deliver(now, *key, 0, message, &mut queue);
    }
    hand.tcp.end_batch();
    hand.tcp.connections.check();
    queue.frames.len()
}

/// What the buffers of all connections take.
fn buffered(hand: &Hand) -> usize {
    let storage = hand.tcp.connections.iter().map(|(_, it)| it.socket.buffer_storage());
    storage.map(|(receive, send)| receive + send).sum()
}

#[test]
fn messages_that_left_on_many_connections_count_for_each_of_them() {
    const BOUND: usize = 100_000;
    let mut hand = Hand::new();
    let keys = clients(&mut hand, 50);
    hand.tcp.budget.bound(BOUND);
    let left: usize = (0..14).map(|_| delivers(&mut hand, &keys, &[7; 1000])).sum();
    assert_eq!(left, BOUND / 1000, "of {}", 14 * keys.len());
    // Nobody acknowledges anything: everything has to be kept to be sent again.
    hand.waits(milliseconds(300));
    assert_eq!(hand.tcp.connections.messages.bytes(), 0);
    assert_eq!(hand.tcp.budget.bytes, buffered(&hand));
    // A buffer takes powers of two.
    assert!(buffered(&hand) < 2 * BOUND, "{}", buffered(&hand));
}

#[test]
fn what_a_connection_is_given_of_older_messages_is_counted() {
    let mut hand = Hand::new();
    let keys = clients(&mut hand, 1);
    // More than a lane notes.
    for _ in 0..100 {
        assert_eq!(delivers(&mut hand, &keys, &[7; 100]), 1);
    }
    assert!(buffered(&hand) >= 6400);
    assert_eq!(hand.tcp.budget.bytes, buffered(&hand));
    // It is refused, and then told because of a segment that is of no use.
    assert_eq!(delivers(&mut hand, &keys, &[7; 2000]), 0);
    hand.says(said("A", 11, hand.theirs, b""));
    assert!(buffered(&hand) >= 10_000);
    assert_eq!(hand.tcp.budget.bytes, buffered(&hand));
}

#[test]
fn a_silent_connection_keeps_no_messages_that_went_to_others() {
    let mut hand = Hand::new();
    let keys = clients(&mut hand, 2);
    assert_eq!(delivers(&mut hand, &keys, &[7; 100]), 2);
    let first = hand.theirs.wrapping_add(1);
    for number in 1..200 {
        hand.says(said("A", 11, first.wrapping_add(100 * number), b""));
        // The first one's, and the places of those behind it.
        let bytes = hand.tcp.connections.messages.bytes();
        assert!((100..100 + 50 * number as usize).contains(&bytes), "{bytes} after {number}");
        assert_eq!(delivers(&mut hand, &keys[1..], &[8; 100]), 1);
    }
}

#[test]
fn what_was_on_its_way_when_a_window_shrank_is_sent_again() {
    for by_lane in [false, true] {
        // The window opens again; or somebody has to ask for it.
        for opens in [true, false] {
            let mut hand = Hand::new();
            let keys = clients(&mut hand, 1);
            let first = hand.theirs.wrapping_add(1);
            for message in [[7; 50], [8; 50]] {
                if by_lane {
                    assert_eq!(delivers(&mut hand, &keys, &message), 1);
                } else {
                    hand.sends(&message);
                }
            }
            // The second one is lost.
            hand.window = 0;
            assert!(hand.says(said("A", 11, first.wrapping_add(50), b"")).is_empty());
            let mut heard = Vec::new();
            if opens {
                hand.window = 8000;
                heard = hand.says(said("A", 11, first.wrapping_add(50), b""));
            }
            heard.extend(hand.waits(milliseconds(1000)));
            let again = heard.iter().find(|it| it.sequence == first.wrapping_add(50));
            let again = again.expect("the second one, or its first byte");
            assert_eq!(again.payload, vec![8; if opens { 50 } else { 1 }], "{by_lane}");
        }
    }
}

#[test]
fn a_segment_for_a_connection_that_is_gone_finds_no_lane() {
    let mut hand = Hand::new();
    let keys = clients(&mut hand, 3);
    assert_eq!(delivers(&mut hand, &keys, b"all"), 3);
    let mut queue = Queue::default();
    let mut reset = frame(hand.from, 0, said("R", 11, 0, b""));
    hand.tcp.frame(hand.now, &mut reset, &mut queue);
    hand.tcp.connections.check();
    assert_eq!(delivers(&mut hand, &keys, b"two"), 2);
    for key in &keys[1..] {
        hand.tcp.close(*key, crate::stack::End::Reset);
        hand.tcp.connections.check();
    }
    hand.waits(milliseconds(1));
    assert_eq!((hand.tcp.connections.len(), delivers(&mut hand, &keys, b"one")), (1, 1));
    hand.tcp.close(keys[0], crate::stack::End::Close);
    hand.waits(milliseconds(3_600_000));
    assert_eq!((hand.tcp.connections.len(), hand.tcp.connections.messages.bytes()), (0, 0));
}

#[test]
fn a_deadline_that_lies_far_ahead_is_in_the_wheel_once_however_often_a_nearer_one_comes() {
    // A client that answers late has time-outs that are far ahead too.
    for (by_lane, late) in [(false, 0), (true, 0), (false, 2500), (true, 2500)] {
        let mut hand = Hand::new();
        let keys = clients(&mut hand, 1);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_KEEPALIVE);
        hand.tcp.set_option(hand.now, keys[0], level, name, &1_i32.to_ne_bytes()).unwrap();
        let first = hand.theirs.wrapping_add(1);
        for number in 1..=300 {
            if by_lane {
                assert_eq!(delivers(&mut hand, &keys, b"m"), 1);
            } else {
                hand.sends(b"m");
            }
            hand.waits(milliseconds(late));
            hand.says(said("A", 11, first.wrapping_add(number), b""));
            let silent = hand.waits(milliseconds(300));
            assert!(silent.is_empty() || late > 0);
        }
        assert!(hand.tcp.wheel.len() <= 3, "{late} ms: {}", hand.tcp.wheel.len());
        // It comes in its time all the same, two hours after the last word of the client (tcp(7)).
        assert!(hand.waits(milliseconds(7_199_500)).is_empty());
        assert_eq!(hand.waits(milliseconds(1000)).len(), 1);
        assert!(hand.tcp.wheel.len() <= 2, "{}", hand.tcp.wheel.len());
    }
}

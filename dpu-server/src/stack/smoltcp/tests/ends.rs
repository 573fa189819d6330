//! The last that both ends hear of each other: what was received is read, a reset is believed, and nobody is waited for for ever.

use std::time::Duration;

use mqttshim_schema::How;

use super::hand::{Hand, SERVED, said};
use super::{LISTENER, milliseconds};
use crate::stack::{End, Key, Received};

/// A connection in TIME-WAIT, on which something was received that nobody has read.
fn unread() -> Hand {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.tcp.shutdown(SERVED, How::Write).unwrap();
    assert_eq!(hand.waits(Duration::ZERO).len(), 1);
    hand.says(said("FA", 11, hand.theirs.wrapping_add(2), b"unread"));
    hand
}

fn reads_to_the_end(hand: &mut Hand) {
    assert_eq!(hand.read(), b"unread");
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut [0; 9]), Received::Fin);
    hand.tcp.close(SERVED, End::Close);
    hand.waits(milliseconds(5000));
}

#[test]
fn what_was_received_is_read_however_long_ago_both_ended() {
    let mut hand = unread();
    hand.waits(Duration::from_secs(3600));
    reads_to_the_end(&mut hand);
    assert_eq!((hand.tcp.connections.len(), hand.tcp.budget.bytes), (0, 0));
}

#[test]
fn what_was_received_is_read_after_the_client_came_back_on_its_port() {
    let mut hand = unread();
    let answer = hand.says(said("S", 100_000, 0, b""));
    assert_eq!((answer.len(), &answer[0].flags[..]), (1, "SA"), "{answer:?}");
    let theirs = answer[0].sequence.wrapping_add(1);
    hand.says(said("A", 100_001, theirs, b"the next one's"));
    let next = Key(SERVED.0 + 1);
    hand.tcp.accept(hand.now, LISTENER, next).unwrap();
    reads_to_the_end(&mut hand);
    let mut buffer = [0; 20];
    assert_eq!(hand.tcp.recv(hand.now, next, &mut buffer), Received::Bytes(14));
    assert_eq!(&buffer[..14], b"the next one's");
    assert_eq!(hand.tcp.connections.len(), 1);
}

#[test]
fn a_reset_after_a_time_out_is_believed_by_who_has_everything() {
    let mut hand = Hand::new();
    hand.window = 60_000;
    hand.connects(10);
    // All of it arrives; its acknowledgements are lost.
    assert_eq!(hand.sends(&[7; 5000]).len(), 4);
    assert_eq!(hand.waits(milliseconds(250)).len(), 1);
    hand.tcp.close(SERVED, End::Reset);
    let heard = hand.waits(Duration::ZERO);
    let reset = heard.iter().find(|it| it.flags.contains('R')).expect("a reset");
    assert_eq!(reset.sequence, hand.theirs.wrapping_add(1 + 5000));
}

/// How long a connection lives that nobody holds, whose client says the same again and again.
fn outlives(hand: &mut Hand, acknowledged: u32) -> Duration {
    let start = hand.now;
    while hand.tcp.connections.len() > 0 && hand.now - start < Duration::from_secs(3600) {
        hand.says(said("A", 11, acknowledged, b""));
        hand.waits(milliseconds(2000));
    }
    hand.now - start
}

#[test]
fn a_client_that_never_ends_is_not_waited_for_for_ever() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.closes();
    let acknowledged = hand.theirs.wrapping_add(2);
    let time = outlives(&mut hand, acknowledged).as_secs();
    assert!((60..64).contains(&time), "{time} s");
}

#[test]
fn a_client_that_reads_nothing_is_not_waited_for_for_ever() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.window = 0;
    let first = hand.theirs.wrapping_add(1);
    hand.says(said("A", 11, first, b""));
    hand.sends(&[7; 5000]);
    hand.closes();
    let time = outlives(&mut hand, first).as_secs();
    assert!((60..64).contains(&time), "{time} s");
    assert_eq!(hand.tcp.budget.bytes, 0);
}

#[test]
fn a_client_that_reads_slowly_gets_everything_after_the_program_has_closed() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.window = 100;
    let first = hand.theirs.wrapping_add(1);
    hand.says(said("A", 11, first, b""));
    let mut heard = hand.sends(&[7; 1000]);
    heard.extend(hand.closes());
    for _ in 0..20 {
        let last = heard.last().expect("something more").clone();
        let end = last.sequence.wrapping_add(last.payload.len() as u32);
        if last.flags.contains('F') {
            assert_eq!(end, first.wrapping_add(1000));
            return;
        }
        heard = hand.says(said("A", 11, end, b""));
        // Longer than it would be waited for if it read nothing.
        for _ in 0..10 {
            hand.waits(milliseconds(5000));
            hand.says(said("A", 11, end, b""));
        }
    }
    panic!("no end");
}

#[test]
fn a_fin_behind_bytes_that_found_no_room_counts_when_they_have_come() {
    let mut hand = Hand::new();
    hand.connects(10);
    let theirs = hand.theirs.wrapping_add(1);
    for at in 0..65 {
        hand.says(said("A", 11 + at * 1000, theirs, &[1; 1000]));
    }
    let mut buffer = vec![0; 100_000];
    let mut count = 0;
    for _ in 0..2 {
        hand.says(said("FA", 65_011, theirs, &[1; 1000]));
        let Received::Bytes(bytes) = hand.tcp.recv(hand.now, SERVED, &mut buffer) else { panic!() };
        count += bytes;
        hand.waits(Duration::ZERO);
    }
    assert_eq!(count, 66_000);
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut buffer), Received::Fin);
}

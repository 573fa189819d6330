//! Segments that RFC 9293 and RFC 5961 have a rule for.

use rustix::io::Errno;

use super::hand::{Hand, SERVED, said};
use super::{LISTENER, milliseconds};
use crate::stack::{AcceptError, End, Received};

/// What a bare acknowledgement says.
fn acknowledges(answer: &[super::hand::Heard], sequence: u32, acknowledged: u32) -> bool {
    matches!(answer, [one] if one.flags == "A" && one.payload.is_empty()
        && one.sequence == sequence && one.acknowledged == acknowledged)
}

#[test]
fn a_segment_for_nobody_is_answered_by_a_reset() {
    let mut hand = Hand::new();
    let answer = hand.says(said("A", 100, 5000, b"hello"));
    assert!(matches!(&answer[..], [one] if one.flags == "R" && one.sequence == 5000), "{answer:?}");
    assert!(hand.says(said("R", 100, 0, b"")).is_empty(), "never a reset for a reset");
}

#[test]
fn bytes_before_the_accept_are_there_after_it() {
    let mut hand = Hand::new();
    let answer = hand.says(said("S", 10, 0, b""));
    let theirs = answer[0].sequence;
    hand.says(said("A", 11, theirs + 1, b"early"));
    hand.tcp.accept(hand.now, LISTENER, SERVED).unwrap();
    assert_eq!(hand.read(), b"early");
}

#[test]
fn a_reset_before_the_accept_is_told_by_the_first_read() {
    let mut hand = Hand::new();
    let theirs = hand.says(said("S", 10, 0, b""))[0].sequence;
    hand.says(said("A", 11, theirs + 1, b""));
    hand.says(said("R", 11, 0, b""));
    hand.tcp.accept(hand.now, LISTENER, SERVED).unwrap();
    let read = hand.tcp.recv(hand.now, SERVED, &mut [0; 9]);
    assert_eq!(read, Received::Gone(Errno::CONNRESET));
}

#[test]
fn a_reset_of_a_handshake_leaves_nothing() {
    let mut hand = Hand::new();
    hand.says(said("S", 10, 0, b""));
    assert_eq!(hand.tcp.connections.len(), 1);
    hand.says(said("R", 11, 0, b""));
    assert_eq!(hand.tcp.connections.len(), 0);
    assert_eq!(hand.tcp.accept(hand.now, LISTENER, SERVED), Err(AcceptError::Empty));
}

#[test]
fn a_handshake_that_is_never_ended_is_forgotten() {
    let mut hand = Hand::new();
    hand.says(said("S", 10, 0, b""));
    let repeated = hand.waits(milliseconds(9_000));
    assert!(repeated.len() >= 3 && repeated.iter().all(|one| one.flags == "SA"), "{repeated:?}");
    hand.waits(milliseconds(2_000));
    assert_eq!(hand.tcp.connections.len(), 0);
}

#[test]
fn a_syn_on_a_connection_is_challenged_and_the_connection_lives() {
    let mut hand = Hand::new();
    hand.connects(10);
    let answer = hand.says(said("S", 777_777, 0, b""));
    assert!(acknowledges(&answer, hand.theirs + 1, 11), "{answer:?}");
    // A rebooted client, which knows of no connection, ends it with the number it was told.
    hand.says(said("R", 11, 0, b""));
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut [0; 9]), Received::Gone(Errno::CONNRESET));
    hand.tcp.close(SERVED, End::Close);
    hand.connects(777_777);
}

#[test]
fn challenges_are_few() {
    let mut hand = Hand::new();
    hand.connects(10);
    let answers: usize = (0..100).map(|at| hand.says(said("S", 1000 + at, 0, b"")).len()).sum();
    assert_eq!(answers, 1);
}

#[test]
fn a_reset_ends_a_connection_only_with_the_exact_number() {
    let mut hand = Hand::new();
    hand.connects(10);
    let answer = hand.says(said("R", 11 + 500, 0, b""));
    assert!(acknowledges(&answer, hand.theirs + 1, 11), "within the window: {answer:?}");
    assert!(hand.says(said("R", 11 + 1_000_000, 0, b"")).is_empty(), "beyond it");
    assert!(hand.says(said("R", 10, 0, b"")).is_empty(), "before it");
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut [0; 9]), Received::Empty);
    hand.says(said("R", 11, 0, b""));
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut [0; 9]), Received::Gone(Errno::CONNRESET));
}

#[test]
fn bytes_that_come_with_an_old_acknowledgement_count() {
    let mut hand = Hand::new();
    hand.connects(10);
    let sent = hand.sends(b"0123456789");
    assert_eq!(sent[0].payload, b"0123456789");
    hand.says(said("A", 11, hand.theirs + 11, b""));
    // Sent before the acknowledgement, arrived after it.
    hand.says(said("A", 11, hand.theirs + 1, b"late"));
    assert_eq!(hand.read(), b"late");
}

#[test]
fn acknowledgements_that_were_overtaken_tell_of_no_loss() {
    let mut hand = Hand::new();
    hand.connects(10);
    assert_eq!(hand.sends(&[7; 5 * 1460]).len(), 5);
    assert!(hand.says(said("A", 11, hand.theirs + 1 + 4 * 1460, b"")).is_empty());
    // Three of the same would ask for the fifth segment again.
    for segment in 1..4 {
        let answer = hand.says(said("A", 11, hand.theirs + 1 + segment * 1460, b""));
        assert!(answer.is_empty(), "{answer:?}");
    }
}

#[test]
fn a_window_in_an_overtaken_segment_is_not_believed() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.says(said("A", 11, hand.theirs + 1, b"abcd"));
    hand.window = 0;
    // Overtaken by the one above: it has an older number.
    hand.says(said("A", 11, hand.theirs + 1, b""));
    let sent = hand.sends(b"the window is open");
    assert_eq!(sent.last().unwrap().payload, b"the window is open");
}

#[test]
fn a_window_in_an_acknowledgement_of_what_was_never_sent_is_not_believed() {
    let mut hand = Hand::new();
    hand.connects(10);
    let client_s = std::mem::replace(&mut hand.window, 1);
    let answer = hand.says(said("A", 11, hand.theirs.wrapping_add(2), b""));
    assert!(acknowledges(&answer, hand.theirs.wrapping_add(1), 11), "{answer:?}");
    hand.window = client_s;
    hand.says(said("A", 11, hand.theirs.wrapping_add(1), b""));
    assert_eq!(hand.sends(b"the window is open")[0].payload, b"the window is open");
}

#[test]
fn a_client_comes_back_on_its_port_while_the_old_connection_waits() {
    let mut hand = Hand::new();
    hand.connects(10);
    let fin = hand.closes();
    assert_eq!(fin[0].flags, "FA");
    hand.says(said("FA", 11, hand.theirs + 2, b""));
    assert_eq!(hand.tcp.connections.len(), 1, "TIME-WAIT");
    let answer = hand.says(said("S", 5, 0, b""));
    assert!(acknowledges(&answer, hand.theirs + 2, 12), "an older number: {answer:?}");
    hand.connects(50_000);
}

#[test]
fn time_wait_ends() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.closes();
    hand.says(said("FA", 11, hand.theirs + 2, b""));
    hand.waits(milliseconds(2_100));
    assert_eq!(hand.tcp.connections.len(), 0);
}

#[test]
fn both_ends_may_close_at_once() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.closes();
    // It crosses ours, which it does not acknowledge.
    let answer = hand.says(said("FA", 11, hand.theirs + 1, b""));
    assert!(acknowledges(&answer, hand.theirs + 2, 12), "{answer:?}");
    hand.says(said("A", 12, hand.theirs + 2, b""));
    hand.waits(milliseconds(2_100));
    assert_eq!(hand.tcp.connections.len(), 0);
}

#[test]
fn closing_with_bytes_unread_or_to_come_resets() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.says(said("A", 11, hand.theirs + 1, b"unread"));
    let answer = hand.closes();
    assert!(answer.iter().any(|one| one.flags.contains('R')), "{answer:?}");
    assert_eq!(hand.tcp.connections.len(), 0);

    let mut hand = Hand::new();
    hand.connects(10);
    hand.closes();
    let answer = hand.says(said("A", 11, hand.theirs + 2, b"too late"));
    assert!(answer.iter().any(|one| one.flags.contains('R')), "{answer:?}");
}

#[test]
fn what_was_sent_is_sent_again_after_200_ms_and_then_ever_later() {
    let mut hand = Hand::new();
    hand.connects(10);
    assert_eq!(hand.sends(b"x").len(), 1);
    assert_eq!(hand.waits(milliseconds(190)).len(), 0);
    assert_eq!(hand.waits(milliseconds(20)).len(), 1);
    assert_eq!(hand.waits(milliseconds(350)).len(), 0);
    assert_eq!(hand.waits(milliseconds(60)).len(), 1);
}

#[test]
fn an_idle_connection_costs_no_time_and_never_ends() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.says(said("A", 11, hand.theirs + 1, b"x"));
    assert_eq!(hand.read(), b"x");
    hand.waits(milliseconds(50));
    // What is left in the wheel is stale.
    hand.waits(milliseconds(3_600_000));
    assert_eq!(hand.tcp.deadline(), None);
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut [0; 9]), Received::Empty);
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.window = 0;
    hand.says(said("A", 11, hand.theirs + 1, b"a"));
    assert!(hand.sends(b"held back").is_empty());
    let probes = hand.waits(milliseconds(5_000));
    let probes: Vec<_> = probes.iter().filter(|one| one.payload.len() == 1).collect();
    assert!((2..12).contains(&probes.len()), "{}", probes.len());
    hand.window = 8000;
    let answer = hand.says(said("A", 12, hand.theirs + 1, b""));
    assert!(answer.iter().any(|one| one.payload.ends_with(b"back")), "{answer:?}");
}

#[test]
fn bytes_behind_the_client_s_fin_are_nobody_s() {
    let mut hand = Hand::new();
    hand.connects(1000);
    let theirs = hand.theirs.wrapping_add(1);
    hand.says(said("FA", 1001, theirs, b"the end"));
    hand.says(said("A", 1009, theirs, b" is not the end"));
    assert_eq!(hand.read(), b"the end");
    // What came before it may come again.
    hand.says(said("FA", 1001, theirs, b"the end"));
    let mut buffer = [0; 100];
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut buffer), Received::Fin);
}

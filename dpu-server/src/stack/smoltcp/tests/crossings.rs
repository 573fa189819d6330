//! Segments that cross: both ends open at once, both close at once, or one begins anew while the other has not heard of it (RFC 9293
//! §3.5, §3.6).

use std::time::Duration;

use mqttshim_schema::How;

use super::hand::{Hand, Heard, SERVED, said};
use super::wire::{Faults, Wire};
use super::{LISTENER, at, milliseconds};
use crate::stack::{AcceptError, End, Key, Received};

const ONE: Key = Key(1);
const OTHER: Key = Key(2);
/// Some repetitions, each after twice the time of the one before.
const PATIENCE: Duration = Duration::from_secs(60);

/// What may happen to segments that cross, with a seed each.
fn weathers() -> impl Iterator<Item = (Faults, u64)> {
    let clear = Faults { delay: milliseconds(5), ..Faults::default() };
    let rough = Faults { lost: 200, repeated: 100, overtaken: 200, ..clear };
    let stormy = (1..100).map(move |seed| (rough, seed));
    [(clear, 0), (Faults::default(), 0)].into_iter().chain(stormy)
}

fn says<'a>(heard: &'a [Heard], flags: &str) -> Option<&'a Heard> {
    heard.iter().find(|one| one.flags == flags)
}

/// Both connect to each other at once, from names that they have bound (RFC 9293, figure 7).
fn open_at_once(faults: Faults, seed: u64) -> Wire {
    let mut wire = Wire::new(Faults::default(), seed);
    let names = [at("10.0.0.2", 5000), at("10.0.0.1", 6000)];
    if seed > 0 {
        // In bad weather neighbours may not find each other; these have before.
        for (end, key) in [(0, ONE), (1, OTHER)] {
            wire.ends[end].connect(wire.now, key, 0, names[1 - end], &[]).unwrap();
            while wire.ends[end].connect_result(key).is_none() {
                wire.settle();
                wire.sleep();
            }
            wire.ends[end].close(key, End::Close);
        }
    }
    wire.faults = faults;
    for (end, key) in [(0, ONE), (1, OTHER)] {
        wire.ends[end].bind(key, 0, names[end], &[]).unwrap();
        wire.ends[end].connect(wire.now, key, 0, names[1 - end], &[]).unwrap();
    }
    let mut results = [None, None];
    while results.iter().any(Option::is_none) {
        wire.settle();
        for (end, key) in [(0, ONE), (1, OTHER)] {
            results[end] = results[end].or_else(|| wire.ends[end].connect_result(key));
        }
        assert!(wire.sleep(), "nothing is due: {results:?}");
        assert!(wire.now < PATIENCE, "seed {seed}: {results:?}");
    }
    for (end, result) in results.into_iter().flatten().enumerate() {
        let ends = result.unwrap();
        assert_eq!((ends.local, ends.peer), (names[end], names[1 - end]));
    }
    wire
}

fn read(wire: &mut Wire, end: usize, key: Key) -> Received {
    let mut buffer = [0; 100];
    wire.ends[end].recv(wire.now, key, &mut buffer)
}

#[test]
fn both_ends_may_open_at_once_and_have_one_connection() {
    for (faults, seed) in weathers() {
        let mut wire = open_at_once(faults, seed);
        assert_eq!([0, 1].map(|end: usize| wire.ends[end].connections.len()), [1, 1]);
        wire.writes(0, ONE, b"hello");
        let mut heard = Received::Empty;
        while heard == Received::Empty {
            wire.settle();
            heard = read(&mut wire, 1, OTHER);
            assert!(wire.sleep());
        }
        assert_eq!(heard, Received::Bytes(5), "seed {seed}");
    }
}

#[test]
fn fins_that_cross_end_a_connection_for_both() {
    for (faults, seed) in weathers() {
        let mut wire = open_at_once(faults, seed);
        let ends = [(0, ONE), (1, OTHER)];
        for (end, key) in ends {
            wire.ends[end].shutdown(key, How::Write).unwrap();
        }
        let mut heard = [Received::Empty; 2];
        while heard.contains(&Received::Empty) {
            wire.settle();
            heard = ends.map(|(end, key)| read(&mut wire, end, key));
            assert!(wire.sleep(), "{heard:?}");
        }
        assert_eq!(heard, [Received::Fin; 2], "seed {seed}");
        for (end, key) in ends {
            wire.ends[end].close(key, End::Close);
        }
        let end = wire.now + PATIENCE;
        wire.settle();
        while wire.sleep() && wire.now < end {
            wire.settle();
        }
        let left = [0, 1].map(|end: usize| wire.ends[end].connections.len());
        assert_eq!(left, [0, 0], "seed {seed}");
    }
}

#[test]
fn a_fin_that_crossed_another_is_sent_again_until_it_is_acknowledged() {
    let mut hand = Hand::new();
    hand.connects(10);
    let first = hand.closes();
    assert_eq!(says(&first, "FA").map(|fin| fin.sequence), Some(hand.theirs + 1));
    // Theirs crosses it; ours is lost (CLOSING).
    let answer = hand.says(said("FA", 11, hand.theirs + 1, b""));
    assert!(
        matches!(&answer[..], [one] if one.flags == "A" && one.acknowledged == 12),
        "{answer:?}"
    );
    let again = hand.waits(milliseconds(300));
    let again = says(&again, "FA").expect("the FIN comes again");
    assert_eq!((again.sequence, again.acknowledged), (hand.theirs + 1, 12));
    // Theirs comes again too, as our acknowledgement may have been lost.
    let answer = hand.says(said("FA", 11, hand.theirs + 1, b""));
    assert!(answer.iter().all(|one| one.acknowledged == 12 && !one.flags.contains('R')));
    hand.says(said("A", 12, hand.theirs + 2, b""));
    assert!(hand.waits(milliseconds(1_900)).is_empty());
    assert_eq!(hand.tcp.connections.len(), 1, "TIME-WAIT");
    hand.waits(milliseconds(200));
    assert_eq!(hand.tcp.connections.len(), 0);
}

#[test]
fn the_acknowledgement_of_a_fin_may_come_with_the_client_s_own() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.sends(b"the last words");
    hand.closes();
    let bytes = b"the last words".len() as u32;
    let answer = hand.says(said("FA", 11, hand.theirs + 2 + bytes, b""));
    assert!(
        matches!(&answer[..], [one] if one.flags == "A" && one.acknowledged == 12),
        "{answer:?}"
    );
    hand.waits(milliseconds(2_100));
    assert_eq!(hand.tcp.connections.len(), 0);
}

#[test]
fn a_fin_that_comes_again_in_time_wait_is_acknowledged_and_keeps_it_waiting() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.closes();
    let fin = said("FA", 11, hand.theirs + 2, b"");
    hand.says(fin);
    hand.waits(milliseconds(1_500));
    let answer = hand.says(fin);
    assert!(
        matches!(&answer[..], [one] if one.flags == "A" && one.acknowledged == 12),
        "{answer:?}"
    );
    hand.waits(milliseconds(1_500));
    assert_eq!(hand.tcp.connections.len(), 1, "it waits 2 s from the last FIN on");
    hand.waits(milliseconds(600));
    assert_eq!(hand.tcp.connections.len(), 0);
}

#[test]
fn a_syn_that_comes_again_gets_the_same_answer_and_the_handshake_goes_on() {
    let mut hand = Hand::new();
    let first = hand.says(said("S", 10, 0, b""));
    hand.waits(milliseconds(50));
    let again = hand.says(said("S", 10, 0, b""));
    assert!(again.iter().all(|one| one.flags == "SA" && one.sequence == first[0].sequence));
    hand.says(said("A", 11, first[0].sequence.wrapping_add(1), b"hello"));
    hand.tcp.accept(hand.now, LISTENER, SERVED).unwrap();
    assert_eq!(hand.read(), b"hello");
}

#[test]
fn a_client_that_begins_anew_before_its_handshake_is_over_gets_in_when_it_comes_again() {
    let mut hand = Hand::new();
    let old = hand.says(said("S", 10, 0, b""));
    // It knows nothing of the first, and says so to its answer.
    let answer = hand.says(said("S", 900_000, 0, b""));
    for heard in old.iter().chain(&answer) {
        if heard.acknowledged == 11 {
            hand.says(said("R", 11, 0, b""));
        }
    }
    assert!(matches!(hand.tcp.accept(hand.now, LISTENER, SERVED), Err(AcceptError::Empty)));
    hand.connects(900_000);
}

#[test]
fn a_handshake_does_not_end_by_an_acknowledgement_of_something_else() {
    let mut hand = Hand::new();
    let theirs = hand.says(said("S", 10, 0, b""))[0].sequence;
    for wrong in [theirs, theirs.wrapping_add(2), theirs.wrapping_sub(50_000)] {
        let answer = hand.says(said("A", 11, wrong, b""));
        let is_reset = |one: &Heard| one.flags == "R" && one.sequence == wrong;
        assert!(matches!(&answer[..], [one] if is_reset(one)), "{wrong}: {answer:?}");
    }
    assert_eq!(hand.tcp.accept(hand.now, LISTENER, SERVED), Err(AcceptError::Empty));
    hand.says(said("A", 11, theirs.wrapping_add(1), b""));
    assert!(hand.tcp.accept(hand.now, LISTENER, SERVED).is_ok());
}

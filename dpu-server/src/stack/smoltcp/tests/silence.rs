//! Connections on which nothing is said: SO_KEEPALIVE, and what is asked of a client that is gone.

use std::time::Duration;

use rustix::io::Errno;

use super::hand::{Hand, SERVED, said};
use super::milliseconds;
use crate::stack::Received;

/// Sets options of [`SERVED`]: asked after 60 s, then every 10 s, three times.
fn keeps_alive(hand: &mut Hand) {
    let tcp = libc::IPPROTO_TCP;
    for (level, name, value) in [
        (tcp, libc::TCP_KEEPIDLE, 60),
        (tcp, libc::TCP_KEEPINTVL, 10),
        (tcp, libc::TCP_KEEPCNT, 3),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1_i32),
    ] {
        hand.tcp.set_option(hand.now, SERVED, level, name, &value.to_ne_bytes()).unwrap();
    }
}

/// Lets time pass, and says after how many milliseconds which bare segments came.
fn asked(hand: &mut Hand, time: Duration) -> Vec<u64> {
    let start = hand.now;
    let mut times = Vec::new();
    while hand.now < start + time {
        let step = milliseconds(500);
        for one in hand.waits(step) {
            if !one.flags.contains('R') {
                assert_eq!((one.sequence, one.payload.len()), (hand.theirs, 1), "{one:?}");
                times.push((hand.now - start).as_millis() as u64);
            }
        }
    }
    times
}

#[test]
fn a_silent_client_is_asked_as_often_as_the_program_wants_and_then_given_up() {
    let mut hand = Hand::new();
    hand.connects(10);
    keeps_alive(&mut hand);
    let times = asked(&mut hand, Duration::from_secs(89));
    assert_eq!(times.len(), 3, "{times:?}");
    for (time, due) in times.iter().zip([60_000, 70_000, 80_000]) {
        assert!(time.abs_diff(due) <= 500, "{times:?}");
    }
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut [0; 9]), Received::Empty);
    assert!(asked(&mut hand, Duration::from_secs(2)).is_empty());
    let told = hand.tcp.recv(hand.now, SERVED, &mut [0; 9]);
    assert_eq!(told, Received::Gone(Errno::TIMEDOUT));
}

#[test]
fn a_client_that_answers_is_left_alone_for_as_long_again() {
    let mut hand = Hand::new();
    hand.connects(10);
    keeps_alive(&mut hand);
    assert_eq!(asked(&mut hand, Duration::from_secs(61)).len(), 1);
    assert!(hand.says(said("A", 11, hand.theirs + 1, b"")).is_empty());
    assert!(asked(&mut hand, Duration::from_secs(59)).is_empty());
    assert_eq!(asked(&mut hand, Duration::from_secs(2)).len(), 1);
}

#[test]
fn nobody_is_asked_unless_the_program_wants_it() {
    let mut hand = Hand::new();
    hand.connects(10);
    assert!(hand.waits(Duration::from_secs(10 * 3600)).is_empty());
    keeps_alive(&mut hand);
    let off = 0_i32.to_ne_bytes();
    hand.tcp.set_option(hand.now, SERVED, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &off).unwrap();
    assert!(hand.waits(Duration::from_secs(10 * 3600)).is_empty());
    assert_eq!(hand.tcp.deadline(), None);
}

#[test]
fn acknowledgements_may_be_missing_for_as_long_as_the_program_says() {
    let mut hand = Hand::new();
    hand.connects(10);
    let timeout = 5000_i32.to_ne_bytes();
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
    hand.tcp.set_option(hand.now, SERVED, level, name, &timeout).unwrap();
    hand.sends(b"is anybody there?");
    hand.waits(milliseconds(4900));
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut [0; 9]), Received::Empty);
    hand.waits(milliseconds(200));
    let told = hand.tcp.recv(hand.now, SERVED, &mut [0; 9]);
    assert_eq!(told, Received::Gone(Errno::TIMEDOUT));
}

/// The client has ended its direction, and the program has closed: LAST-ACK, before the FIN is sent.
fn ends_both_ways(hand: &mut Hand) {
    hand.says(said("FA", 11, hand.theirs + 1, b""));
    let heard = hand.closes();
    assert!(heard.iter().all(|one| one.payload.is_empty()), "{heard:?}");
}

#[test]
fn a_window_that_opens_counts_when_both_ends_have_closed() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.window = 0;
    hand.says(said("A", 11, hand.theirs + 1, b""));
    assert!(hand.sends(b"held back").is_empty());
    ends_both_ways(&mut hand);
    hand.window = 8000;
    let heard = hand.says(said("A", 12, hand.theirs + 1, b""));
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!((&heard[0].flags[..], &heard[0].payload[..]), ("FA", &b"held back"[..]));
}

#[test]
fn duplicate_acknowledgements_tell_of_a_loss_when_both_ends_have_closed() {
    let mut hand = Hand::new();
    hand.connects(10);
    let lost = hand.sends(&[7; 5 * 1460]).remove(0);
    ends_both_ways(&mut hand);
    let mut heard = Vec::new();
    for _ in 0..3 {
        assert!(heard.is_empty(), "{heard:?}");
        heard = hand.says(said("A", 12, hand.theirs + 1, b""));
    }
    assert_eq!(heard[0].sequence, lost.sequence);
    assert_eq!(heard[0].payload, lost.payload);
}

#[test]
fn who_was_silent_for_long_is_not_given_up_before_something_was_asked() {
    let day = Duration::from_secs(24 * 3600);
    let mut hand = Hand::new();
    hand.connects(10);
    assert!(hand.waits(day).is_empty());
    keeps_alive(&mut hand);
    assert_eq!(asked(&mut hand, Duration::from_secs(61)).len(), 1);
    assert!(hand.says(said("A", 11, hand.theirs + 1, b"")).is_empty());
    assert_eq!(hand.tcp.recv(hand.now, SERVED, &mut [0; 9]), Received::Empty);
}

#[test]
fn who_was_silent_for_long_gets_a_fin_all_the_same() {
    let day = Duration::from_secs(24 * 3600);
    for is_shut in [false, true] {
        let mut hand = Hand::new();
        hand.connects(10);
        assert!(hand.waits(day).is_empty());
        let heard = if is_shut {
            hand.tcp.shutdown(SERVED, mqttshim_schema::How::Write).unwrap();
            hand.waits(Duration::ZERO)
        } else {
            hand.closes()
        };
        assert_eq!((heard.len(), &heard[0].flags[..]), (1, "FA"), "{heard:?}");
    }
}

//! What buffers take, and what happens when all of them together have taken what they may.

use mqttshim_schema::SocketOption;

use super::hand::{Hand, SERVED, said};
use super::{LISTENER, milliseconds};
use crate::stack::smoltcp::budget::BufferBytes;
use crate::stack::{End, Key, Sent};

#[test]
fn a_connection_on_which_nothing_waits_holds_little_and_one_that_ended_nothing() {
    let mut hand = Hand::new();
    hand.connects(10);
    assert_eq!(hand.tcp.budget.bytes, 0);
    hand.window = 65_000;
    let mut sequence = 11_u32;
    for _ in 0..20 {
        hand.says(said("A", sequence, hand.theirs + 1, &[7; 1400]));
        sequence += 1400;
    }
    assert!(hand.tcp.budget.bytes >= 28_000, "{}", hand.tcp.budget.bytes);
    while !hand.read().is_empty() {}
    hand.sends(&[8; 60_000]);
    assert!(hand.tcp.budget.bytes >= 60_000, "{}", hand.tcp.budget.bytes);
    for bytes in [20_000, 40_000, 60_000] {
        hand.says(said("A", sequence, hand.theirs + 1 + bytes, b""));
    }
    assert!(hand.tcp.budget.bytes <= 2048, "{}", hand.tcp.budget.bytes);
    hand.tcp.close(SERVED, End::Reset);
    hand.waits(milliseconds(1));
    assert_eq!(hand.tcp.budget.bytes, 0);
}

#[test]
fn at_the_bound_nobody_is_let_in_and_everybody_who_is_there_goes_on_slowly() {
    let mut hand = Hand::new();
    let bytes = BufferBytes { total_max: 4096, ..BufferBytes::default() };
    hand.tcp.bound_buffers(&bytes);
    hand.connects(10);
    hand.window = 0;
    hand.says(said("A", 11, hand.theirs + 1, &[7; 1000]));
    hand.sends(&[8; 4000]);
    assert!(hand.tcp.budget.bytes >= 4096);
    // More waits with the holder, and a segment beyond the floor is not taken, nor acknowledged.
    let mut queue = super::Queue::default();
    let part = [std::io::IoSlice::new(&[9; 4000])];
    let Sent::Bytes(taken) = hand.tcp.send(hand.now, SERVED, &part, &mut queue) else { panic!() };
    assert!(taken < 200, "{taken}");
    assert!(hand.says(said("A", 1011, hand.theirs + 1, &[7; 1400])).is_empty());
    assert_eq!(hand.tcp.budget.dropped, 1);
    let client = hand.from;
    hand.from.set_port(50_000);
    assert!(hand.says(said("S", 10, 0, b"")).is_empty());
    assert_eq!(hand.tcp.budget.refused, 1);
    // What is read makes room for what comes again, and what is acknowledged for the next client.
    hand.from = client;
    assert_eq!(hand.read(), [7; 1000]);
    hand.says(said("A", 1011, hand.theirs + 1, &[7; 1400]));
    assert_eq!(hand.read(), [7; 1400]);
    hand.window = 60_000;
    hand.says(said("A", 2411, hand.theirs + 1, b""));
    hand.says(said("A", 2411, hand.theirs + 4001 + taken as u32, b""));
    hand.from.set_port(50_000);
    let theirs = hand.says(said("S", 10, 0, b""))[0].sequence;
    hand.says(said("A", 11, theirs.wrapping_add(1), b""));
    assert!(hand.tcp.accept(hand.now, LISTENER, Key(20)).is_ok());
}

#[test]
fn bytes_that_lie_far_ahead_take_no_memory_beyond_the_bound() {
    let mut hand = Hand::new();
    hand.tcp.bound_buffers(&BufferBytes { total_max: 65_536, ..BufferBytes::default() });
    let clients: Vec<_> = (40_000..40_050)
        .map(|port| {
            hand.from.set_port(port);
            let theirs = hand.says(said("S", 10, 0, b""))[0].sequence.wrapping_add(1);
            hand.says(said("A", 11, theirs, b""));
            (port, theirs)
        })
        .collect();
    for (port, theirs) in &clients {
        hand.from.set_port(*port);
        hand.says(said("A", 11 + 60_000, *theirs, b"far ahead"));
    }
    // The first ones find room for all that lies before.
    assert!(hand.tcp.budget.bytes <= 2 * 65_536, "{}", hand.tcp.budget.bytes);
    assert_eq!(hand.tcp.budget.dropped, 48);
    // What was acknowledged already is acknowledged again all the same.
    let (port, theirs) = clients[49];
    hand.from.set_port(port);
    hand.says(said("A", 11, theirs, &[7; 2000]));
    hand.waits(milliseconds(20));
    let answer = hand.says(said("A", 11, theirs, &[7; 2000]));
    assert_eq!((answer.len(), answer[0].acknowledged), (1, 2011));
}

#[test]
fn a_connection_keeps_a_small_buffer_while_it_is_busy_and_not_when_it_rests() {
    let mut hand = Hand::new();
    hand.connects(10);
    hand.window = 65_000;
    hand.sends(&[8; 4000]);
    hand.says(said("A", 11, hand.theirs + 1 + 4000, b""));
    assert_eq!(hand.tcp.budget.bytes, 4096);
    hand.waits(milliseconds(1500));
    assert_eq!(hand.tcp.budget.bytes, 0);
}

#[test]
fn a_connection_takes_and_promises_what_is_set_unless_its_program_asks_for_something_else() {
    let mut hand = Hand::new();
    hand.tcp.bound_buffers(&BufferBytes { receive: 4096, send: 3000, ..BufferBytes::default() });
    // The listener is older than that.
    hand.tcp.close(LISTENER, End::Close);
    let any = super::at("::", super::PORT);
    hand.tcp.bind(LISTENER, 0, any, &[]).unwrap();
    hand.tcp.listen(LISTENER, 16, &[]).unwrap();
    assert_eq!(hand.says(said("S", 10, 0, b""))[0].window, 4096);
    hand.says(said("R", 11, 0, b""));
    hand.connects(50);
    let mut queue = super::Queue::default();
    let part = [std::io::IoSlice::new(&[9; 4000])];
    assert_eq!(hand.tcp.send(hand.now, SERVED, &part, &mut queue), Sent::Bytes(3000));
    hand.tcp.close(SERVED, End::Reset);
    hand.tcp.close(LISTENER, End::Close);
    hand.waits(milliseconds(1));
    // As Linux has it, twice what is asked for is given.
    let asked = 5000_i32.to_ne_bytes();
    let option = SocketOption { level: libc::SOL_SOCKET, name: libc::SO_RCVBUF, value: &asked };
    hand.tcp.bind(LISTENER, 0, any, &[option]).unwrap();
    hand.tcp.listen(LISTENER, 16, &[]).unwrap();
    assert_eq!(hand.says(said("S", 90, 0, b""))[0].window, 10_000);
}

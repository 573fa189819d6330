//! What holds for every channel, tried on each implementation by the same code.

use std::cell::RefCell;
use std::collections::VecDeque;

use mqttshim_channel::emulated::{Emulated, Listener};
use mqttshim_channel::{CommChannel, RecvError, SendError, in_process};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

/// Both ends of a channel, and what has to outlive them.
struct Ends {
    host: Box<dyn CommChannel>,
    card: Box<dyn CommChannel>,
    _folder: Option<TempDir>,
}

fn in_process_ends() -> Ends {
    let (host, card) = in_process::pair(4080, 16);
    Ends { host: Box::new(host), card: Box::new(card), _folder: None }
}

fn emulated_ends() -> Ends {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let listener = Listener::bind(folder.path().join("channel")).expect("a listener");
    let host = Emulated::connect(listener.path()).expect("a listener answers");
    let card = listener.accept().expect("descriptors").expect("a connection waits");
    Ends { host: Box::new(host), card: Box::new(card), _folder: Some(folder) }
}

/// Every test below, once for each implementation.
macro_rules! on_every_channel {
    ($($name:ident)*) => {
        mod in_process_channel { $(#[test] fn $name() { super::$name(super::in_process_ends()) })* }
        mod emulated_channel { $(#[test] fn $name() { super::$name(super::emulated_ends()) })* }
    };
}

on_every_channel! {
    messages_arrive_whole_and_in_order_both_ways
    nothing_sent_is_nothing_received
    the_largest_message_passes_and_one_byte_more_is_refused
    an_empty_message_is_refused
    a_full_queue_takes_nothing_and_goes_on_after_a_receive
    the_card_takes_what_a_lost_host_had_sent_and_then_knows
    the_host_takes_what_a_lost_card_had_sent_and_then_knows
    sending_to_a_lost_end_says_so
    any_mix_of_sends_and_receives_is_a_queue
}

/// Takes everything that waits.
#[track_caller]
fn drain(channel: &mut dyn CommChannel) -> (Vec<Vec<u8>>, RecvError) {
    let mut buffer = Vec::new();
    let mut messages = Vec::new();
    loop {
        match channel.recv(&mut buffer) {
            Ok(()) => messages.push(buffer.clone()),
            Err(why) => return (messages, why),
        }
    }
}

fn messages_arrive_whole_and_in_order_both_ways(mut ends: Ends) {
    let there: Vec<Vec<u8>> = (1..=10).map(|length| vec![length; usize::from(length)]).collect();
    let back: Vec<Vec<u8>> = there.iter().rev().cloned().collect();
    for (there, back) in there.iter().zip(&back) {
        ends.host.send(there).expect("room");
        ends.card.send(back).expect("room");
    }
    assert_eq!(drain(&mut *ends.card), (there, RecvError::Empty));
    assert_eq!(drain(&mut *ends.host), (back, RecvError::Empty));
}

fn nothing_sent_is_nothing_received(mut ends: Ends) {
    let mut buffer = b"old".to_vec();
    assert_eq!(ends.card.recv(&mut buffer), Err(RecvError::Empty));
    assert_eq!(buffer, b"", "the old content is gone");
}

fn the_largest_message_passes_and_one_byte_more_is_refused(mut ends: Ends) {
    let limit = ends.host.max_message_bytes();
    assert_eq!(ends.card.max_message_bytes(), limit);
    let largest = vec![0xa5; limit];
    ends.host.send(&largest).expect("fits");
    let larger = vec![0xa5; limit + 1];
    assert_eq!(ends.host.send(&larger), Err(SendError::Size { bytes: limit + 1, limit }));
    assert_eq!(drain(&mut *ends.card), (vec![largest], RecvError::Empty));
}

fn an_empty_message_is_refused(mut ends: Ends) {
    let limit = ends.host.max_message_bytes();
    assert_eq!(ends.host.send(b""), Err(SendError::Size { bytes: 0, limit }));
    ends.host.send(b"x").expect("one byte is enough");
    assert_eq!(drain(&mut *ends.card).0, [b"x"]);
}

fn a_full_queue_takes_nothing_and_goes_on_after_a_receive(mut ends: Ends) {
    let message = |number: u32| {
        let mut bytes = vec![0; 4080];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    let mut sent = 0;
    while ends.host.send(&message(sent)).is_ok() {
        sent += 1;
        assert!(sent < 10_000, "the queue is bounded");
    }
    assert_eq!(ends.host.send(&message(sent)), Err(SendError::WouldBlock));
    let mut buffer = Vec::new();
    let mut received = 0;
    while received < 1000 {
        ends.card.recv(&mut buffer).expect("queued");
        assert_eq!(buffer, message(received));
        received += 1;
        assert_eq!(ends.host.send(&message(sent)), Ok(()), "one taken makes room for one");
        sent += 1;
    }
    assert_eq!(drain(&mut *ends.card).0.len() as u32, sent - received);
}

fn the_card_takes_what_a_lost_host_had_sent_and_then_knows(mut ends: Ends) {
    ends.host.send(b"first").expect("room");
    ends.host.send(b"second").expect("room");
    drop(ends.host);
    let sent = vec![b"first".to_vec(), b"second".to_vec()];
    assert_eq!(drain(&mut *ends.card), (sent, RecvError::Lost));
    assert_eq!(drain(&mut *ends.card), (vec![], RecvError::Lost), "and it stays lost");
}

fn the_host_takes_what_a_lost_card_had_sent_and_then_knows(mut ends: Ends) {
    ends.host.send(b"never received").expect("room");
    ends.card.send(b"last words").expect("room");
    drop(ends.card);
    assert_eq!(drain(&mut *ends.host), (vec![b"last words".to_vec()], RecvError::Lost));
}

fn sending_to_a_lost_end_says_so(mut ends: Ends) {
    drop(ends.card);
    assert_eq!(ends.host.send(b"x"), Err(SendError::Lost));
    assert_eq!(ends.host.send(b"x"), Err(SendError::Lost));
}

/// Against a model: what was accepted comes out, in order, and nothing else.
fn any_mix_of_sends_and_receives_is_a_queue(ends: Ends) {
    let steps = vec(prop_oneof![3 => (1..=4080usize).prop_map(Some), 2 => Just(None)], 1..200);
    let config = ProptestConfig { cases: 50, failure_persistence: None, ..Default::default() };
    let ends = RefCell::new(ends);
    let outcome = TestRunner::new(config).run(&steps, |steps| {
        let Ends { host, card, .. } = &mut *ends.borrow_mut();
        // A case that failed may have left something behind.
        drain(&mut **card);
        let mut model = VecDeque::new();
        let mut buffer = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Some(length) => match host.send(&vec![number as u8; length]) {
                    Ok(()) => model.push_back(vec![number as u8; length]),
                    Err(why) => prop_assert_eq!(why, SendError::WouldBlock),
                },
                None => {
                    let expected = model.pop_front();
                    let received = card.recv(&mut buffer).map(|()| buffer.clone());
                    prop_assert_eq!(received, expected.ok_or(RecvError::Empty));
                }
            }
        }
        prop_assert_eq!(drain(&mut **card).0, Vec::from(model));
        Ok(())
    });
    outcome.expect("a channel is a queue");
}

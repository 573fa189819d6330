//! Order, bounds and credit of the outbox.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::mqtt::packet::ExpiryField;

fn content(outbox: &Outbox) -> Vec<u8> {
    outbox.chunks().collect::<Vec<_>>().concat()
}

fn packet(byte: u8, len: usize) -> Encoded {
    Encoded { packet: Bytes::from(vec![byte; len]), id_at: None, expiry: None }
}

/// The order of time means nothing to copies that do not expire.
fn push(outbox: &mut Outbox, copy: &Encoded, limits: &Limits) -> Result<(), DropReason> {
    outbox.push_card(copy, Instant::now(), limits)
}

#[test]
fn bytes_leave_in_the_order_they_came() {
    let mut outbox = Outbox::default();
    outbox.push_broker(b"ab", false);
    push(&mut outbox, &packet(b'X', 2), &Limits::default()).unwrap();
    outbox.push_broker(b"cd", false);
    assert_eq!(content(&outbox), b"abXXcd");
    outbox.advance(3);
    assert_eq!(content(&outbox), b"Xcd");
    assert_eq!(outbox.bytes(), 3);
    outbox.advance(3);
    assert!(outbox.is_empty());
}

#[test]
fn only_broker_bytes_return_credit() {
    let mut outbox = Outbox::default();
    outbox.push_broker(b"ab", false);
    push(&mut outbox, &packet(b'X', 5), &Limits::default()).unwrap();
    outbox.swallow_broker(2);
    assert_eq!(outbox.broker_bytes_drained(), 2);
    outbox.advance(1);
    assert_eq!(outbox.broker_bytes_drained(), 1);
    outbox.advance(6);
    assert_eq!(outbox.broker_bytes_drained(), 1);
    assert_eq!(outbox.broker_bytes_drained(), 0);
}

#[test]
fn a_copy_waits_for_the_end_of_the_brokers_packet() {
    let mut outbox = Outbox::default();
    outbox.push_broker(b"a", true);
    push(&mut outbox, &packet(b'X', 1), &Limits::default()).unwrap();
    outbox.push_broker(b"b", true);
    assert_eq!((content(&outbox), outbox.bytes()), (b"ab".to_vec(), 2));
    outbox.push_broker(b"c", false);
    assert_eq!(content(&outbox), b"abcX");
}

#[test]
fn the_newest_copy_is_dropped_at_the_message_bound() {
    let limits = Limits { outbox_messages_max: 2, ..Limits::default() };
    let mut outbox = Outbox::default();
    for byte in [b'1', b'2'] {
        push(&mut outbox, &packet(byte, 1), &limits).unwrap();
    }
    assert_eq!(push(&mut outbox, &packet(b'3', 1), &limits), Err(DropReason::Messages));
    outbox.advance(1);
    push(&mut outbox, &packet(b'4', 1), &limits).unwrap();
    assert_eq!(content(&outbox), b"24");
}

#[test]
fn the_newest_copy_is_dropped_at_the_byte_bound() {
    let limits = Limits { outbox_bytes_max: 10, ..Limits::default() };
    let mut outbox = Outbox::default();
    assert_eq!(push(&mut outbox, &packet(b'1', 11), &limits), Err(DropReason::Bytes));
    push(&mut outbox, &packet(b'2', 10), &limits).unwrap();
    assert_eq!(push(&mut outbox, &packet(b'3', 1), &limits), Err(DropReason::Bytes));
    // Broker-origin bytes have their own bound.
    outbox.push_broker(&[0; 100], false);
    assert_eq!(outbox.bytes(), 110);
}

#[test]
fn all_outboxes_share_one_bound_but_for_a_little_that_everybody_may_have() {
    let bytes_max = 2 * SHARE_BYTES;
    let limits = Limits { outbox_total_bytes_max: bytes_max, ..Limits::default() };
    let total = TotalBytes::default();
    let mut one = Outbox::new(total.clone());
    let mut other = Outbox::new(total.clone());
    push(&mut one, &packet(b'1', bytes_max), &limits).unwrap();
    assert_eq!(push(&mut one, &packet(b'2', 1), &limits), Err(DropReason::TotalBytes));
    push(&mut other, &packet(b'3', SHARE_BYTES), &limits).unwrap();
    assert_eq!(push(&mut other, &packet(b'4', 1), &limits), Err(DropReason::TotalBytes));
    one.advance(SHARE_BYTES + 1);
    push(&mut other, &packet(b'4', 1), &limits).unwrap();
    drop(one);
    drop(other);
    assert_eq!(total.get(), 0);
}

#[test]
fn deferred_copies_are_forgotten_with_their_bytes() {
    let total = TotalBytes::default();
    let mut outbox = Outbox::new(total.clone());
    outbox.push_broker(b"a", true);
    push(&mut outbox, &packet(b'X', 3), &Limits::default()).unwrap();
    assert_eq!(outbox.drop_deferred(), 1);
    outbox.push_broker(b"b", false);
    assert_eq!((content(&outbox), total.get()), (b"ab".to_vec(), 0));
}

/// A copy of ten bytes with four of them for how long it may wait.
fn expiring(seconds: u32, at: Option<usize>) -> Encoded {
    let mut bytes = vec![b'x'; 10];
    if let Some(at) = at {
        bytes[at..at + 4].copy_from_slice(&seconds.to_be_bytes());
    }
    Encoded { packet: Bytes::from(bytes), id_at: None, expiry: Some(ExpiryField { at, seconds }) }
}

#[test]
fn the_time_a_copy_waited_is_taken_off_its_expiry() {
    let (mut outbox, now) = (Outbox::default(), Instant::now());
    outbox.push_card(&expiring(300, Some(5)), now, &Limits::default()).unwrap();
    assert_eq!(content(&outbox), b"xxxxx\0\0\x01\x2Cx");
    assert_eq!(outbox.count_down(now + Duration::from_millis(999), &mut Vec::new()), 0);
    assert_eq!(content(&outbox), b"xxxxx\0\0\x01\x2Cx");
    assert_eq!(outbox.count_down(now + Duration::from_millis(100_500), &mut Vec::new()), 0);
    assert_eq!(content(&outbox), b"xxxxx\0\0\0\xC8x");
    outbox.advance(7);
    assert_eq!((content(&outbox), outbox.bytes()), (b"\0\xC8x".to_vec(), 3));
    // It is on its way: nothing of it can change any more.
    assert_eq!(outbox.count_down(now + Duration::from_secs(1000), &mut Vec::new()), 0);
    assert_eq!(content(&outbox), b"\0\xC8x");
    outbox.advance(3);
    assert!(outbox.is_empty());
}

#[test]
fn a_copy_whose_time_is_over_is_dropped_in_every_version() {
    let total = TotalBytes::default();
    let (mut outbox, now) = (Outbox::new(total.clone()), Instant::now());
    let limits = Limits { outbox_messages_max: 4, ..Limits::default() };
    outbox.push_card(&expiring(2, Some(5)), now, &limits).unwrap();
    outbox.push_card(&packet(b'X', 2), now, &limits).unwrap();
    outbox.push_card(&expiring(1, None), now, &limits).unwrap();
    outbox.push_broker(b"b", true);
    outbox.push_card(&expiring(1, Some(0)), now, &limits).unwrap();
    assert_eq!(outbox.count_down(now + Duration::from_secs(1), &mut Vec::new()), 2);
    assert_eq!(outbox.count_down(now + Duration::from_secs(2), &mut Vec::new()), 1);
    assert_eq!((content(&outbox), total.get()), (b"XXb".to_vec(), 2));
    outbox.push_card(&packet(b'Y', 1), now, &limits).unwrap();
    outbox.push_broker(b"c", false);
    assert_eq!((content(&outbox), outbox.bytes()), (b"XXbcY".to_vec(), 5));
    outbox.advance(5);
    assert_eq!(total.get(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<u8>),
    Advance(usize),
}

proptest! {
    #[test]
    fn a_byte_queue_is_a_queue(
        steps in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..50).prop_map(Step::Push),
                (0..60_usize).prop_map(Step::Advance),
            ],
            0..60,
        )
    ) {
        let mut queue = ByteQueue::default();
        let mut model = VecDeque::new();
        for step in steps {
            match step {
                Step::Push(bytes) => {
                    queue.push(&bytes);
                    model.extend(bytes);
                }
                Step::Advance(n) => {
                    let n = n.min(model.len());
                    queue.advance(n);
                    model.drain(..n);
                }
            }
            prop_assert!(queue.as_slice().iter().eq(&model));
        }
    }
}

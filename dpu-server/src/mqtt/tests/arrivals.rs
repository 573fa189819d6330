//! A broker that answers first and delivers later: only the copies prove that what went through it has arrived.

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{ConnId, Reason};

/// A publisher and two subscribers of `t`.
fn late() -> (Scene, ConnId, [ConnId; 2]) {
    let mut scene = Scene::new();
    scene.core.expect_late_deliveries();
    let subscribers = [scene.subscriber("a", "t"), scene.subscriber("b", "t")];
    let publisher = scene.connect(v311("p"));
    (scene, publisher, subscribers)
}

/// The broker goes through with a PUBLISH.
fn deliver(scene: &mut Scene, subscribers: &[ConnId], packet: &[u8]) {
    for &subscriber in subscribers {
        scene.broker(subscriber, packet);
        // Behind copies of the card's, if there are any.
        assert!(scene.client_gets(subscriber).ends_with(packet));
    }
}

#[test]
fn a_publisher_that_was_never_slow_needs_no_proof() {
    let (mut scene, publisher, _) = late();
    scene.card_takes(publisher, publish("t", "1"));
}

#[test]
fn a_slow_publish_holds_the_next_ones_until_every_subscriber_has_the_last() {
    let (mut scene, publisher, [a, b]) = late();
    scene.broker_takes(publisher, Reason::Retained, publish_retained("t", "1"));
    // No PINGREQ: its answer would say nothing.
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2")), []);
    deliver(&mut scene, &[a, b], &publish("t", "1"));
    deliver(&mut scene, &[a], &publish("t", "2"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "3"));
    deliver(&mut scene, &[b], &publish("t", "2"));
    deliver(&mut scene, &[b, a], &publish("t", "3"));
    scene.card_takes(publisher, publish("t", "4"));
    assert_eq!(scene.client_gets(a), publish("t", "4"));
    scene.broker_takes(publisher, Reason::Retained, publish_retained("t", "5"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "6"));
}

#[test]
fn copies_that_look_alike_are_counted_one_by_one() {
    let (mut scene, publisher, both) = late();
    scene.broker_takes(publisher, Reason::Retained, publish_retained("t", "on"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "on"));
    deliver(&mut scene, &both, &publish("t", "on"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "on"));
    deliver(&mut scene, &both, &publish("t", "on"));
    deliver(&mut scene, &both, &publish("t", "on"));
    scene.card_takes(publisher, publish("t", "on"));
}

#[test]
fn equal_copies_of_two_publishers_count_for_neither_until_one_says_something_else() {
    let (mut scene, publisher, both) = late();
    let other = scene.connect(v311("o"));
    for conn in [publisher, other] {
        scene.broker_takes(conn, Reason::Retained, publish_retained("t", "on"));
    }
    deliver(&mut scene, &both, &publish("t", "on"));
    // Whose was it?
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "x"));
    scene.broker_takes(other, Reason::BarrierOut, publish("t", "y"));
    deliver(&mut scene, &both, &publish("t", "on"));
    deliver(&mut scene, &both, &publish("t", "y"));
    scene.card_takes(other, publish("t", "z"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "u"));
}

#[test]
fn a_copy_that_may_be_of_something_nobody_watches_proves_nothing() {
    let (mut scene, publisher, both) = late();
    let other = scene.connect(v311("o"));
    scene.broker_takes(other, Reason::Retained, publish_retained("t", "on"));
    // It may still come, and its publisher's window is gone.
    scene.close(other);
    scene.broker_takes(publisher, Reason::Retained, publish_retained("t", "on"));
    deliver(&mut scene, &both, &publish("t", "on"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "x"));
    deliver(&mut scene, &both, &publish("t", "x"));
    scene.card_takes(publisher, publish("t", "y"));
}

#[test]
fn a_topic_is_proven_by_itself_and_unproven_by_what_cannot_be_seen() {
    let (mut scene, publisher, both) = late();
    let third = scene.subscriber("c", "u");
    scene.broker_takes(publisher, Reason::Retained, publish_retained("t", "1"));
    deliver(&mut scene, &both, &publish("t", "1"));
    scene.card_takes(publisher, publish("t", "2"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("u", "3"));
    scene.card_takes(publisher, publish("t", "4"));
    deliver(&mut scene, &[third], &publish("u", "3"));
    scene.card_takes(publisher, publish("u", "5"));
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos1("v", 1, "6"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "7"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("u", "8"));
}

#[test]
fn a_subscriber_that_comes_or_goes_makes_the_proof_void() {
    let (mut scene, publisher, [a, b]) = late();
    scene.broker_takes(publisher, Reason::Retained, publish_retained("t", "1"));
    scene.close(b);
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2"));
    deliver(&mut scene, &[a], &publish("t", "1"));
    deliver(&mut scene, &[a], &publish("t", "2"));
    scene.card_takes(publisher, publish("t", "3"));
    let third = scene.subscriber("c", "t");
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "4"));
    deliver(&mut scene, &[a, third], &publish("t", "4"));
    scene.card_takes(publisher, publish("t", "5"));
}

#[test]
fn a_copy_that_never_comes_leaves_the_topic_with_the_broker() {
    let (mut scene, publisher, [a, _]) = late();
    scene.broker_takes(publisher, Reason::Retained, publish_retained("t", "0"));
    for number in 1..3_000 {
        let payload = number.to_string();
        scene.broker_takes(publisher, Reason::BarrierOut, publish("t", &payload));
        deliver(&mut scene, &[a], &publish("t", &payload));
    }
}

#[test]
fn a_copy_in_pieces_counts_when_it_is_whole() {
    let (mut scene, publisher, [a, b]) = late();
    scene.broker_takes(publisher, Reason::Retained, publish_retained("t", "1"));
    deliver(&mut scene, &[a], &publish("t", "1"));
    let copy = publish("t", "1");
    let (head, tail) = copy.split_at(4);
    scene.broker(b, head);
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2"));
    scene.broker(b, tail);
    assert_eq!(scene.client_gets(b), copy);
    deliver(&mut scene, &[a, b], &publish("t", "2"));
    scene.card_takes(publisher, publish("t", "3"));
}

//! The law, rule by rule: a PUBLISH is the card's only if every line of it holds. Each test breaks one line.

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{DropReason, Limits, Reason};

/// A scene with one publisher and one subscriber to `t`, between whom the card distributes.
fn plain() -> (Scene, crate::mqtt::ConnId, crate::mqtt::ConnId) {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    (scene, publisher, subscriber)
}

#[test]
fn a_plain_publish_reaches_its_subscriber_without_the_broker() {
    let (mut scene, publisher, subscriber) = plain();
    scene.card_takes(publisher, publish("t", "hello"));
    assert_eq!(scene.client_gets(subscriber), publish("t", "hello"));
    assert_eq!(scene.core.counters().deliveries_card, 1);
}

#[test]
fn every_matching_subscriber_gets_one_copy_and_nobody_else() {
    let mut scene = Scene::new();
    let matching: Vec<_> = [("a", "x/y"), ("b", "x/+"), ("c", "#"), ("d", "x/y/#")]
        .into_iter()
        .map(|(id, filter)| scene.subscriber(id, filter))
        .collect();
    let other = scene.subscriber("e", "x");
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("x/y", "1"));
    for conn in matching {
        assert_eq!(scene.client_gets(conn), publish("x/y", "1"));
    }
    scene.assert_quiet(other);
    scene.assert_quiet(publisher);
}

#[test]
fn a_publisher_that_subscribed_gets_its_own_copy() {
    let mut scene = Scene::new();
    let conn = scene.subscriber("ps", "t");
    scene.card_takes(conn, publish("t", "1"));
    assert_eq!(scene.client_gets(conn), publish("t", "1"));
}

#[test]
fn versions_get_the_copy_their_version_knows() {
    let mut scene = Scene::new();
    let s3 = scene.subscriber("s3", "t");
    let s5 = scene.connect(v5("s5"));
    scene.subscribe_v5(s5, &[], "t", 0);
    let p3 = scene.connect(v311("p3"));
    let p5 = scene.connect(v5("p5"));
    let user_property = b"\x26\x00\x01k\x00\x01v";
    scene.card_takes(p5, publish_v5("t", user_property, "5"));
    scene.card_takes(p3, publish("t", "3"));
    assert_eq!(scene.client_gets(s3), [publish("t", "5"), publish("t", "3")].concat());
    assert_eq!(scene.client_gets(s5), {
        [publish_v5("t", user_property, "5"), publish_v5("t", &[], "3")].concat()
    });
}

#[test]
fn before_the_connack_nothing_is_the_cards() {
    let (mut scene, _, subscriber) = plain();
    let early = scene.knock(v311("early"));
    scene.broker_takes(early, Reason::NotConnected, publish("t", "1"));
    scene.assert_quiet(subscriber);
}

#[test]
fn a_refused_client_publishes_nothing() {
    let (mut scene, _, _) = plain();
    let refused = scene.knock(v311("refused"));
    scene.broker(refused, connack(4, false, 5, &[]));
    scene.broker_takes(refused, Reason::NotConnected, publish("t", "1"));
}

#[test]
fn after_disconnect_nothing_is_the_cards() {
    let (mut scene, publisher, _) = plain();
    scene.client(publisher, DISCONNECT);
    assert_eq!(scene.broker_gets(publisher), DISCONNECT);
    scene.broker_takes(publisher, Reason::NotConnected, publish("t", "1"));
}

#[test]
fn while_authenticating_anew_publishes_go_to_the_broker() {
    let mut scene = Scene::new();
    scene.subscriber("s", "t");
    let publisher = scene.connect(v5("p"));
    let auth = packet(0xF0, &[0x19, 5, 0x15, 0, 2, b'x', b'y']);
    scene.client(publisher, &auth);
    assert_eq!(scene.broker_gets(publisher), auth);
    scene.broker_takes(publisher, Reason::Reauthenticating, publish_v5("t", &[], "1"));
    scene.broker(publisher, packet(0xF0, &[0x18, 0]));
    scene.broker_takes(publisher, Reason::Reauthenticating, publish_v5("t", &[], "2"));
    scene.broker(publisher, packet(0xF0, &[]));
    scene.broker_takes(publisher, Reason::BarrierOut, publish_v5("t", &[], "3"));
}

#[test]
fn quality_of_service_2_goes_to_the_broker_and_1_too_where_its_ways_are_not_known() {
    let (mut scene, publisher, _) = plain();
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos2("t", 2, "2"));
    scene.core.expect_late_deliveries();
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos1("t", 1, "1"));
}

#[test]
fn retained_and_duplicate_go_to_the_broker() {
    let (mut scene, publisher, _) = plain();
    let mut packet = publish("t", "1");
    packet[0] = 0x31;
    scene.broker_takes(publisher, Reason::Retained, &packet);
    packet[0] = 0x38;
    scene.broker_takes(publisher, Reason::Duplicate, &packet);
}

#[test]
fn the_largest_payload_is_the_cards_and_one_more_byte_is_not() {
    let (mut scene, publisher, subscriber) = plain();
    let largest = "x".repeat(65_536);
    scene.card_takes(publisher, publish("t", &largest));
    assert_eq!(scene.client_gets(subscriber), publish("t", &largest));
    scene.broker_takes(publisher, Reason::TooLarge, publish("t", &(largest + "x")));
    // So large that it is not even held: its first bytes pass before the last ones came.
    let huge = publish("t", &"x".repeat(100_000));
    scene.client(publisher, &huge[..50]);
    assert_eq!(scene.broker_gets(publisher), huge[..50]);
    scene.client(publisher, &huge[50..]);
    assert_eq!(scene.broker_gets(publisher), huge[50..]);
    assert_eq!(scene.core.counters().broker(Reason::TooLarge), 2);
}

#[test]
fn what_the_broker_says_it_does_not_accept_is_for_the_broker_to_refuse() {
    let mut scene = Scene::new();
    scene.subscriber("s", "t");
    let publisher = scene.knock(v5("p"));
    let fits = publish_v5("t", &[], "12345");
    let max = fits.len() as u8;
    scene.broker(publisher, connack(5, false, 0, &[0x27, 0, 0, 0, max]));
    scene.card_takes(publisher, fits);
    scene.broker_takes(publisher, Reason::TooLarge, publish_v5("t", &[], "123456"));
}

#[test]
fn a_topic_starting_with_a_dollar_goes_to_the_broker() {
    let mut scene = Scene::new();
    scene.subscriber("s", "$x/#");
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::DollarTopic, publish("$x/y", "1"));
    scene.broker_takes(publisher, Reason::DollarTopic, publish("$CONTROL/v1", "1"));
}

#[test]
fn characters_some_brokers_refuse_go_to_the_broker() {
    let mut scene = Scene::new();
    scene.subscriber("s", "#");
    let publisher = scene.connect(v5("p"));
    let user_property = b"\x26\x00\x01k\x00\x01\x01";
    scene.broker_takes(publisher, Reason::DiscouragedCharacters, publish_v5("t\u{7}", &[], "1"));
    let packet = publish_v5("t", user_property, "2");
    scene.broker_takes(publisher, Reason::DiscouragedCharacters, packet);
}

#[test]
fn a_topic_with_too_many_levels_goes_to_the_broker() {
    let mut scene = Scene::with_limits(Limits { topic_levels_max: 3, ..Limits::default() });
    scene.subscriber("s", "#");
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("a/b/c", "1"));
    scene.broker_takes(publisher, Reason::TopicTooDeep, publish("a/b/c/d", "1"));
}

#[test]
fn a_listener_outside_the_card_makes_everything_slow_until_it_is_gone() {
    let (mut scene, publisher, _) = plain();
    scene.core.handle_outside(1, 0);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::OutsideListener));
    scene.broker_takes(publisher, Reason::OutsideListener, publish("t", "1"));
    scene.core.handle_outside(-1, 0);
    assert_eq!(scene.core.status().slow_reason, None);
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2"));
}

#[test]
fn a_connection_outside_the_card_makes_everything_slow_until_it_is_gone() {
    let (mut scene, publisher, _) = plain();
    scene.core.handle_outside(0, 2);
    scene.core.handle_outside(0, -1);
    scene.broker_takes(publisher, Reason::OutsideConnection, publish("t", "1"));
    scene.core.handle_outside(0, -1);
    assert_eq!(scene.core.status().slow_reason, None);
}

#[test]
fn nobody_to_deliver_to_is_for_the_broker_to_say() {
    let (mut scene, publisher, _) = plain();
    scene.broker_takes(publisher, Reason::NoMatch, publish("other", "1"));
}

#[test]
fn a_shared_subscription_goes_to_the_broker() {
    for filter in ["$share/g/t", "$share/g/#", "$queue/t"] {
        let (mut scene, publisher, _) = plain();
        scene.subscriber("sh", filter);
        scene.broker_takes(publisher, Reason::SharedSubscription, publish("t", "1"));
    }
}

#[test]
fn a_publish_behind_a_slow_one_waits_for_the_barrier() {
    let (mut scene, publisher, _) = plain();
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos1("t", 1, "1"));
    let behind = scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2"));
    assert_eq!(behind, PINGREQ);
}

/// The other reasons are reached in `options`, `exchanges`, `sessions`, `streams` and `barriers`; together all of them.
#[test]
fn every_reason_is_reached_by_a_test() {
    let tests = [
        include_str!("decisions.rs"),
        include_str!("options.rs"),
        include_str!("exchanges.rs"),
        include_str!("sessions.rs"),
        include_str!("streams.rs"),
        include_str!("barriers.rs"),
        include_str!("policy.rs"),
        include_str!("observe.rs"),
        include_str!("epochs.rs"),
        include_str!("late.rs"),
        include_str!("watching.rs"),
    ];
    for reason in Reason::ALL {
        let call = format!(", Reason::{reason:?}, ");
        assert!(tests.iter().any(|test| test.contains(&call)), "{reason:?}");
    }
}

/// A scene with a publisher, a subscriber who reads nothing and may have 400 bytes waiting, and three messages of 150 for it.
fn almost_full(limits: Limits) -> (Scene, crate::mqtt::ConnId, crate::mqtt::ConnId) {
    let mut scene = Scene::with_limits(Limits { outbox_bytes_max: 400, ..limits });
    let subscriber = scene.connect(v311("s"));
    scene.subscribe(subscriber, "t");
    let publisher = scene.connect(v311("p"));
    for _ in 0..2 {
        scene.card_takes(publisher, publish("t", &"x".repeat(150)));
    }
    (scene, publisher, subscriber)
}

#[test]
fn what_only_the_cards_bound_of_bytes_would_drop_is_the_brokers() {
    let (mut scene, publisher, subscriber) = almost_full(Limits::default());
    scene.broker_takes(publisher, Reason::SubscriberFull, publish("t", &"x".repeat(150)));
    assert_eq!(scene.core.counters().outbox_dropped.iter().sum::<u64>(), 0);
    // Read again, it is the card's again.
    scene.client_gets(subscriber);
    scene.broker(subscriber, publish("t", &"x".repeat(150)));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "y"));
    scene.broker(publisher, PINGRESP);
    scene.card_takes(publisher, publish("t", "z"));
}

#[test]
fn where_one_copy_more_is_too_many_the_newest_is_dropped_as_the_broker_would() {
    let limits = Limits { outbox_messages_max: 2, ..Limits::default() };
    let (mut scene, publisher, subscriber) = almost_full(limits);
    scene.card_takes(publisher, publish("t", &"y".repeat(150)));
    assert_eq!(scene.core.counters().dropped(DropReason::Messages), 1);
    assert_eq!(scene.client_gets(subscriber), publish("t", &"x".repeat(150)).repeat(2));
}

#[test]
fn much_that_waits_for_one_subscriber_keeps_nothing_from_another() {
    let limits = Limits { outbox_total_bytes_max: 400, ..Limits::default() };
    let (mut scene, publisher, _) = almost_full(limits);
    let other = scene.subscriber("other", "u");
    scene.card_takes(publisher, publish("u", &"y".repeat(150)));
    assert_eq!(scene.client_gets(other), publish("u", &"y".repeat(150)));
}

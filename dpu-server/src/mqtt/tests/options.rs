//! What subscriptions, connections and messages of MQTT 5 ask for, and the versions before it.

use std::time::Duration;

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{ConnId, CoreConfig, DropReason, Reason, Trust};

/// A version 5 publisher of a broker that takes Topic Aliases up to 10, and a subscriber to everything.
fn aliased() -> (Scene, ConnId, ConnId) {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber("s", "#");
    let publisher = scene.knock(v5("p"));
    scene.broker(publisher, connack(5, false, 0, &[0x22, 0, 10]));
    (scene, publisher, subscriber)
}

/// A PUBLISH is slow, and its barrier comes back.
fn pass(scene: &mut Scene, publisher: ConnId, reason: Reason, packet: &[u8]) {
    scene.broker_takes(publisher, reason, packet);
    let behind = scene.broker_takes(publisher, Reason::BarrierOut, publish_v5("barrier", &[], ""));
    assert_eq!(behind, PINGREQ);
    scene.broker(publisher, PINGRESP);
}

const ALIAS: [u8; 3] = [0x23, 0, 1];

#[test]
fn an_alias_is_taught_by_the_broker_and_then_understood_by_the_card() {
    let (mut scene, publisher, subscriber) = aliased();
    pass(&mut scene, publisher, Reason::TopicAlias, &publish_v5("t", &ALIAS, "1"));
    scene.card_takes(publisher, publish_v5("", &ALIAS, "2"));
    scene.card_takes(publisher, publish_v5("t", &ALIAS, "3"));
    assert_eq!(scene.client_gets(subscriber), [publish("t", "2"), publish("t", "3")].concat());
    // Another topic for the same alias is news.
    pass(&mut scene, publisher, Reason::TopicAlias, &publish_v5("u", &ALIAS, "4"));
    scene.card_takes(publisher, publish_v5("", &ALIAS, "5"));
    assert_eq!(scene.client_gets(subscriber), publish("u", "5"));
    // What goes to the broker goes as it is.
    scene.core.handle_outside(1, 0);
    scene.broker_takes(publisher, Reason::OutsideListener, publish_v5("", &ALIAS, "6"));
}

#[test]
fn a_copy_carries_no_alias_and_all_other_properties() {
    let (mut scene, publisher, _) = aliased();
    let fifth = scene.connect(v5("s5"));
    scene.subscribe_v5(fifth, &[], "t", 0);
    let user = b"\x26\x00\x01k\x00\x01v";
    pass(&mut scene, publisher, Reason::TopicAlias, &publish_v5("t", &ALIAS, "1"));
    let list = [&user[..], &ALIAS, b"\x01\x01", user].concat();
    scene.card_takes(publisher, publish_v5("", &list, "2"));
    let list = [&user[..], b"\x01\x01", user].concat();
    assert_eq!(scene.client_gets(fifth), publish_v5("t", &list, "2"));
}

#[test]
fn an_alias_set_by_a_message_that_goes_to_the_broker_for_another_reason_is_learned() {
    let (mut scene, publisher, subscriber) = aliased();
    let mut retained = publish_v5("r", &ALIAS, "1");
    retained[0] = 0x31;
    pass(&mut scene, publisher, Reason::Retained, &retained);
    scene.card_takes(publisher, publish_v5("", &ALIAS, "2"));
    let qos1 = packet(0x32, &[string("q"), vec![0, 9, 3], ALIAS.to_vec(), b"3".to_vec()].concat());
    let mut duplicate = qos1;
    duplicate[0] |= 8;
    pass(&mut scene, publisher, Reason::Duplicate, &duplicate);
    scene.card_takes(publisher, publish_v5("", &ALIAS, "4"));
    assert_eq!(scene.client_gets(subscriber), [publish("r", "2"), publish("q", "4")].concat());
}

#[test]
fn a_message_that_is_not_read_may_set_any_alias() {
    let (mut scene, publisher, _) = aliased();
    pass(&mut scene, publisher, Reason::TopicAlias, &publish_v5("t", &ALIAS, "1"));
    scene.card_takes(publisher, publish_v5("", &ALIAS, "2"));
    let large = publish_v5("u", &ALIAS, &"x".repeat(100_000));
    pass(&mut scene, publisher, Reason::TooLarge, &large);
    scene.broker_takes(publisher, Reason::TopicAlias, publish_v5("", &ALIAS, "3"));
}

#[test]
fn an_alias_the_broker_does_not_take_or_was_not_taught_is_for_the_broker_to_punish() {
    let (mut scene, publisher, _) = aliased();
    scene.broker_takes(publisher, Reason::TopicAlias, publish_v5("", &ALIAS, "1"));
    let eleven = [0x23, 0, 11];
    pass(&mut scene, publisher, Reason::TopicAlias, &publish_v5("t", &eleven, "2"));
    scene.broker_takes(publisher, Reason::TopicAlias, publish_v5("", &eleven, "3"));
    // Of a broker that said nothing of aliases.
    let other = scene.connect(v5("other"));
    scene.broker_takes(other, Reason::TopicAlias, publish_v5("t", &ALIAS, "4"));
    scene.broker_takes(other, Reason::TopicAlias, publish_v5("", &ALIAS, "5"));
}

#[test]
fn no_local_spares_the_publisher_and_nobody_else() {
    let mut scene = Scene::new();
    let conn = scene.connect(v5("nl"));
    scene.subscribe_v5(conn, &[], "t", 0x04);
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("t", "1"));
    assert_eq!(scene.client_gets(conn), publish_v5("t", &[], "1"));
    // Nobody is left.
    scene.broker_takes(conn, Reason::NoMatch, publish_v5("t", &[], "2"));
    let other = scene.subscriber("o", "t");
    let again = scene.connect(v5("nl2"));
    scene.subscribe_v5(again, &[], "t", 0x04);
    scene.card_takes(again, publish_v5("t", &[], "3"));
    assert_eq!(scene.client_gets(other), publish("t", "3"));
    assert_eq!(scene.client_gets(again), []);
}

#[test]
fn no_local_that_changes_is_unclear_until_unsubscribed() {
    for (first, second) in [(0x04, 0), (0, 0x04)] {
        let mut scene = Scene::new();
        let conn = scene.connect(v5("s"));
        let publisher = scene.connect(v311("p"));
        scene.subscribe_v5(conn, &[], "t", first);
        scene.subscribe_v5(conn, &[], "t", second);
        scene.subscribe_v5(conn, &[], "t", second);
        scene.broker_takes(publisher, Reason::NoLocal, publish("t", "1"));
        scene.client(conn, packet(0xA2, b"\x00\x02\x00\x00\x01t"));
        scene.broker(conn, [packet(0xB0, &[0, 2, 0, 0]), PINGRESP.to_vec()].concat());
        scene.broker_gets(conn);
        scene.client_gets(conn);
        scene.subscribe_v5(conn, &[], "t", second);
        let publisher = scene.connect(v311("other"));
        scene.card_takes(publisher, publish("t", "2"));
    }
}

#[test]
fn a_subscription_that_the_broker_does_not_find_to_end_may_go_on() {
    let mut scene = Scene::new();
    let conn = scene.connect(v5("s"));
    let publisher = scene.connect(v311("p"));
    scene.subscribe_v5(conn, &[], "t", 0);
    scene.client(conn, packet(0xA2, b"\x00\x02\x00\x00\x01t\x00\x01u"));
    scene.broker(conn, [packet(0xB0, &[0, 2, 0, 0x11, 0x11]), PINGRESP.to_vec()].concat());
    scene.broker_takes(publisher, Reason::SubscribePending, publish("t", "1"));
    scene.broker_takes(publisher, Reason::NoMatch, publish("u", "2"));
    assert_eq!(scene.core.counters().subscriptions, 1);
    scene.client_gets(conn);
    scene.subscribe_v5(conn, &[], "t", 0);
    let other = scene.connect(v311("other"));
    scene.card_takes(other, publish("t", "3"));
}

#[test]
fn a_subscription_identifier_comes_with_every_copy_of_its_subscription() {
    let mut scene = Scene::new();
    let seven = scene.connect(v5("seven"));
    let large = scene.connect(v5("large"));
    let plain = scene.connect(v5("plain"));
    scene.subscribe_v5(seven, &[0x0B, 7], "t", 0);
    scene.subscribe_v5(large, &[0x0B, 0xFF, 0xFF, 0xFF, 0x7F], "t", 1);
    scene.subscribe_v5(plain, &[0x0B, 7], "t", 2);
    scene.subscribe_v5(plain, &[], "t", 2);
    let publisher = scene.connect(v5("p"));
    let format = [0x01, 1];
    scene.card_takes(publisher, publish_v5("t", &format, "1"));
    assert_eq!(scene.client_gets(seven), publish_v5("t", &[0x0B, 7, 0x01, 1], "1"));
    let list = [0x0B, 0xFF, 0xFF, 0xFF, 0x7F, 0x01, 1];
    assert_eq!(scene.client_gets(large), publish_v5("t", &list, "1"));
    assert_eq!(scene.client_gets(plain), publish_v5("t", &format, "1"));
}

#[test]
fn too_many_different_identifiers_go_to_the_broker() {
    let mut scene = Scene::new();
    let publisher = scene.connect(v311("p"));
    for id in 1..=65_u8 {
        let conn = scene.connect(v5(&format!("s{id}")));
        scene.subscribe_v5(conn, &[0x0B, id], "t", 0);
        if id == 64 {
            scene.card_takes(publisher, publish("t", "1"));
        }
    }
    scene.broker_takes(publisher, Reason::SubscriptionIdentifier, publish("t", "2"));
}

#[test]
fn a_version_5_client_gets_a_copy_for_each_matching_subscription_in_the_order_of_the_tree() {
    let mut scene = Scene::new();
    let conn = scene.connect(v5("s"));
    for (id, filter) in ["#", "+/b", "a/#", "a/b/#", "a/+", "a/b"].into_iter().enumerate() {
        scene.subscribe_v5(conn, &[0x0B, id as u8 + 1], filter, 0);
    }
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("a/b", "1"));
    let copy = |id| publish_v5("a/b", &[0x0B, id], "1");
    assert_eq!(scene.client_gets(conn), [4, 6, 5, 3, 2, 1].map(copy).concat());
    assert_eq!(scene.core.counters().deliveries_card, 6);
}

#[test]
fn a_version_3_client_may_get_one_copy_or_two_for_two_subscriptions() {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber("s", "t");
    scene.subscribe(subscriber, "+");
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::OverlappingSubscriptions, publish("t", "1"));
}

#[test]
fn of_a_broker_whose_ways_are_not_known_nothing_is_assumed() {
    type Subscriptions = &'static [(&'static str, &'static [u8], u8)];
    let cases: [(Reason, Subscriptions); 3] = [
        (Reason::NoLocal, &[("t", &[], 4)]),
        (Reason::SubscriptionIdentifier, &[("t", &[0x0B, 1], 0)]),
        (Reason::OverlappingSubscriptions, &[("t", &[], 0), ("+", &[], 0)]),
    ];
    for (reason, subscriptions) in cases {
        let mut scene = Scene::new();
        scene.core.expect_late_deliveries();
        let conn = scene.connect(v5("s"));
        for (filter, properties, options) in subscriptions {
            scene.subscribe_v5(conn, properties, filter, *options);
        }
        let publisher = scene.connect(v311("p"));
        scene.broker_takes(publisher, reason, publish("t", "1"));
    }
    let mut scene = Scene::new();
    scene.core.expect_late_deliveries();
    let small = scene.connect(ConnectPacket { properties: &[0x27, 0, 0, 0, 10], ..v5("small") });
    scene.subscribe_v5(small, &[], "t", 0);
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("t", "1234"));
    scene.broker_takes(publisher, Reason::MaximumPacketSize, publish("t", &"x".repeat(50)));
}

#[test]
fn what_is_too_large_for_one_subscriber_is_not_sent_to_that_one() {
    let mut scene = Scene::new();
    let other = scene.subscriber("o", "t");
    let fits = publish_v5("t", &[], "12345");
    let properties = [0x27, 0, 0, 0, fits.len() as u8];
    let small = scene.connect(ConnectPacket { properties: &properties, ..v5("small") });
    scene.subscribe_v5(small, &[], "t", 0);
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("t", "12345"));
    assert_eq!(scene.client_gets(small), fits);
    scene.card_takes(publisher, publish("t", "1234567"));
    assert_eq!(scene.client_gets(small), []);
    assert_eq!(scene.client_gets(other), [publish("t", "12345"), publish("t", "1234567")].concat());
    assert_eq!(scene.core.counters().dropped(DropReason::MaximumPacketSize), 1);
    // One byte too many: mosquitto sends it, and should not.
    scene.broker_takes(publisher, Reason::MaximumPacketSize, publish("t", "123456"));
}

#[test]
fn a_maximum_packet_size_counts_the_identifier() {
    let mut scene = Scene::new();
    let properties = [0x27, 0, 0, 0, publish_v5("t", &[0x0B, 9], "12").len() as u8];
    let small = scene.connect(ConnectPacket { properties: &properties, ..v5("small") });
    scene.subscribe_v5(small, &[0x0B, 9], "t", 0);
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("t", "12"));
    assert_eq!(scene.client_gets(small), publish_v5("t", &[0x0B, 9], "12"));
    scene.card_takes(publisher, publish("t", "1234"));
    assert_eq!(scene.client_gets(small), []);
}

#[test]
fn a_message_expires_while_it_waits() {
    let mut scene = Scene::new();
    let quick = scene.connect(v5("quick"));
    let slow = scene.connect(v5("slow"));
    let old = scene.subscriber("old", "t");
    scene.subscribe_v5(quick, &[], "t", 0);
    scene.subscribe_v5(slow, &[], "t", 0);
    let publisher = scene.connect(v5("p"));
    let list = |seconds| [0x02, 0, 0, 0, seconds, 0x01, 0];
    let copy = |seconds| publish_v5("t", &[0x01, 0, 0x02, 0, 0, 0, seconds], "1");
    scene.card_takes(publisher, publish_v5("t", &list(9), "1"));
    scene.card_takes(publisher, publish_v5("t", &list(3), "1"));
    assert_eq!(scene.client_gets(quick), [copy(9), copy(3)].concat());
    scene.sleep(Duration::from_millis(4500));
    for conn in [slow, old] {
        scene.core.handle_room(conn, scene.now);
    }
    assert_eq!(scene.client_gets(slow), copy(5));
    assert_eq!(scene.client_gets(old), publish("t", "1"));
    assert_eq!(scene.core.counters().dropped(DropReason::Expired), 2);
}

#[test]
fn a_copy_that_waits_for_the_brokers_packet_to_end_grows_older_too() {
    let mut scene = Scene::new();
    let subscriber = scene.connect(v5("s"));
    scene.subscribe_v5(subscriber, &[], "t", 0);
    let publisher = scene.connect(v5("p"));
    let packet = publish_v5("x", &[], "whole");
    scene.broker(subscriber, &packet[..4]);
    scene.card_takes(publisher, publish_v5("t", &[0x02, 0, 0, 0, 9], "1"));
    scene.sleep(Duration::from_secs(3));
    scene.broker(subscriber, &packet[4..]);
    let copy = publish_v5("t", &[0x02, 0, 0, 0, 6], "1");
    assert_eq!(scene.client_gets(subscriber), [packet, copy].concat());
}

#[test]
fn an_expiry_of_zero_is_for_the_broker_to_understand() {
    let mut scene = Scene::new();
    scene.subscriber("s", "t");
    let publisher = scene.connect(v5("p"));
    let packet = publish_v5("t", &[0x02, 0, 0, 0, 0], "1");
    scene.broker_takes(publisher, Reason::ExpiresAtOnce, packet);
}

#[test]
fn retain_as_published_and_a_higher_quality_of_service_change_nothing_of_a_plain_message() {
    let mut scene = Scene::new();
    let publisher = scene.connect(v311("p"));
    for (index, options) in [0x08, 0x01, 0x02, 0x0A, 0x18].into_iter().enumerate() {
        let conn = scene.connect(v5(&format!("s{index}")));
        scene.client(conn, subscribe_v5(1, &[], "t", options));
        scene.broker(conn, [suback_v5(1, &[options & 3]), PINGRESP.to_vec()].concat());
        scene.client_gets(conn);
        scene.card_takes(publisher, publish("t", "1"));
        assert_eq!(scene.client_gets(conn), publish_v5("t", &[], "1"));
    }
}

#[test]
fn a_grant_that_could_not_have_been_refused_is_proven_by_what_comes_of_it() {
    let mut scene = Scene::new();
    let old = scene.connect(ConnectPacket { level: 3, ..v311("old") });
    scene.subscribe(old, "t");
    scene.subscribe(old, "a");
    scene.subscribe(old, "+");
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::UnprovenGrant, publish("t", "1"));
    // It may be of either of two.
    scene.broker(old, publish("t", "1"));
    scene.broker_takes(publisher, Reason::UnprovenGrant, publish("u", "2"));
    // Nor does it count that may have waited from before.
    scene.broker(old, publish_qos1("u", 1, "0"));
    scene.broker_takes(publisher, Reason::UnprovenGrant, publish("u", "2"));
    let copy = publish("u", "2");
    scene.broker(old, &copy[..3]);
    scene.broker(old, &copy[3..]);
    scene.client_gets(old);
    let fresh = scene.connect(v311("p2"));
    scene.card_takes(fresh, publish("u", "3"));
    assert_eq!(scene.client_gets(old), publish("u", "3"));
    scene.broker_takes(fresh, Reason::UnprovenGrant, publish("t", "4"));
    // A new SUBACK proves as little as the first.
    scene.subscribe(old, "+");
    let fresh = scene.connect(v311("p3"));
    scene.broker_takes(fresh, Reason::UnprovenGrant, publish("u", "5"));
}

#[test]
fn a_version_3_1_publisher_is_as_good_as_any() {
    let mut scene = Scene::new();
    scene.subscriber("s", "t");
    let publisher = scene.connect(ConnectPacket { level: 3, ..v311("old") });
    scene.card_takes(publisher, publish("t", "1"));
}

#[test]
fn an_offline_session_is_left_out_where_the_operator_says_it_gets_nothing() {
    for late in [false, true] {
        let mut scene = Scene::with_config(CoreConfig {
            trust: Trust::Suback,
            keeps_offline_qos0: Some(false),
            ..CoreConfig::default()
        });
        if late {
            scene.core.expect_late_deliveries();
        }
        let away = scene.connect(persistent("away"));
        scene.subscribe(away, "t");
        scene.close(away);
        let publisher = scene.connect(v311("p"));
        scene.broker_takes(publisher, Reason::NoMatch, publish("t", "1"));
        let here = scene.subscriber("here", "t");
        let publisher = scene.connect(v311("p2"));
        scene.card_takes(publisher, publish("t", "2"));
        assert_eq!(scene.client_gets(here), publish("t", "2"));
        scene.knock(persistent("away"));
        scene.broker_takes(publisher, Reason::SessionUnsettled, publish("t", "3"));
    }
}

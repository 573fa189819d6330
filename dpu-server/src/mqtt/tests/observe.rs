//! Permission by observation: what is learned from the broker, what teaches nothing, and when it ends. Letters are the rules of
//! `mqtt::observe`.

use std::time::Duration;

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{ConnId, CoreConfig, Reason};

/// Windows in which somebody must be missed to be left out.
pub(super) const MISSES: usize = 3;

pub(super) fn observing() -> Scene {
    Scene::with_config(CoreConfig::default())
}

/// A publisher whose first PUBLISH on `t` has gone by, and two subscribers.
pub(super) fn plain() -> (Scene, ConnId, [ConnId; 2]) {
    let mut scene = observing();
    let subscribers = [scene.subscriber("a", "t"), scene.subscriber("b", "t")];
    let publisher = scene.connect(v311("p"));
    first(&mut scene, publisher, "t");
    (scene, publisher, subscribers)
}

/// The first PUBLISH on a topic: nothing is asked behind it.
#[track_caller]
pub(super) fn first(scene: &mut Scene, publisher: ConnId, topic: &str) {
    let behind = scene.broker_takes(publisher, Reason::Unobserved, publish(topic, "first"));
    assert_eq!(behind, []);
}

/// A PUBLISH that is watched. What the broker makes of it is the caller's.
#[track_caller]
pub(super) fn probe(scene: &mut Scene, publisher: ConnId, packet: &[u8]) {
    assert_eq!(scene.broker_takes(publisher, Reason::Probe, packet), PINGREQ);
}

/// The broker sends these a copy, and the answer to the publisher.
#[track_caller]
pub(super) fn serve(scene: &mut Scene, publisher: ConnId, subscribers: &[ConnId], packet: &[u8]) {
    for &subscriber in subscribers {
        scene.broker(subscriber, packet);
        assert_eq!(scene.client_gets(subscriber), packet);
    }
    answer(scene, publisher);
}

/// The broker answers the card on this connection.
#[track_caller]
pub(super) fn answer(scene: &mut Scene, publisher: ConnId) {
    scene.broker(publisher, PINGRESP);
    assert_eq!(scene.client_gets(publisher), []);
}

/// Teaches the card that all of these are served.
#[track_caller]
pub(super) fn teach(scene: &mut Scene, publisher: ConnId, subscribers: &[ConnId], topic: &str) {
    let packet = publish(topic, "probe");
    probe(scene, publisher, &packet);
    serve(scene, publisher, subscribers, &packet);
}

/// The card distributes this to these.
#[track_caller]
fn card_serves(scene: &mut Scene, publisher: ConnId, subscribers: &[ConnId], packet: &[u8]) {
    scene.card_takes(publisher, packet);
    for &subscriber in subscribers {
        assert_eq!(scene.client_gets(subscriber), packet);
    }
}

#[test]
fn once_the_broker_has_served_every_subscriber_the_card_does() {
    let (mut scene, publisher, both) = plain();
    teach(&mut scene, publisher, &both, "t");
    assert_eq!(scene.core.status().slow_reason, None);
    assert_eq!(scene.core.counters().learned, 1);
    for payload in ["1", "2"] {
        card_serves(&mut scene, publisher, &both, &publish("t", payload));
    }
}

// (a)

#[test]
fn a_copy_that_differs_in_one_byte_teaches_nothing() {
    for copy in [publish("t", "probf"), publish("T", "probe"), publish_retained("t", "probe")] {
        let (mut scene, publisher, [a, b]) = plain();
        for _ in 0..2 * MISSES {
            probe(&mut scene, publisher, &publish("t", "probe"));
            scene.broker(a, &copy);
            scene.broker(b, publish("t", "probe"));
            answer(&mut scene, publisher);
        }
    }
}

#[test]
fn a_copy_must_be_the_subscribers_version_of_it() {
    let mut scene = observing();
    let s3 = scene.subscriber("s3", "t");
    let s5 = scene.connect(v5("s5"));
    scene.subscribe_v5(s5, &[], "t", 0);
    let publisher = scene.connect(v311("p"));
    first(&mut scene, publisher, "t");
    probe(&mut scene, publisher, &publish("t", "1"));
    scene.broker(s3, publish_v5("t", &[], "1"));
    scene.broker(s5, publish("t", "1"));
    answer(&mut scene, publisher);
    probe(&mut scene, publisher, &publish("t", "2"));
    scene.broker(s3, publish("t", "2"));
    scene.broker(s5, publish_v5("t", &[], "2"));
    answer(&mut scene, publisher);
    scene.card_takes(publisher, publish("t", "3"));
}

#[test]
fn two_copies_where_the_card_would_send_one_teach_nothing() {
    let (mut scene, publisher, [a, b]) = plain();
    let packet = publish("t", "probe");
    probe(&mut scene, publisher, &packet);
    scene.broker(a, [packet.clone(), packet.clone()].concat());
    scene.broker(b, &packet);
    answer(&mut scene, publisher);
    probe(&mut scene, publisher, &publish("t", "2"));
}

#[test]
fn a_copy_in_pieces_is_one_when_it_is_whole() {
    let (mut scene, publisher, [a, b]) = plain();
    let packet = publish("t", "probe");
    probe(&mut scene, publisher, &packet);
    packet.chunks(3).for_each(|part| scene.broker(a, part));
    assert_eq!(scene.client_gets(a), packet);
    serve(&mut scene, publisher, &[b], &packet);
    scene.card_takes(publisher, publish("t", "1"));
}

// (b)

#[test]
fn a_window_is_void_if_somebody_else_says_the_same_meanwhile() {
    let same: [(&str, Vec<u8>); 4] = [
        ("qos 0", publish("t", "probe")),
        ("qos 1", publish_qos1("t", 1, "probe")),
        ("qos 2", publish_qos2("t", 1, "probe")),
        ("retained", publish_retained("t", "probe")),
    ];
    for (what, packet) in same {
        let (mut scene, publisher, both) = plain();
        let other = scene.connect(v311("o"));
        probe(&mut scene, publisher, &publish("t", "probe"));
        scene.client(other, &packet);
        serve(&mut scene, publisher, &both, &publish("t", "probe"));
        let before = scene.core.counters().windows_failed;
        assert_eq!(before, 1, "{what}");
    }
}

#[test]
fn a_denied_publisher_that_copies_an_allowed_ones_bytes_is_never_learned() {
    let (mut scene, denied, [a, b]) = plain();
    let allowed = scene.connect(v311("allowed"));
    scene.client(allowed, publish("t", "seen"));
    scene.broker_gets(allowed);
    // The broker serves what the allowed one sent only now that the denied one has sent the same.
    for number in 0..20 {
        scene.client(allowed, publish_qos1("t", 1, "x"));
        scene.broker_takes(denied, Reason::Ambiguous, publish("t", "x"));
        scene.sleep(Duration::from_secs(60));
        for subscriber in [a, b] {
            scene.broker(subscriber, publish("t", "x"));
        }
        assert_eq!(scene.core.counters().windows_whole, 0, "{number}");
    }
    assert_eq!(scene.core.counters().publishes_card, 0);
}

#[test]
fn a_copier_keeps_a_topic_slow_for_a_second_longer_than_it_copies_at_most() {
    let (mut scene, honest, both) = plain();
    let copier = scene.connect(v311("copier"));
    for number in 0..100 {
        let packet = publish("t", &number.to_string());
        scene.client(honest, &packet);
        scene.broker_gets(honest);
        scene.client(copier, &packet);
        scene.broker_gets(copier);
        serve(&mut scene, honest, &both, &packet);
        scene.broker(copier, PINGRESP);
        scene.sleep(Duration::from_secs(30));
    }
    scene.client(honest, publish("t", "the last that is copied"));
    scene.client(copier, publish("t", "the last that is copied"));
    for conn in [honest, copier] {
        scene.broker_gets(conn);
        scene.broker(conn, PINGRESP);
    }
    scene.sleep(Duration::from_secs(1));
    teach(&mut scene, honest, &both, "t");
    scene.card_takes(honest, publish("t", "free"));
}

#[test]
fn what_a_stalled_subscriber_gets_late_teaches_nothing() {
    let (mut scene, denied, [a, b]) = plain();
    let allowed = scene.connect(v311("allowed"));
    scene.client(allowed, publish_qos1("t", 1, "x"));
    // The broker deals with it, but one subscriber takes nothing; nor does what the broker then answers say otherwise.
    scene.core.handle_broker_blocked(a);
    scene.broker(b, publish("t", "x"));
    scene.broker_takes(denied, Reason::SubscriberBacklogged, publish("t", "x"));
    // One that stalls while the window is open.
    let (mut scene, denied, [a, b]) = plain();
    let packet = publish("t", "probe");
    probe(&mut scene, denied, &packet);
    scene.core.handle_broker_blocked(b);
    serve(&mut scene, denied, &[a, b], &packet);
    assert_eq!(scene.core.counters().windows_whole, 0);
    // And takes what waited for it before the window closes.
    let (mut scene, denied, [a, b]) = plain();
    let other = scene.connect(v311("o"));
    probe(&mut scene, denied, &packet);
    scene.core.handle_broker_blocked(b);
    scene.broker_takes(other, Reason::SubscriberBacklogged, publish("t", "other"));
    assert_eq!(scene.broker_gets(b), PINGREQ);
    answer(&mut scene, b);
    serve(&mut scene, denied, &[a, b], &packet);
    assert_eq!(scene.core.counters().windows_whole, 0);
}

#[test]
fn an_equal_message_on_its_way_is_asked_about_and_then_no_obstacle() {
    let (mut scene, publisher, both) = plain();
    let other = scene.connect(v311("o"));
    scene.client(other, publish_qos1("t", 1, "on"));
    scene.broker_gets(other);
    assert_eq!(scene.broker_takes(publisher, Reason::Ambiguous, publish("t", "on")), []);
    assert_eq!(scene.broker_gets(other), PINGREQ);
    // Asked once.
    scene.broker_takes(publisher, Reason::Ambiguous, publish("t", "on"));
    assert_eq!(scene.broker_gets(other), []);
    answer(&mut scene, other);
    // Its own are on their way too.
    scene.broker_takes(publisher, Reason::Ambiguous, publish("t", "on"));
    answer(&mut scene, publisher);
    answer(&mut scene, publisher);
    probe(&mut scene, publisher, &publish("t", "on"));
    serve(&mut scene, publisher, &both, &publish("t", "on"));
    scene.card_takes(publisher, publish("t", "on"));
}

#[test]
fn a_will_may_be_the_copy_for_as_long_as_its_client_is_there_and_one_answer_longer() {
    let (mut scene, publisher, both) = plain();
    let mut body = b"\x00\x04MQTT\x04\x06\x00\x00\x00\x01w".to_vec();
    body.extend([string("t"), string("gone")].concat());
    let willing = scene.open();
    scene.client(willing, packet(0x10, &body));
    scene.broker(willing, connack(4, false, 0, &[]));
    scene.broker_takes(publisher, Reason::Ambiguous, publish("t", "gone"));
    scene.close(willing);
    assert_eq!(scene.broker_takes(publisher, Reason::Ambiguous, publish("t", "gone")), PINGREQ);
    answer(&mut scene, publisher);
    probe(&mut scene, publisher, &publish("t", "gone"));
    serve(&mut scene, publisher, &both, &publish("t", "gone"));
    scene.card_takes(publisher, publish("t", "gone"));
}

#[test]
fn what_is_not_read_may_be_anything_until_it_is_answered() {
    let alias_defined = publish_v5("u", &[0x23, 0, 1], "1");
    let unread: [(&str, u8, Vec<Vec<u8>>); 3] = [
        ("alias", 5, vec![alias_defined, publish_v5("", &[0x23, 0, 1], "2")]),
        ("long properties", 5, vec![publish_with_long_properties("u", "2")]),
        ("release of nothing known", 4, vec![pubrel(9)]),
    ];
    for (what, level, packets) in unread {
        let (mut scene, publisher, _) = plain();
        let other = scene.connect(ConnectPacket { level, ..v311("o") });
        packets.iter().for_each(|packet| scene.client(other, packet));
        let asked = scene.broker_gets(other).ends_with(&PINGREQ);
        if what == "release of nothing known" {
            // It may even have released a message that changes who may do what.
            assert!(asked);
            scene.broker_takes(publisher, Reason::PolicyUnsettled, publish("t", "1"));
        } else {
            scene.broker_takes(publisher, Reason::Ambiguous, publish("t", "1"));
            assert_eq!(scene.broker_gets(other), PINGREQ, "{what}");
        }
        answer(&mut scene, other);
        assert_eq!(scene.broker_takes(publisher, Reason::Probe, publish("t", "2")), PINGREQ);
    }
}

#[test]
fn large_messages_say_nothing_a_watched_one_could() {
    let (mut scene, publisher, both) = plain();
    let new = scene.connect(v5("new"));
    scene.client(new, publish_v5("t", &[], &"x".repeat(100_000)));
    let other = scene.connect(v311("o"));
    scene.client(other, publish_qos1("t", 1, &"x".repeat(100_000)));
    scene.client(other, publish_qos2("t", 2, &"x".repeat(100_000)));
    scene.client(other, pubrel(2));
    teach(&mut scene, publisher, &both, "t");
    scene.card_takes(publisher, publish("t", "1"));
}

#[test]
fn a_qos_2_message_is_on_its_way_again_when_it_is_released() {
    let (mut scene, publisher, _) = plain();
    let other = scene.connect(v311("o"));
    scene.client(other, publish_qos2("t", 7, "on"));
    scene.broker_takes(publisher, Reason::Ambiguous, publish("t", "on"));
    answer(&mut scene, other);
    scene.client(other, pubrel(7));
    scene.broker_takes(publisher, Reason::Ambiguous, publish("t", "on"));
    // Nothing else is.
    scene.broker_takes(publisher, Reason::Probe, publish("t", "off"));
}

#[test]
fn something_unseen_makes_open_windows_void_and_one_answer_more_is_needed() {
    let (mut scene, publisher, both) = plain();
    probe(&mut scene, publisher, &publish("t", "probe"));
    scene.core.handle_outside(0, 1);
    scene.core.handle_outside(0, -1);
    serve(&mut scene, publisher, &both, &publish("t", "probe"));
    assert_eq!(scene.broker_takes(publisher, Reason::Ambiguous, publish("t", "1")), PINGREQ);
    answer(&mut scene, publisher);
    teach(&mut scene, publisher, &both, "t");
    let stranger = scene.open();
    scene.client(stranger, b"GET / HTTP/1.1");
    scene.broker_takes(publisher, Reason::OpaqueConnection, publish("t", "2"));
    scene.close(stranger);
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "3")), PINGREQ);
    answer(&mut scene, publisher);
    scene.card_takes(publisher, publish("t", "4"));
}

// (c)

#[test]
fn who_is_missed_again_and_again_is_left_out() {
    let (mut scene, publisher, [a, b]) = plain();
    for number in 0..MISSES {
        let packet = publish("t", &number.to_string());
        probe(&mut scene, publisher, &packet);
        serve(&mut scene, publisher, &[a], &packet);
    }
    card_serves(&mut scene, publisher, &[a], &publish("t", "x"));
    scene.assert_quiet(b);
    assert_eq!(scene.core.counters().deliveries_card, 1);
}

#[test]
fn one_copy_among_the_misses_and_the_count_begins_anew() {
    let (mut scene, publisher, [a, b]) = plain();
    for number in 0..2 * MISSES {
        let packet = publish("t", &number.to_string());
        probe(&mut scene, publisher, &packet);
        let is_served = number == MISSES - 1;
        let served = if is_served { &[a, b][..] } else { &[a] };
        serve(&mut scene, publisher, served, &packet);
        if is_served {
            scene.core.handle_policy_change();
        }
    }
    assert_eq!(scene.core.counters().publishes_card, 0);
    assert_eq!(scene.core.counters().windows_whole, 2);
}

#[test]
fn who_gets_the_message_in_another_form_is_not_left_out() {
    let form = publish_v5("t", &[0x23, 0, 1], "x");
    for other_form in [form, publish_v5("", &[0x23, 0, 1], "y"), publish_v5("m/t", &[], "probe")] {
        let mut scene = observing();
        let conn = scene.connect(v5("s"));
        scene.subscribe_v5(conn, &[], "t", 0);
        let a = scene.subscriber("a", "t");
        let publisher = scene.connect(v311("p"));
        first(&mut scene, publisher, "t");
        for _ in 0..2 * MISSES {
            probe(&mut scene, publisher, &publish("t", "probe"));
            scene.broker(conn, &other_form);
            serve(&mut scene, publisher, &[a], &publish("t", "probe"));
        }
        assert_eq!(scene.core.counters().windows_whole, 0);
    }
}

#[test]
fn a_publisher_nobody_hears_stays_with_the_broker() {
    let (mut scene, publisher, _) = plain();
    let mut reasons = Vec::new();
    for number in 0..30 {
        let before = scene.core.counters().clone();
        scene.client(publisher, publish("t", &format!("{number:02}")));
        let after = scene.core.counters();
        reasons.push(Reason::ALL.into_iter().find(|&it| after.broker(it) > before.broker(it)));
        if scene.broker_gets(publisher).ends_with(&PINGREQ) {
            answer(&mut scene, publisher);
        }
    }
    assert_eq!(scene.core.counters().publishes_card, 0);
    // It is looked at less and less often.
    assert_eq!(reasons[0], Some(Reason::Probe));
    assert_eq!(reasons[29], Some(Reason::NobodyServed));
    scene.broker_takes(publisher, Reason::NobodyServed, publish("t", "x"));
    scene.sleep(Duration::from_secs(60));
    probe(&mut scene, publisher, &publish("t", "y"));
}

// (d)

#[test]
fn a_larger_message_than_was_seen_delivered_is_watched() {
    let (mut scene, publisher, both) = plain();
    teach(&mut scene, publisher, &both, "t");
    scene.card_takes(publisher, publish("t", "12345"));
    probe(&mut scene, publisher, &publish("t", "123456"));
    both.iter().for_each(|&conn| drop(scene.client_gets(conn)));
    serve(&mut scene, publisher, &both, &publish("t", "123456"));
    scene.card_takes(publisher, publish("t", "654321"));
}

#[test]
fn another_connection_of_the_same_name_begins_anew() {
    let (mut scene, publisher, both) = plain();
    teach(&mut scene, publisher, &both, "t");
    scene.client(publisher, DISCONNECT);
    scene.close(publisher);
    assert_eq!(scene.core.counters().learned, 0);
    let again = scene.connect(v311("p"));
    first(&mut scene, again, "t");
    // And another topic of one that is known.
    teach(&mut scene, again, &both, "t");
    scene.subscriber("c", "u");
    first(&mut scene, again, "u");
}

#[test]
fn a_newcomer_costs_one_watched_message_and_a_leaver_none() {
    let (mut scene, publisher, [a, b]) = plain();
    teach(&mut scene, publisher, &[a, b], "t");
    let c = scene.subscriber("c", "t");
    teach(&mut scene, publisher, &[a, b, c], "t");
    card_serves(&mut scene, publisher, &[a, b, c], &publish("t", "1"));
    scene.client(b, DISCONNECT);
    scene.close(b);
    card_serves(&mut scene, publisher, &[a, c], &publish("t", "2"));
}

#[test]
fn a_subscription_that_was_renewed_is_another_one() {
    let (mut scene, publisher, both) = plain();
    teach(&mut scene, publisher, &both, "t");
    scene.subscribe(both[0], "t");
    teach(&mut scene, publisher, &both, "t");
    scene.card_takes(publisher, publish("t", "1"));
}

#[test]
fn who_misses_what_is_too_large_for_it_is_not_left_out() {
    let mut scene = observing();
    let large = publish("t", "a large message");
    let properties = [0x27, 0, 0, 0, large.len() as u8 - 2];
    let small = scene.connect(ConnectPacket { properties: &properties, ..v5("small") });
    scene.subscribe_v5(small, &[], "t", 0);
    let a = scene.subscriber("a", "t");
    let publisher = scene.connect(v311("p"));
    first(&mut scene, publisher, "t");
    for _ in 0..2 * MISSES {
        probe(&mut scene, publisher, &large);
        serve(&mut scene, publisher, &[a], &large);
    }
    probe(&mut scene, publisher, &publish("t", "1"));
    scene.broker(small, publish_v5("t", &[], "1"));
    serve(&mut scene, publisher, &[a], &publish("t", "1"));
    scene.card_takes(publisher, publish("t", "2"));
    assert_eq!(
        scene.client_gets(small),
        [publish_v5("t", &[], "1"), publish_v5("t", &[], "2")].concat()
    );
}

#[test]
fn what_was_learned_is_learned_anew_after_a_flush() {
    let (mut scene, publisher, both) = plain();
    teach(&mut scene, publisher, &both, "t");
    card_serves(&mut scene, publisher, &both, &publish("t", "1"));
    assert_eq!(scene.core.flush_routes(), 1);
    assert_eq!(scene.core.counters().learned, 0);
    teach(&mut scene, publisher, &both, "t");
    scene.card_takes(publisher, publish("t", "2"));
}

//! Permission by observation of a broker whose answers prove nothing: what everybody's copies teach, and what could have made them
//! otherwise.

use std::time::Duration;

use super::observe::{first, observing};
use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{ConnId, CoreConfig, Mode, Reason};

const HOUR: Duration = Duration::from_secs(3_600);

/// Nobody yet.
fn nobody() -> Scene {
    let mut scene = observing();
    scene.core.expect_late_deliveries();
    scene
}

/// A publisher whose first PUBLISH on `t` has come to both subscribers.
fn late() -> (Scene, ConnId, [ConnId; 2]) {
    let mut scene = nobody();
    let both = [scene.subscriber("a", "t"), scene.subscriber("b", "t")];
    let publisher = scene.connect(v311("p"));
    first(&mut scene, publisher, "t");
    deliver(&mut scene, &both, &publish("t", "first"));
    (scene, publisher, both)
}

/// The broker sends each of these a copy.
#[track_caller]
fn deliver(scene: &mut Scene, subscribers: &[ConnId], packet: &[u8]) {
    for &subscriber in subscribers {
        scene.broker(subscriber, packet);
        assert!(scene.client_gets(subscriber).starts_with(packet));
    }
}

/// A PUBLISH that is watched. No PINGREQ is behind it: its answer would say nothing.
#[track_caller]
fn probe(scene: &mut Scene, publisher: ConnId, packet: &[u8]) {
    assert_eq!(scene.broker_takes(publisher, Reason::Probe, packet), []);
}

/// A PUBLISH that teaches nothing.
#[track_caller]
fn in_vain(scene: &mut Scene, publisher: ConnId, packet: &[u8]) {
    assert_eq!(scene.broker_takes(publisher, Reason::Ambiguous, packet), []);
}

/// Teaches the card that all of these are served.
#[track_caller]
fn teach(scene: &mut Scene, publisher: ConnId, subscribers: &[ConnId], packet: &[u8]) {
    probe(scene, publisher, packet);
    deliver(scene, subscribers, packet);
    assert!(scene.core.counters().learned > 0);
}

/// Whatever this publisher sends on `t` goes to the broker.
#[track_caller]
fn assert_not_learned(scene: &mut Scene, publisher: ConnId, payload: &str) {
    scene.client(publisher, publish("t", payload));
    scene.sleep(Duration::from_millis(20));
    assert_eq!(scene.broker_gets(publisher), publish("t", payload));
    assert_eq!(scene.core.counters().publishes_card, 0);
}

#[test]
fn once_every_subscriber_has_its_copy_the_card_distributes() {
    let (mut scene, publisher, both) = late();
    probe(&mut scene, publisher, &publish("t", "1"));
    deliver(&mut scene, &both[..1], &publish("t", "1"));
    scene.client(publisher, publish("t", "2"));
    scene.assert_quiet(publisher);
    // The last copy, and behind it what waited for it.
    scene.broker(both[1], publish("t", "1"));
    assert_eq!(scene.client_gets(both[1]), [publish("t", "1"), publish("t", "2")].concat());
    scene.card_takes(publisher, publish("t", "3"));
    assert_eq!(scene.client_gets(both[0]), [publish("t", "2"), publish("t", "3")].concat());
    assert_eq!(scene.core.counters().windows_whole, 1);
}

#[test]
fn one_who_is_missed_keeps_the_topic_with_the_broker_however_often() {
    let (mut scene, publisher, [a, _]) = late();
    for number in 0..100 {
        let payload = number.to_string();
        assert_not_learned(&mut scene, publisher, &payload);
        deliver(&mut scene, &[a], &publish("t", &payload));
        scene.sleep(Duration::from_secs(number % 7));
    }
}

#[test]
fn a_copy_that_differs_in_one_byte_teaches_nothing() {
    for copy in [publish("t", "probf"), publish("T", "probe"), publish_retained("t", "probe")] {
        let (mut scene, publisher, [a, b]) = late();
        probe(&mut scene, publisher, &publish("t", "probe"));
        deliver(&mut scene, &[a], &publish("t", "probe"));
        deliver(&mut scene, &[b], &copy);
        assert_not_learned(&mut scene, publisher, "next");
    }
}

#[test]
fn what_came_out_whole_may_be_said_again() {
    let (mut scene, publisher, both) = late();
    let on = publish("t", "on");
    teach(&mut scene, publisher, &both, &on);
    let other = scene.connect(v311("o"));
    scene.broker_takes(other, Reason::Unobserved, &on);
    deliver(&mut scene, &both, &on);
    teach(&mut scene, other, &both, &on);
    scene.card_takes(publisher, &on);
    scene.card_takes(other, &on);
}

// Equal words of somebody else

#[test]
fn a_denied_publisher_that_copies_what_is_on_its_way_is_never_learned() {
    let (mut scene, denied, both) = late();
    let allowed = scene.connect(v311("allowed"));
    for number in 0..20 {
        let x = publish("t", &format!("x{number}"));
        scene.client(allowed, &x);
        scene.sleep(Duration::from_millis(20));
        assert_eq!(scene.broker_gets(allowed), x);
        // The broker takes its time.
        scene.client(denied, &x);
        assert_eq!(scene.broker_gets(denied), x);
        scene.sleep(Duration::from_secs(60 * (number % 2)));
        deliver(&mut scene, &both, &x);
        scene.client(denied, &x);
        assert_eq!(scene.broker_gets(denied), x);
    }
    assert_eq!(scene.core.counters().windows_whole, 0);
    assert_eq!(scene.core.counters().publishes_card, 0);
}

#[test]
fn a_denied_publisher_whose_words_are_said_after_it_is_never_learned() {
    let same: [(&str, Vec<u8>); 4] = [
        ("qos 0", publish("t", "x")),
        ("qos 1", publish_qos1("t", 1, "x")),
        ("qos 2", publish_qos2("t", 1, "x")),
        ("retained", publish_retained("t", "x")),
    ];
    for (what, packet) in same {
        let (mut scene, denied, both) = late();
        let allowed = scene.connect(v311("allowed"));
        probe(&mut scene, denied, &publish("t", "x"));
        scene.client(allowed, &packet);
        deliver(&mut scene, &both, &publish("t", "x"));
        deliver(&mut scene, &both, &publish("t", "x"));
        assert_not_learned(&mut scene, denied, "y");
        assert_eq!(scene.core.counters().windows_whole, 0, "{what}");
    }
}

#[test]
fn as_many_copies_as_messages_settle_their_words_and_fewer_do_not() {
    let (mut scene, publisher, both) = late();
    let other = scene.connect(v311("o"));
    let on = publish("t", "on");
    probe(&mut scene, publisher, &on);
    scene.broker_takes(other, Reason::Unobserved, &on);
    deliver(&mut scene, &both, &on);
    in_vain(&mut scene, other, &on);
    deliver(&mut scene, &both, &on);
    deliver(&mut scene, &both[..1], &on);
    in_vain(&mut scene, other, &on);
    for _ in 0..2 {
        deliver(&mut scene, &both, &on);
    }
    assert_eq!(scene.core.counters().windows_whole, 0);
    // One of the four copies that one of them had was of nothing that was said.
    in_vain(&mut scene, other, &on);
    let off = publish("t", "off");
    teach(&mut scene, other, &both, &off);
}

#[test]
fn words_that_did_not_come_out_whole_teach_nothing_ever_after() {
    type Say = fn(&mut Scene);
    let said: [(&str, Say); 5] = [
        ("qos 1", |scene| {
            let conn = scene.connect(v311("o"));
            scene.client(conn, publish_qos1("t", 1, "x"));
        }),
        ("retained", |scene| {
            let conn = scene.connect(v311("o"));
            scene.client(conn, publish_retained("t", "x"));
        }),
        ("before the answer", |scene| {
            let conn = scene.knock(v311("o"));
            scene.client(conn, publish("t", "x"));
        }),
        ("a will", |scene| {
            let body = [&b"\x00\x04MQTT\x04\x06\x00\x00\x00\x01w"[..], &string("t"), &string("x")];
            let conn = scene.open();
            scene.client(conn, packet(0x10, &body.concat()));
            scene.broker(conn, connack(4, false, 0, &[]));
            scene.close(conn);
        }),
        ("of one who was taken over", |scene| {
            let old = scene.connect(v311("o"));
            scene.connect(v311("o"));
            scene.client(old, publish("t", "x"));
        }),
    ];
    for (what, say) in said {
        let (mut scene, publisher, both) = late();
        say(&mut scene);
        scene.sleep(HOUR);
        in_vain(&mut scene, publisher, &publish("t", "x"));
        deliver(&mut scene, &both, &publish("t", "x"));
        assert_eq!(scene.core.counters().windows_whole, 0, "{what}");
        teach(&mut scene, publisher, &both, &publish("t", "y"));
    }
}

#[test]
fn what_nobody_wanted_may_come_to_who_wants_it_later() {
    let mut scene = nobody();
    let (denied, allowed) = (scene.connect(v311("d")), scene.connect(v311("a")));
    scene.broker_takes(allowed, Reason::NoMatch, publish("t", "x"));
    let subscriber = scene.subscriber("s", "t");
    first(&mut scene, denied, "t");
    in_vain(&mut scene, denied, &publish("t", "x"));
    deliver(&mut scene, &[subscriber], &publish("t", "x"));
    assert_eq!(scene.core.counters().windows_whole, 0);
}

#[test]
fn an_account_is_kept_for_a_while_and_its_copies_prove_nothing_afterwards() {
    let (mut scene, publisher, both) = late();
    probe(&mut scene, publisher, &publish("t", "1"));
    scene.sleep(Duration::from_secs(2));
    probe(&mut scene, publisher, &publish("t", "2"));
    deliver(&mut scene, &both, &publish("t", "1"));
    assert_eq!(scene.core.counters().windows_whole, 0);
    scene.sleep(Duration::from_secs(2));
    in_vain(&mut scene, publisher, &publish("t", "1"));
    teach(&mut scene, publisher, &both, &publish("t", "3"));
}

#[test]
fn a_flood_of_what_never_comes_costs_the_oldest_accounts() {
    let (mut scene, publisher, both) = late();
    probe(&mut scene, publisher, &publish("t", "1"));
    let flooding = scene.connect(v311("f"));
    for number in 0..5_000 {
        scene.client(flooding, publish("t", &format!("f{number}")));
        scene.broker_gets(flooding);
        if number == 1 {
            // Behind a watched one it waits.
            scene.sleep(Duration::from_millis(20));
        }
    }
    scene.sleep(Duration::from_millis(20));
    scene.broker_gets(flooding);
    deliver(&mut scene, &both, &publish("t", "1"));
    assert_eq!(scene.core.counters().windows_whole, 0);
    probe(&mut scene, publisher, &publish("t", "2"));
    deliver(&mut scene, &both, &publish("t", "2"));
    assert_eq!(scene.core.counters().windows_whole, 1);
}

// Who is there

#[test]
fn a_subscriber_that_stalls_teaches_nothing() {
    let (mut scene, publisher, both) = late();
    probe(&mut scene, publisher, &publish("t", "1"));
    scene.core.handle_broker_blocked(both[1]);
    deliver(&mut scene, &both, &publish("t", "1"));
    assert_eq!(scene.core.counters().windows_whole, 0);
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "2"));
}

#[test]
fn a_newcomer_has_to_be_served_too() {
    let (mut scene, publisher, [a, b]) = late();
    probe(&mut scene, publisher, &publish("t", "1"));
    let c = scene.subscriber("c", "t");
    deliver(&mut scene, &[a, b], &publish("t", "1"));
    assert_eq!(scene.core.counters().windows_whole, 0);
    teach(&mut scene, publisher, &[a, b, c], &publish("t", "2"));
    scene.card_takes(publisher, publish("t", "3"));
    [a, c].iter().for_each(|&conn| drop(scene.client_gets(conn)));
    // One who goes costs nothing.
    scene.close(b);
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "4"));
    deliver(&mut scene, &[c, a], &publish("t", "4"));
    scene.card_takes(publisher, publish("t", "5"));
}

#[test]
fn a_copy_for_somebody_who_was_not_to_get_one_makes_the_others_void() {
    let (mut scene, publisher, both) = late();
    let stranger = scene.subscriber("s", "u");
    probe(&mut scene, publisher, &publish("t", "1"));
    deliver(&mut scene, &[stranger], &publish("t", "1"));
    deliver(&mut scene, &both, &publish("t", "1"));
    assert_not_learned(&mut scene, publisher, "2");
}

#[test]
fn two_copies_where_one_was_to_come_teach_nothing() {
    let (mut scene, publisher, [a, b]) = late();
    probe(&mut scene, publisher, &publish("t", "1"));
    deliver(&mut scene, &[a, a, b], &publish("t", "1"));
    assert_not_learned(&mut scene, publisher, "2");
    scene.sleep(HOUR);
    in_vain(&mut scene, publisher, &publish("t", "1"));
}

#[test]
fn the_copies_of_one_who_left_teach_nothing_of_who_has_its_number_next() {
    let (mut scene, publisher, both) = late();
    probe(&mut scene, publisher, &publish("t", "1"));
    scene.close(publisher);
    scene.core.handle_open(publisher, scene.now);
    scene.client(publisher, v311("denied").bytes());
    scene.broker_gets(publisher);
    scene.broker(publisher, connack(4, false, 0, &[]));
    scene.client_gets(publisher);
    deliver(&mut scene, &both, &publish("t", "1"));
    assert_eq!((scene.core.counters().windows_whole, scene.core.counters().learned), (0, 0));
    probe(&mut scene, publisher, &publish("t", "2"));
}

// Time and policy

#[test]
fn what_is_learned_ends_after_a_time_and_with_any_event() {
    let (mut scene, publisher, both) = late();
    scene.core.handle_policy_watched();
    teach(&mut scene, publisher, &both, &publish("t", "1"));
    scene.card_takes(publisher, publish("t", "2"));
    both.iter().for_each(|&conn| drop(scene.client_gets(conn)));
    scene.sleep(Duration::from_secs(5));
    teach(&mut scene, publisher, &both, &publish("t", "3"));
    scene.core.handle_policy_change();
    scene.broker_takes(publisher, Reason::Probe, publish("t", "4"));
    // What was on its way when the event came shows what was allowed before it.
    scene.core.handle_policy_change();
    deliver(&mut scene, &both, &publish("t", "4"));
    assert_eq!(scene.core.counters().windows_whole, 2);
}

#[test]
fn a_larger_message_than_was_seen_delivered_is_watched() {
    let (mut scene, publisher, both) = late();
    teach(&mut scene, publisher, &both, &publish("t", "1"));
    probe(&mut scene, publisher, &publish("t", "22"));
}

// What is not read

#[test]
fn what_was_not_read_said_nothing_longer_than_itself() {
    let (mut scene, publisher, both) = late();
    let other = scene.connect(v311("o"));
    // Not MQTT: a PUBLISH with QoS 3.
    scene.client(other, packet(0x36, &[&string("t")[..], &[0, 9], b"xy"].concat()));
    scene.broker_takes(publisher, Reason::OpaqueConnection, publish("t", "1"));
    deliver(&mut scene, &both, &publish("t", "1"));
    scene.close(other);
    in_vain(&mut scene, publisher, &publish("t", "xy"));
    deliver(&mut scene, &both, &publish("t", "xy"));
    teach(&mut scene, publisher, &both, &publish("t", "longer than that"));
}

#[test]
fn a_window_that_was_open_when_something_was_not_read_proves_nothing() {
    let (mut scene, publisher, both) = late();
    let other = scene.connect(v311("o"));
    probe(&mut scene, publisher, &publish("t", "as long as anything"));
    scene.client(other, packet(0x36, &[&string("t")[..], &[0, 9], b"xy"].concat()));
    scene.close(other);
    deliver(&mut scene, &both, &publish("t", "as long as anything"));
    assert_eq!(scene.core.counters().windows_whole, 0);
}

#[test]
fn a_stranger_the_broker_says_nothing_to_has_said_nothing_and_another_one_anything() {
    let (mut scene, publisher, both) = late();
    let stranger = scene.open();
    scene.client(stranger, b"GET / HTTP/1.1\r\n\r\n");
    scene.close(stranger);
    teach(&mut scene, publisher, &both, &publish("t", "longer than that was"));
    let stranger = scene.open();
    scene.client(stranger, b"\x16\x03\x01");
    scene.broker(stranger, b"\x16\x03\x03");
    assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
    scene.close(stranger);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::TrustNotEstablished));
    scene.broker_takes(publisher, Reason::TrustNotEstablished, publish("t", "2"));
}

#[test]
fn what_came_in_outside_may_come_out_at_any_time() {
    let (mut scene, publisher, both) = late();
    teach(&mut scene, publisher, &both, &publish("t", "1"));
    scene.core.handle_outside(0, 1);
    scene.broker_takes(publisher, Reason::OutsideConnection, publish("t", "2"));
    scene.core.handle_outside(0, -1);
    scene.sleep(HOUR);
    scene.broker_takes(publisher, Reason::TrustNotEstablished, publish("t", "3"));
}

#[test]
fn what_is_too_long_to_be_read_may_be_anything_on_its_topic() {
    let (mut scene, publisher, both) = late();
    let other = scene.connect(v5("o"));
    scene.client(other, publish_v5("t", &[], &"x".repeat(100_000)));
    teach(&mut scene, publisher, &both, &publish("t", "1"));
    probe(&mut scene, publisher, &publish("t", "22"));
    scene.client(other, publish_with_long_properties("t", "x"));
    deliver(&mut scene, &both, &publish("t", "22"));
    assert_eq!(scene.core.counters().windows_whole, 1);
    in_vain(&mut scene, publisher, &publish("t", "333"));
    // On another one nothing.
    let third = scene.subscriber("c", "u");
    first(&mut scene, publisher, "u");
    teach(&mut scene, publisher, &[third], &publish("u", "1"));
}

#[test]
fn what_is_said_by_an_alias_that_is_not_known_may_be_on_any_topic() {
    let (mut scene, publisher, both) = late();
    let other = scene.connect(v5("o"));
    probe(&mut scene, publisher, &publish("t", "x"));
    scene.client(other, publish_v5("", &[0x23, 0, 1], "x"));
    deliver(&mut scene, &both, &publish("t", "x"));
    assert_eq!(scene.core.counters().windows_whole, 0);
    in_vain(&mut scene, publisher, &publish("t", "x"));
    teach(&mut scene, publisher, &both, &publish("t", "y"));
}

#[test]
fn a_release_adds_nothing_to_what_was_said_before() {
    let (mut scene, publisher, both) = late();
    let other = scene.connect(v311("o"));
    scene.client(other, [publish_qos2("t", 7, "x"), pubrel(7), pubrel(9)].concat());
    scene.broker_gets(other);
    scene.broker(other, PINGRESP);
    in_vain(&mut scene, publisher, &publish("t", "x"));
    teach(&mut scene, publisher, &both, &publish("t", "y"));
    // Of a session that is older than the card nobody knows what it had sent.
    let resumed = scene.connect_with(persistent("r"), true);
    scene.client(resumed, pubrel(9));
    scene.client(resumed, DISCONNECT);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::UnknownSession));
    scene.close(resumed);
    let clean = scene.connect(v311("r"));
    scene.close(clean);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::TrustNotEstablished));
}

#[test]
fn one_who_is_there_before_the_broker_is_known_may_have_said_anything() {
    let mut scene = observing();
    scene.connect(v311("early"));
    scene.core.expect_late_deliveries();
    assert_eq!(scene.core.status().slow_reason, Some(Reason::TrustNotEstablished));
}

#[test]
fn in_shadow_only_what_everybody_got_is_the_same() {
    let mut scene = Scene::with_config(CoreConfig { mode: Mode::Shadow, ..CoreConfig::default() });
    scene.core.expect_late_deliveries();
    let both = [scene.subscriber("a", "t"), scene.subscriber("b", "t")];
    let publisher = scene.connect(v311("p"));
    first(&mut scene, publisher, "t");
    deliver(&mut scene, &both, &publish("t", "first"));
    teach(&mut scene, publisher, &both, &publish("t", "1"));
    scene.broker_takes(publisher, Reason::Shadow, publish("t", "2"));
    deliver(&mut scene, &both, &publish("t", "2"));
    scene.broker_takes(publisher, Reason::Shadow, publish("t", "3"));
    scene.sleep(Duration::from_secs(3));
    scene.broker_takes(publisher, Reason::Shadow, publish("t", "4"));
    let counters = scene.core.counters();
    assert_eq!((counters.shadow_same, counters.shadow_unproven), (1, 1));
    assert_eq!(counters.publishes_card, 0);
}

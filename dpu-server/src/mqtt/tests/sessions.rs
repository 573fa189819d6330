//! Sessions that come, go, wait and are taken over; and the ones the card does not know.

use std::time::Duration;

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{CoreConfig, Forgotten, Limits, Reason, SessionState, Trust};

#[test]
fn a_clean_session_ends_with_its_connection() {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    scene.core.handle_client_gone(subscriber, scene.now);
    scene.broker_takes(publisher, Reason::NoMatch, publish("t", "1"));
    scene.close(subscriber);
    assert_eq!(scene.core.counters().sessions, 1);
    assert_eq!(scene.core.counters().subscriptions, 0);
    assert_eq!(scene.core.counters().connections, 1);
}

#[test]
fn a_persistent_session_waits_offline_and_slows_its_topics() {
    let mut scene = Scene::new();
    let subscriber = scene.connect(persistent("s"));
    scene.subscribe(subscriber, "t");
    scene.subscriber("other", "u");
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("t", "1"));
    scene.close(subscriber);
    scene.card_takes(publisher, publish("u", "2"));
    scene.broker_takes(publisher, Reason::SubscriberOffline, publish("t", "3"));
}

#[test]
fn a_resumed_session_is_fast_again_once_the_broker_has_emptied_its_queue() {
    let mut scene = Scene::new();
    let first = scene.connect(persistent("s"));
    scene.subscribe(first, "t");
    scene.close(first);
    let second = scene.connect_with(persistent("s"), true);
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "1"));
    assert_eq!(scene.broker_gets(second), PINGREQ);
    scene.broker(second, PINGRESP);
    let fresh = scene.connect(v311("p2"));
    scene.card_takes(fresh, publish("t", "2"));
    assert_eq!(scene.client_gets(second), publish("t", "2"));
}

#[test]
fn a_session_the_broker_forgot_has_no_subscriptions() {
    let mut scene = Scene::new();
    let first = scene.connect(persistent("s"));
    scene.subscribe(first, "t");
    scene.close(first);
    scene.connect_with(persistent("s"), false);
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::NoMatch, publish("t", "1"));
}

#[test]
fn a_takeover_unsettles_the_session_until_the_connack() {
    for session_present in [false, true] {
        let mut scene = Scene::new();
        let old = scene.connect(persistent("s"));
        scene.subscribe(old, "t");
        let publisher = scene.connect(v311("p"));
        let new = scene.knock(persistent("s"));
        scene.broker_takes(publisher, Reason::SessionUnsettled, publish("t", "1"));
        scene.core.handle_broker_gone(old, scene.now);
        scene.broker_takes(publisher, Reason::SessionUnsettled, publish("t", "2"));
        scene.broker(new, connack(4, session_present, 0, &[]));
        let reason = if session_present { Reason::SubscriberBacklogged } else { Reason::NoMatch };
        scene.client(publisher, publish("t", "3"));
        assert_eq!(scene.core.counters().broker(reason), 1);
        assert_eq!(scene.core.counters().sessions, 2);
    }
}

#[test]
fn an_offline_session_is_unsettled_by_its_return() {
    let mut scene = Scene::new();
    let old = scene.connect(persistent("s"));
    scene.subscribe(old, "t");
    scene.close(old);
    let publisher = scene.connect(v311("p"));
    scene.knock(persistent("s"));
    scene.broker_takes(publisher, Reason::SessionUnsettled, publish("t", "1"));
}

#[test]
fn a_refused_takeover_changes_nothing() {
    let mut scene = Scene::new();
    let old = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    let new = scene.knock(v311("s"));
    scene.broker(new, connack(4, false, 2, &[]));
    scene.card_takes(publisher, publish("t", "1"));
    assert_eq!(scene.client_gets(old), publish("t", "1"));
    scene.close(new);
    scene.card_takes(publisher, publish("t", "2"));
}

#[test]
fn a_takeover_that_is_never_answered_has_the_old_connection_asked() {
    let mut scene = Scene::new();
    let old = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    let new = scene.knock(v311("s"));
    scene.close(new);
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "1"));
    assert_eq!(scene.broker_gets(old), PINGREQ);
    scene.broker(old, PINGRESP);
    let fresh = scene.connect(v311("p2"));
    scene.card_takes(fresh, publish("t", "2"));
}

#[test]
fn two_clients_of_one_new_name_unsettle_each_other() {
    let mut scene = Scene::new();
    let first = scene.knock(v311("s"));
    let second = scene.knock(v311("s"));
    let publisher = scene.connect(v311("p"));
    scene.broker(first, connack(4, false, 0, &[]));
    scene.client_gets(first);
    scene.subscribe(first, "t");
    scene.broker_takes(publisher, Reason::SessionUnsettled, publish("t", "1"));
    scene.broker(second, connack(4, false, 0, &[]));
    scene.broker_takes(publisher, Reason::NoMatch, publish("t", "2"));
    scene.close(first);
    assert_eq!(scene.core.counters().sessions, 2);
}

#[test]
fn a_session_present_the_card_never_saw_blinds_it_until_that_session_ends() {
    let mut scene = Scene::new();
    scene.subscriber("other", "t");
    let publisher = scene.connect(v311("p"));
    let unknown = scene.connect_with(persistent("u"), true);
    scene.broker_takes(publisher, Reason::UnknownSession, publish("t", "1"));
    scene.close(unknown);
    scene.broker_takes(publisher, Reason::UnknownSession, publish("t", "2"));
    assert_eq!(scene.core.status().unknown_sessions, 1);
    let again = scene.connect_with(persistent("u"), true);
    scene.broker_takes(publisher, Reason::UnknownSession, publish("t", "3"));
    scene.close(again);
    let clean = scene.connect(v311("u"));
    assert_eq!(scene.core.status().slow_reason, None);
    scene.close(clean);
    assert_eq!(scene.core.status().unknown_sessions, 0);
}

#[test]
fn an_unknown_session_that_does_not_outlive_its_connection_ends_with_it() {
    let mut scene = Scene::new();
    let unknown = scene.knock(ConnectPacket { is_clean: false, ..v5("u") });
    scene.broker(unknown, connack(5, true, 0, &[]));
    assert_eq!(scene.core.status().slow_reason, Some(Reason::UnknownSession));
    scene.close(unknown);
    assert_eq!(scene.core.status().slow_reason, None);
}

#[test]
fn version_3_1_cannot_say_whether_a_session_is_present() {
    let mut scene = Scene::new();
    scene.connect(ConnectPacket { level: 3, ..persistent("old") });
    assert_eq!(scene.core.status().slow_reason, Some(Reason::UnknownSession));
}

/// Whether a version 5 session with these expiries is still there after its connection.
fn outlives(connect: &[u8], connack_properties: &[u8], disconnect: Option<&[u8]>) -> bool {
    let mut scene = Scene::new();
    let conn = scene.knock(ConnectPacket { properties: connect, ..v5("s") });
    scene.broker(conn, connack(5, false, 0, connack_properties));
    if let Some(properties) = disconnect {
        let mut body = vec![0, properties.len() as u8];
        body.extend(properties);
        scene.client(conn, packet(0xE0, &body));
    }
    scene.close(conn);
    scene.core.counters().sessions == 1
}

#[test]
fn session_expiry_is_asked_for_overridden_and_changed() {
    let zero: &[u8] = &[0x11, 0, 0, 0, 0];
    let more: &[u8] = &[0x11, 0, 0, 0, 9];
    assert!(!outlives(&[], &[], None));
    assert!(!outlives(zero, &[], None));
    assert!(outlives(more, &[], None));
    assert!(!outlives(more, zero, None));
    assert!(outlives(zero, more, None));
    assert!(outlives(more, &[], Some(&[])));
    assert!(!outlives(more, &[], Some(zero)));
    // From zero it cannot grow: the broker refuses it.
    assert!(!outlives(zero, &[], Some(more)));
}

#[test]
fn an_offline_session_is_forgotten_a_minute_after_its_expiry() {
    let mut scene = Scene::new();
    let expiry = [0x11, 0, 0, 0, 9];
    let conn = scene.connect(ConnectPacket { properties: &expiry, ..v5("s") });
    scene.subscribe_v5(conn, &[], "t", 0);
    let publisher = scene.connect(v311("p"));
    scene.close(conn);
    assert_eq!(scene.core.next_deadline(), Some(scene.now + Duration::from_secs(69)));
    scene.sleep(Duration::from_secs(68));
    scene.broker_takes(publisher, Reason::SubscriberOffline, publish("t", "1"));
    scene.sleep(Duration::from_secs(1));
    scene.broker_takes(publisher, Reason::NoMatch, publish("t", "2"));
    assert_eq!(scene.core.counters().sessions, 1);
    assert_eq!(scene.core.next_deadline(), None);
}

#[test]
fn a_session_that_came_back_in_time_does_not_expire() {
    let mut scene = Scene::new();
    let expiry = [0x11, 0, 0, 0, 9];
    let connect = ConnectPacket { properties: &expiry, is_clean: false, ..v5("s") };
    let conn = scene.connect(connect);
    scene.subscribe_v5(conn, &[], "t", 0);
    scene.close(conn);
    scene.sleep(Duration::from_secs(30));
    let back = scene.knock(connect);
    scene.sleep(Duration::from_secs(60));
    scene.broker(back, connack(5, true, 0, &[]));
    assert_eq!(scene.core.next_deadline(), None);
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "1"));
}

#[test]
fn disconnect_ends_the_session_before_the_connection() {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    scene.client(subscriber, DISCONNECT);
    scene.broker_takes(publisher, Reason::NoMatch, publish("t", "1"));
}

#[test]
fn a_name_the_broker_made_up_is_a_name() {
    let mut scene = Scene::new();
    let expiry = [0x11, 0, 0, 0, 9];
    let conn = scene.knock(ConnectPacket { properties: &expiry, ..v5("") });
    scene.broker(conn, connack(5, false, 0, &[0x12, 0, 2, b'm', b'e']));
    scene.client_gets(conn);
    scene.subscribe_v5(conn, &[], "t", 0);
    scene.close(conn);
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::SubscriberOffline, publish("t", "1"));
    scene.connect(v5("me"));
    scene.broker_takes(publisher, Reason::NoMatch, publish("t", "2"));
}

#[test]
fn clients_without_a_name_are_strangers_to_each_other() {
    let mut scene = Scene::new();
    let one = scene.subscriber("", "t");
    let other = scene.subscriber("", "t");
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("t", "1"));
    assert_eq!(scene.client_gets(one), publish("t", "1"));
    assert_eq!(scene.client_gets(other), publish("t", "1"));
}

#[test]
fn a_subscribe_before_the_connack_slows_everything_until_it_is_settled() {
    let mut scene = Scene::new();
    scene.subscriber("other", "u");
    let publisher = scene.connect(v311("p"));
    let early = scene.open();
    scene.client(early, [v311("e").bytes(), subscribe(1, &["t"])].concat());
    assert_eq!(scene.broker_gets(early), [v311("e").bytes(), subscribe(1, &["t"])].concat());
    scene.broker_takes(publisher, Reason::SubscribePending, publish("u", "1"));
    scene.broker(early, connack(4, false, 0, &[]));
    assert_eq!(scene.broker_gets(early), PINGREQ);
    scene.broker_takes(publisher, Reason::BarrierOut, publish("u", "2"));
    scene.broker_takes(publisher, Reason::SubscribePending, publish("t", "3"));
    scene.broker(early, [suback(1, &[0]), PINGRESP.to_vec()].concat());
    let fresh = scene.connect(v311("p2"));
    scene.card_takes(fresh, publish("t", "4"));
}

#[test]
fn a_subscribe_that_is_never_answered_is_doubted_until_it_is_repeated() {
    let mut scene = Scene::new();
    let first = scene.connect(persistent("s"));
    scene.client(first, subscribe(1, &["t"]));
    scene.close(first);
    let second = scene.connect_with(persistent("s"), true);
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::SubscribePending, publish("t", "1"));
    scene.client(second, subscribe(2, &["t"]));
    scene.broker(second, [suback(2, &[0]), PINGRESP.to_vec()].concat());
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "2"));
    scene.broker(second, PINGRESP);
    let fresh = scene.connect(v311("p2"));
    scene.card_takes(fresh, publish("t", "3"));
}

#[test]
fn answers_that_come_after_the_client_left_still_count() {
    let mut scene = Scene::new();
    let conn = scene.open();
    scene.client(conn, [persistent("s").bytes(), subscribe(1, &["t"])].concat());
    scene.core.handle_client_gone(conn, scene.now);
    scene.broker(conn, [connack(4, false, 0, &[]), suback(1, &[0])].concat());
    scene.close(conn);
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::SubscriberOffline, publish("t", "1"));
    assert_eq!(scene.core.status().slow_reason, None);
}

#[test]
fn a_persistent_connect_with_subscribes_that_is_never_answered_is_unknown() {
    let mut scene = Scene::new();
    let conn = scene.open();
    scene.client(conn, [persistent("s").bytes(), subscribe(1, &["t"])].concat());
    scene.close(conn);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::UnknownSession));
    scene.connect(v311("s"));
    assert_eq!(scene.core.status().slow_reason, None);
}

#[test]
fn beyond_the_last_session_clients_are_opaque() {
    let mut scene = Scene::with_limits(Limits { sessions_max: 1, ..Limits::default() });
    scene.connect(v311("one"));
    let two = scene.open();
    scene.client(two, v311("two").bytes());
    assert_eq!(scene.broker_gets(two), v311("two").bytes());
    assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
    scene.close(two);
    assert_eq!(scene.core.status().slow_reason, None);
}

#[test]
fn beyond_the_last_subscription_clients_are_opaque() {
    let limits = Limits { subscriptions_max: 1, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let conn = scene.subscriber("s", "t");
    scene.subscribe(conn, "t");
    scene.client(conn, subscribe(2, &["u"]));
    assert_eq!(scene.broker_gets(conn), subscribe(2, &["u"]));
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::OpaqueConnection, publish("t", "1"));
    scene.close(conn);
    assert_eq!(scene.core.status().slow_reason, None);
}

#[test]
fn an_opaque_connection_of_a_persistent_session_leaves_an_unknown_session() {
    let mut scene = Scene::new();
    let conn = scene.connect(persistent("s"));
    scene.client(conn, [0xFF, 0xFF]);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
    scene.close(conn);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::UnknownSession));
}

#[test]
fn too_many_unanswered_subscribes_make_a_connection_opaque() {
    let mut scene = Scene::with_limits(Limits { unanswered_max: 2, ..Limits::default() });
    let conn = scene.connect(v311("s"));
    scene.client(conn, [subscribe(1, &["a"]), subscribe(2, &["b"])].concat());
    assert_eq!(scene.core.status().slow_reason, None);
    scene.client(conn, subscribe(3, &["c"]));
    assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
}

#[test]
fn too_many_subscribes_before_the_connack_make_a_connection_opaque() {
    let packet = subscribe(1, &["a"]);
    let limits = Limits { inspect_bytes_max: 3 * packet.len(), ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let conn = scene.knock(v311("s"));
    scene.client(conn, packet.repeat(3));
    assert_eq!(scene.core.status().slow_reason, Some(Reason::SubscribePending));
    scene.client(conn, &packet);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
    assert_eq!(scene.broker_gets(conn), packet.repeat(4));
}

#[test]
fn a_client_that_was_taken_over_publishes_nothing_more() {
    let mut scene = Scene::new();
    scene.subscriber("s", "t");
    let old = scene.connect(v311("p"));
    scene.card_takes(old, publish("t", "1"));
    scene.connect(v311("p"));
    scene.broker_takes(old, Reason::NotConnected, publish("t", "2"));
}

#[test]
fn a_number_is_free_again_after_close() {
    let mut scene = Scene::new();
    let conn = scene.subscriber("s", "t");
    scene.close(conn);
    scene.core.handle_open(conn, scene.now);
    scene.client(conn, v311("s2").bytes());
    scene.broker(conn, connack(4, false, 0, &[]));
    assert_eq!(scene.client_gets(conn), connack(4, false, 0, &[]));
    assert_eq!(scene.core.counters().connections, 1);
}

#[test]
fn a_session_that_is_offline_is_forgotten_when_told_so_and_unknown_when_it_comes_back() {
    let mut scene = Scene::new();
    let subscriber = scene.connect(persistent("s"));
    scene.subscribe(subscriber, "t");
    scene.subscriber("other", "t");
    let publisher = scene.connect(v311("p"));
    assert_eq!(scene.core.forget_session("s"), Forgotten::Connected);
    assert_eq!(scene.core.forget_session("nobody"), Forgotten::Unknown);
    scene.core.handle_client_gone(subscriber, scene.now);
    assert_eq!(scene.core.forget_session("s"), Forgotten::Unsettled, "the broker may still answer");
    scene.close(subscriber);
    scene.broker_takes(publisher, Reason::SubscriberOffline, publish("t", "1"));
    assert_eq!(scene.core.forget_session("s"), Forgotten::Done);
    let other = scene.connect(v311("q"));
    scene.card_takes(other, publish("t", "2"));
    assert_eq!((scene.core.counters().sessions, scene.core.counters().subscriptions), (3, 1));
    let back = scene.knock(persistent("s"));
    assert_eq!(scene.core.forget_session("s"), Forgotten::Unsettled);
    scene.broker(back, connack(4, true, 0, &[]));
    scene.broker_takes(other, Reason::UnknownSession, publish("t", "3"));
}

#[test]
fn all_that_are_offline_are_forgotten_in_steps_and_the_unknown_with_them() {
    let mut scene = Scene::new();
    for number in 0..5 {
        let conn = scene.connect(persistent(&number.to_string()));
        scene.subscribe(conn, "t");
        if number != 2 {
            scene.close(conn);
        }
    }
    let unknown = scene.connect_with(persistent("unknown"), true);
    scene.close(unknown);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::UnknownSession));
    let (mut count, mut from) = (0, Some(0));
    while let Some(at) = from {
        let (more, next) = scene.core.forget_sessions(at, 2);
        (count, from) = (count + more, next);
    }
    assert_eq!(count, 5);
    assert_eq!(scene.core.status().slow_reason, None);
    let (left, next) = scene.core.list_sessions(0, 100, scene.now);
    assert_eq!(next, None);
    let left: Vec<_> = left.iter().map(|it| (it.client_id.as_deref(), it.state)).collect();
    assert_eq!(left, [(Some("2"), SessionState::Connected)]);
}

#[test]
fn an_operator_sees_when_a_session_is_forgotten_and_that_one_is_unknown() {
    let mut scene = Scene::new();
    let conn = scene.knock(ConnectPacket { properties: &[0x11, 0, 0, 0, 100], ..v5("s") });
    scene.broker(conn, connack(5, false, 0, &[]));
    scene.close(conn);
    let unknown = scene.connect_with(persistent("unknown"), true);
    scene.sleep(Duration::from_secs(10));
    let (views, _) = scene.core.list_sessions(0, 100, scene.now);
    assert_eq!(views[0].expires_in, Some(Duration::from_secs(150)), "with a margin");
    assert_eq!((views[0].state, views[0].is_known), (SessionState::Offline, true));
    assert_eq!((views[1].state, views[1].is_known), (SessionState::Connected, false));
    scene.close(unknown);
}

#[test]
fn sessions_from_before_the_card_keep_qos_1_with_the_broker_and_qos_0_where_the_broker_keeps_it() {
    let older =
        CoreConfig { trust: Trust::Suback, has_older_sessions: true, ..CoreConfig::default() };
    for (keeps_offline_qos0, is_mosquitto, is_qos0_slow) in [
        (None, true, false),
        (None, false, true),
        (Some(false), false, false),
        (Some(true), true, true),
    ] {
        let mut scene = Scene::with_config(CoreConfig { keeps_offline_qos0, ..older.clone() });
        if !is_mosquitto {
            scene.core.expect_late_deliveries();
        }
        scene.subscriber("s", "t");
        let publisher = scene.connect(v5("p"));
        let packet = publish_v5("t", &[], "0");
        if is_qos0_slow {
            scene.broker_takes(publisher, Reason::OlderSessions, packet);
            assert_eq!(scene.core.status().slow_reason, Some(Reason::OlderSessions));
        } else {
            scene.card_takes(publisher, packet);
            assert_eq!(scene.core.status().slow_reason, None);
        }
        let reason = if is_mosquitto { Reason::OlderSessions } else { Reason::QosAboveZero };
        scene.broker_takes(publisher, reason, publish_qos1_v5("t", 1, &[], "1"));
        scene.core.forget_sessions(0, 100);
        let fresh = scene.connect(v5("q"));
        scene.card_takes(fresh, publish_v5("t", &[], "2"));
        if is_mosquitto {
            scene.client(fresh, publish_qos1_v5("t", 1, &[], "3"));
            assert_eq!(scene.core.counters().publishes_card, 2 + u64::from(!is_qos0_slow));
        }
    }
}

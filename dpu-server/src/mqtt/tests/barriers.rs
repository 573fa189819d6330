//! What has to come back before the card may go on: barriers, backlogs, and the signs of life the broker must see.

use std::time::Duration;

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{ConnId, Reason};

fn plain() -> (Scene, ConnId, ConnId) {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    (scene, publisher, subscriber)
}

#[test]
fn one_answered_ping_makes_a_publisher_fast_again() {
    let (mut scene, publisher, subscriber) = plain();
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos1("t", 1, "1"));
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2")), PINGREQ);
    scene.broker(publisher, PINGRESP);
    assert_eq!(scene.client_gets(publisher), []);
    scene.card_takes(publisher, publish("t", "3"));
    assert_eq!(scene.client_gets(subscriber), publish("t", "3"));
}

#[test]
fn a_publisher_has_one_barrier_out_at_most() {
    let (mut scene, publisher, _) = plain();
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos1("t", 1, "1"));
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2")), PINGREQ);
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "3")), []);
    // "3" followed the ping, so its answer proves nothing.
    scene.broker(publisher, PINGRESP);
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "4")), PINGREQ);
    scene.broker(publisher, PINGRESP);
    scene.card_takes(publisher, publish("t", "5"));
}

#[test]
fn a_release_of_quality_of_service_2_is_a_slow_publish() {
    let (mut scene, publisher, _) = plain();
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos2("t", 1, "1"));
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2")), PINGREQ);
    scene.broker(publisher, PINGRESP);
    scene.card_takes(publisher, publish("t", "3"));
    scene.client(publisher, pubrel(1));
    assert_eq!(scene.broker_gets(publisher), pubrel(1));
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "4")), PINGREQ);
}

#[test]
fn the_slow_publish_of_another_publisher_changes_nothing() {
    let (mut scene, publisher, _) = plain();
    let other = scene.connect(v311("other"));
    scene.broker_takes(other, Reason::QosAboveZero, publish_qos1("t", 1, "1"));
    scene.card_takes(publisher, publish("t", "2"));
}

#[test]
fn a_topic_that_stays_with_the_broker_holds_up_no_other_topic_of_its_publisher() {
    let (mut scene, publisher, subscriber) = plain();
    scene.broker_takes(publisher, Reason::NoMatch, publish("nobody", "0"));
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "1")), PINGREQ);
    scene.broker(publisher, PINGRESP);
    for payload in ["2", "3", "4"] {
        scene.broker_takes(publisher, Reason::NoMatch, publish("nobody", payload));
        scene.card_takes(publisher, publish("t", payload));
        assert_eq!(scene.client_gets(subscriber), publish("t", payload));
    }
}

#[test]
fn what_the_broker_may_refuse_holds_up_every_topic_of_its_publisher() {
    let (mut scene, publisher, _) = plain();
    for packet in [publish("nobody", "0"), publish("nobody", "larger"), publish_retained("r", "1")]
    {
        scene.client(publisher, packet);
        scene.broker_gets(publisher);
        assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2")), PINGREQ);
        scene.broker(publisher, PINGRESP);
        scene.card_takes(publisher, publish("t", "3"));
    }
}

#[test]
fn the_first_message_with_qos_1_holds_up_those_on_other_topics() {
    let (mut scene, publisher, _) = plain();
    scene.subscriber("u", "u");
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos1("t", 1, "1"));
    let behind = scene.broker_takes(publisher, Reason::BarrierOut, publish_qos1("u", 2, "2"));
    assert_eq!(behind, PINGREQ);
}

#[test]
fn answers_are_swallowed_in_the_order_of_the_questions() {
    let (mut scene, publisher, _) = plain();
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos1("t", 1, "1"));
    scene.client(publisher, PINGREQ);
    scene.broker_gets(publisher);
    assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2")), PINGREQ);
    scene.client(publisher, PINGREQ);
    scene.broker(publisher, PINGRESP);
    assert_eq!(scene.client_gets(publisher), PINGRESP);
    scene.broker(publisher, PINGRESP);
    assert_eq!(scene.client_gets(publisher), []);
    scene.broker(publisher, PINGRESP);
    assert_eq!(scene.client_gets(publisher), PINGRESP);
}

#[test]
fn a_swallowed_answer_returns_its_credit() {
    let (mut scene, publisher, _) = plain();
    scene.broker_takes(publisher, Reason::QosAboveZero, publish_qos1("t", 1, "1"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2"));
    while scene.core.poll_dirty().is_some() {}
    scene.core.outbox_mut(publisher).broker_bytes_drained();
    scene.broker(publisher, PINGRESP);
    assert_eq!(scene.core.poll_dirty(), Some(publisher));
    assert_eq!(scene.core.outbox_mut(publisher).broker_bytes_drained(), 2);
}

#[test]
fn a_subscription_starts_when_answer_and_barrier_are_both_back() {
    for barrier_first in [false, true] {
        let mut scene = Scene::new();
        let subscriber = scene.connect(v311("s"));
        let publisher = scene.connect(v311("p"));
        scene.client(subscriber, subscribe(9, &["t"]));
        assert_eq!(scene.broker_gets(subscriber), [subscribe(9, &["t"]), PINGREQ.into()].concat());
        let mut answers = [suback(9, &[0]), PINGRESP.to_vec()];
        if barrier_first {
            answers.reverse();
        }
        for answer in answers {
            scene.broker_takes(publisher, Reason::SubscribePending, publish("t", "early"));
            scene.broker(subscriber, answer);
        }
        assert_eq!(scene.client_gets(subscriber), suback(9, &[0]));
        assert_eq!(scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "1")), PINGREQ);
        scene.broker(publisher, PINGRESP);
        scene.card_takes(publisher, publish("t", "2"));
    }
}

#[test]
fn a_subscribe_under_way_slows_its_own_topics_only() {
    let (mut scene, publisher, _) = plain();
    let other = scene.connect(v311("o"));
    scene.client(other, subscribe(1, &["u/#", "v"]));
    scene.card_takes(publisher, publish("t", "1"));
    scene.broker_takes(publisher, Reason::SubscribePending, publish("u/x", "2"));
    scene.broker_takes(publisher, Reason::SubscribePending, publish("v", "3"));
}

#[test]
fn a_refused_filter_is_not_subscribed_and_its_neighbours_are() {
    let mut scene = Scene::new();
    let subscriber = scene.connect(v311("s"));
    let publisher = scene.connect(v311("p"));
    scene.client(subscriber, subscribe(1, &["a", "b", "c"]));
    scene.broker(subscriber, [suback(1, &[0, 0x80, 1]), PINGRESP.to_vec()].concat());
    scene.client_gets(subscriber);
    scene.card_takes(publisher, publish("a", "1"));
    scene.card_takes(publisher, publish("c", "2"));
    scene.broker_takes(publisher, Reason::NoMatch, publish("b", "3"));
    assert_eq!(scene.core.counters().subscriptions, 2);
}

#[test]
fn a_refused_second_subscribe_leaves_the_first_as_it_was() {
    let (mut scene, publisher, subscriber) = plain();
    scene.client(subscriber, subscribe(2, &["t"]));
    scene.broker_takes(publisher, Reason::SubscribePending, publish("t", "1"));
    scene.broker(subscriber, [suback(2, &[0x80]), PINGRESP.to_vec()].concat());
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2"));
}

#[test]
fn an_unsubscribe_under_way_is_neither_here_nor_there() {
    let (mut scene, publisher, subscriber) = plain();
    let other = scene.subscriber("o", "t");
    scene.client(subscriber, unsubscribe(2, &["t"]));
    assert_eq!(scene.broker_gets(subscriber), [unsubscribe(2, &["t"]), PINGREQ.into()].concat());
    scene.broker_takes(publisher, Reason::SubscribePending, publish("t", "1"));
    scene.broker(subscriber, [unsuback(2), PINGRESP.to_vec()].concat());
    assert_eq!(scene.client_gets(subscriber), unsuback(2));
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "2"));
    scene.broker(publisher, PINGRESP);
    scene.card_takes(publisher, publish("t", "3"));
    assert_eq!(scene.client_gets(other), publish("t", "3"));
    assert_eq!(scene.client_gets(subscriber), []);
    assert_eq!(scene.core.counters().subscriptions, 1);
}

#[test]
fn unsubscribing_what_was_never_subscribed_leaves_nothing_behind() {
    let mut scene = Scene::new();
    let conn = scene.connect(v311("s"));
    scene.client(conn, unsubscribe(2, &["x"]));
    scene.broker(conn, [unsuback(2), PINGRESP.to_vec()].concat());
    assert_eq!(scene.core.counters().subscriptions, 0);
}

#[test]
fn a_backlogged_subscriber_is_asked_once_and_fast_again_when_it_has_caught_up() {
    let (mut scene, publisher, subscriber) = plain();
    scene.core.handle_broker_blocked(subscriber);
    scene.assert_quiet(subscriber);
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "1"));
    assert_eq!(scene.broker_gets(subscriber), PINGREQ);
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "2"));
    assert_eq!(scene.broker_gets(subscriber), []);
    scene.broker(subscriber, PINGRESP);
    assert_eq!(scene.client_gets(subscriber), []);
    scene.broker_takes(publisher, Reason::BarrierOut, publish("t", "3"));
}

#[test]
fn a_subscriber_blocked_again_stays_backlogged() {
    let (mut scene, publisher, subscriber) = plain();
    scene.core.handle_broker_blocked(subscriber);
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "1"));
    scene.core.handle_broker_blocked(subscriber);
    scene.broker(subscriber, PINGRESP);
    scene.broker_gets(subscriber);
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "2"));
    assert_eq!(scene.broker_gets(subscriber), PINGREQ);
}

#[test]
fn a_backlog_slows_matching_topics_only() {
    let (mut scene, publisher, subscriber) = plain();
    scene.subscriber("other", "u");
    scene.core.handle_broker_blocked(subscriber);
    scene.card_takes(publisher, publish("u", "1"));
}

#[test]
fn a_ping_waits_for_the_end_of_the_clients_packet() {
    let (mut scene, publisher, subscriber) = plain();
    let large = publish_qos1("u", 1, "0123456789");
    scene.client(subscriber, &large[..6]);
    assert_eq!(scene.broker_gets(subscriber), large[..6]);
    scene.core.handle_broker_blocked(subscriber);
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, publish("t", "1"));
    assert_eq!(scene.broker_gets(subscriber), []);
    scene.client(subscriber, &large[6..]);
    assert_eq!(scene.broker_gets(subscriber), [&large[6..], &PINGREQ].concat());
}

#[test]
fn a_copy_waits_for_the_end_of_the_brokers_packet() {
    let (mut scene, publisher, subscriber) = plain();
    let slow = publish("u", "0123456789");
    scene.broker(subscriber, &slow[..6]);
    scene.card_takes(publisher, publish("t", "1"));
    assert_eq!(scene.client_gets(subscriber), slow[..6]);
    scene.broker(subscriber, &slow[6..]);
    assert_eq!(scene.client_gets(subscriber), [&slow[6..], &publish("t", "1")].concat());
    assert_eq!(scene.core.counters().deliveries_broker, 1);
}

fn with_keep_alive(keep_alive_s: u16) -> (Scene, ConnId) {
    let mut scene = Scene::new();
    scene.subscriber("s", "t");
    let publisher = scene.connect(ConnectPacket { keep_alive_s, ..v311("p") });
    (scene, publisher)
}

#[test]
fn a_tenth_of_the_keep_alive_after_an_eaten_packet_the_broker_hears_of_it() {
    let (mut scene, publisher) = with_keep_alive(60);
    scene.card_takes(publisher, publish("t", "1"));
    assert_eq!(scene.core.next_deadline(), Some(scene.now + Duration::from_secs(6)));
    scene.sleep(Duration::from_millis(5_999));
    scene.card_takes(publisher, publish("t", "2"));
    scene.sleep(Duration::from_millis(1));
    assert_eq!(scene.broker_gets(publisher), PINGREQ);
    scene.broker(publisher, PINGRESP);
    assert_eq!(scene.client_gets(publisher), []);
    assert_eq!(scene.core.counters().pings_injected, 2);
}

#[test]
fn a_short_keep_alive_waits_one_second_and_the_shortest_half_of_one() {
    for (keep_alive_s, delay_ms) in [(2, 1000), (1, 500)] {
        let (mut scene, publisher) = with_keep_alive(keep_alive_s);
        scene.card_takes(publisher, publish("t", "1"));
        scene.sleep(Duration::from_millis(delay_ms - 1));
        assert_eq!(scene.broker_gets(publisher), []);
        scene.sleep(Duration::from_millis(1));
        assert_eq!(scene.broker_gets(publisher), PINGREQ);
    }
}

#[test]
fn a_silent_client_is_left_to_time_out() {
    let (mut scene, publisher) = with_keep_alive(10);
    scene.card_takes(publisher, publish("t", "1"));
    scene.sleep(Duration::from_secs(1));
    assert_eq!(scene.broker_gets(publisher), PINGREQ);
    scene.broker(publisher, PINGRESP);
    for _ in 0..100 {
        scene.sleep(Duration::from_secs(1));
    }
    scene.assert_quiet(publisher);
    assert_eq!(scene.core.next_deadline(), None);
}

#[test]
fn without_keep_alive_nothing_is_added() {
    let (mut scene, publisher) = with_keep_alive(0);
    scene.card_takes(publisher, publish("t", "1"));
    assert_eq!(scene.core.next_deadline(), None);
}

#[test]
fn what_the_broker_hears_anyway_spares_the_ping() {
    let (mut scene, publisher) = with_keep_alive(10);
    scene.card_takes(publisher, publish("t", "1"));
    scene.sleep(Duration::from_millis(500));
    scene.client(publisher, PINGREQ);
    assert_eq!(scene.broker_gets(publisher), PINGREQ);
    scene.sleep(Duration::from_millis(500));
    scene.assert_quiet(publisher);
    scene.card_takes(publisher, publish("t", "2"));
    scene.sleep(Duration::from_secs(1));
    assert_eq!(scene.broker_gets(publisher), PINGREQ);
}

#[test]
fn one_keep_alive_ping_is_out_at_most() {
    let (mut scene, publisher) = with_keep_alive(10);
    scene.card_takes(publisher, publish("t", "1"));
    scene.sleep(Duration::from_secs(1));
    assert_eq!(scene.broker_gets(publisher), PINGREQ);
    scene.card_takes(publisher, publish("t", "2"));
    scene.sleep(Duration::from_secs(1));
    assert_eq!(scene.broker_gets(publisher), []);
    scene.broker(publisher, PINGRESP);
    scene.sleep(Duration::from_secs(1));
    assert_eq!(scene.broker_gets(publisher), PINGREQ);
}

#[test]
fn the_servers_keep_alive_overrides_the_clients() {
    let mut scene = Scene::new();
    scene.subscriber("s", "t");
    let publisher = scene.knock(ConnectPacket { keep_alive_s: 600, ..v5("p") });
    scene.broker(publisher, connack(5, false, 0, &[0x13, 0, 30]));
    scene.card_takes(publisher, publish_v5("t", &[], "1"));
    assert_eq!(scene.core.next_deadline(), Some(scene.now + Duration::from_secs(3)));
}

#[test]
fn what_was_eaten_is_told_before_a_long_packet_starts() {
    let (mut scene, publisher) = with_keep_alive(60);
    scene.card_takes(publisher, publish("t", "1"));
    let large = publish_qos1("t", 1, "0123456789");
    scene.client(publisher, &large[..5]);
    assert_eq!(scene.broker_gets(publisher), [&PINGREQ[..], &large[..5]].concat());
}

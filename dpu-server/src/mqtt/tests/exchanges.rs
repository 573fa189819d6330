//! QoS 1: two senders to one client, and a publisher who is told that its message was taken.

use std::time::Duration;

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{ConnId, DropReason, Limits, Reason};

/// Identifiers of the card's messages to one client, in the order it takes them.
pub(super) const CARDS: [u16; 4] = [65_535, 65_534, 65_533, 65_532];

impl Scene {
    /// A client with one settled subscription that was granted this QoS.
    pub(super) fn subscriber_of(
        &mut self,
        connect: ConnectPacket<'_>,
        filter: &str,
        qos: u8,
    ) -> ConnId {
        let conn = self.connect(connect);
        self.subscribe_again(conn, connect.level, filter, qos);
        conn
    }

    fn subscribe_again(&mut self, conn: ConnId, level: u8, filter: &str, qos: u8) {
        if level == 5 {
            self.client(conn, subscribe_v5(1, &[], filter, qos));
            self.broker(conn, suback_v5(1, &[qos]));
        } else {
            let mut request = subscribe(1, &[filter]);
            *request.last_mut().unwrap() = qos;
            self.client(conn, request);
            self.broker(conn, suback(1, &[qos]));
        }
        self.broker(conn, PINGRESP);
        self.broker_gets(conn);
        self.client_gets(conn);
    }

    /// A version 3 publisher to this topic from which the broker has taken a message with QoS 1.
    fn publisher(&mut self, topic: &str) -> ConnId {
        let conn = self.connect(v311("p"));
        self.broker_takes(conn, Reason::QosAboveZero, publish_qos1(topic, 1, ""));
        self.broker_takes(conn, Reason::BarrierOut, publish(topic, ""));
        self.broker(conn, [puback(1), PINGRESP.to_vec()].concat());
        assert_eq!(self.client_gets(conn), puback(1));
        conn
    }

    /// The card takes a message with QoS 1 and tells the publisher.
    #[track_caller]
    pub(super) fn card_takes_qos1(&mut self, publisher: ConnId, packet_id: u16, packet: Vec<u8>) {
        self.card_takes(publisher, packet);
        assert_eq!(self.client_gets(publisher), puback(packet_id));
    }
}

/// A publisher, and a subscriber with QoS 1 that takes so many messages at a time.
fn plain(inflight_messages_max: u16) -> (Scene, ConnId, ConnId) {
    let limits = Limits { inflight_messages_max, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let subscriber = scene.subscriber_of(v311("s"), "#", 1);
    let publisher = scene.publisher("t");
    (scene, publisher, subscriber)
}

#[test]
fn a_message_is_acknowledged_to_its_publisher_and_by_its_subscriber_without_the_broker() {
    let (mut scene, publisher, subscriber) = plain(20);
    scene.card_takes_qos1(publisher, 9, publish_qos1("t", 9, "hello"));
    assert_eq!(scene.client_gets(subscriber), publish_qos1("t", CARDS[0], "hello"));
    scene.client(subscriber, puback(CARDS[0]));
    scene.assert_quiet(subscriber);
    scene.assert_quiet(publisher);
    // Nothing is in flight any more: the same once more is nobody's, so the broker judges.
    scene.client(subscriber, puback(CARDS[0]));
    assert_eq!(scene.broker_gets(subscriber), puback(CARDS[0]));
}

#[test]
fn each_subscriber_gets_the_lower_quality_of_service_in_its_version() {
    let mut scene = Scene::new();
    let zero = scene.subscriber_of(v311("zero"), "t", 0);
    let one = scene.subscriber_of(v311("one"), "t", 1);
    let two = scene.subscriber_of(v5("two"), "t", 2);
    let publisher = scene.publisher("t");
    scene.card_takes_qos1(publisher, 3, publish_qos1("t", 3, "x"));
    assert_eq!(scene.client_gets(zero), publish("t", "x"));
    assert_eq!(scene.client_gets(one), publish_qos1("t", CARDS[0], "x"));
    assert_eq!(scene.client_gets(two), publish_qos1_v5("t", CARDS[0], &[], "x"));
    scene.card_takes(publisher, publish("t", "y"));
    assert_eq!(scene.client_gets(one), publish("t", "y"));
    assert_eq!(scene.client_gets(two), publish_v5("t", &[], "y"));
}

#[test]
fn a_version_5_publisher_needs_no_proof_unless_the_broker_says_it_takes_no_more_than_0() {
    let mut scene = Scene::new();
    scene.subscriber_of(v311("s"), "t", 1);
    let publisher = scene.connect(v5("p"));
    scene.card_takes_qos1(publisher, 7, publish_qos1_v5("t", 7, &[], "1"));
    let bounded = scene.knock(v5("q"));
    scene.broker(bounded, connack(5, false, 0, &[0x24, 0]));
    scene.broker_takes(bounded, Reason::QosAboveZero, publish_qos1_v5("t", 1, &[], "2"));
}

#[test]
fn who_limits_packets_gets_qos_1_from_the_broker_that_counts_what_is_too_large_as_in_flight() {
    let mut scene = Scene::new();
    let limit = |bytes: u32| [&[0x27][..], &bytes.to_be_bytes()].concat();
    // What no packet can exceed is no limit.
    let properties = limit(268_435_460);
    scene.subscriber_of(ConnectPacket { properties: &properties, ..v5("boundless") }, "t", 1);
    let publisher = scene.publisher("t");
    let properties = limit(268_435_459);
    let limited = ConnectPacket { properties: &properties, ..v5("limited") };
    let limited = scene.subscriber_of(limited, "t", 0);
    scene.card_takes_qos1(publisher, 2, publish_qos1("t", 2, "a copy with QoS 0"));
    scene.subscribe_again(limited, 5, "t", 1);
    scene.card_takes(publisher, publish("t", "another one"));
    scene.broker_takes(publisher, Reason::MaximumPacketSize, publish_qos1("t", 3, "it fits"));
}

#[test]
fn identifiers_the_broker_uses_too_are_told_apart() {
    let (mut scene, publisher, subscriber) = plain(20);
    scene.card_takes_qos1(publisher, 1, publish_qos1("t", 1, "card"));
    // The broker's happens to be the card's; the client sees another one.
    scene.broker(subscriber, publish_qos1("u", CARDS[0], "broker"));
    scene.broker(subscriber, publish_qos2("u", 7, "broker"));
    assert_eq!(scene.client_gets(subscriber), {
        let card = publish_qos1("t", CARDS[0], "card");
        [card, publish_qos1("u", CARDS[1], "broker"), publish_qos2("u", 7, "broker")].concat()
    });
    scene.client(subscriber, [puback(CARDS[1]), acknowledge(0x50, 7)].concat());
    assert_eq!(scene.broker_gets(subscriber), [puback(CARDS[0]), acknowledge(0x50, 7)].concat());
    scene.broker(subscriber, pubrel(7));
    assert_eq!(scene.client_gets(subscriber), pubrel(7));
    scene.client(subscriber, acknowledge(0x70, 7));
    assert_eq!(scene.broker_gets(subscriber), acknowledge(0x70, 7));
    scene.client(subscriber, puback(CARDS[0]));
    scene.assert_quiet(subscriber);
}

#[test]
fn an_exchange_of_quality_of_service_2_keeps_its_other_name_to_the_end() {
    let (mut scene, publisher, subscriber) = plain(20);
    scene.card_takes_qos1(publisher, 1, publish_qos1("t", 1, "card"));
    scene.broker(subscriber, publish_qos2("u", CARDS[0], "broker"));
    scene.client_gets(subscriber);
    scene.client(subscriber, puback(CARDS[0]));
    for (first, answer) in [(0x50, 0x62), (0x70, 0)] {
        scene.client(subscriber, acknowledge(first, CARDS[1]));
        assert_eq!(scene.broker_gets(subscriber), acknowledge(first, CARDS[0]));
        if answer > 0 {
            scene.broker(subscriber, acknowledge(answer, CARDS[0]));
            assert_eq!(scene.client_gets(subscriber), acknowledge(answer, CARDS[1]));
        }
    }
    // It is over: the broker's identifiers are the client's again.
    scene.broker(subscriber, publish_qos1("u", CARDS[0], "again"));
    assert_eq!(scene.client_gets(subscriber), publish_qos1("u", CARDS[0], "again"));
}

#[test]
fn a_refused_message_of_quality_of_service_2_is_over() {
    let mut scene = Scene::new();
    let connect = ConnectPacket { properties: &[0x21, 0, 2], ..v5("s") };
    let subscriber = scene.subscriber_of(connect, "t", 1);
    let publisher = scene.connect(v5("p"));
    scene.broker(subscriber, publish_qos2("u", 5, "\0"));
    for id in [1, 2] {
        scene.card_takes_qos1(publisher, id, publish_qos1_v5("t", id, &[], "x"));
    }
    let card = |index: usize| publish_qos1_v5("t", CARDS[index], &[], "x");
    assert_eq!(scene.client_gets(subscriber), [publish_qos2("u", 5, "\0"), card(0)].concat());
    scene.client(subscriber, packet(0x50, &[0, 5, 0x87]));
    assert_eq!(scene.broker_gets(subscriber), packet(0x50, &[0, 5, 0x87]));
    assert_eq!(scene.client_gets(subscriber), card(1));
}

#[test]
fn the_receive_maximum_holds_for_both_senders_together() {
    let mut scene = Scene::new();
    let connect = ConnectPacket { properties: &[0x21, 0, 2], ..v5("s") };
    let subscriber = scene.subscriber_of(connect, "#", 1);
    let publisher = scene.connect(v5("p"));
    scene.broker(subscriber, publish_qos1_v5("b", 1, &[], "1"));
    for id in [1, 2] {
        scene.card_takes_qos1(publisher, id, publish_qos1_v5("c", id, &[], "card"));
    }
    scene.broker(subscriber, publish_qos1_v5("b", 2, &[], "2"));
    // QoS 0 waits for nobody, and nothing else of the broker's does.
    scene.card_takes(publisher, publish_v5("z", &[], ""));
    scene.broker(subscriber, PINGRESP);
    let card = |index: usize| publish_qos1_v5("c", CARDS[index], &[], "card");
    assert_eq!(scene.client_gets(subscriber), {
        let broker = publish_qos1_v5("b", 1, &[], "1");
        [broker, card(0), publish_v5("z", &[], ""), PINGRESP.to_vec()].concat()
    });
    scene.client(subscriber, puback(1));
    assert_eq!(scene.broker_gets(subscriber), puback(1));
    assert_eq!(scene.client_gets(subscriber), card(1));
    scene.client(subscriber, puback(CARDS[1]));
    assert_eq!(scene.client_gets(subscriber), publish_qos1_v5("b", 2, &[], "2"));
    scene.client(subscriber, [puback(2), puback(CARDS[0])].concat());
    assert_eq!(scene.broker_gets(subscriber), puback(2));
    scene.assert_quiet(subscriber);
}

#[test]
fn what_waits_keeps_its_order_whoever_sent_it() {
    let (mut scene, publisher, subscriber) = plain(3);
    let slow = |id: u16, payload: &str| {
        let mut packet = publish_qos1("t", id, payload);
        packet[0] |= 8;
        packet
    };
    for id in [1, 2, 3] {
        scene.card_takes_qos1(publisher, id, publish_qos1("t", id, &id.to_string()));
    }
    // The fourth and the fifth go through the broker and come back as 77 and 78.
    scene.broker_takes(publisher, Reason::Duplicate, slow(4, "4"));
    scene.broker(subscriber, publish_qos1("t", 77, "4"));
    scene.broker_takes(publisher, Reason::BarrierOut, publish_qos1("t", 5, "5"));
    scene.broker(publisher, [puback(4), puback(5), PINGRESP.to_vec()].concat());
    scene.broker(subscriber, publish_qos1("t", 78, "5"));
    scene.client_gets(publisher);
    scene.card_takes_qos1(publisher, 6, publish_qos1("t", 6, "6"));
    let copies = |list: &[(u16, &str)]| {
        let copies = list.iter().map(|(id, payload)| publish_qos1("t", *id, payload));
        copies.collect::<Vec<_>>().concat()
    };
    let first = [(CARDS[0], "1"), (CARDS[1], "2"), (CARDS[2], "3")];
    assert_eq!(scene.client_gets(subscriber), copies(&first));
    for (id, next) in [(CARDS[0], (77, "4")), (CARDS[1], (78, "5")), (77, (CARDS[3], "6"))] {
        scene.client(subscriber, puback(id));
        assert_eq!(scene.client_gets(subscriber), copies(&[next]));
    }
    assert_eq!(scene.broker_gets(subscriber), puback(77));
}

#[test]
fn what_the_broker_may_have_in_its_queue_comes_first() {
    let (mut scene, publisher, subscriber) = plain(2);
    scene.broker(subscriber, publish_qos1("u", 1, "1"));
    scene.card_takes_qos1(publisher, 1, publish_qos1("t", 1, "x"));
    scene.client(subscriber, puback(CARDS[0]));
    // As many as the client takes: a third would be in the broker's queue.
    scene.broker(subscriber, publish_qos1("u", 2, "2"));
    let message = publish_qos1("t", 2, "x");
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, &message);
    assert_eq!(scene.broker_gets(subscriber), PINGREQ);
    scene.broker(subscriber, PINGRESP);
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, &message);
    // With QoS 0 it does not matter.
    let other = scene.connect(v311("p0"));
    scene.card_takes(other, publish("t", "0"));
    scene.client(subscriber, puback(1));
    assert_eq!(scene.broker_gets(subscriber), [&PINGREQ[..], &puback(1)].concat());
    scene.broker(subscriber, PINGRESP);
    scene.broker_takes(publisher, Reason::SubscriberBacklogged, &message);
    assert_eq!(scene.broker_gets(subscriber), PINGREQ);
    scene.broker(subscriber, PINGRESP);
    let fresh = scene.connect(v5("p1"));
    scene.card_takes_qos1(fresh, 1, publish_qos1_v5("t", 1, &[], "x"));
}

#[test]
fn a_version_5_connack_tells_how_many_the_broker_sends_at_a_time() {
    let mut scene = Scene::new();
    let teller = scene.knock(v5("teller"));
    scene.broker(teller, connack(5, false, 0, &[0x21, 0, 1]));
    let subscriber = scene.subscriber_of(v311("s"), "t", 1);
    let publisher = scene.connect(v5("p"));
    for id in [1, 2] {
        scene.card_takes_qos1(publisher, id, publish_qos1_v5("t", id, &[], "x"));
    }
    assert_eq!(scene.client_gets(subscriber), publish_qos1("t", CARDS[0], "x"));
}

#[test]
fn what_is_held_of_the_brokers_gives_its_credit_back_once() {
    let (mut scene, publisher, subscriber) = plain(1);
    scene.card_takes_qos1(publisher, 1, publish_qos1("t", 1, "1"));
    scene.client_gets(subscriber);
    while scene.core.poll_dirty().is_some() {}
    scene.core.outbox_mut(subscriber).broker_bytes_drained();
    let held = publish_qos1("t", 9, "held");
    scene.broker(subscriber, &held[..3]);
    scene.broker(subscriber, &held[3..]);
    assert_eq!(scene.core.poll_dirty(), Some(subscriber));
    assert_eq!(scene.core.outbox_mut(subscriber).broker_bytes_drained(), held.len());
    scene.client(subscriber, puback(CARDS[0]));
    assert_eq!(scene.client_gets(subscriber), held);
    assert_eq!(scene.core.outbox_mut(subscriber).broker_bytes_drained(), 0);
}

#[test]
fn beyond_the_bound_copies_are_dropped_and_the_publisher_acknowledged() {
    let limits = Limits { inflight_messages_max: 1, queued_messages_max: 2, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let slow = scene.subscriber_of(v311("slow"), "t", 1);
    let quick = scene.subscriber_of(v311("quick"), "t", 1);
    let publisher = scene.publisher("t");
    for id in 1..=5 {
        scene.card_takes_qos1(publisher, id, publish_qos1("t", id, "x"));
        let own = 65_536 - u32::from(id);
        assert_eq!(scene.client_gets(quick), publish_qos1("t", own as u16, "x"));
        scene.client(quick, puback(own as u16));
    }
    assert_eq!(scene.core.counters().dropped(DropReason::QueuedMessages), 2);
    for id in CARDS.iter().take(3) {
        assert_eq!(scene.client_gets(slow), publish_qos1("t", *id, "x"));
        scene.client(slow, puback(*id));
    }
    scene.assert_quiet(slow);
}

#[test]
fn a_session_that_outlives_its_connection_is_the_brokers_with_quality_of_service_1_alone() {
    let (mut scene, publisher, _) = plain(20);
    let lasting = scene.subscriber_of(persistent("lasting"), "l", 1);
    scene.subscriber_of(persistent("zero"), "z", 0);
    scene.card_takes(publisher, publish("l", "0"));
    assert_eq!(scene.client_gets(lasting), publish("l", "0"));
    scene.card_takes_qos1(publisher, 1, publish_qos1("z", 1, "1"));
    scene.broker_takes(publisher, Reason::PersistentSession, publish_qos1("l", 2, "2"));
}

#[test]
fn an_offline_session_gets_quality_of_service_1_whatever_the_operator_says_of_0() {
    let mut scene = Scene::with_config(crate::mqtt::CoreConfig {
        trust: crate::mqtt::Trust::Suback,
        keeps_offline_qos0: Some(false),
        ..Default::default()
    });
    scene.subscriber_of(v311("here"), "#", 1);
    let one = scene.subscriber_of(persistent("one"), "one", 1);
    let zero = scene.subscriber_of(persistent("zero"), "zero", 0);
    let publisher = scene.publisher("t");
    scene.close(one);
    scene.close(zero);
    scene.card_takes_qos1(publisher, 1, publish_qos1("zero", 1, "x"));
    scene.card_takes(publisher, publish("one", "x"));
    scene.broker_takes(publisher, Reason::SubscriberOffline, publish_qos1("one", 2, "x"));
}

#[test]
fn an_eaten_acknowledgement_is_a_sign_of_life() {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber_of(ConnectPacket { keep_alive_s: 60, ..v311("s") }, "t", 1);
    let publisher = scene.publisher("t");
    scene.card_takes_qos1(publisher, 1, publish_qos1("t", 1, "x"));
    scene.client_gets(subscriber);
    scene.client(subscriber, puback(CARDS[0]));
    assert_eq!(scene.core.counters().acknowledgements_card, 1);
    scene.sleep(Duration::from_millis(5999));
    assert_eq!(scene.broker_gets(subscriber), []);
    scene.sleep(Duration::from_millis(1));
    assert_eq!(scene.broker_gets(subscriber), PINGREQ);
}

#[test]
fn a_publisher_that_does_not_read_its_acknowledgements_is_the_brokers() {
    let (mut scene, publisher, _) = plain(20);
    let quick = publish_qos1("t", 1, "");
    for _ in 0..=64 * 1024 / 4 {
        scene.client(publisher, &quick);
    }
    scene.broker_takes(publisher, Reason::PublisherBlocked, &quick);
    assert_eq!(scene.client_gets(publisher), puback(1).repeat(64 * 1024 / 4 + 1));
}

#[test]
fn a_message_too_large_to_be_held_passes_behind_what_waits_and_is_the_last_the_card_shares_with() {
    for cut in [usize::MAX, 1000] {
        let (mut scene, publisher, subscriber) = plain(1);
        for id in [1, 2] {
            scene.card_takes_qos1(publisher, id, publish_qos1("t", id, "x"));
        }
        let large = publish_qos1("u", 7, &"x".repeat(140_000));
        let behind = publish("v", "behind");
        for part in [&large[..], &behind].concat().chunks(cut.min(1_000_000)) {
            scene.broker(subscriber, part);
        }
        assert_eq!(scene.client_gets(subscriber), {
            let copies = [CARDS[0], CARDS[1]].map(|id| publish_qos1("t", id, "x"));
            [copies.concat(), large, behind].concat()
        });
        scene.broker_takes(publisher, Reason::IdentifiersUnknown, publish_qos1("t", 3, "x"));
        scene.client(subscriber, [puback(CARDS[1]), puback(7), puback(CARDS[0])].concat());
        assert_eq!(scene.broker_gets(subscriber), puback(7));
        let fresh = scene.connect(v311("p0"));
        scene.card_takes(fresh, publish("t", "0"));
    }
}

#[test]
fn a_large_message_waits_its_turn_like_any_other_while_something_is_the_cards() {
    let limits = Limits { inflight_messages_max: 1, inspect_bytes_max: 1_000, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let subscriber = scene.subscriber_of(v311("s"), "t", 1);
    let publisher = scene.publisher("t");
    scene.card_takes_qos1(publisher, 1, publish_qos1("t", 1, "x"));
    let large = publish_qos1("u", 7, &"x".repeat(100_000));
    scene.broker(subscriber, [&large[..], &PINGRESP].concat());
    assert_eq!(scene.client_gets(subscriber), {
        [publish_qos1("t", CARDS[0], "x"), PINGRESP.to_vec()].concat()
    });
    scene.client(subscriber, puback(CARDS[0]));
    assert_eq!(scene.client_gets(subscriber), large);
    scene.client(subscriber, puback(7));
    assert_eq!(scene.broker_gets(subscriber), puback(7));
}

#[test]
fn a_message_that_waits_for_acknowledgements_expires_too() {
    let mut scene = Scene::new();
    let connect = ConnectPacket { properties: &[0x21, 0, 1], ..v5("s") };
    let subscriber = scene.subscriber_of(connect, "t", 1);
    let publisher = scene.connect(v5("p"));
    let message = |id, seconds| publish_qos1_v5("t", id, &[0x02, 0, 0, 0, seconds], "x");
    for (id, seconds) in [(1, 5), (2, 5), (3, 9)] {
        scene.card_takes_qos1(publisher, id, message(id, seconds));
    }
    // Not a byte of the first has left: it expires too, and its place is free.
    scene.sleep(Duration::from_secs(6));
    scene.core.handle_room(subscriber, scene.now);
    assert_eq!(scene.core.counters().dropped(DropReason::Expired), 2);
    assert_eq!(scene.client_gets(subscriber), message(CARDS[1], 3));
}

#[test]
fn an_acknowledgement_in_pieces_is_read_when_it_is_whole() {
    let (mut scene, publisher, subscriber) = plain(1);
    for id in [1, 2] {
        scene.card_takes_qos1(publisher, id, publish_qos1("t", id, "x"));
    }
    scene.client_gets(subscriber);
    for byte in puback(CARDS[0]) {
        scene.assert_quiet(subscriber);
        scene.client(subscriber, [byte]);
    }
    assert_eq!(scene.client_gets(subscriber), publish_qos1("t", CARDS[1], "x"));
}

#[test]
fn a_subscriber_that_is_gone_leaves_nothing_behind() {
    let (mut scene, publisher, subscriber) = plain(1);
    for id in [1, 2, 3] {
        scene.card_takes_qos1(publisher, id, publish_qos1("t", id, "x"));
    }
    scene.close(subscriber);
    scene.broker_takes(publisher, Reason::NoMatch, publish_qos1("t", 4, "x"));
    assert_eq!(scene.core.counters().subscriptions, 0);
}

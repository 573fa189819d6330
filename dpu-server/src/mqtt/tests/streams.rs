//! Bytes pass unchanged: what is not MQTT, what is malformed, what is too large, and whatever is held when somebody leaves.

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{DropReason, Limits, Reason};

#[test]
fn a_stream_that_is_not_mqtt_passes_untouched_both_ways_and_blinds_the_card() {
    let mut scene = Scene::new();
    scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    let tls = scene.open();
    scene.client(tls, b"\x16\x03\x01\x02\x00");
    scene.client(tls, b"anything");
    scene.broker(tls, b"\x16\x03\x03");
    scene.broker(tls, b"\xD0\x00");
    assert_eq!(scene.broker_gets(tls), b"\x16\x03\x01\x02\x00anything");
    assert_eq!(scene.client_gets(tls), b"\x16\x03\x03\xD0\x00");
    scene.broker_takes(publisher, Reason::OpaqueConnection, publish("t", "1"));
    assert_eq!(scene.core.status().opaque_connections, 1);
    scene.core.handle_broker_gone(tls, scene.now);
    assert_eq!(scene.core.status().slow_reason, None);
}

#[test]
fn not_a_byte_of_another_protocol_is_held() {
    // Either byte could begin a control packet, whose length would be awaited for ever.
    let mut scene = Scene::new();
    let talker = scene.open();
    scene.client(talker, b"0");
    assert_eq!(scene.broker_gets(talker), b"0");
    let greeted = scene.open();
    scene.broker(greeted, b" ");
    assert_eq!(scene.client_gets(greeted), b" ");
    scene.client(greeted, b"\x10");
    assert_eq!(scene.broker_gets(greeted), b"\x10");
    assert_eq!(scene.core.status().opaque_connections, 2);
}

#[test]
fn websockets_and_bridges_are_opaque() {
    for first in [
        b"GET /mqtt HTTP/1.1\r\n".to_vec(),
        ConnectPacket { level: 0x84, ..v311("bridge") }.bytes(),
        PINGREQ.to_vec(),
        publish("t", "1"),
    ] {
        let mut scene = Scene::new();
        let conn = scene.open();
        scene.client(conn, &first);
        assert_eq!(scene.broker_gets(conn), first);
        assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
    }
}

#[test]
fn a_malformed_packet_reaches_the_broker_with_all_that_follows() {
    for malformed in [
        packet(0x30, b"\x00\x02a+"),
        packet(0x30, b"\x00\x09a"),
        packet(0x82, b"\x00\x01\x00\x03a#b\x00"),
        packet(0x82, b"\x00\x00\x00\x01a\x00"),
        packet(0x80, b"\x00\x01\x00\x01a\x00"),
        packet(0x36, b"\x00\x01t\x00\x01"),
        packet(0xC0, b"x"),
        packet(0xD0, b""),
        packet(0xF0, b""),
        packet(0xE0, b"\x00"),
        v311("again").bytes(),
        vec![0x30, 0x80, 0x80, 0x80, 0x80, 0x01],
    ] {
        let mut scene = Scene::new();
        scene.subscriber("s", "t");
        let conn = scene.connect(v311("p"));
        let stream = [malformed.clone(), publish("t", "1")].concat();
        scene.client(conn, &stream);
        assert_eq!(scene.broker_gets(conn), stream, "{malformed:x?}");
        assert_eq!(scene.core.counters().publishes_card, 0);
        assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
    }
}

#[test]
fn answers_to_the_cards_pings_do_not_reach_a_client_that_turned_opaque() {
    let mut scene = Scene::new();
    let conn = scene.connect(v311("s"));
    scene.client(conn, [PINGREQ.to_vec(), subscribe(1, &["t"])].concat());
    scene.client(conn, [0xFF]);
    let answers = [PINGRESP.to_vec(), suback(1, &[0]), PINGRESP.to_vec()].concat();
    scene.broker(conn, &answers);
    assert_eq!(scene.client_gets(conn), [PINGRESP.to_vec(), suback(1, &[0])].concat());
}

#[test]
fn a_broker_that_speaks_something_else_passes_untouched() {
    let mut scene = Scene::new();
    let conn = scene.connect(v311("s"));
    scene.broker(conn, b"HTTP/1.1 400\r\n");
    scene.client(conn, publish("t", "1"));
    assert_eq!(scene.client_gets(conn), b"HTTP/1.1 400\r\n");
    assert_eq!(scene.broker_gets(conn), publish("t", "1"));
    assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
}

#[test]
fn an_acknowledgement_of_nothing_blinds_the_card_and_leaves_the_stream_readable() {
    for answer in [suback(7, &[0]), unsuback(1)] {
        let mut scene = Scene::new();
        let conn = scene.connect(v311("s"));
        scene.client(conn, subscribe(1, &["t"]));
        scene.broker(conn, &answer);
        assert_eq!(scene.client_gets(conn), answer);
        assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
        let rest = [suback(1, &[0]), PINGRESP.to_vec(), publish("t", "1")].concat();
        scene.broker(conn, rest);
        let rest = [suback(1, &[0]), publish("t", "1")].concat();
        assert_eq!(scene.client_gets(conn), rest, "the card asked for the PINGRESP");
    }
}

#[test]
fn each_filter_of_an_unsubscribe_may_be_answered_by_itself() {
    let mut scene = Scene::new();
    let conn = scene.subscriber("s", "t");
    scene.subscriber("other", "t");
    scene.client(conn, unsubscribe(2, &["t", "u"]));
    scene.broker_gets(conn);
    for answer in [unsuback(2), unsuback(2)] {
        scene.broker(conn, &answer);
        assert_eq!(scene.client_gets(conn), answer);
    }
    scene.broker(conn, PINGRESP);
    scene.assert_quiet(conn);
    let publisher = scene.connect(v311("p"));
    scene.card_takes(publisher, publish("t", "1"));
    scene.assert_quiet(conn);
    scene.broker(conn, unsuback(2));
    assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection), "one too many");
}

#[test]
fn an_answer_to_another_number_of_filters_leaves_them_in_doubt_and_the_stream_readable() {
    for codes in [&[0][..], &[0, 0, 0]] {
        let mut scene = Scene::new();
        let conn = scene.connect(v311("s"));
        scene.client(conn, subscribe(1, &["t", "u"]));
        scene.broker(conn, suback(1, codes));
        scene.broker(conn, PINGRESP);
        assert_eq!(scene.client_gets(conn), suback(1, codes), "the card asked for the rest");
        let publisher = scene.connect(v311("p"));
        scene.broker_takes(publisher, Reason::SubscribePending, publish("t", "1"));
        scene.subscriber("other", "v");
        let another = scene.connect(v311("q"));
        scene.card_takes(another, publish("v", "1"));
    }
}

#[test]
fn a_refused_client_counts_as_nothing() {
    let mut scene = Scene::new();
    let conn = scene.knock(v311("s"));
    scene.broker(conn, connack(4, false, 5, &[]));
    scene.client(conn, [0xFF, 0xFF]);
    scene.broker(conn, [0x00]);
    assert_eq!(scene.broker_gets(conn), [0xFF, 0xFF]);
    assert_eq!(scene.core.status().slow_reason, None);
    assert_eq!(scene.core.counters().sessions, 0);
}

#[test]
fn a_split_publish_is_held_until_it_is_whole_and_then_distributed() {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    let packet = publish("t", "hello");
    for byte in &packet {
        assert_eq!(scene.client_gets(subscriber), []);
        scene.client(publisher, [*byte]);
    }
    assert_eq!(scene.broker_gets(publisher), []);
    assert_eq!(scene.client_gets(subscriber), packet);
}

#[test]
fn what_is_held_when_the_client_leaves_goes_to_the_broker() {
    for packet in [v311("p").bytes(), publish("t", "hello"), subscribe(1, &["t"])] {
        let mut scene = Scene::new();
        let conn = scene.open();
        let mut expected = Vec::new();
        if packet[0] != 0x10 {
            expected = v311("p").bytes();
            scene.client(conn, &expected);
            scene.broker(conn, connack(4, false, 0, &[]));
        }
        let part = &packet[..packet.len() - 1];
        scene.client(conn, part);
        assert_eq!(scene.broker_gets(conn), expected);
        scene.core.handle_client_gone(conn, scene.now);
        assert_eq!(scene.broker_gets(conn), part);
    }
}

#[test]
fn what_is_held_when_the_broker_leaves_goes_to_the_client() {
    let mut scene = Scene::new();
    let conn = scene.knock(v311("s"));
    scene.broker(conn, [0x20, 0x02, 0x00]);
    assert_eq!(scene.client_gets(conn), []);
    scene.core.handle_broker_gone(conn, scene.now);
    assert_eq!(scene.client_gets(conn), [0x20, 0x02, 0x00]);
}

#[test]
fn copies_that_waited_for_the_end_of_a_broken_packet_are_counted_as_dropped() {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    scene.broker(subscriber, &publish("u", "0123456789")[..6]);
    scene.card_takes(publisher, publish("t", "1"));
    scene.core.handle_broker_gone(subscriber, scene.now);
    assert_eq!(scene.client_gets(subscriber), publish("u", "0123456789")[..6]);
    assert_eq!(scene.core.counters().dropped(DropReason::BrokenStream), 1);
}

#[test]
fn a_subscribe_larger_than_what_is_inspected_passes_and_blinds() {
    let limits = Limits { inspect_bytes_max: 64, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let conn = scene.connect(v311("s"));
    let filter = |len| "f".repeat(len);
    let largest = subscribe(1, &[&filter(57)]);
    assert_eq!(largest.len(), 64);
    scene.client(conn, &largest);
    assert_eq!(scene.core.status().slow_reason, None);
    let larger = subscribe(2, &[&filter(58)]);
    scene.client(conn, &larger[..3]);
    scene.client(conn, &larger[3..]);
    assert_eq!(scene.broker_gets(conn), [largest, PINGREQ.to_vec(), larger].concat());
    assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
}

#[test]
fn a_full_outbox_slows_one_subscriber_and_no_other() {
    let limits = Limits { outbox_messages_max: 2, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let slow = scene.subscriber("slow", "t");
    let quick = scene.subscriber("quick", "t");
    let publisher = scene.connect(v311("p"));
    for payload in ["1", "2", "3", "4"] {
        scene.card_takes(publisher, publish("t", payload));
        assert_eq!(scene.client_gets(quick), publish("t", payload));
    }
    assert_eq!(scene.core.counters().dropped(DropReason::Messages), 2);
    assert_eq!(scene.client_gets(slow), [publish("t", "1"), publish("t", "2")].concat());
    scene.card_takes(publisher, publish("t", "5"));
    assert_eq!(scene.client_gets(slow), publish("t", "5"));
}

#[test]
fn each_connection_with_news_is_named_once() {
    let mut scene = Scene::new();
    let a = scene.subscriber("a", "t");
    let b = scene.subscriber("b", "t");
    let publisher = scene.connect(v311("p"));
    while scene.core.poll_dirty().is_some() {}
    scene.card_takes(publisher, publish("t", "1"));
    scene.card_takes(publisher, publish("t", "2"));
    let mut named = [scene.core.poll_dirty(), scene.core.poll_dirty()];
    named.sort();
    assert_eq!(named, [Some(a), Some(b)]);
    assert_eq!(scene.core.poll_dirty(), None);
}

#[test]
fn a_core_can_move_to_the_thread_that_drives_it() {
    fn assert_send<T: Send>(_: &T) {}
    assert_send(&Scene::new().core);
}

#[test]
fn inputs_for_a_connection_that_is_gone_are_ignored() {
    let mut scene = Scene::new();
    let conn = scene.connect(v311("s"));
    scene.close(conn);
    scene.client(conn, PINGREQ);
    scene.broker(conn, PINGRESP);
    scene.core.handle_broker_blocked(conn);
    scene.close(conn);
    assert_eq!(scene.core.poll_dirty(), None);
}

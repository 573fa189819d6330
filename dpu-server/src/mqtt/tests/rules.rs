//! A client that breaks a rule is the broker's to judge. Until that has judged, and if it lets it pass, what the client
//! acknowledges is what it acknowledges, and it is sent no more than it takes at a time.

use std::time::Duration;

use super::exchanges::CARDS;
use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{ConnId, Limits, Reason};

/// What a broker's message is renamed to: the card has its identifier.
const RENAMED: u16 = CARDS[1];
/// The card's next identifier behind those.
const NEXT: u16 = CARDS[2];

/// Packets of a version 5 client that break a rule, or are more than the card reads, and end where their length says.
fn broken() -> Vec<Vec<u8>> {
    let publish =
        |first: u8, topic: &str| packet(first, &[&string(topic)[..], &[0, 9, 0]].concat());
    vec![
        publish(0x30, ""),
        publish(0x30, "a/+"),
        publish(0x36, "t"),
        packet(0x30, &[0, 9, b't']),
        packet(0x80, &[&[0, 9, 0][..], &string("t"), &[0]].concat()),
        subscribe_v5(9, &[], "a#b", 0),
        subscribe_v5(9, &[], &"f".repeat(100), 0),
        packet(0x41, &CARDS[0].to_be_bytes()),
        packet(0xC0, b"x"),
        packet(0xD0, b""),
        packet(0xF1, b""),
        vec![0xC0, 0x80, 0x00],
        vec![0x34, 0x85, 0x80, 0x00, 0, 1, b't', 0, 0],
        v5("again").bytes(),
    ]
}

/// The same, and nobody can tell where they end.
fn endless() -> Vec<Vec<u8>> {
    vec![vec![0x00, 0x00], vec![0x30, 0x80, 0x80, 0x80, 0x80, 0x01]]
}

/// A subscriber that takes two messages at a time and has them: one of the card's, and one of the broker's under another name. One
/// of the card's waits, and then one of the broker's, 7.
fn full(keep_alive_s: u16) -> (Scene, ConnId, ConnId) {
    let limits = Limits { inspect_bytes_max: 64, ..Limits::default() };
    let mut scene = Scene::with_limits(limits);
    let connect = ConnectPacket { properties: &[0x21, 0, 2], keep_alive_s, ..v5("s") };
    let subscriber = scene.subscriber_of(connect, "t", 1);
    let publisher = scene.connect(v5("p"));
    scene.card_takes_qos1(publisher, 1, publish_qos1_v5("t", 1, &[], "1"));
    scene.broker(subscriber, publish_qos1_v5("u", CARDS[0], &[], "2"));
    scene.card_takes_qos1(publisher, 2, publish_qos1_v5("t", 2, &[], "3"));
    scene.broker(subscriber, publish_qos1_v5("u", 7, &[], "4"));
    let first = publish_qos1_v5("t", CARDS[0], &[], "1");
    let second = publish_qos1_v5("u", RENAMED, &[], "2");
    assert_eq!(scene.client_gets(subscriber), [first, second].concat());
    scene.assert_quiet(subscriber);
    (scene, publisher, subscriber)
}

/// In one, and byte by byte.
fn send(scene: &mut Scene, conn: ConnId, bytes: &[u8], is_cut: bool) {
    let size = if is_cut { 1 } else { bytes.len() };
    bytes.chunks(size).for_each(|chunk| scene.client(conn, chunk));
}

#[test]
fn who_broke_a_rule_is_sent_no_more_than_it_takes_at_a_time() {
    for (packet, is_cut) in
        [broken(), endless()].concat().iter().flat_map(|it| [(it, false), (it, true)])
    {
        let (mut scene, publisher, subscriber) = full(0);
        send(&mut scene, subscriber, packet, is_cut);
        assert_eq!(scene.broker_gets(subscriber), *packet);
        assert_eq!(scene.client_gets(subscriber), [], "{packet:x?}");
        scene.broker_takes(publisher, Reason::OpaqueConnection, publish_qos1_v5("t", 3, &[], "5"));
        scene.broker(subscriber, publish_qos1_v5("t", 8, &[], "5"));
        assert_eq!(scene.client_gets(subscriber), [], "{packet:x?}");
        // MQTT 5 §3.14.2.1: Protocol Error.
        scene.broker(subscriber, [0xE0, 1, 0x82]);
        assert_eq!(scene.client_gets(subscriber), [0xE0, 1, 0x82]);
        scene.close(subscriber);
    }
}

#[test]
fn what_waits_for_one_that_broke_a_rule_is_sent_as_it_acknowledges() {
    for (packet, is_cut) in broken().iter().flat_map(|it| [(it, false), (it, true)]) {
        let (mut scene, _, subscriber) = full(0);
        send(&mut scene, subscriber, packet, is_cut);
        send(&mut scene, subscriber, &puback(CARDS[0]), is_cut);
        assert_eq!(scene.broker_gets(subscriber), *packet, "the acknowledgement is the card's");
        assert_eq!(scene.client_gets(subscriber), publish_qos1_v5("t", NEXT, &[], "3"));
        // More of what is not read, and of what breaks rules, is between.
        send(&mut scene, subscriber, &publish_v5("t", &[], "unread"), is_cut);
        send(&mut scene, subscriber, packet, is_cut);
        send(&mut scene, subscriber, &puback(RENAMED), is_cut);
        let unread = publish_v5("t", &[], "unread");
        let got = [&unread[..], packet, &puback(CARDS[0])].concat();
        assert_eq!(scene.broker_gets(subscriber), got);
        assert_eq!(scene.client_gets(subscriber), publish_qos1_v5("u", 7, &[], "4"));
        send(&mut scene, subscriber, &[puback(7), puback(NEXT)].concat(), is_cut);
        assert_eq!(scene.broker_gets(subscriber), puback(7));
        scene.assert_quiet(subscriber);
    }
}

#[test]
fn where_nobody_can_tell_what_is_a_packet_acknowledgements_pass_unread() {
    for (packet, is_cut) in endless().iter().flat_map(|it| [(it, false), (it, true)]) {
        let (mut scene, _, subscriber) = full(0);
        let stream = [&packet[..], &puback(CARDS[0]), &puback(RENAMED)].concat();
        send(&mut scene, subscriber, &stream, is_cut);
        assert_eq!(scene.broker_gets(subscriber), stream);
        assert_eq!(scene.client_gets(subscriber), []);
    }
}

#[test]
fn an_eaten_acknowledgement_of_one_that_broke_a_rule_is_a_sign_of_life() {
    let (mut scene, _, subscriber) = full(60);
    scene.client(subscriber, packet(0xC0, b"x"));
    scene.client(subscriber, puback(CARDS[0]));
    scene.sleep(Duration::from_millis(5999));
    assert_eq!(scene.broker_gets(subscriber), packet(0xC0, b"x"));
    scene.sleep(Duration::from_millis(1));
    assert_eq!(scene.broker_gets(subscriber), PINGREQ);
    scene.client_gets(subscriber);
    scene.broker(subscriber, PINGRESP);
    scene.assert_quiet(subscriber);
    // Not within a packet, but before it.
    scene.client(subscriber, [&puback(NEXT)[..], &[0x30, 9, 0]].concat());
    assert_eq!(scene.broker_gets(subscriber), [&PINGREQ[..], &[0x30, 9, 0]].concat());
    scene.sleep(Duration::from_secs(60));
    assert_eq!(scene.broker_gets(subscriber), []);
}

#[test]
fn an_answer_to_a_ping_reaches_one_that_broke_a_rule_if_it_asked() {
    let (mut scene, _, subscriber) = full(60);
    scene.client(subscriber, [&packet(0xC0, b"x")[..], &PINGREQ, &puback(CARDS[0])].concat());
    scene.sleep(Duration::from_secs(6));
    let pings = [packet(0xC0, b"x"), PINGREQ.to_vec(), PINGREQ.to_vec()].concat();
    assert_eq!(scene.broker_gets(subscriber), pings);
    scene.client_gets(subscriber);
    scene.broker(subscriber, PINGRESP);
    assert_eq!(scene.client_gets(subscriber), PINGRESP);
    scene.broker(subscriber, PINGRESP);
    assert_eq!(scene.client_gets(subscriber), []);
}

#[test]
fn what_is_there_by_half_when_the_broker_breaks_a_rule_is_read_as_whole() {
    for (packet, is_eaten) in [(puback(CARDS[0]), true), (publish_v5("t", &[], "x"), false)] {
        let (mut scene, _, subscriber) = full(0);
        scene.client(subscriber, &packet[..3]);
        // The answer to nothing.
        scene.broker(subscriber, suback_v5(77, &[0]));
        assert_eq!(scene.core.status().slow_reason, Some(Reason::OpaqueConnection));
        scene.client_gets(subscriber);
        scene.client(subscriber, &packet[3..]);
        assert_eq!(scene.broker_gets(subscriber), if is_eaten { vec![] } else { packet });
        // The next one has room, or has not.
        assert_eq!(scene.client_gets(subscriber).is_empty(), !is_eaten);
        scene.client(subscriber, publish_v5("t", &[], "y"));
        assert_eq!(scene.broker_gets(subscriber), publish_v5("t", &[], "y"));
    }
}

#[test]
fn a_broker_whose_answers_cannot_be_told_is_asked_nothing() {
    let (mut scene, _, subscriber) = full(60);
    scene.broker(subscriber, b"HTTP/1.1 400\r\n");
    scene.client(subscriber, puback(CARDS[0]));
    scene.sleep(Duration::from_secs(60));
    assert_eq!(scene.broker_gets(subscriber), []);
}

//! The card between a stack in memory and a scripted broker, with the real MQTT core.

use std::net::Ipv4Addr;

use mqttshim_schema::How;
use rustix::io::Errno;

use super::*;
use crate::attach::Token;
use crate::attach::memory::Script;
use crate::mqtt::{Reason, Trust};
use crate::stack::memory::{ClientId, Ended, Memory};

const SESSION: SessionId = SessionId(1);
const LISTENER: Token = Token(1);
const ADDRESS: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1883);

const CONNACK: &[u8] = b"\x20\x02\x00\x00";
const SUBSCRIBE_A: &[u8] = b"\x82\x06\x00\x01\x00\x01a\x00";
const SUBACK: &[u8] = b"\x90\x03\x00\x01\x00";
const PUBLISH_A: &[u8] = b"\x30\x08\x00\x01ahello";
const PINGREQ: &[u8] = b"\xc0\x00";
const PINGRESP: &[u8] = b"\xd0\x00";

/// A CONNECT of MQTT 3.1.1, clean session, keepalive 0.
fn connect(name: u8) -> Vec<u8> {
    [b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01", &[name][..]].concat()
}

struct Scene {
    card: Card<Script, Memory>,
    now: Instant,
}

impl Scene {
    fn with(trust: Trust, window_bytes: usize) -> Scene {
        let core = CoreConfig { trust, ..CoreConfig::default() };
        let config = CardConfig { core, sockets_max: 1000 };
        let card = Card::new(Script::default(), Memory::new(window_bytes), config);
        let mut scene = Scene { card, now: Instant::now() };
        scene.card.attach.open(SESSION);
        scene.listen(SESSION, LISTENER, ADDRESS);
        scene
    }

    fn new() -> Scene {
        Scene::with(Trust::Observed, 1 << 20)
    }

    #[track_caller]
    fn listen(&mut self, session: SessionId, token: Token, address: std::net::SocketAddr) -> Key {
        let bind = self.card.attach.bind(session, token, address);
        self.run();
        assert_eq!(self.card.attach.answer(bind), Some(Ok(Some(address))));
        let key = self.card.attach.key(token).unwrap();
        self.card.attach.listen(key);
        self.run();
        key
    }

    /// Turns until nothing moves.
    fn run(&mut self) {
        let mut events = Vec::new();
        for _ in 0..10_000 {
            events.clear();
            self.card.stack.wait(None, &mut events).unwrap();
            if !self.card.turn(&events, self.now) && events.is_empty() {
                return;
            }
        }
        panic!("the card never comes to rest");
    }

    /// A new connection: its client, and its key.
    #[track_caller]
    fn client(&mut self) -> (ClientId, Key) {
        let client = self.card.stack.connect(ADDRESS).unwrap();
        self.run();
        (client, self.card.attach.accepted().last().unwrap().0)
    }

    fn send(&mut self, client: ClientId, bytes: &[u8]) {
        self.card.stack.client_send(client, bytes);
        self.run();
    }

    fn write(&mut self, key: Key, bytes: &[u8]) {
        self.card.attach.write(key, bytes);
        self.run();
    }

    fn received(&mut self, client: ClientId) -> Vec<u8> {
        let bytes = self.card.stack.client_recv(client);
        self.run();
        bytes
    }

    fn read(&mut self, key: Key) -> Vec<u8> {
        let bytes = self.card.attach.read(key);
        self.run();
        bytes
    }

    fn close(&mut self, key: Key, unread: bool) {
        self.card.attach.close(key, unread);
        self.run();
    }

    /// A client with an accepted CONNECT, all of it read on both sides.
    #[track_caller]
    fn mqtt_client(&mut self, name: u8) -> (ClientId, Key) {
        let (client, key) = self.client();
        self.send(client, &connect(name));
        assert_eq!(self.read(key), connect(name));
        self.write(key, CONNACK);
        assert_eq!(self.received(client), CONNACK);
        (client, key)
    }

    /// Answers what the card or a client asked the broker on this connection.
    #[track_caller]
    fn answer(&mut self, key: Key, expected: &[u8], answer: &[u8]) {
        assert_eq!(self.read(key), expected);
        self.write(key, answer);
    }

    #[track_caller]
    fn subscriber(&mut self, name: u8) -> (ClientId, Key) {
        let (client, key) = self.mqtt_client(name);
        self.send(client, SUBSCRIBE_A);
        self.answer(key, &[SUBSCRIBE_A, PINGREQ].concat(), &[SUBACK, PINGRESP].concat());
        assert_eq!(self.received(client), SUBACK);
        (client, key)
    }
}

#[test]
fn streams_pass_byte_for_byte_both_ways() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    let noise: Vec<u8> = (0..300_000u32).map(|i| (i * 7 % 251) as u8).collect();
    scene.send(client, &noise);
    assert_eq!(scene.read(key), noise);
    scene.write(key, &noise);
    assert_eq!(scene.received(client), noise);
    assert_eq!(scene.card.attach.seen(key).credit, noise.len());
}

#[test]
fn the_card_distributes_what_it_may_and_the_broker_never_sees_it() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (one, _) = scene.subscriber(b'1');
    let (two, _) = scene.subscriber(b'2');
    let (publisher, key) = scene.mqtt_client(b'p');
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.received(one), PUBLISH_A);
    assert_eq!(scene.received(two), PUBLISH_A);
    assert_eq!(scene.read(key), b"");
    let survey = scene.card.survey();
    assert_eq!((survey.core.publishes_card, survey.core.deliveries_card), (1, 2));
}

#[test]
fn every_byte_of_the_broker_returns_its_credit_a_swallowed_answer_too() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (_, key) = scene.subscriber(b'1');
    let written = CONNACK.len() + SUBACK.len() + PINGRESP.len();
    assert_eq!(scene.card.attach.seen(key).credit, written);
}

#[test]
fn copies_of_the_card_return_no_credit() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (one, key) = scene.subscriber(b'1');
    let before = scene.card.attach.seen(key).credit;
    let (publisher, _) = scene.mqtt_client(b'p');
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.received(one), PUBLISH_A);
    assert_eq!(scene.card.attach.seen(key).credit, before);
}

#[test]
fn a_client_whose_broker_does_not_read_is_not_read_either_until_it_does() {
    let mut scene = Scene::new();
    scene.card.attach.set_window(1000);
    let (client, key) = scene.client();
    let bytes = vec![b'x'; 2 << 20];
    scene.send(client, &bytes);
    let taken = bytes.len() - scene.card.stack.unread(client);
    assert!(taken <= 1000 + TO_BROKER_BYTES_MAX + 2 * READ_BYTES, "{taken} bytes were taken");
    scene.card.attach.set_window(usize::MAX);
    assert_eq!(scene.read(key).len(), 1000);
    assert_eq!(scene.card.attach.seen(key).bytes.len(), bytes.len() - 1000);
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_gets_all_when_it_does() {
    let mut scene = Scene::with(Trust::Observed, 1000);
    let (stalled, slow) = scene.client();
    let (other, fast) = scene.client();
    scene.write(slow, &[1; 5000]);
    scene.write(fast, b"prompt");
    assert_eq!(scene.received(other), b"prompt");
    assert_eq!(scene.card.attach.seen(slow).credit, 1000);
    let mut bytes = 0;
    for _ in 0..5 {
        bytes += scene.received(stalled).len();
    }
    assert_eq!(bytes, 5000);
    assert_eq!(scene.card.attach.seen(slow).credit, 5000);
}

#[test]
fn a_full_way_to_the_host_keeps_bytes_in_order_and_resumes() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    scene.card.attach.set_blocked(true);
    scene.send(client, b"first ");
    scene.send(client, b"second");
    assert_eq!(scene.card.attach.seen(key).bytes, b"");
    let waiting = scene.card.stack.connect(ADDRESS).unwrap();
    scene.run();
    assert_eq!(scene.card.attach.accepted().len(), 1);
    scene.card.attach.set_blocked(false);
    scene.run();
    assert_eq!(scene.read(key), b"first second");
    assert_eq!(scene.card.attach.accepted().len(), 2);
    assert_eq!(scene.card.stack.ended(waiting), Ended::Open);
}

#[test]
fn the_clients_fin_follows_its_last_byte_and_the_broker_can_still_answer() {
    let mut scene = Scene::new();
    scene.card.attach.set_window(4);
    let (client, key) = scene.client();
    scene.card.stack.client_send(client, b"last words");
    scene.card.stack.client_fin(client);
    scene.run();
    assert!(!scene.card.attach.seen(key).eof);
    assert_eq!([scene.read(key), scene.read(key)].concat(), b"last wor");
    assert_eq!(scene.read(key), b"ds");
    assert!(scene.card.attach.seen(key).eof);
    scene.write(key, b"answer");
    assert_eq!(scene.received(client), b"answer");
    scene.close(key, false);
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    assert_eq!(scene.card.sockets_open(), 1);
}

#[test]
fn the_clients_reset_follows_its_last_byte_and_frees_its_descriptor_at_once() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    scene.card.stack.client_send(client, b"last");
    scene.card.stack.client_reset(client);
    scene.run();
    let seen = scene.card.attach.seen(key);
    assert_eq!(
        (&seen.bytes[..], seen.reset, seen.eof),
        (&b"last"[..], Some(Errno::CONNRESET), false)
    );
    assert_eq!(scene.card.stack.sockets_open(), 1);
    // Written before the broker knew: no reader, but its credit comes back.
    scene.write(key, b"too late");
    assert_eq!(scene.card.attach.seen(key).credit, 8);
    scene.close(key, false);
    assert_eq!(scene.card.sockets_open(), 1);
}

#[test]
fn a_reset_met_by_a_send_is_reported_once_and_as_such() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.write(key, b"more than fits");
    scene.card.stack.client_reset(client);
    scene.run();
    let seen = scene.card.attach.seen(key);
    assert!(seen.reset.is_some() && !seen.eof);
    assert_eq!(seen.credit, 14);
}

#[test]
fn what_the_broker_wrote_before_it_closed_is_delivered_then_fin() {
    let mut scene = Scene::with(Trust::Observed, 1000);
    let (client, key) = scene.client();
    scene.card.attach.write(key, &[1; 2500]);
    scene.close(key, false);
    assert_eq!(scene.card.stack.ended(client), Ended::Open);
    let lengths = [(); 3].map(|()| scene.received(client).len());
    assert_eq!(lengths, [1000, 1000, 500]);
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    assert_eq!(scene.card.sockets_open(), 1);
}

#[test]
fn a_broker_that_left_bytes_unread_resets_its_client() {
    let mut scene = Scene::new();
    let (client, key) = scene.client();
    scene.card.attach.write(key, b"goodbye");
    scene.close(key, true);
    assert_eq!(scene.received(client), b"goodbye");
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
}

#[test]
fn bytes_that_were_never_handed_over_are_unread_too() {
    let mut scene = Scene::new();
    scene.card.attach.set_window(1);
    let (client, key) = scene.client();
    scene.send(client, b"xy");
    scene.close(key, false);
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
}

#[test]
fn a_zero_linger_resets_and_waits_for_nobody() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    let linger = [1i32.to_ne_bytes(), [0; 4]].concat();
    scene.card.stack.set_option(key, libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
    scene.card.attach.write(key, b"more than fits");
    scene.close(key, false);
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
    assert_eq!(scene.card.sockets_open(), 1);
}

#[test]
fn a_client_that_never_takes_the_rest_is_given_up_after_its_time() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.card.attach.write(key, b"more than fits");
    scene.close(key, false);
    scene.now += LINGER - Duration::from_millis(1);
    scene.run();
    assert_eq!(scene.card.stack.ended(client), Ended::Open);
    scene.now += Duration::from_millis(1);
    scene.run();
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
    assert_eq!(scene.card.survey().card.lingers_given_up, 1);
}

#[test]
fn a_brokers_half_close_reaches_the_client_behind_the_last_byte_and_the_client_can_still_send() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.card.attach.write(key, b"123456");
    scene.card.attach.shutdown(key, How::Write);
    scene.run();
    assert_eq!(scene.card.stack.ended(client), Ended::Open);
    assert_eq!(scene.received(client), b"1234");
    assert_eq!(scene.received(client), b"56");
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    scene.send(client, b"still here");
    assert_eq!(scene.read(key), b"still here");
}

#[test]
fn after_the_brokers_half_close_mqtt_still_passes_and_no_copy_is_added() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (half, key) = scene.subscriber(b'1');
    let (publisher, _) = scene.mqtt_client(b'p');
    scene.card.attach.shutdown(key, How::Write);
    scene.run();
    scene.send(half, PUBLISH_A);
    assert_eq!(scene.read(key), PUBLISH_A);
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.received(half), b"");
}

#[test]
fn clients_behind_many_that_are_held_back_are_read() {
    let mut scene = Scene::new();
    scene.card.attach.set_window(0);
    let clients: Vec<_> = (0..READS_MAX + 10).map(|_| scene.client()).collect();
    for (client, _) in &clients {
        scene.card.stack.client_send(*client, &[0; 2 * TO_BROKER_BYTES_MAX]);
    }
    scene.run();
    for (client, _) in &clients {
        assert!(scene.card.stack.unread(*client) < 2 * TO_BROKER_BYTES_MAX);
    }
    let (last, key) = scene.client();
    // All held back are named as readable before the last one is.
    for (client, _) in &clients {
        scene.card.stack.client_send(*client, b"x");
    }
    scene.card.stack.client_send(last, b"prompt");
    scene.card.attach.set_window(usize::MAX);
    let mut events = Vec::new();
    scene.card.stack.wait(None, &mut events).unwrap();
    assert!(scene.card.turn(&events, scene.now), "more is left to do");
    scene.run();
    assert_eq!(scene.read(key), b"prompt");
}

#[test]
fn the_end_of_a_session_frees_its_port_at_once_and_delivers_what_was_written() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.card.attach.write(key, b"123456");
    scene.card.attach.end(SESSION);
    scene.run();
    assert!(scene.card.stack.connect(ADDRESS).is_none());
    let other = SessionId(2);
    scene.listen(other, Token(3), ADDRESS);
    assert_eq!([scene.received(client), scene.received(client)].concat(), b"123456");
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    assert_eq!(scene.card.survey().sessions_open, 1);
    assert_eq!(scene.card.survey().sessions_ended, 0);
}

#[test]
fn an_ended_sessions_client_has_five_seconds_however_slowly_it_reads() {
    let mut scene = Scene::with(Trust::Observed, 1);
    let (client, key) = scene.client();
    scene.card.attach.write(key, &[0; 100]);
    scene.card.attach.end(SESSION);
    scene.run();
    for _ in 0..4 {
        scene.now += Duration::from_secs(1);
        scene.received(client);
    }
    assert_eq!(scene.card.stack.ended(client), Ended::Open);
    scene.now += Duration::from_secs(1);
    scene.run();
    assert_eq!(scene.card.stack.ended(client), Ended::Reset);
    assert_eq!(scene.card.sockets_open(), 0);
    assert_eq!(scene.card.next_deadline(), None);
}

#[test]
fn counts_of_a_session_survive_it() {
    let mut scene = Scene::new();
    let (client, _) = scene.mqtt_client(b'p');
    scene.send(client, PUBLISH_A);
    let reason = Reason::TrustNotEstablished as usize;
    assert_eq!(scene.card.survey().core.publishes_broker[reason], 1);
    assert_eq!(scene.card.survey().slow[reason], 1);
    scene.card.attach.end(SESSION);
    scene.run();
    let survey = scene.card.survey();
    assert_eq!((survey.core.publishes_broker[reason], survey.core.connections), (1, 0));
    assert_eq!(survey.slow[reason], 0);
}

#[test]
fn two_brokers_do_not_see_each_others_clients() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (subscriber, _) = scene.subscriber(b'1');
    let other: std::net::SocketAddr = (Ipv4Addr::LOCALHOST, 1884).into();
    scene.listen(SessionId(2), Token(3), other);
    let client = scene.card.stack.connect(other).unwrap();
    scene.run();
    let key = scene.card.attach.accepted().last().unwrap().0;
    scene.send(client, &connect(b'p'));
    scene.write(key, CONNACK);
    scene.read(key);
    scene.send(client, PUBLISH_A);
    assert_eq!(scene.read(key), PUBLISH_A);
    assert_eq!(scene.received(subscriber), b"");
}

#[test]
fn accepting_pauses_without_descriptors_and_goes_on_when_one_is_free() {
    let mut scene = Scene::new();
    let (first, key) = scene.client();
    scene.card.stack.set_sockets_max(2);
    let waiting = scene.card.stack.connect(ADDRESS).unwrap();
    scene.run();
    assert_eq!(scene.card.attach.accepted().len(), 1);
    assert_eq!(scene.card.survey().card.accept_pauses, 1);
    scene.close(key, false);
    scene.run();
    assert_eq!(scene.card.stack.ended(first), Ended::Fin);
    assert_eq!(scene.card.attach.accepted().len(), 2);
    assert_eq!(scene.card.stack.ended(waiting), Ended::Open);
}

#[test]
fn accepting_is_tried_again_by_time_where_nothing_was_freed_here() {
    let mut scene = Scene::new();
    scene.card.stack.set_sockets_max(1);
    scene.card.stack.connect(ADDRESS).unwrap();
    scene.run();
    assert_eq!(scene.card.next_deadline(), Some(scene.now + ACCEPT_RETRY));
    scene.card.stack.set_sockets_max(2);
    scene.now += ACCEPT_RETRY;
    scene.run();
    assert_eq!(scene.card.attach.accepted().len(), 1);
}

#[test]
fn a_port_in_use_is_refused_to_the_second_broker() {
    let mut scene = Scene::new();
    let request = scene.card.attach.bind(SessionId(2), Token(3), ADDRESS);
    scene.run();
    assert_eq!(scene.card.attach.answer(request), Some(Err(Errno::ADDRINUSE)));
    assert_eq!(scene.card.attach.key(Token(3)), None);
}

#[test]
fn a_brokers_own_connection_passes_bytes_untouched_or_says_why_not() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let server: std::net::SocketAddr = (Ipv4Addr::LOCALHOST, 9).into();
    scene.card.stack.serve(server);
    scene.card.attach.connect(SESSION, Token(3), server);
    scene.run();
    let key = scene.card.attach.key(Token(3)).unwrap();
    assert_eq!(scene.card.attach.outcome(key).unwrap().unwrap().peer, server);
    let remote = scene.card.stack.last_client().unwrap();
    scene.write(key, &connect(b'b'));
    assert_eq!(scene.received(remote), connect(b'b'));
    scene.send(remote, CONNACK);
    assert_eq!(scene.read(key), CONNACK);
    let nobody: std::net::SocketAddr = (Ipv4Addr::LOCALHOST, 10).into();
    scene.card.attach.connect(SESSION, Token(5), nobody);
    scene.run();
    let key = scene.card.attach.key(Token(5)).unwrap();
    assert_eq!(scene.card.attach.outcome(key), Some(Err(Errno::CONNREFUSED)));
    scene.close(key, false);
    assert_eq!(scene.card.sockets_open(), 2);
}

#[test]
fn a_card_that_stops_delivers_what_is_left_and_is_done() {
    let mut scene = Scene::with(Trust::Observed, 4);
    let (client, key) = scene.client();
    scene.write(key, b"123456");
    scene.card.stop(scene.now);
    scene.run();
    assert_eq!(scene.card.sockets_open(), 1);
    assert_eq!([scene.received(client), scene.received(client)].concat(), b"123456");
    assert_eq!(scene.card.stack.ended(client), Ended::Fin);
    assert_eq!(scene.card.sockets_open(), 0);
}

#[test]
fn a_listener_outside_the_card_sends_every_publish_to_the_broker() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (subscriber, _) = scene.subscriber(b'1');
    let (publisher, key) = scene.mqtt_client(b'p');
    scene.card.attach.outside(SESSION, 1, 0);
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.read(key), PUBLISH_A);
    assert_eq!(scene.received(subscriber), b"");
    assert_eq!(scene.card.survey().slow[Reason::OutsideListener as usize], 1);
}

#[test]
fn one_publish_reaches_a_thousand_subscribers_in_one_batch() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    scene.card.config.sockets_max = 2000;
    let mut subscribers = Vec::new();
    for index in 0..1000 {
        let (client, key) = scene.client();
        let name = format!("\x10\x10\0\x04MQTT\x04\x02\0\0\0\x04{index:04}").into_bytes();
        scene.send(client, &name);
        scene.write(key, CONNACK);
        scene.send(client, SUBSCRIBE_A);
        scene.write(key, &[SUBACK, PINGRESP].concat());
        scene.read(key);
        scene.received(client);
        subscribers.push(client);
    }
    let (publisher, _) = scene.mqtt_client(b'!');
    scene.send(publisher, PUBLISH_A);
    let got =
        subscribers.iter().filter(|&&client| scene.card.stack.client_recv(client) == PUBLISH_A);
    assert_eq!(got.count(), 1000);
}

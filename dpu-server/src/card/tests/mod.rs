//! The card between a stack in memory and a scripted broker, with the real MQTT core.

mod endings;
mod policy;
mod streams;

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

/// The epoch of every session, as a look into its memory would find it.
struct Epochs(u64);

impl PolicyEpochs for Epochs {
    fn policy_epoch(&self, _: SessionId) -> u64 {
        self.0
    }
}

struct Scene {
    card: Card<Script, Memory>,
    epochs: Epochs,
    now: Instant,
}

impl Scene {
    fn with(trust: Trust, window_bytes: usize) -> Scene {
        let core = CoreConfig { trust, ..CoreConfig::default() };
        let config = CardConfig { core, sockets_max: 1000 };
        let card = Card::new(Script::default(), Memory::new(window_bytes), config);
        let mut scene = Scene { card, epochs: Epochs(0), now: Instant::now() };
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
            if !self.card.turn(&events, self.now, &self.epochs) && events.is_empty() {
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

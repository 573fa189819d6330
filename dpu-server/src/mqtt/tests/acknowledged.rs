//! Random afternoons with QoS 1: every subscriber sees each publisher's messages once and in order, no client has more to acknowledge
//! than it said, no identifier is in use twice, and every acknowledgement reaches whom it is for. On some a client breaks a rule, and
//! the broker goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::framer::{Framer, Handling, Piece};
use crate::mqtt::{ConnId, PacketType};

/// Where the broker begins to count: its identifiers soon are the card's.
const FIRST_MID: u16 = 65_526;

/// What the broker keeps of one client.
#[derive(Default)]
struct Session {
    filters: BTreeMap<String, u8>,
    receive_max: usize,
    mid: u16,
    inflight: BTreeSet<u16>,
    queue: VecDeque<(String, String)>,
    framer: Framer,
    /// What could not be written while the client's window is closed.
    backlog: Option<Vec<u8>>,
}

/// A PUBLISH without a topic.
const BROKEN: [u8; 5] = [0x30, 3, 0, 0, 0];

/// A broker as single-minded as mosquitto, but for what it makes of [`BROKEN`]: nothing.
#[derive(Default)]
struct Broker(BTreeMap<ConnId, Session>);

impl Broker {
    fn session(&mut self, conn: ConnId) -> &mut Session {
        self.0.get_mut(&conn).expect("connected")
    }

    fn write(&mut self, scene: &mut Scene, conn: ConnId, bytes: impl AsRef<[u8]>) {
        match &mut self.session(conn).backlog {
            Some(backlog) => {
                backlog.extend(bytes.as_ref());
                scene.core.handle_broker_blocked(conn);
            }
            None => scene.broker(conn, bytes),
        }
    }

    fn let_through(&mut self, scene: &mut Scene, conn: ConnId, bytes_max: usize) {
        let Some(mut backlog) = self.session(conn).backlog.take() else { return };
        let rest = backlog.split_off(bytes_max.min(backlog.len()));
        scene.broker(conn, &backlog);
        if !rest.is_empty() {
            scene.core.handle_broker_blocked(conn);
            self.session(conn).backlog = Some(rest);
        }
    }

    /// Reads everything that waits on this connection and writes what comes of it.
    fn serve(&mut self, scene: &mut Scene, conn: ConnId) {
        let bytes = scene.broker_gets(conn);
        let mut input = &bytes[..];
        let mut framer = std::mem::take(&mut self.session(conn).framer);
        while let Some(piece) = framer.next(&mut input, |_| Handling::Whole) {
            let Piece::Packet { header, bytes } = piece else { panic!("not MQTT: {piece:?}") };
            self.act(scene, conn, header.packet_type, bytes);
        }
        self.session(conn).framer = framer;
    }

    fn act(&mut self, scene: &mut Scene, conn: ConnId, packet_type: PacketType, bytes: &[u8]) {
        let id = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        match packet_type {
            PacketType::Pingreq => self.write(scene, conn, PINGRESP),
            PacketType::Subscribe => {
                let (filter, qos) = (&bytes[7..bytes.len() - 1], bytes[bytes.len() - 1]);
                let filter = String::from_utf8(filter.to_vec()).unwrap();
                self.session(conn).filters.insert(filter, qos);
                self.write(scene, conn, suback_v5(id(2), &[qos]));
            }
            PacketType::Publish if bytes == BROKEN => {}
            PacketType::Publish => {
                let text = |part: &[u8]| String::from_utf8(part.to_vec()).unwrap();
                let qos = bytes[0] >> 1 & 3;
                let topic = text(&bytes[4..5]);
                let payload = text(&bytes[if qos > 0 { 8 } else { 6 }..]);
                for receiver in self.0.keys().copied().collect::<Vec<_>>() {
                    self.deliver(scene, receiver, &topic, qos, &payload);
                }
                if qos > 0 {
                    self.write(scene, conn, puback(id(5)));
                }
            }
            PacketType::Puback => {
                assert!(self.session(conn).inflight.remove(&id(2)), "{} is not in flight", id(2));
                if let Some((topic, payload)) = self.session(conn).queue.pop_front() {
                    self.send(scene, conn, &topic, &payload);
                }
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn deliver(&mut self, scene: &mut Scene, conn: ConnId, topic: &str, qos: u8, payload: &str) {
        let session = self.session(conn);
        let granted: Vec<u8> =
            ["#", topic].iter().filter_map(|it| session.filters.get(*it)).copied().collect();
        // Version 5: a copy for each subscription.
        let mut copies: Vec<u8> = granted.iter().map(|granted| qos.min(*granted)).collect();
        copies.reverse();
        for qos in copies {
            let session = self.session(conn);
            if qos == 0 {
                self.write(scene, conn, publish_v5(topic, &[], payload));
            } else if session.inflight.len() < session.receive_max {
                self.send(scene, conn, topic, payload);
            } else {
                session.queue.push_back((topic.to_owned(), payload.to_owned()));
            }
        }
    }

    fn send(&mut self, scene: &mut Scene, conn: ConnId, topic: &str, payload: &str) {
        let session = self.session(conn);
        session.mid = if session.mid == u16::MAX { 1 } else { session.mid + 1 };
        let mid = session.mid;
        session.inflight.insert(mid);
        self.write(scene, conn, publish_qos1_v5(topic, mid, &[], payload));
    }
}

/// Of one publisher, topic and QoS it was published and delivered with.
type Stream = (String, char, char, u8);

/// What a client has seen.
#[derive(Default)]
struct Client {
    receive_max: usize,
    framer: Framer,
    /// Received and not acknowledged, in order.
    held: Vec<u16>,
    seen: BTreeMap<Stream, Vec<u32>>,
    /// PUBACKs it got, and those it is to get.
    acknowledged: Vec<u16>,
    published: Vec<u16>,
}

impl Client {
    fn read(&mut self, bytes: &[u8]) {
        let mut input = bytes;
        let mut framer = std::mem::take(&mut self.framer);
        while let Some(piece) = framer.next(&mut input, |_| Handling::Whole) {
            let Piece::Packet { header, bytes } = piece else { panic!("not MQTT: {piece:?}") };
            match header.packet_type {
                PacketType::Publish => self.receive(header.qos(), bytes),
                PacketType::Puback => {
                    self.acknowledged.push(u16::from_be_bytes([bytes[2], bytes[3]]));
                }
                PacketType::Suback | PacketType::Connack => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        self.framer = framer;
    }

    fn receive(&mut self, qos: u8, bytes: &[u8]) {
        let payload = if qos > 0 {
            let id = u16::from_be_bytes([bytes[5], bytes[6]]);
            assert!(!self.held.contains(&id), "{id} is in use twice");
            self.held.push(id);
            assert!(self.held.len() <= self.receive_max, "more than {}", self.receive_max);
            &bytes[8..]
        } else {
            &bytes[6..]
        };
        let text = std::str::from_utf8(payload).unwrap();
        let mut marks = text.chars();
        let (publisher, published) = (marks.next().unwrap(), marks.next().unwrap());
        let stream = (char::from(bytes[4]).to_string(), publisher, published, qos);
        self.seen.entry(stream).or_default().push(marks.as_str().parse().unwrap());
    }
}

#[derive(Clone, Debug)]
enum Move {
    /// `slow`: DUP, which the broker distributes like any other.
    Publish {
        client: usize,
        topic: char,
        qos: u8,
        is_slow: bool,
    },
    Serve(usize),
    Acknowledge {
        client: usize,
        index: usize,
    },
    CloseWindow(usize),
    LetThrough(usize, usize),
    BreakRule(usize),
}

const CLIENTS: usize = 4;

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let client = 0..CLIENTS;
    let one = prop_oneof![
        10 => (client.clone(), prop::sample::select(vec!['a', 'b']), 0..2_u8, prop::bool::weighted(0.1))
            .prop_map(|(client, topic, qos, is_slow)| Move::Publish { client, topic, qos, is_slow }),
        12 => client.clone().prop_map(Move::Serve),
        10 => (client.clone(), 0..3_usize)
            .prop_map(|(client, index)| Move::Acknowledge { client, index }),
        1 => client.clone().prop_map(Move::CloseWindow),
        3 => (client, 0..60_usize).prop_map(|(client, bytes)| Move::LetThrough(client, bytes)),
    ];
    prop::collection::vec(one, 0..150)
}

/// In one of three afternoons a client that breaks a rule, and when.
fn rule_breaker() -> impl Strategy<Value = Option<(usize, prop::sample::Index)>> {
    prop::option::weighted(0.3, (0..CLIENTS, any::<prop::sample::Index>()))
}

/// Filters of the clients, with what they are granted.
fn subscriptions() -> impl Strategy<Value = Vec<Vec<(&'static str, u8)>>> {
    let of_one =
        prop::collection::btree_map(prop::sample::select(vec!["a", "b", "#"]), 0..2_u8, 0..3_usize);
    prop::collection::vec(of_one.prop_map(|map| map.into_iter().collect()), CLIENTS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn everything_published_with_qos_1_arrives_once_in_order_and_is_acknowledged(
        receive_max in prop::collection::vec(1..5_u8, CLIENTS),
        subscriptions in subscriptions(),
        mut moves in moves(),
        rule_breaker in rule_breaker(),
    ) {
        if let Some((client, at)) = rule_breaker {
            moves.insert(at.index(moves.len() + 1), Move::BreakRule(client));
        }
        let mut scene = Scene::new();
        let mut broker = Broker::default();
        let mut clients = Vec::new();
        for (index, &max) in receive_max.iter().enumerate() {
            let conn = scene.connect(ConnectPacket { properties: &[0x21, 0, max], ..v5(&index.to_string()) });
            let receive_max = usize::from(max);
            broker.0.insert(conn, Session { receive_max, mid: FIRST_MID, ..Session::default() });
            clients.push((conn, Client { receive_max, ..Client::default() }));
        }
        for ((conn, client), filters) in clients.iter_mut().zip(&subscriptions) {
            for (filter, qos) in filters {
                scene.client(*conn, subscribe_v5(1, &[], filter, *qos));
                broker.serve(&mut scene, *conn);
            }
            client.read(&scene.client_gets(*conn));
        }
        let mut sent: BTreeMap<(String, char, char), Vec<u32>> = BTreeMap::new();
        for (number, one) in moves.iter().enumerate() {
            match *one {
                Move::BreakRule(index) => scene.client(clients[index].0, BROKEN),
                Move::Serve(index) => broker.serve(&mut scene, clients[index].0),
                Move::CloseWindow(index) => {
                    broker.session(clients[index].0).backlog.get_or_insert_default();
                }
                Move::LetThrough(index, bytes) => broker.let_through(&mut scene, clients[index].0, bytes),
                Move::Acknowledge { client, index } => {
                    let (conn, client) = &mut clients[client];
                    if index < client.held.len() {
                        scene.client(*conn, puback(client.held.remove(index)));
                    }
                }
                Move::Publish { client, topic, qos, is_slow } => {
                    let name = char::from(b'0' + client as u8);
                    let mark = char::from(b'0' + qos);
                    let payload = format!("{name}{mark}{number}");
                    let stream = (topic.to_string(), name, mark);
                    sent.entry(stream).or_default().push(number as u32);
                    let (conn, client) = &mut clients[client];
                    let id = number as u16 + 1;
                    let mut packet = publish_v5(&topic.to_string(), &[], &payload);
                    if qos > 0 {
                        packet = publish_qos1_v5(&topic.to_string(), id, &[], &payload);
                        packet[0] |= if is_slow { 8 } else { 0 };
                        client.published.push(id);
                    } else {
                        packet[0] |= u8::from(is_slow);
                    }
                    scene.client(*conn, packet);
                }
            }
            for (conn, client) in &mut clients {
                client.read(&scene.client_gets(*conn));
            }
        }
        // Everybody catches up.
        for _ in 0..4 * (moves.len() + 2) {
            for (conn, client) in &mut clients {
                broker.let_through(&mut scene, *conn, usize::MAX);
                broker.serve(&mut scene, *conn);
                client.read(&scene.client_gets(*conn));
                for id in std::mem::take(&mut client.held) {
                    scene.client(*conn, puback(id));
                }
                client.read(&scene.client_gets(*conn));
            }
        }
        for ((_, client), filters) in clients.iter().zip(&subscriptions) {
            prop_assert!(client.held.is_empty());
            prop_assert_eq!(&client.acknowledged, &client.published);
            let mut expected: BTreeMap<Stream, Vec<u32>> = BTreeMap::new();
            for ((topic, name, mark), numbers) in &sent {
                let published = (*mark as u8) - b'0';
                let mut copies: BTreeMap<u8, usize> = BTreeMap::new();
                for (_, granted) in filters.iter().filter(|(filter, _)| *filter == "#" || filter == topic) {
                    *copies.entry(published.min(*granted)).or_default() += 1;
                }
                for (qos, count) in copies {
                    let stream = (topic.clone(), *name, *mark, qos);
                    let numbers = numbers.iter().flat_map(|n| std::iter::repeat_n(*n, count)).collect();
                    expected.insert(stream, numbers);
                }
            }
            prop_assert_eq!(&client.seen, &expected);
        }
        for session in broker.0.values() {
            prop_assert!(session.inflight.is_empty() && session.queue.is_empty());
        }
        prop_assert!(scene.core.counters().outbox_dropped.iter().all(|count| *count == 0));
    }
}

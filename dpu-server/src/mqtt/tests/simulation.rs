//! Random afternoons: whatever happens, bytes are kept, and every subscriber sees each publisher's messages once and in
//! order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::framer::{Framer, Handling, Piece};
use crate::mqtt::{ConnId, CoreConfig, PacketType, Reason, Trust};

/// Valid packets of all kinds and versions, and some that are not.
fn client_packet() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![
            v311("a").bytes(),
            v311("b").bytes(),
            persistent("a").bytes(),
            v5("a").bytes(),
            ConnectPacket { level: 3, ..v311("c") }.bytes(),
            publish("t", "x"),
            publish("u/v", "y"),
            publish_v5("t", &[0x02, 0, 0, 0, 1], "z"),
            publish_qos1("t", 1, "q"),
            publish_qos2("t", 2, "q"),
            pubrel(2),
            packet(0x40, &[0, 1]),
            packet(0x50, &[0, 1]),
            packet(0x70, &[0, 1]),
            subscribe(3, &["t", "u/#"]),
            subscribe_v5(3, &[0x0B, 1], "t", 4),
            unsubscribe(4, &["t"]),
            PINGREQ.to_vec(),
            packet(0xF0, &[0x19, 0]),
            DISCONNECT.to_vec(),
        ]),
        prop::collection::vec(any::<u8>(), 1..8),
    ]
}

fn broker_packet() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![
            connack(4, false, 0, &[]),
            connack(4, true, 0, &[]),
            connack(4, false, 5, &[]),
            connack(5, false, 0, &[0x12, 0, 1, b'a', 0x13, 0, 9]),
            publish("t", "x"),
            publish_qos1("t", 1, "x"),
            packet(0x40, &[0, 1]),
            suback(3, &[0, 0]),
            suback(3, &[0, 0x80]),
            suback_v5(3, &[0]),
            unsuback(4),
            PINGRESP.to_vec(),
            packet(0xF0, &[0, 0]),
            packet(0xE0, &[0x8B]),
        ]),
        prop::collection::vec(any::<u8>(), 1..8),
    ]
}

#[derive(Clone, Debug)]
enum Event {
    Client(usize, Vec<u8>),
    Broker(usize, Vec<u8>),
    Blocked(usize),
    ClientGone(usize),
    BrokerGone(usize),
    Reopen(usize),
    Sleep(u16),
    /// The broker has a connection of its own for a while.
    Outside,
}

fn trust() -> impl Strategy<Value = Trust> {
    prop::sample::select(vec![Trust::Suback, Trust::Observed])
}

const CONNECTIONS: usize = 3;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (0..CONNECTIONS, prop::collection::vec(client_packet(), 1..4))
            .prop_map(|(conn, packets)| Event::Client(conn, packets.concat())),
        8 => (0..CONNECTIONS, prop::collection::vec(broker_packet(), 1..4))
            .prop_map(|(conn, packets)| Event::Broker(conn, packets.concat())),
        1 => (0..CONNECTIONS).prop_map(Event::Blocked),
        1 => (0..CONNECTIONS).prop_map(Event::ClientGone),
        1 => (0..CONNECTIONS).prop_map(Event::BrokerGone),
        1 => (0..CONNECTIONS).prop_map(Event::Reopen),
        1 => any::<u16>().prop_map(Event::Sleep),
    ];
    prop::collection::vec(event, 0..40)
}

#[derive(Default)]
struct Bytes {
    client: Vec<u8>,
    broker: Vec<u8>,
    to_client: Vec<u8>,
    to_broker: Vec<u8>,
}

/// Plays events, and cuts every input where `cut` says so. Returns what went in and out of each connection's lives.
fn play(config: CoreConfig, is_late: bool, events: &[Event], cut: usize) -> (Scene, Vec<Bytes>) {
    let mut scene = Scene::with_config(config);
    if is_late {
        scene.core.expect_late_deliveries();
    }
    let mut lives = Vec::new();
    let mut open: Vec<(ConnId, Bytes)> =
        (0..CONNECTIONS).map(|_| (scene.open(), Bytes::default())).collect();
    for event in events {
        match event {
            Event::Client(index, bytes) => {
                let (conn, seen) = &mut open[*index];
                seen.client.extend(bytes);
                bytes.chunks(cut).for_each(|part| scene.client(*conn, part));
            }
            Event::Broker(index, bytes) => {
                let (conn, seen) = &mut open[*index];
                seen.broker.extend(bytes);
                bytes.chunks(cut).for_each(|part| scene.broker(*conn, part));
            }
            Event::Blocked(index) => scene.core.handle_broker_blocked(open[*index].0),
            Event::ClientGone(index) => scene.core.handle_client_gone(open[*index].0, scene.now),
            Event::BrokerGone(index) => scene.core.handle_broker_gone(open[*index].0, scene.now),
            Event::Outside => {
                scene.core.handle_outside(0, 1);
                scene.core.handle_outside(0, -1);
            }
            Event::Sleep(ms) => scene.sleep(std::time::Duration::from_millis((*ms).into())),
            Event::Reopen(index) => {
                let fresh = (scene.open(), Bytes::default());
                let (conn, seen) = std::mem::replace(&mut open[*index], fresh);
                lives.push(finish(&mut scene, conn, seen));
            }
        }
    }
    for (conn, seen) in open {
        lives.push(finish(&mut scene, conn, seen));
    }
    (scene, lives)
}

fn finish(scene: &mut Scene, conn: ConnId, mut seen: Bytes) -> Bytes {
    scene.core.handle_client_gone(conn, scene.now);
    scene.core.handle_broker_gone(conn, scene.now);
    seen.to_broker = scene.broker_gets(conn);
    seen.to_client = scene.client_gets(conn);
    scene.core.handle_close(conn, scene.now);
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn where_nothing_can_be_learned_every_byte_passes_unchanged_both_ways(
        mut events in events(), cut in 1..20_usize,
    ) {
        events.insert(0, Event::Outside);
        let (_, lives) = play(CoreConfig::default(), true, &events, cut);
        for life in lives {
            prop_assert_eq!(life.to_broker, life.client);
            prop_assert_eq!(life.to_client, life.broker);
        }
    }

    #[test]
    fn any_split_of_the_streams_gives_the_same_output(
        events in events(), is_late: bool, cut in 1..20_usize, trust in trust(),
    ) {
        let config = CoreConfig { trust, ..CoreConfig::default() };
        let (whole, whole_lives) = play(config.clone(), is_late, &events, usize::MAX);
        let (split, split_lives) = play(config, is_late, &events, cut);
        for (whole, split) in whole_lives.iter().zip(&split_lives) {
            prop_assert_eq!(&whole.to_broker, &split.to_broker);
            prop_assert_eq!(&whole.to_client, &split.to_client);
        }
        prop_assert_eq!(whole.core.counters(), split.core.counters());
    }

    #[test]
    fn nothing_is_left_when_everybody_is_gone(
        events in events(), is_late: bool, trust in trust(),
    ) {
        let config = CoreConfig { trust, ..CoreConfig::default() };
        let (mut scene, _) = play(config, is_late, &events, usize::MAX);
        prop_assert_eq!(scene.core.counters().connections, 0);
        // Persistent sessions end when their clients come back clean.
        for name in ["a", "b", "c"] {
            let conn = scene.open();
            scene.client(conn, v311(name).bytes());
            scene.broker(conn, connack(4, false, 0, &[]));
            scene.close(conn);
        }
        prop_assert_eq!(scene.core.counters().sessions, 0);
        prop_assert_eq!(scene.core.counters().subscriptions, 0);
        prop_assert_eq!(scene.core.counters().learned, 0);
        let reason = scene.core.status().slow_reason;
        prop_assert!(reason.is_none() || (is_late && reason == Some(Reason::TrustNotEstablished)));
        while scene.core.poll_dirty().is_some() {}
    }
}

/// A broker as single-minded as mosquitto: reads one connection at a time, acts, writes.
#[derive(Default)]
pub(super) struct Broker {
    /// Who may not publish on a topic, and who is not given what is published there. Everybody else may.
    pub(super) denied: BTreeSet<(Deed, ConnId, String)>,
    /// Topics, payloads and receivers of the copies it has made.
    pub(super) copies: Vec<(ConnId, String, String)>,
    subscriptions: BTreeMap<ConnId, Vec<String>>,
    framers: BTreeMap<ConnId, Framer>,
    /// What could not be written to connections whose window is closed.
    backlogs: BTreeMap<ConnId, Vec<u8>>,
    /// Copies that will be written later than anything else, if this broker is of the kind that answers first.
    mailboxes: Option<BTreeMap<ConnId, Mailbox>>,
}

/// Copies for one subscriber, with their publishers.
type Mailbox = VecDeque<(ConnId, Vec<u8>)>;

/// What a policy allows or denies.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Deed {
    Write,
    Read,
}

impl Broker {
    pub(super) fn may(&self, deed: Deed, conn: ConnId, topic: &str) -> bool {
        !self.denied.contains(&(deed, conn, topic.to_owned()))
    }

    fn write(&mut self, scene: &mut Scene, conn: ConnId, bytes: impl AsRef<[u8]>) {
        match self.backlogs.get_mut(&conn) {
            Some(backlog) => {
                backlog.extend(bytes.as_ref());
                scene.core.handle_broker_blocked(conn);
            }
            None => scene.broker(conn, bytes),
        }
    }

    pub(super) fn close_window(&mut self, conn: ConnId) {
        self.backlogs.entry(conn).or_default();
    }

    /// Opens a window, or lets so many bytes through a closed one.
    pub(super) fn let_through(&mut self, scene: &mut Scene, conn: ConnId, bytes_max: usize) {
        let Some(mut backlog) = self.backlogs.remove(&conn) else { return };
        let rest = backlog.split_off(bytes_max.min(backlog.len()));
        scene.broker(conn, &backlog);
        if !rest.is_empty() {
            scene.core.handle_broker_blocked(conn);
            self.backlogs.insert(conn, rest);
        }
    }

    /// Answers first and delivers later.
    pub(super) fn late() -> Self {
        Self { mailboxes: Some(BTreeMap::new()), ..Self::default() }
    }

    pub(super) fn is_late(&self) -> bool {
        self.mailboxes.is_some()
    }

    /// Hands a copy over, or writes it at once.
    fn send(&mut self, scene: &mut Scene, conn: ConnId, publisher: ConnId, copy: Vec<u8>) {
        match &mut self.mailboxes {
            Some(mailboxes) => mailboxes.entry(conn).or_default().push_back((publisher, copy)),
            None => self.write(scene, conn, copy),
        }
    }

    /// Writes the first copy of a publisher's, of some publisher's by `choice`: there is no order between these. Whether there was one.
    pub(super) fn deliver_one(&mut self, scene: &mut Scene, conn: ConnId, choice: usize) -> bool {
        let mailbox = self.mailboxes.as_mut().and_then(|it| it.get_mut(&conn));
        let Some(mailbox) = mailbox.filter(|it| !it.is_empty()) else { return false };
        let (publisher, _) = mailbox[choice % mailbox.len()];
        let first = mailbox.iter().position(|(of, _)| *of == publisher).unwrap();
        let (_, copy) = mailbox.remove(first).unwrap();
        self.write(scene, conn, copy);
        true
    }

    /// Writes so many copies that were handed over.
    fn deliver(&mut self, scene: &mut Scene, conn: ConnId, count: usize) {
        let mailbox = self.mailboxes.as_mut().and_then(|it| it.get_mut(&conn));
        let copies: Vec<_> = mailbox
            .map(|mailbox| mailbox.drain(..count.min(mailbox.len())).collect())
            .unwrap_or_default();
        for (_, copy) in copies {
            self.write(scene, conn, copy);
        }
    }

    /// Reads everything that waits on this connection and writes what comes of it.
    pub(super) fn serve(&mut self, scene: &mut Scene, conn: ConnId) {
        let bytes = scene.broker_gets(conn);
        let mut input = &bytes[..];
        let mut framer = self.framers.remove(&conn).unwrap_or_default();
        while let Some(piece) = framer.next(&mut input, |_| Handling::Whole) {
            let Piece::Packet { header, bytes } = piece else { panic!("not MQTT: {piece:?}") };
            self.act(scene, conn, header.packet_type, bytes);
        }
        self.framers.insert(conn, framer);
    }

    fn act(&mut self, scene: &mut Scene, conn: ConnId, packet_type: PacketType, bytes: &[u8]) {
        let id = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        match packet_type {
            PacketType::Connect => self.write(scene, conn, connack(4, false, 0, &[])),
            PacketType::Pingreq => self.write(scene, conn, PINGRESP),
            PacketType::Subscribe => {
                let filter = String::from_utf8(bytes[6..bytes.len() - 1].to_vec()).unwrap();
                let filters = self.subscriptions.entry(conn).or_default();
                if !filters.contains(&filter) {
                    filters.push(filter);
                }
                self.write(scene, conn, suback(id(2), &[0]));
            }
            PacketType::Unsubscribe => {
                let filter = std::str::from_utf8(&bytes[6..]).unwrap();
                if let Some(filters) = self.subscriptions.get_mut(&conn) {
                    filters.retain(|known| known != filter);
                }
                self.write(scene, conn, unsuback(id(2)));
            }
            PacketType::Publish => {
                let topic = &bytes[4..5];
                let payload_at = if bytes[0] == 0x32 { 7 } else { 5 };
                let payload = std::str::from_utf8(&bytes[payload_at..]).unwrap();
                let topic = std::str::from_utf8(topic).unwrap();
                let may_write = self.may(Deed::Write, conn, topic);
                let receivers: Vec<_> = self
                    .subscriptions
                    .iter()
                    .filter(|(_, filters)| filters.iter().any(|f| f == topic || f == "#"))
                    .map(|(&conn, _)| conn)
                    .filter(|&receiver| may_write && self.may(Deed::Read, receiver, topic))
                    .collect();
                for receiver in receivers {
                    self.copies.push((receiver, topic.to_owned(), payload.to_owned()));
                    self.send(scene, receiver, conn, publish(topic, payload));
                }
                if bytes[0] == 0x32 {
                    self.write(scene, conn, packet(0x40, &bytes[5..7]));
                }
            }
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[derive(Clone, Debug)]
enum Move {
    Publish { client: usize, topic: &'static str, is_slow: bool },
    Subscribe { client: usize, filter: &'static str },
    Unsubscribe { client: usize, filter: &'static str },
    Serve(usize),
    CloseWindow(usize),
    LetThrough(usize, usize),
    Deliver(usize, usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let client = 0..4_usize;
    let topic = || prop::sample::select(vec!["a", "b"]);
    let filter = || prop::sample::select(vec!["a", "b", "#"]);
    let one = prop_oneof![
        8 => (client.clone(), topic(), prop::bool::weighted(0.15))
            .prop_map(|(client, topic, is_slow)| Move::Publish { client, topic, is_slow }),
        1 => (client.clone(), filter()).prop_map(|(client, filter)| Move::Subscribe { client, filter }),
        1 => (client.clone(), filter())
            .prop_map(|(client, filter)| Move::Unsubscribe { client, filter }),
        10 => client.clone().prop_map(Move::Serve),
        1 => client.clone().prop_map(Move::CloseWindow),
        3 => (client, 0..60_usize).prop_map(|(client, bytes)| Move::LetThrough(client, bytes)),
        12 => (0..5_usize, 0..6_usize).prop_map(|(client, count)| Move::Deliver(client, count)),
    ];
    prop::collection::vec(one, 0..120)
}

/// Payloads a client got, by topic and publisher.
fn received(stream: &[u8]) -> BTreeMap<(String, char), VecDeque<u32>> {
    let mut framer = Framer::new();
    let mut input = stream;
    let mut seen: BTreeMap<_, VecDeque<u32>> = BTreeMap::new();
    while let Some(Piece::Packet { header, bytes }) = framer.next(&mut input, |_| Handling::Whole) {
        if header.packet_type == PacketType::Publish {
            let text = std::str::from_utf8(&bytes[4..]).unwrap();
            let (topic, publisher) = (text[..1].to_owned(), text[1..].chars().next().unwrap());
            seen.entry((topic, publisher)).or_default().push_back(text[2..].parse().unwrap());
        }
    }
    assert!(input.is_empty());
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn subscribers_see_each_publishers_messages_once_and_in_order(moves in moves()) {
        spend(Scene::new(), Broker::default(), &moves)?;
    }

    #[test]
    fn they_do_so_too_where_the_broker_answers_before_it_delivers(moves in moves()) {
        let mut scene = Scene::new();
        scene.core.expect_late_deliveries();
        spend(scene, Broker::late(), &moves)?;
    }
}

#[test]
fn what_is_on_its_way_with_another_qos_is_not_overtaken_either() {
    let mut scene = Scene::new();
    scene.core.expect_late_deliveries();
    let broker = Broker::late();
    let publish = |is_slow| Move::Publish { client: 2, topic: "a", is_slow };
    // The copies of the first two prove nothing about the third, which the broker has yet to read.
    let moves = [
        publish(true),
        publish(false),
        Move::Serve(2),
        publish(true),
        Move::Deliver(4, 2),
        publish(false),
    ];
    spend(scene, broker, &moves).unwrap();
}

/// An afternoon of four clients and one that watches them.
fn spend(mut scene: Scene, mut broker: Broker, moves: &[Move]) -> Result<(), TestCaseError> {
    let clients: Vec<_> = ["w", "x", "y", "z"]
        .map(|id| {
            let conn = scene.open();
            scene.client(conn, v311(id).bytes());
            broker.serve(&mut scene, conn);
            conn
        })
        .into();
    // Subscribed from first to last: it must see everything.
    let watcher = scene.open();
    scene.client(watcher, [v311("all").bytes(), subscribe(1, &["#"])].concat());
    broker.serve(&mut scene, watcher);
    broker.serve(&mut scene, watcher);

    let mut number = 0;
    let mut sent: BTreeMap<(String, char), VecDeque<u32>> = BTreeMap::new();
    for (step, one) in moves.iter().enumerate() {
        let packet_id = step as u16 + 1;
        match *one {
            Move::Serve(client) => broker.serve(&mut scene, clients[client]),
            Move::CloseWindow(client) => broker.close_window(clients[client]),
            Move::LetThrough(client, bytes) => {
                broker.let_through(&mut scene, clients[client], bytes);
            }
            Move::Deliver(client, count) => {
                let conn = clients.get(client).copied().unwrap_or(watcher);
                broker.deliver(&mut scene, conn, count);
            }
            Move::Subscribe { client, filter } => {
                scene.client(clients[client], subscribe(packet_id, &[filter]));
            }
            Move::Unsubscribe { client, filter } => {
                scene.client(clients[client], unsubscribe(packet_id, &[filter]));
            }
            Move::Publish { client, topic, is_slow } => {
                number += 1;
                let name = char::from(b'0' + client as u8);
                let payload = format!("{name}{number}");
                sent.entry((topic.to_owned(), name)).or_default().push_back(number);
                let packet = if is_slow {
                    publish_qos1(topic, packet_id, &payload)
                } else {
                    publish(topic, &payload)
                };
                scene.client(clients[client], packet);
            }
        }
    }
    for _ in 0..4 {
        for &conn in clients.iter().chain([&watcher]) {
            broker.deliver(&mut scene, conn, usize::MAX);
            broker.let_through(&mut scene, conn, usize::MAX);
            broker.serve(&mut scene, conn);
        }
    }
    prop_assert_eq!(received(&scene.client_gets(watcher)), sent.clone());
    for &conn in &clients {
        for (key, numbers) in received(&scene.client_gets(conn)) {
            prop_assert!(numbers.iter().is_sorted_by(|a, b| a < b), "{key:?} {numbers:?}");
            prop_assert!(numbers.iter().all(|n| sent[&key].contains(n)));
        }
    }
    Ok(())
}

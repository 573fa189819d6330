//! Random afternoons of a broker with access control: no byte reaches whom the policy forbids it, nobody who is granted misses
//! anything, and order holds, while who is denied copies the messages of who is not, and subscribers stall. So too with a broker that
//! answers first, and delivers later and in no order between publishers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::packets::*;
use super::scene::Scene;
use super::simulation::{Broker, Deed};
use crate::mqtt::framer::{Framer, Handling, Piece};
use crate::mqtt::{ConnId, CoreConfig, PacketType};

const CLIENTS: usize = 3;
const WATCHERS: usize = 2;

#[derive(Clone, Debug)]
enum Move {
    Publish {
        client: usize,
        topic: &'static str,
        is_slow: bool,
    },
    /// With the payload somebody used last on the topic.
    Copy {
        client: usize,
        topic: &'static str,
        is_slow: bool,
    },
    Subscribe {
        client: usize,
        filter: &'static str,
    },
    Unsubscribe {
        client: usize,
        filter: &'static str,
    },
    Policy {
        is_write: bool,
        client: usize,
        topic: &'static str,
    },
    Serve(usize),
    CloseWindow(usize),
    LetThrough(usize, usize),
    /// One copy of one who may be slow to deliver.
    Deliver(usize, usize),
    Sleep(u64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let client = 0..CLIENTS;
    let anybody = 0..CLIENTS + WATCHERS;
    let topic = || prop::sample::select(vec!["a", "a", "b"]);
    let filter = || prop::sample::select(vec!["a", "b", "#"]);
    let one = prop_oneof![
        20 => (client.clone(), topic(), prop::bool::weighted(0.1))
            .prop_map(|(client, topic, is_slow)| Move::Publish { client, topic, is_slow }),
        4 => (client.clone(), topic(), any::<bool>())
            .prop_map(|(client, topic, is_slow)| Move::Copy { client, topic, is_slow }),
        1 => (client.clone(), filter()).prop_map(|(client, filter)| Move::Subscribe { client, filter }),
        1 => (client.clone(), filter())
            .prop_map(|(client, filter)| Move::Unsubscribe { client, filter }),
        1 => (any::<bool>(), anybody, topic())
            .prop_map(|(is_write, client, topic)| Move::Policy { is_write, client, topic }),
        20 => client.clone().prop_map(Move::Serve),
        1 => client.clone().prop_map(Move::CloseWindow),
        3 => (client, 0..60_usize).prop_map(|(client, bytes)| Move::LetThrough(client, bytes)),
        60 => (0..CLIENTS + WATCHERS, 0..8_usize)
            .prop_map(|(client, choice)| Move::Deliver(client, choice)),
        2 => (1..30_u64).prop_map(Move::Sleep),
    ];
    prop::collection::vec(one, 0..500)
}

/// A message: topic and payload.
type Message = (String, String);

/// What is between the clients and the card, and what the model knows.
struct Afternoon {
    scene: Scene,
    broker: Broker,
    /// Clients, then watchers, who have subscribed to everything and take it at once.
    all: Vec<ConnId>,
    framers: BTreeMap<ConnId, Framer>,
    /// Of each publisher what it sent and neither card nor broker is known to have dealt with, in order.
    pending: BTreeMap<ConnId, VecDeque<Message>>,
    /// How many of the PUBLISHes that wait for the broker have been taken off `pending`.
    noted: BTreeMap<ConnId, usize>,
    /// Last payload on each topic.
    last: BTreeMap<&'static str, String>,
    /// What each got, by topic and publisher of original payloads.
    seen: BTreeMap<(ConnId, String, char), u32>,
    /// Copies the broker has made and nobody has got yet.
    on_their_way: BTreeMap<(ConnId, Message), u32>,
    card_publishes: u64,
    by_card: u64,
}

impl Afternoon {
    fn new(mut broker: Broker) -> Self {
        let mut scene = Scene::with_config(CoreConfig::default());
        if broker.is_late() {
            scene.core.expect_late_deliveries();
        }
        let all: Vec<_> = (0..CLIENTS + WATCHERS)
            .map(|index| {
                let conn = scene.open();
                scene.client(conn, v311(&index.to_string()).bytes());
                broker.serve(&mut scene, conn);
                if index >= CLIENTS {
                    scene.client(conn, subscribe(1, &["#"]));
                    broker.serve(&mut scene, conn);
                }
                scene.client_gets(conn);
                conn
            })
            .collect();
        Self {
            scene,
            broker,
            all,
            framers: BTreeMap::new(),
            pending: BTreeMap::new(),
            noted: BTreeMap::new(),
            last: BTreeMap::new(),
            seen: BTreeMap::new(),
            on_their_way: BTreeMap::new(),
            card_publishes: 0,
            by_card: 0,
        }
    }

    fn publish(&mut self, client: usize, topic: &'static str, payload: String, id: Option<u16>) {
        let conn = self.all[client];
        let packet = match id {
            Some(id) => publish_qos1(topic, id, &payload),
            None => publish(topic, &payload),
        };
        self.pending.entry(conn).or_default().push_back((topic.to_owned(), payload.clone()));
        self.last.insert(topic, payload);
        self.scene.client(conn, packet);
        self.check();
    }

    fn serve(&mut self, conn: ConnId) {
        // What the broker reads now the card has passed to it, and will not distribute.
        self.note_passed(conn);
        self.noted.insert(conn, 0);
        self.broker.serve(&mut self.scene, conn);
        self.check();
    }

    /// One copy; whether there was one.
    fn deliver(&mut self, conn: ConnId, choice: usize) -> bool {
        let is_delivered = self.broker.deliver_one(&mut self.scene, conn, choice);
        self.check();
        is_delivered
    }

    /// Takes what waits for the broker off the pending messages of a publisher.
    fn note_passed(&mut self, conn: ConnId) {
        let waiting = publishes(self.scene.core.to_broker(conn).as_slice());
        let noted = std::mem::replace(self.noted.entry(conn).or_default(), waiting.len());
        let pending = self.pending.entry(conn).or_default();
        for message in &waiting[noted..] {
            let at = pending.iter().position(|it| it == message).expect("sent and not dealt with");
            pending.remove(at);
        }
    }

    /// Looks at everything that happened since the last time.
    fn check(&mut self) {
        for (conn, topic, payload) in std::mem::take(&mut self.broker.copies) {
            *self.on_their_way.entry((conn, (topic, payload))).or_default() += 1;
        }
        let mut distributed = Vec::new();
        for conn in self.all.clone() {
            self.note_passed(conn);
            let held = publishes(self.scene.core.held(conn)).len();
            let pending = self.pending.entry(conn).or_default();
            let taken = pending.drain(..pending.len() - held);
            distributed.extend(taken.map(|message| (conn, message)));
        }
        let taken = self.scene.core.counters().publishes_card - self.card_publishes;
        assert_eq!(distributed.len() as u64, taken, "neither passed on, nor waiting");
        self.card_publishes += taken;
        self.by_card += taken;
        for (index, conn) in self.all.clone().into_iter().enumerate() {
            let mut owed: Vec<_> = distributed
                .iter()
                .filter(|(publisher, (topic, _))| {
                    self.broker.may(Deed::Write, *publisher, topic)
                        && self.broker.may(Deed::Read, conn, topic)
                })
                .map(|(_, message)| message.clone())
                .collect();
            for message in self.got(conn) {
                self.in_order(conn, &message);
                if let Some(at) = owed.iter().position(|it| *it == message) {
                    owed.remove(at);
                    continue;
                }
                let left = self.on_their_way.get_mut(&(conn, message.clone()));
                let left = left.unwrap_or_else(|| panic!("{index} was not to get {message:?}"));
                assert!(*left > 0, "{index} was not to get {message:?} once more");
                *left -= 1;
            }
            assert!(index < CLIENTS || owed.is_empty(), "{index} missed {owed:?}");
        }
    }

    /// What a client got since the last time.
    fn got(&mut self, conn: ConnId) -> Vec<Message> {
        let bytes = self.scene.client_gets(conn);
        let framer = self.framers.entry(conn).or_default();
        let mut input = &bytes[..];
        let mut got = Vec::new();
        while let Some(Piece::Packet { header, bytes }) =
            framer.next(&mut input, |_| Handling::Whole)
        {
            if header.packet_type == PacketType::Publish {
                got.push(message(bytes, 0));
            }
        }
        got
    }

    /// Originals carry a growing number behind their publisher's letter; copies of others begin with `=`.
    fn in_order(&mut self, conn: ConnId, (topic, payload): &Message) {
        let Some(publisher) = payload.chars().next().filter(|first| *first != '=') else { return };
        let number: u32 = payload[1..].parse().unwrap();
        let last = self.seen.entry((conn, topic.clone(), publisher)).or_default();
        assert!(*last <= number, "{number} of {publisher} on {topic} came behind {last}");
        *last = number;
    }
}

/// The PUBLISHes in whole packets.
fn publishes(mut input: &[u8]) -> Vec<Message> {
    let mut framer = Framer::new();
    let mut all = Vec::new();
    while let Some(piece) = framer.next(&mut input, |_| Handling::Whole) {
        let Piece::Packet { header, bytes } = piece else { panic!("not MQTT: {piece:?}") };
        if header.packet_type == PacketType::Publish {
            all.push(message(bytes, header.qos()));
        }
    }
    all
}

fn message(packet: &[u8], qos: u8) -> Message {
    let text = std::str::from_utf8(&packet[4..5]).unwrap();
    let payload = &packet[if qos == 1 { 7 } else { 5 }..];
    (text.to_owned(), String::from_utf8(payload.to_vec()).unwrap())
}

/// Plays the moves; how many messages the card distributed.
fn spend(broker: Broker, moves: &[Move]) -> u64 {
    let mut it = Afternoon::new(broker);
    for (step, one) in moves.iter().enumerate() {
        let id = step as u16 + 1;
        match *one {
            Move::Publish { client, topic, is_slow } => {
                let payload = format!("{}{step:04}", char::from(b'p' + client as u8));
                it.publish(client, topic, payload, is_slow.then_some(id));
            }
            Move::Copy { client, topic, is_slow } => {
                let Some(payload) = it.last.get(topic).cloned() else { continue };
                // Somebody else's number would break the order that is checked.
                let payload = format!("={}", payload.trim_start_matches('='));
                it.publish(client, topic, payload, is_slow.then_some(id));
            }
            Move::Subscribe { client, filter } => {
                let conn = it.all[client];
                it.scene.client(conn, subscribe(id, &[filter]));
                it.check();
            }
            Move::Unsubscribe { client, filter } => {
                let conn = it.all[client];
                it.scene.client(conn, unsubscribe(id, &[filter]));
                it.check();
            }
            Move::Policy { is_write, client, topic } => {
                let deed = if is_write { Deed::Write } else { Deed::Read };
                let entry = (deed, it.all[client], topic.to_owned());
                it.scene.core.handle_policy_change();
                if !it.broker.denied.remove(&entry) {
                    it.broker.denied.insert(entry);
                }
            }
            Move::Serve(client) => it.serve(it.all[client]),
            Move::CloseWindow(client) => it.broker.close_window(it.all[client]),
            Move::LetThrough(client, bytes) => {
                let conn = it.all[client];
                it.broker.let_through(&mut it.scene, conn, bytes);
                it.check();
            }
            Move::Deliver(client, choice) => {
                it.deliver(it.all[client], choice);
            }
            Move::Sleep(ms) => {
                it.scene.sleep(Duration::from_millis(ms));
                it.check();
            }
        }
    }
    // What a publisher sent may wait message by message.
    for _ in 0..40 {
        it.scene.sleep(Duration::from_millis(20));
        for conn in it.all.clone() {
            it.broker.let_through(&mut it.scene, conn, usize::MAX);
            it.serve(conn);
        }
        for conn in it.all.clone() {
            while it.deliver(conn, 0) {}
        }
    }
    for (whose, count) in &it.on_their_way {
        assert_eq!(*count, 0, "{whose:?} was made and not delivered");
    }
    for (publisher, pending) in &it.pending {
        assert!(pending.is_empty(), "{publisher:?}: nobody has dealt with {pending:?}");
    }
    it.by_card
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_learned_is_what_the_policy_says(moves in moves()) {
        spend(Broker::default(), &moves);
    }

    #[test]
    fn so_it_is_where_the_broker_answers_first_and_delivers_later(moves in moves()) {
        spend(Broker::late(), &moves);
    }
}

#[test]
fn the_card_distributes_most_of_an_afternoon_without_changes() {
    let moves: Vec<_> = (0..100)
        .flat_map(|_| [Move::Publish { client: 0, topic: "a", is_slow: false }, Move::Serve(0)])
        .collect();
    assert_eq!(spend(Broker::default(), &moves), 98);
}

#[test]
fn so_it_does_where_the_broker_answers_first_and_delivers_later() {
    let deliveries = || (0..CLIENTS + WATCHERS).map(|client| Move::Deliver(client, 0));
    let moves: Vec<_> = (0..100)
        .flat_map(|_| {
            let publish = Move::Publish { client: 0, topic: "a", is_slow: false };
            [publish, Move::Serve(0)].into_iter().chain(deliveries())
        })
        .collect();
    assert_eq!(spend(Broker::late(), &moves), 98);
}

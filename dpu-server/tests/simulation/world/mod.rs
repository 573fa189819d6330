//! Clients, the networks between them, the card and the broker, and what happens to them: one seed, one life.
//!
//! ```text
//! client ── up ──► Core ── to_broker ──► broker
//!        ◄─ down ─      ◄── deeds, in the order they were done ──
//! ```
//!
//! Every stretch of the way is carried by steps of chance, cut anywhere. What a connection carried when it ended is lost. The streams are
//! TCP's: within one nothing is reordered or repeated; between them everything is, and clients repeat what was not acknowledged.

mod hearing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dpu_server::mqtt::{ConnId, Core, CoreConfig, DropReason, Limits, Mode, Reason, Trust};

use super::broker::{Broker, Deed, Policy};
use super::client::Client;
use super::model::{Model, name_of};
use super::rng::Rng;
use super::wire::{INFLIGHT_MAX, Publish, Version};

/// Bytes of the largest packet the card reads.
pub(crate) const READ_BYTES_MAX: usize = 200;
const CLIENTS: usize = 6;
/// In which the world has to come to rest.
const REST_ROUNDS_MAX: usize = 10_000;
const DENIED_PERCENT: usize = 8;
const TOPICS: [&str; 2] = ["a", "b"];
const QOS: [u8; 20] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2];
const FILTERS: [&str; 8] = ["a", "a", "a", "b", "b", "b", "+", "#"];

/// What came of a life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) messages: u64,
    pub(crate) by_card: u64,
    pub(crate) by_broker: u64,
    pub(crate) card_acknowledged: u64,
    pub(crate) takeovers: u64,
    pub(crate) cuts: u64,
    pub(crate) restarts: u64,
    pub(crate) aliases: u64,
    /// Messages the broker had, by the reason for it.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.messages += other.messages;
        self.by_card += other.by_card;
        self.by_broker += other.by_broker;
        self.card_acknowledged += other.card_acknowledged;
        self.takeovers += other.takeovers;
        self.cuts += other.cuts;
        self.restarts += other.restarts;
        self.aliases += other.aliases;
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
    }
}

fn some_policy(rng: &mut Rng) -> Policy {
    let mut policy = Policy::default();
    for client in (0..CLIENTS).map(name_of) {
        for topic in TOPICS.map(str::to_owned) {
            if rng.percent(DENIED_PERCENT) {
                policy.unwritten.insert((client.clone(), topic.clone()));
            }
            if rng.percent(DENIED_PERCENT) {
                policy.unread.insert((client.clone(), topic));
            }
        }
    }
    policy
}

/// See the module.
pub(crate) struct World {
    rng: Rng,
    core: Core,
    config: CoreConfig,
    now: Instant,
    clients: Vec<Client>,
    broker: Broker,
    model: Model,
    /// Connections the card knows, and whose they are.
    open: BTreeMap<u32, usize>,
    /// Connections whose client is gone.
    clientless: BTreeSet<u32>,
    /// Connections the broker has closed.
    brokerless: BTreeSet<u32>,
    tally: Tally,
    /// Little happens besides messages.
    is_calm: bool,
    /// Nothing happens any more but that everything arrives.
    is_resting: bool,
    /// Every byte that moves is told.
    is_told: bool,
}

impl World {
    pub(crate) fn new(seed: u64, is_told: bool) -> World {
        let mut rng = Rng::new(seed);
        let trust = if rng.percent(70) { Trust::Suback } else { Trust::Observed };
        let mode = if rng.percent(5) { Mode::Shadow } else { Mode::Live };
        let limits = Limits {
            inspect_bytes_max: READ_BYTES_MAX,
            inflight_messages_max: INFLIGHT_MAX,
            ..Limits::default()
        };
        let keeps_offline_qos0 = Some(!rng.percent(50));
        let config =
            CoreConfig { trust, mode, limits, keeps_offline_qos0, ..CoreConfig::default() };
        let mut model = Model::default();
        let kept_percent = if rng.percent(50) { 0 } else { 30 };
        let client = |index| {
            let version = if rng.percent(50) { Version::V5 } else { Version::V311 };
            let is_kept = rng.percent(kept_percent);
            let receive_max = rng.percent(50).then(|| 1 + rng.below(4) as u16);
            model.add_client(version, is_kept);
            Client::new(index, version, is_kept, receive_max)
        };
        let clients = (0..CLIENTS).map(client).collect();
        // Where SUBACK is permission, nothing else may be.
        let is_restricted = trust == Trust::Observed || mode == Mode::Shadow;
        let policy = if is_restricted { some_policy(&mut rng) } else { Policy::default() };
        model.set_policy(policy.clone());
        World {
            core: Core::new(config.clone()),
            config,
            now: Instant::now(),
            clients,
            broker: Broker::new(policy),
            model,
            open: BTreeMap::new(),
            clientless: BTreeSet::new(),
            brokerless: BTreeSet::new(),
            tally: Tally::default(),
            is_calm: false,
            is_resting: false,
            is_told,
            rng,
        }
    }

    /// Lives so many steps, comes to rest, and is judged.
    pub(crate) fn live(mut self, steps: usize) -> Tally {
        for client in 0..CLIENTS {
            self.connect(client);
        }
        self.rest();
        for client in 0..CLIENTS {
            self.subscribe(client);
        }
        self.rest();
        for _ in 0..steps {
            self.model.tick();
            self.step();
        }
        for client in 0..CLIENTS {
            if self.clients[client].link.is_none() {
                self.connect(client);
            }
        }
        self.rest();
        self.model.judge();
        self.note_counters();
        self.tally
    }

    fn step(&mut self) {
        let client = self.rng.below(CLIENTS);
        match self.rng.below(1000) {
            0..250 => self.publish(client),
            250..700 => self.carry(),
            700..740 => drop(self.acknowledge(client)),
            740..750 => self.ping(client),
            750..770 => {
                let ms = self.rng.below(40) as u64;
                self.sleep(ms);
            }
            770..790 => self.rest(),
            // What follows is rare while it is calm, so that the card comes to something.
            _ if self.is_calm && self.rng.percent(95) => self.carry(),
            790..840 => self.subscribe(client),
            840..870 => self.unsubscribe(client),
            870..890 => self.on_conn(client, |it, conn| it.broker.close_window(conn)),
            890..940 => {
                let bytes = self.rng.below(60);
                self.on_conn(client, |it, conn| it.broker.let_through(conn, bytes));
            }
            940..950 => self.cut(client),
            950..956 => self.leave(client),
            956..970 => self.take_over(client),
            970..972 => self.restart(),
            _ => self.is_calm = self.rng.percent(70),
        }
    }

    /// Some of what is under way goes on.
    fn carry(&mut self) {
        for turn in 0..2 * CLIENTS {
            let client = turn % CLIENTS;
            match self.rng.below(8) {
                0 | 1 => drop(self.carry_up(client)),
                2 | 3 => drop(self.carry_to_broker(client)),
                4 | 5 => drop(self.serve(client)),
                6 => drop(self.deeds()),
                _ => drop(self.carry_down(client)),
            }
        }
    }

    fn on_conn(&mut self, client: usize, act: impl FnOnce(&mut World, u32)) {
        if let Some(conn) = self.clients[client].link.as_ref().map(|link| link.conn) {
            act(self, conn);
        }
    }

    fn connect(&mut self, client: usize) {
        let conn = (0..).find(|it| !self.open.contains_key(it)).expect("numbers do not end");
        let it = &self.clients[client];
        let is_clean = match (it.is_kept, it.version) {
            (true, Version::V311) => false,
            (true, Version::V5) => self.rng.percent(15),
            (false, Version::V311) => true,
            (false, Version::V5) => self.rng.percent(80),
        };
        if is_clean {
            self.model.session_may_end(client);
        }
        let spans = self.model.span_count(client);
        self.clients[client].connect(conn, is_clean, spans);
        self.open.insert(conn, client);
        self.core.handle_open(ConnId(conn), self.now);
        self.broker.accept(conn);
    }

    /// The client's connection, if it has been accepted; else it may connect.
    fn is_ready(&mut self, client: usize) -> bool {
        match &self.clients[client].link {
            Some(link) => link.is_connected,
            None => {
                self.connect(client);
                false
            }
        }
    }

    fn publish(&mut self, client: usize) {
        if !self.is_ready(client) {
            return;
        }
        let number = self.model.next_number();
        let topic = (*self.rng.pick(&TOPICS)).to_owned();
        let qos = match *self.rng.pick(&QOS) {
            1 if self.config.trust == Trust::Observed && self.rng.percent(80) => 0,
            qos => qos,
        };
        let length = if self.rng.percent(2) { READ_BYTES_MAX + 50 } else { 0 };
        let payload = format!("{number:04}{:.<length$}", "").into_bytes();
        let is_retained = self.rng.percent(2);
        let is_v5 = self.clients[client].version == Version::V5;
        let user = (is_v5 && self.rng.percent(20)).then(|| format!("user {number}"));
        let whole = Publish { topic, payload, qos, is_retained, user, ..Publish::default() };
        self.model.published(client, whole.clone());
        self.tally.messages += 1;
        let alias = (is_v5 && self.rng.percent(30)).then(|| match self.rng.percent(95) {
            true => 1 + TOPICS.iter().position(|it| *it == whole.topic).unwrap_or(0) as u16,
            false => 1 + self.rng.below(3) as u16,
        });
        let Some(link) = &mut self.clients[client].link else { return };
        let mut sent = Publish { alias, ..whole };
        if let Some(alias) = alias {
            self.tally.aliases += 1;
            if link.aliases.get(&alias) == Some(&sent.topic) && self.rng.percent(70) {
                sent.topic.clear();
            } else {
                link.aliases.insert(alias, sent.topic.clone());
            }
        }
        link.publish(sent);
    }

    fn subscribe(&mut self, client: usize) {
        if !self.is_ready(client) {
            return;
        }
        let filter = *self.rng.pick(&FILTERS);
        let qos = self.rng.below(2) as u8;
        let is_v5 = self.clients[client].version == Version::V5;
        let is_no_local = is_v5 && self.rng.percent(15);
        let id = (is_v5 && self.rng.percent(25)).then(|| 1 + self.rng.below(3) as u8);
        let span = self.model.subscribes(client, filter, qos, is_no_local, id);
        let Some(link) = &mut self.clients[client].link else { return };
        link.subscribe(filter, qos | u8::from(is_no_local) << 2, id, span);
    }

    fn unsubscribe(&mut self, client: usize) {
        if !self.is_ready(client) {
            return;
        }
        let filter = *self.rng.pick(&FILTERS);
        self.model.unsubscribes(client, filter);
        let spans = self.model.span_count(client);
        let Some(link) = &mut self.clients[client].link else { return };
        link.unsubscribe(filter, spans);
    }

    fn ping(&mut self, client: usize) {
        if self.is_ready(client)
            && let Some(link) = &mut self.clients[client].link
        {
            link.ping();
        }
    }

    fn acknowledge(&mut self, client: usize) -> bool {
        let at = if self.rng.percent(80) { 0 } else { self.rng.below(4) };
        let client = &mut self.clients[client];
        client
            .link
            .iter_mut()
            .chain(&mut client.old)
            .fold(false, |any, it| any | it.acknowledge(at))
    }

    /// Every connection of a client, old ones first.
    fn conns(&self, client: usize) -> Vec<u32> {
        let client = &self.clients[client];
        client.old.iter().chain(&client.link).map(|link| link.conn).collect()
    }

    fn tell(&self, way: &str, conn: u32, bytes: &[u8]) {
        if self.is_told && !bytes.is_empty() {
            let client = self.open.get(&conn);
            eprintln!("{:?} of {client:?} {way} {}", ConnId(conn), bytes.escape_ascii());
        }
    }

    /// Some or all of so many bytes.
    fn part(&mut self, bytes: usize) -> usize {
        if bytes == 0 || self.is_resting || self.rng.percent(60) {
            bytes
        } else {
            self.rng.below(bytes + 1)
        }
    }

    fn carry_up(&mut self, client: usize) -> bool {
        let mut moved = false;
        for conn in self.conns(client) {
            let count = self.clients[client].link_mut(conn).map_or(0, |link| link.up.len());
            let count = self.part(count);
            let Some(link) = self.clients[client].link_mut(conn) else { continue };
            let bytes: Vec<u8> = link.up.drain(..count).collect();
            moved |= !bytes.is_empty();
            self.tell("to the card", conn, &bytes);
            let taken = self.core.counters().publishes_card;
            self.hear(conn, &bytes);
            if self.is_told && self.core.counters().publishes_card > taken {
                eprintln!("    the card distributes");
            }
        }
        moved
    }

    fn carry_to_broker(&mut self, client: usize) -> bool {
        let mut moved = false;
        let conns: Vec<u32> =
            self.open.iter().filter(|(_, of)| **of == client).map(|(conn, _)| *conn).collect();
        for conn in conns {
            let waiting = self.core.to_broker(ConnId(conn)).bytes();
            let count = self.part(waiting);
            let queue = self.core.to_broker(ConnId(conn));
            let bytes = queue.as_slice()[..count].to_vec();
            queue.advance(count);
            self.tell("to the broker", conn, &bytes);
            self.broker.receive(conn, &bytes);
            moved |= count > 0;
            if count == waiting && self.clientless.contains(&conn) {
                self.broker.end(conn);
            }
        }
        moved
    }

    fn serve(&mut self, client: usize) -> bool {
        let count = 1 + self.rng.below(3);
        let conns: Vec<u32> =
            self.open.iter().filter(|(_, of)| **of == client).map(|(conn, _)| *conn).collect();
        let mut moved = false;
        for conn in conns {
            moved |= (0..count).any(|_| self.broker.serve(conn));
        }
        moved
    }

    fn deeds(&mut self) -> bool {
        let count = self.part(self.broker.deeds.len());
        for deed in self.broker.deeds.drain(..count).collect::<Vec<_>>() {
            match deed {
                Deed::Write(conn, bytes) => {
                    let (front, back) = bytes.split_at(self.part(bytes.len()));
                    self.tell("from the broker", conn, &bytes);
                    for part in [front, back] {
                        self.core.handle_broker(ConnId(conn), part, self.now);
                    }
                }
                Deed::Blocked(conn) => self.core.handle_broker_blocked(ConnId(conn)),
                Deed::Close(conn) => {
                    self.tell("closed by the broker", conn, b".");
                    self.core.handle_broker_gone(ConnId(conn), self.now);
                    self.brokerless.insert(conn);
                    self.close_if_done(conn);
                }
            }
        }
        count > 0
    }

    fn carry_down(&mut self, client: usize) -> bool {
        let mut moved = false;
        for conn in self.conns(client) {
            let count = self.part(self.core.outbox(ConnId(conn)).bytes());
            let outbox = self.core.outbox_mut(ConnId(conn));
            let mut bytes = outbox.chunks().collect::<Vec<_>>().concat();
            bytes.truncate(count);
            outbox.advance(count);
            moved |= count > 0;
            self.tell("from the card", conn, &bytes);
            self.clients[client].receive(conn, &bytes, &mut self.model);
            self.core.handle_room(ConnId(conn), self.now);
            self.close_if_done(conn);
        }
        moved
    }

    /// Forgets a connection that the broker has closed, once its client has what is left.
    fn close_if_done(&mut self, conn: u32) {
        let is_read = self.clientless.contains(&conn) || self.core.outbox(ConnId(conn)).is_empty();
        if !self.brokerless.contains(&conn) || !is_read {
            return;
        }
        self.core.handle_client_gone(ConnId(conn), self.now);
        self.core.handle_close(ConnId(conn), self.now);
        self.brokerless.remove(&conn);
        self.clientless.remove(&conn);
        let Some(client) = self.open.remove(&conn) else { return };
        self.clients[client].old.retain(|link| link.conn != conn);
        if self.clients[client].link.as_ref().is_some_and(|link| link.conn == conn) {
            self.clients[client].give_up_link();
            self.model.left(client);
        }
    }

    fn sleep(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.core.handle_timeout(self.now);
    }

    /// The network between a client and the card breaks.
    fn cut(&mut self, client: usize) {
        let Some(mut link) = self.clients[client].give_up_link() else { return };
        self.tally.cuts += 1;
        self.tell("is cut", link.conn, b".");
        self.model.left(client);
        let count = self.part(link.up.len());
        let conn = ConnId(link.conn);
        self.core.handle_client(conn, &link.up.drain(..count).collect::<Vec<_>>(), self.now);
        self.core.handle_client_gone(conn, self.now);
        self.clientless.insert(link.conn);
        self.close_if_done(link.conn);
    }

    /// A client says goodbye, and waits for the broker to hang up.
    fn leave(&mut self, client: usize) {
        if self.is_ready(client)
            && let Some(mut link) = self.clients[client].give_up_link()
        {
            self.model.left(client);
            link.disconnect();
            self.clients[client].old.push(link);
        }
    }

    /// The client connects again while its last connection is still there.
    fn take_over(&mut self, client: usize) {
        if self.is_ready(client)
            && let Some(link) = self.clients[client].give_up_link()
        {
            self.tally.takeovers += 1;
            self.model.left(client);
            self.clients[client].old.push(link);
            self.connect(client);
        }
    }

    /// The card dies with everything it held, and comes back knowing nothing.
    fn restart(&mut self) {
        self.tally.restarts += 1;
        self.note_counters();
        for client in 0..CLIENTS {
            self.clients[client].old.clear();
            if self.clients[client].give_up_link().is_some() {
                self.model.left(client);
            }
        }
        for set in [&mut self.clientless, &mut self.brokerless] {
            set.clear();
        }
        self.open.clear();
        self.broker.lose_everybody();
        // What the next card is told of: the broker has kept sessions.
        let has_older_sessions = self.clients.iter().any(|client| client.is_kept);
        self.core = Core::new(CoreConfig { has_older_sessions, ..self.config.clone() });
    }

    fn note_counters(&mut self) {
        let counters = self.core.counters();
        self.tally.by_card += counters.publishes_card;
        self.tally.by_broker += counters.publishes_broker.iter().sum::<u64>();
        self.tally.card_acknowledged += counters.acknowledgements_card;
        for reason in Reason::ALL {
            let count = counters.broker(reason);
            if count > 0 {
                *self.tally.reasons.entry(reason.label()).or_default() += count;
            }
        }
        let dropped: u64 = counters.outbox_dropped.iter().sum();
        // Nobody is so slow here; what waited for the end of a packet that never came was its own connection's.
        let broken = counters.dropped(DropReason::BrokenStream);
        assert_eq!(dropped, broken, "the card dropped copies");
    }

    /// Everything under way arrives, and is answered.
    fn rest(&mut self) {
        for client in 0..CLIENTS {
            // Its CONNECT was lost that was to end its last connection.
            if self.clients[client].link.is_none() && !self.clients[client].old.is_empty() {
                self.connect(client);
            }
        }
        self.is_resting = true;
        let mut quiet = 0;
        for _ in 0..REST_ROUNDS_MAX {
            self.model.tick();
            let mut moved = false;
            for client in 0..CLIENTS {
                for conn in self.conns(client) {
                    self.broker.let_through(conn, usize::MAX);
                }
                moved |= self.carry_up(client) | self.carry_to_broker(client) | self.serve(client);
                moved |= self.deeds() | self.carry_down(client) | self.acknowledge(client);
            }
            // What is held back for 20 ms at most goes on.
            self.sleep(20);
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > 3 {
                self.assert_rest();
                self.model.rests();
                self.is_resting = false;
                return;
            }
        }
        panic!("it never comes to rest");
    }

    fn assert_rest(&mut self) {
        assert!(
            self.clientless.is_empty() && self.brokerless.is_empty(),
            "a connection is left behind"
        );
        for client in &self.clients {
            assert!(
                client.old.is_empty(),
                "{}: an old connection is left behind: {:?}",
                client.index,
                client.old
            );
            let is_settled =
                client.link.as_ref().is_none_or(|it| it.is_connected && it.is_settled());
            assert!(is_settled, "{}: something is not answered: {:?}", client.index, client.link);
        }
        for &conn in self.open.keys() {
            assert!(self.core.to_broker(ConnId(conn)).is_empty());
            assert!(self.core.outbox(ConnId(conn)).is_empty());
        }
        assert_eq!(self.core.counters().connections, self.open.len() as u64);
        assert_eq!(self.core.status().opaque_connections, 0, "a connection could not be read");
    }
}

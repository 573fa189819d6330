//! Clients, a broker, the core between them, and what is known of each connection.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dpu_server::mqtt::{ConnId, Core, CoreConfig, Limits, Mode, Trust};

use crate::script::Script;
use crate::streams::{self, Difference};
use crate::wire::{INFLIGHT_MAX, PUBACK, PUBCOMP, PUBREC, Packet, Publish, Version};

const CONNECTIONS: usize = 4;
/// Acknowledgements that may wait for a publisher, in bytes, and one PUBLISH's worth beyond.
const ACK_BYTES_MAX: usize = 65 * 1024;

/// One connection, from open to close.
struct Life {
    conn: ConnId,
    version: Version,
    sent_by_client: Vec<u8>,
    got_by_broker: Vec<u8>,
    /// How much of it the broker has answered.
    answered: usize,
    sent_by_broker: Vec<u8>,
    got_by_client: Vec<u8>,
    /// How much of it the client has looked at.
    read: usize,
    held: BTreeSet<u16>,
    last_id: u16,
    /// The client, or the broker, did what none may.
    is_client_wild: bool,
    is_broker_wild: bool,
    is_client_gone: bool,
    is_broker_gone: bool,
}

/// See the module.
pub struct Stage {
    core: Core,
    limits: Limits,
    now: Instant,
    lives: Vec<Life>,
    difference: Difference,
    swallowed: u64,
}

impl Stage {
    pub fn new(script: &mut Script<'_>) -> Stage {
        let terms = script.byte();
        let limits = Limits {
            inspect_bytes_max: 80,
            outbox_bytes_max: 400,
            outbox_total_bytes_max: 1_000,
            outbox_messages_max: 6,
            queued_messages_max: 4,
            inflight_messages_max: INFLIGHT_MAX,
            subscriptions_max: 12,
            unanswered_max: 4,
            sessions_max: 8,
            routes_max: 4,
            ..Limits::default()
        };
        let config = CoreConfig {
            trust: if terms & 1 == 0 { Trust::Suback } else { Trust::Observed },
            mode: if terms & 14 == 14 { Mode::Shadow } else { Mode::Live },
            keeps_offline_qos0: Some(terms & 16 == 0),
            limits,
            ..CoreConfig::default()
        };
        let mut core = Core::new(config);
        if terms & 0xE0 == 0xE0 {
            core.expect_late_deliveries();
        }
        let now = Instant::now();
        let (difference, swallowed) = (Difference::default(), 0);
        let mut stage = Stage { core, limits, now, lives: Vec::new(), difference, swallowed };
        for index in 0..CONNECTIONS {
            let life = stage.open(index, script.version());
            stage.lives.push(life);
        }
        let prepared = script.byte();
        let are_prepared = (0..CONNECTIONS).filter(|at| prepared & 1 << at == 0);
        for at in are_prepared.clone() {
            stage.prepare(at, prepared >> 4 & 1 << at != 0);
        }
        for at in are_prepared.clone() {
            stage.warm_up(at, are_prepared.clone(), !prepared & 15 | prepared & 16);
        }
        stage
    }

    /// A client publishes until the card may know what the broker makes of that.
    fn warm_up(&mut self, at: usize, readers: impl Iterator<Item = usize> + Clone, whom: u8) {
        for id in 10..13 {
            let qos = whom >> 4 & 1;
            let payload = vec![b'a' + at as u8, id as u8];
            let message = Publish { topic: "a".to_owned(), payload, qos, ..Publish::default() };
            let message = Publish { id: if qos > 0 { id } else { 0 }, ..message };
            self.client_sends(at, &Packet::Publish(message).encode(self.lives[at].version));
            for _ in 0..2 {
                readers.clone().for_each(|reader| self.broker_answers(reader, whom));
                readers.clone().for_each(|reader| self.client_reads(reader, usize::MAX));
            }
        }
    }

    /// A client is accepted and subscribed, as most are, so that what comes then is not about that.
    fn prepare(&mut self, at: usize, is_qos1: bool) {
        let version = self.lives[at].version;
        let id = ["a", "b", "c", "d"][at].to_owned();
        let connect =
            Packet::Connect { version, id, is_clean: true, receive_max: None, is_kept: false };
        let (filter, options) = ("a".to_owned(), u8::from(is_qos1));
        let subscribe = Packet::Subscribe { id: 9, filter, options, subscription_id: None };
        for packet in [connect, subscribe] {
            self.client_sends(at, &packet.encode(version));
            self.broker_answers(at, options);
            self.client_reads(at, usize::MAX);
        }
    }

    fn open(&mut self, index: usize, version: Version) -> Life {
        let conn = ConnId(index as u32);
        self.core.handle_open(conn, self.now);
        Life {
            conn,
            version,
            sent_by_client: Vec::new(),
            got_by_broker: Vec::new(),
            answered: 0,
            sent_by_broker: Vec::new(),
            got_by_client: Vec::new(),
            read: 0,
            held: BTreeSet::new(),
            last_id: 0,
            is_client_wild: false,
            is_broker_wild: false,
            is_client_gone: false,
            is_broker_gone: false,
        }
    }

    /// One thing happens.
    pub fn play(&mut self, script: &mut Script<'_>) {
        let at = script.below(CONNECTIONS);
        match script.below(24) {
            0..=5 => self.client_says(at, script),
            6..=7 => self.broker_says(at, script),
            8..=12 => self.broker_answers(at, script.byte()),
            13..=16 => {
                self.client_reads(at, if script.coin() { usize::MAX } else { script.below(60) })
            }
            17 => {
                self.now += Duration::from_millis(u64::from(script.byte()) * 4);
                self.core.handle_timeout(self.now);
            }
            18 => self.core.handle_broker_blocked(self.lives[at].conn),
            19 => match script.below(16) {
                0 => self.core.handle_outside(1, 0),
                1 => self.core.handle_outside(-1, 0),
                2 => self.core.handle_policy_change(),
                _ => self.core.handle_room(self.lives[at].conn, self.now),
            },
            20 => self.client_gone(at),
            21 => self.broker_gone(at),
            22 => self.reopen(at, script.version()),
            _ if script.below(3) > 0 => self.client_says(at, script),
            _ if script.coin() => {
                let noise = script.noise();
                self.lives[at].is_client_wild = true;
                self.client_sends(at, &noise);
            }
            _ => {
                let noise = script.noise();
                self.lives[at].is_broker_wild = true;
                self.broker_sends(at, &noise);
            }
        }
        self.check_bounds();
    }

    fn client_says(&mut self, at: usize, script: &mut Script<'_>) {
        let version = self.lives[at].version;
        // One that never connects says nothing else that is understood.
        let packet = match self.lives[at].sent_by_client.is_empty() {
            true => Packet::Connect {
                version,
                id: ["", "a", "b", "c"][script.below(4)].to_owned(),
                is_clean: script.coin(),
                receive_max: script.coin().then_some(2),
                is_kept: script.coin(),
            },
            false => script.client_packet(version),
        };
        if matches!(packet, Packet::Ack(..)) {
            self.lives[at].is_client_wild = true;
        }
        let mut bytes = packet.encode(version);
        self.lives[at].is_client_wild |= spoil(&mut bytes, script);
        self.client_sends(at, &bytes);
    }

    fn client_sends(&mut self, at: usize, bytes: &[u8]) {
        let life = &mut self.lives[at];
        if !life.is_client_gone {
            life.sent_by_client.extend(bytes);
            self.core.handle_client(life.conn, bytes, self.now);
        }
    }

    fn broker_says(&mut self, at: usize, script: &mut Script<'_>) {
        let version = self.lives[at].version;
        let packet = script.broker_packet(version);
        // Identifiers of its choice, and answers to nothing, tell the card what is not so.
        self.lives[at].is_broker_wild |= match &packet {
            Packet::Publish(publish) => publish.qos > 0,
            Packet::Suback(..) | Packet::Unsuback(..) => false,
            _ => true,
        };
        let mut bytes = packet.encode(version);
        self.lives[at].is_broker_wild |= spoil(&mut bytes, script);
        self.broker_sends(at, &bytes);
    }

    fn broker_sends(&mut self, at: usize, bytes: &[u8]) {
        let life = &mut self.lives[at];
        if !life.is_broker_gone {
            life.sent_by_broker.extend(bytes);
            self.core.handle_broker(life.conn, bytes, self.now);
        }
    }

    fn take_up(&mut self, at: usize) {
        let life = &mut self.lives[at];
        let queue = self.core.to_broker(life.conn);
        life.got_by_broker.extend(queue.as_slice());
        queue.advance(queue.bytes());
    }

    /// The broker reads what is there and does what a broker does, to some or all of those it may concern.
    fn broker_answers(&mut self, at: usize, whom: u8) {
        self.take_up(at);
        while self.broker_answers_one(at, whom) {}
    }

    /// One packet; false if there is none.
    fn broker_answers_one(&mut self, at: usize, whom: u8) -> bool {
        let life = &mut self.lives[at];
        let version = life.version;
        let Some(bytes) = streams::packet_bytes(&life.got_by_broker[life.answered..]) else {
            return false;
        };
        let packet = life.got_by_broker[life.answered..][..bytes].to_vec();
        life.answered += bytes;
        let id = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
        let answer = match packet[0] >> 4 {
            1 => Some(Packet::Connack { is_present: false, code: 0 }),
            3 => {
                self.broker_distributes(&packet, version, whom);
                let topic_bytes = id(2).map_or(0, usize::from);
                let id = id(4 + topic_bytes).unwrap_or(0);
                match packet[0] >> 1 & 3 {
                    1 => Some(Packet::Ack(PUBACK, id)),
                    2 => Some(Packet::Ack(PUBREC, id)),
                    _ => None,
                }
            }
            6 => id(2).map(|id| Packet::Ack(PUBCOMP, id)),
            8 => id(2).map(|id| Packet::Suback(id, whom & 1)),
            10 => id(2).map(Packet::Unsuback),
            12 => Some(Packet::Pingresp),
            14 => {
                self.broker_gone(at);
                None
            }
            _ => None,
        };
        if let Some(answer) = answer {
            self.broker_sends(at, &answer.encode(version));
        }
        true
    }

    /// A copy of a PUBLISH for each that `whom` has a bit for.
    fn broker_distributes(&mut self, packet: &[u8], version: Version, whom: u8) {
        // Only what is quite plain is understood.
        let is_plain = packet[0] & 0x09 == 0 && packet.get(2..5) == Some(&[0, 1, b'a']);
        let header =
            5 + if packet[0] & 6 == 0 { 0 } else { 2 } + usize::from(version == Version::V5);
        if !is_plain || (version == Version::V5 && packet.get(header - 1) != Some(&0)) {
            return;
        }
        let Some(payload) = packet.get(header..) else { return };
        for at in (0..CONNECTIONS).filter(|at| whom & 1 << at != 0) {
            let qos = whom >> 4 & packet[0] >> 1 & 1;
            let life = &mut self.lives[at];
            life.last_id = life.last_id % 65_000 + 1;
            let id = if qos > 0 { life.last_id } else { 0 };
            let copy = Publish {
                topic: "a".to_owned(),
                payload: payload.to_vec(),
                qos,
                id,
                ..Publish::default()
            };
            let bytes = Packet::Publish(copy).encode(life.version);
            self.broker_sends(at, &bytes);
        }
    }

    /// The client takes some bytes, and acknowledges what it has read.
    fn client_reads(&mut self, at: usize, bytes: usize) {
        let life = &mut self.lives[at];
        let outbox = self.core.outbox_mut(life.conn);
        let mut taken = outbox.chunks().collect::<Vec<_>>().concat();
        assert_eq!(taken.len(), outbox.bytes());
        taken.truncate(bytes);
        outbox.advance(taken.len());
        life.got_by_client.extend(taken);
        let mut answers = Vec::new();
        while let Some(bytes) = streams::packet_bytes(&life.got_by_client[life.read..]) {
            let packet = &life.got_by_client[life.read..][..bytes];
            life.read += bytes;
            if packet[0] & 0xF6 != 0x32 || packet.len() < 6 {
                continue;
            }
            let id_at = packet.len().min(4 + usize::from(packet[3]));
            let Some(id) = packet.get(id_at..).and_then(|it| it.first_chunk()) else { continue };
            let id = u16::from_be_bytes(*id);
            let is_wild = life.is_client_wild || life.is_broker_wild;
            assert!(life.held.insert(id) || is_wild, "{id} is in use twice");
            answers.push(id);
        }
        for id in answers {
            self.lives[at].held.remove(&id);
            let bytes = Packet::Ack(PUBACK, id).encode(self.lives[at].version);
            self.client_sends(at, &bytes);
        }
    }

    fn client_gone(&mut self, at: usize) {
        self.lives[at].is_client_gone = true;
        self.core.handle_client_gone(self.lives[at].conn, self.now);
    }

    fn broker_gone(&mut self, at: usize) {
        self.lives[at].is_broker_gone = true;
        self.core.handle_broker_gone(self.lives[at].conn, self.now);
    }

    fn check_bounds(&self) {
        for life in &self.lives {
            let by_broker = life.sent_by_broker.len();
            let bytes_max = self.limits.outbox_bytes_max + by_broker + ACK_BYTES_MAX;
            assert!(self.core.outbox(life.conn).bytes() <= bytes_max, "an outbox grows");
        }
    }

    /// A connection ends; what went through it is compared.
    fn close(&mut self, at: usize) {
        self.client_gone(at);
        self.broker_gone(at);
        self.take_up(at);
        let life = &mut self.lives[at];
        let outbox = self.core.outbox_mut(life.conn);
        life.got_by_client.extend(outbox.chunks().collect::<Vec<_>>().concat());
        outbox.advance(outbox.bytes());
        streams::compare_up(&life.sent_by_client, &life.got_by_broker, &mut self.difference);
        if !life.is_broker_wild {
            self.swallowed += streams::compare_down(&life.sent_by_broker, &life.got_by_client);
        }
        self.core.handle_close(life.conn, self.now);
    }

    fn reopen(&mut self, at: usize, version: Version) {
        self.close(at);
        self.lives[at] = self.open(at, version);
    }

    /// All connections end.
    pub fn end(mut self) {
        for at in 0..CONNECTIONS {
            self.close(at);
        }
        let counters = self.core.counters();
        let Difference { publishes, acknowledgements, pings } = self.difference;
        assert_eq!(publishes, counters.publishes_card);
        assert_eq!(acknowledgements, counters.acknowledgements_card);
        assert_eq!(pings, counters.pings_injected);
        assert!(self.swallowed <= pings);
        assert_eq!(counters.connections, 0);
        while self.core.poll_dirty().is_some() {}
    }
}

/// Cuts a packet short, or changes a byte of it, now and then; whether it did.
fn spoil(bytes: &mut Vec<u8>, script: &mut Script<'_>) -> bool {
    match script.below(128) {
        0 => bytes.truncate(script.below(bytes.len())),
        1 => {
            let at = script.below(bytes.len());
            bytes[at] ^= script.byte();
        }
        _ => return false,
    }
    true
}

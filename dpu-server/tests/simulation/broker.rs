//! A broker as single-minded as mosquitto: reads one packet, acts, writes all that comes of it, reads the next.
//!
//! It does what it is told and checks what it is told: an acknowledgement nobody owes, an alias nobody set, a second CONNECT
//! are the card's doing, and fatal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::wire::{INFLIGHT_MAX, PUBACK, PUBCOMP, PUBREC, PUBREL, Packet, Publish, Version};

/// Where it begins to count its Packet Identifiers: close to the card's own.
const FIRST_IDENTIFIER: u16 = 65_530;

/// What it does, in order.
#[derive(Debug)]
pub(crate) enum Deed {
    Write(u32, Vec<u8>),
    /// It could not write all it wanted.
    Blocked(u32),
    Close(u32),
}

/// A subscription.
#[derive(Clone, Debug)]
struct Grant {
    qos: u8,
    is_no_local: bool,
    subscription_id: Option<u8>,
}

#[derive(Debug)]
struct Session {
    is_kept: bool,
    grants: BTreeMap<String, Grant>,
    peer: Option<u32>,
    inflight: VecDeque<Publish>,
    inflight_max: usize,
    queue: VecDeque<Publish>,
    last_id: u16,
}

#[derive(Debug)]
struct Peer {
    version: Version,
    input: Vec<u8>,
    session: Option<String>,
    aliases: BTreeMap<u16, String>,
    /// QoS 2 messages that were not released.
    unreleased: BTreeMap<u16, Publish>,
    /// What could not be written; `None`: all can.
    backlog: Option<Vec<u8>>,
    /// It sends nothing more.
    has_ended: bool,
}

/// Who may not publish on a topic, and who is not given what is published there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    pub(crate) unwritten: BTreeSet<(String, String)>,
    pub(crate) unread: BTreeSet<(String, String)>,
}

impl Policy {
    fn may_write(&self, client: &str, topic: &str) -> bool {
        !self.unwritten.contains(&(client.to_owned(), topic.to_owned()))
    }

    fn may_read(&self, client: &str, topic: &str) -> bool {
        !self.unread.contains(&(client.to_owned(), topic.to_owned()))
    }

    /// Whether what the first publishes may reach the second.
    pub(crate) fn allows(&self, publisher: &str, reader: &str, topic: &str) -> bool {
        self.may_write(publisher, topic) && self.may_read(reader, topic)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    peers: BTreeMap<u32, Peer>,
    sessions: BTreeMap<String, Session>,
    retained: BTreeMap<String, Publish>,
    policy: Policy,
    pub(crate) deeds: VecDeque<Deed>,
}

impl Broker {
    pub(crate) fn new(policy: Policy) -> Broker {
        Broker { policy, ..Broker::default() }
    }

    pub(crate) fn accept(&mut self, peer: u32) {
        self.peers.insert(
            peer,
            Peer {
                version: Version::V311,
                input: Vec::new(),
                session: None,
                aliases: BTreeMap::new(),
                unreleased: BTreeMap::new(),
                backlog: None,
                has_ended: false,
            },
        );
    }

    pub(crate) fn receive(&mut self, peer: u32, bytes: &[u8]) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.input.extend(bytes);
        }
    }

    /// The client's end, behind what it has sent.
    pub(crate) fn end(&mut self, peer: u32) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.has_ended = true;
        }
    }

    /// Every connection is gone at once, with what was not read.
    pub(crate) fn lose_everybody(&mut self) {
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            self.close(peer);
        }
        self.deeds.clear();
    }

    pub(crate) fn close_window(&mut self, peer: u32) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.backlog.get_or_insert_default();
        }
    }

    /// Lets so many bytes through a closed window, and opens it if that was all.
    pub(crate) fn let_through(&mut self, conn: u32, bytes_max: usize) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        let Some(mut backlog) = peer.backlog.take() else { return };
        let rest = backlog.split_off(bytes_max.min(backlog.len()));
        self.deeds.push_back(Deed::Write(conn, backlog));
        if !rest.is_empty() {
            peer.backlog = Some(rest);
            self.deeds.push_back(Deed::Blocked(conn));
        }
    }

    /// Reads one packet of this connection, and acts; false if there is none.
    pub(crate) fn serve(&mut self, conn: u32) -> bool {
        let Some(peer) = self.peers.get_mut(&conn) else { return false };
        let version = peer.version;
        match Packet::take(&mut peer.input, version) {
            Some(packet) => {
                self.act(conn, packet);
                true
            }
            None if peer.has_ended => {
                self.close(conn);
                true
            }
            None => false,
        }
    }

    fn act(&mut self, conn: u32, packet: Packet) {
        match packet {
            Packet::Connect { version, id, is_clean, receive_max, is_kept } => {
                let is_kept = if version == Version::V5 { is_kept } else { !is_clean };
                self.connect(conn, version, id, is_clean, is_kept, receive_max);
            }
            Packet::Subscribe { id, filter, options, subscription_id } => {
                let grant =
                    Grant { qos: options & 3, is_no_local: options & 4 != 0, subscription_id };
                self.session(conn).grants.insert(filter.clone(), grant.clone());
                self.write(conn, &Packet::Suback(id, options & 3));
                let matching: Vec<_> = self
                    .retained
                    .values()
                    .filter(|it| matches(&filter, &it.topic))
                    .cloned()
                    .collect();
                for message in matching {
                    let session = self.peers[&conn].session.clone().expect("connected");
                    self.offer(&session, &grant, &Publish { is_retained: true, ..message });
                }
            }
            Packet::Unsubscribe { id, filter } => {
                self.session(conn).grants.remove(&filter);
                self.write(conn, &Packet::Unsuback(id));
            }
            Packet::Publish(publish) => self.publish(conn, publish),
            Packet::Ack(PUBREL, id) => {
                if let Some(message) = self.peer(conn).unreleased.remove(&id) {
                    self.distribute(conn, &message);
                }
                self.write(conn, &Packet::Ack(PUBCOMP, id));
            }
            Packet::Ack(PUBACK, id) => {
                let session = self.session(conn);
                let at = session.inflight.iter().position(|it| it.id == id);
                session.inflight.remove(at.expect("acknowledged what was never sent"));
                self.send_queued(conn);
            }
            Packet::Pingreq => self.write(conn, &Packet::Pingresp),
            Packet::Disconnect => self.close(conn),
            other => panic!("a client sends {other:?}"),
        }
    }

    fn connect(
        &mut self,
        conn: u32,
        version: Version,
        id: String,
        is_clean: bool,
        is_kept: bool,
        receive_max: Option<u16>,
    ) {
        assert!(self.peers[&conn].session.is_none(), "a second CONNECT");
        if let Some(old) = self.sessions.get(&id).and_then(|it| it.peer) {
            self.close(old);
        }
        if is_clean {
            self.sessions.remove(&id);
        }
        let is_present = self.sessions.contains_key(&id);
        let session = self.sessions.entry(id.clone()).or_insert_with(|| Session {
            is_kept,
            grants: BTreeMap::new(),
            peer: None,
            inflight: VecDeque::new(),
            inflight_max: 0,
            queue: VecDeque::new(),
            last_id: FIRST_IDENTIFIER,
        });
        session.is_kept = is_kept;
        session.peer = Some(conn);
        session.inflight_max = usize::from(receive_max.unwrap_or(INFLIGHT_MAX));
        let again: Vec<Publish> = session.inflight.iter().cloned().collect();
        let peer = self.peer(conn);
        peer.version = version;
        peer.session = Some(id);
        self.write(conn, &Packet::Connack { is_present, code: 0 });
        for message in again {
            self.write(conn, &Packet::Publish(Publish { is_dup: true, ..message }));
        }
        self.send_queued(conn);
    }

    fn publish(&mut self, conn: u32, mut publish: Publish) {
        let aliases = &mut self.peer(conn).aliases;
        match publish.alias.take() {
            Some(alias) if publish.topic.is_empty() => {
                publish.topic = aliases.get(&alias).expect("an alias nobody has set").clone();
            }
            Some(alias) => drop(aliases.insert(alias, publish.topic.clone())),
            None => {}
        }
        let id = publish.id;
        match publish.qos {
            2 => {
                self.peer(conn).unreleased.insert(id, publish);
                self.write(conn, &Packet::Ack(PUBREC, id));
            }
            qos => {
                self.distribute(conn, &publish);
                if qos == 1 {
                    self.write(conn, &Packet::Ack(PUBACK, id));
                }
            }
        }
    }

    /// Gives a message to everybody who is to have it: a copy for each matching subscription, as mosquitto does.
    fn distribute(&mut self, publisher: u32, message: &Publish) {
        let from = self.peers[&publisher].session.clone();
        if from.iter().any(|from| !self.policy.may_write(from, &message.topic)) {
            return;
        }
        if message.is_retained {
            self.retained.insert(message.topic.clone(), message.clone());
        }
        let live = Publish { is_retained: false, is_dup: false, ..message.clone() };
        let mut copies = Vec::new();
        for (name, session) in &self.sessions {
            let of_publisher = from.as_ref() == Some(name);
            for filter in [message.topic.as_str(), "+", "#"] {
                let grant = session.grants.get(filter);
                let grant = grant.filter(|grant| !(grant.is_no_local && of_publisher));
                copies.extend(grant.map(|grant| (name.clone(), grant.clone())));
            }
        }
        for (session, grant) in copies {
            self.offer(&session, &grant, &live);
        }
    }

    /// One copy for one session: sent, queued or forgotten.
    fn offer(&mut self, name: &str, grant: &Grant, message: &Publish) {
        if !self.policy.may_read(name, &message.topic) {
            return;
        }
        let qos = message.qos.min(grant.qos);
        let subscription_id = grant.subscription_id;
        let copy = Publish { qos, subscription_id, id: 0, alias: None, ..message.clone() };
        let Some(session) = self.sessions.get_mut(name) else { return };
        match (session.peer, qos) {
            (Some(peer), 0) => self.write(peer, &Packet::Publish(copy)),
            (None, 0) => {}
            (peer, _) => {
                session.queue.push_back(copy);
                if let Some(peer) = peer {
                    self.send_queued(peer);
                }
            }
        }
    }

    fn send_queued(&mut self, conn: u32) {
        loop {
            let session = self.session(conn);
            if session.inflight.len() >= session.inflight_max {
                return;
            }
            let Some(mut message) = session.queue.pop_front() else { return };
            loop {
                session.last_id = session.last_id.checked_add(1).unwrap_or(1);
                if session.inflight.iter().all(|it| it.id != session.last_id) {
                    break;
                }
            }
            message.id = session.last_id;
            session.inflight.push_back(message.clone());
            self.write(conn, &Packet::Publish(message));
        }
    }

    fn write(&mut self, conn: u32, packet: &Packet) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        let bytes = packet.encode(peer.version);
        match &mut peer.backlog {
            Some(backlog) => {
                backlog.extend(bytes);
                self.deeds.push_back(Deed::Blocked(conn));
            }
            None => self.deeds.push_back(Deed::Write(conn, bytes)),
        }
    }

    fn close(&mut self, conn: u32) {
        let Some(peer) = self.peers.remove(&conn) else { return };
        self.deeds.push_back(Deed::Close(conn));
        let Some(name) = peer.session else { return };
        let Some(session) = self.sessions.get_mut(&name).filter(|it| it.peer == Some(conn)) else {
            return;
        };
        session.peer = None;
        if !session.is_kept {
            self.sessions.remove(&name);
        }
    }

    fn peer(&mut self, conn: u32) -> &mut Peer {
        self.peers.get_mut(&conn).expect("served while it is there")
    }

    fn session(&mut self, conn: u32) -> &mut Session {
        let name = self.peers[&conn].session.as_ref().expect("nothing comes before CONNECT");
        self.sessions.get_mut(name).expect("as long as its connection")
    }
}

/// Topics here have one level.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    filter == topic || filter == "+" || filter == "#"
}

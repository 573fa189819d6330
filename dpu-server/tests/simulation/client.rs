//! A client: what it has under way, and what it makes of what it gets.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Model, SpanId, name_of};
use super::wire::{INFLIGHT_MAX, PUBACK, PUBCOMP, PUBREC, PUBREL, Packet, Publish, Version};

/// A request the broker has yet to answer.
#[derive(Debug)]
enum Request {
    Subscribe(SpanId),
    /// The filter, and how many spans there were.
    Unsubscribe(String, usize),
}

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) conn: u32,
    version: Version,
    /// Bytes on their way to the card.
    pub(crate) up: Vec<u8>,
    /// Bytes that came and are no whole packet.
    down: Vec<u8>,
    pub(crate) is_connected: bool,
    /// Messages it has not acknowledged.
    held: BTreeSet<u16>,
    /// Acknowledgements it has yet to send.
    owed: Vec<u16>,
    inflight_max: usize,
    /// It was sent what is too large to be read, so that the maximum may have been exceeded.
    has_large: bool,
    pings: usize,
    requests: BTreeMap<u16, Request>,
    pub(crate) aliases: BTreeMap<u16, String>,
    last_id: u16,
    /// Messages of its own that are not acknowledged.
    unacked: BTreeMap<u16, Publish>,
    /// Nobody waits for what is answered on it.
    is_given_up: bool,
    /// Subscriptions its client had had before.
    spans: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) index: usize,
    pub(crate) version: Version,
    pub(crate) is_kept: bool,
    receive_max: Option<u16>,
    pub(crate) link: Option<Link>,
    /// Taken over, or said goodbye to.
    pub(crate) old: Vec<Link>,
    /// Messages with QoS 1 to be sent again if the session goes on.
    unfinished: Vec<Publish>,
}

impl Client {
    pub(crate) fn new(
        index: usize,
        version: Version,
        is_kept: bool,
        receive_max: Option<u16>,
    ) -> Client {
        let (link, old, unfinished) = (None, Vec::new(), Vec::new());
        Client { index, version, is_kept, receive_max, link, old, unfinished }
    }

    /// A connection, with a CONNECT on its way. `spans`: subscriptions it had so far.
    pub(crate) fn connect(&mut self, conn: u32, is_clean: bool, spans: usize) {
        let id = name_of(self.index);
        let (version, is_kept, receive_max) = (self.version, self.is_kept, self.receive_max);
        let connect = Packet::Connect { version, id, is_clean, receive_max, is_kept };
        let max = receive_max.filter(|_| version == Version::V5);
        self.link = Some(Link {
            conn,
            version,
            up: connect.encode(version),
            down: Vec::new(),
            is_connected: false,
            held: BTreeSet::new(),
            owed: Vec::new(),
            inflight_max: usize::from(max.unwrap_or(INFLIGHT_MAX)),
            has_large: false,
            pings: 0,
            requests: BTreeMap::new(),
            aliases: BTreeMap::new(),
            last_id: 0,
            unacked: BTreeMap::new(),
            is_given_up: false,
            spans,
        });
        if is_clean {
            self.unfinished.clear();
        }
    }

    /// Its connection is over, or will be: what was not acknowledged is to be sent again.
    pub(crate) fn give_up_link(&mut self) -> Option<Link> {
        let mut link = self.link.take()?;
        link.requests.clear();
        link.is_given_up = true;
        let again = std::mem::take(&mut link.unacked).into_values().filter(|it| it.qos == 1);
        self.unfinished.extend(again);
        Some(link)
    }

    /// The link of this number, its present one or an old one.
    pub(crate) fn link_mut(&mut self, conn: u32) -> Option<&mut Link> {
        self.link.iter_mut().chain(&mut self.old).find(|link| link.conn == conn)
    }

    /// Bytes came.
    pub(crate) fn receive(&mut self, conn: u32, bytes: &[u8], model: &mut Model) {
        let index = self.index;
        let is_present_link = self.link.as_ref().is_some_and(|link| link.conn == conn);
        let Some(link) = self.link_mut(conn) else { return };
        link.down.extend(bytes);
        let mut again = false;
        while let Some(packet) = Packet::take(&mut link.down, link.version) {
            match packet {
                Packet::Connack { is_present, code } => {
                    assert_eq!(code, 0);
                    link.is_connected = true;
                    again = is_present && is_present_link;
                    if !is_present {
                        model.session_is_new(index, link.spans);
                    }
                    if is_present_link {
                        model.connected(index);
                    }
                }
                other => link.take(other, index, model),
            }
        }
        if again {
            self.send_again(model);
        }
    }

    fn send_again(&mut self, model: &mut Model) {
        let Some(link) = &mut self.link else { return };
        for message in self.unfinished.drain(..) {
            model.repeated(&message.payload);
            link.publish(Publish { is_dup: true, alias: None, ..message });
        }
    }
}

impl Link {
    fn take(&mut self, packet: Packet, client: usize, model: &mut Model) {
        match packet {
            Packet::Publish(publish) => {
                if publish.qos > 0 {
                    assert!(
                        self.held.insert(publish.id),
                        "{client}: {} is in use twice",
                        publish.id
                    );
                    self.has_large |= publish.payload.len() > super::world::READ_BYTES_MAX / 2;
                    let is_within = self.held.len() <= self.inflight_max || self.has_large;
                    assert!(is_within, "{client} is sent more than it takes at a time");
                    self.owed.push(publish.id);
                }
                model.received(client, self.conn, publish);
            }
            Packet::Ack(PUBACK | PUBCOMP, id) => {
                // What is not waited for any more belongs to a link that was given up.
                let is_known = self.unacked.remove(&id).is_some();
                assert!(is_known || self.is_given_up, "{client}: {id} was not waited for");
            }
            Packet::Ack(PUBREC, id) => self.send(&Packet::Ack(PUBREL, id)),
            Packet::Suback(id, _) => {
                if let Some(Request::Subscribe(span)) = self.requests.remove(&id) {
                    model.subscribed(client, span);
                }
            }
            Packet::Unsuback(id) => {
                if let Some(Request::Unsubscribe(filter, spans)) = self.requests.remove(&id) {
                    model.unsubscribed(client, spans, &filter);
                }
            }
            Packet::Pingresp => {
                assert!(self.pings > 0, "{client}: an answer to a PINGREQ of somebody else");
                self.pings -= 1;
            }
            other => panic!("a broker sends {other:?}"),
        }
    }

    fn send(&mut self, packet: &Packet) {
        self.up.extend(packet.encode(self.version));
    }

    fn take_id(&mut self) -> u16 {
        self.last_id += 1;
        self.last_id
    }

    /// Publishes, with an identifier if it needs one.
    pub(crate) fn publish(&mut self, message: Publish) {
        let id = if message.qos > 0 { self.take_id() } else { 0 };
        let message = Publish { id, ..message };
        if message.qos > 0 {
            let topic = match message.alias.and_then(|alias| self.aliases.get(&alias)) {
                Some(topic) if message.topic.is_empty() => topic.clone(),
                _ => message.topic.clone(),
            };
            self.unacked.insert(id, Publish { topic, ..message.clone() });
        }
        self.send(&Packet::Publish(message));
    }

    pub(crate) fn subscribe(
        &mut self,
        filter: &str,
        options: u8,
        subscription_id: Option<u8>,
        span: SpanId,
    ) {
        let id = self.take_id();
        self.requests.insert(id, Request::Subscribe(span));
        let filter = filter.to_owned();
        self.send(&Packet::Subscribe { id, filter, options, subscription_id });
    }

    pub(crate) fn unsubscribe(&mut self, filter: &str, spans: usize) {
        let id = self.take_id();
        self.requests.insert(id, Request::Unsubscribe(filter.to_owned(), spans));
        self.send(&Packet::Unsubscribe { id, filter: filter.to_owned() });
    }

    pub(crate) fn ping(&mut self) {
        self.pings += 1;
        self.send(&Packet::Pingreq);
    }

    pub(crate) fn disconnect(&mut self) {
        self.send(&Packet::Disconnect);
    }

    /// Acknowledges the first that it has not, or, now and then, a later one.
    pub(crate) fn acknowledge(&mut self, at: usize) -> bool {
        if self.owed.is_empty() {
            return false;
        }
        let id = self.owed.remove(at % self.owed.len());
        self.held.remove(&id);
        self.send(&Packet::Ack(PUBACK, id));
        true
    }

    /// Whether everything was answered.
    pub(crate) fn is_settled(&self) -> bool {
        self.pings == 0
            && self.requests.is_empty()
            && self.unacked.is_empty()
            && self.down.is_empty()
    }
}

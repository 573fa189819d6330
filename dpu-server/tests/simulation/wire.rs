//! Control Packets as bytes and back, written without a look at the code under test.

/// Messages with QoS 1 a broker sends a client before one is acknowledged.
pub(crate) const INFLIGHT_MAX: u16 = 3;

/// MQTT 3.1.1 or 5.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Version {
    V311,
    V5,
}

/// A message on one connection.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Publish {
    /// Empty where an alias stands for it.
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: u8,
    pub(crate) is_dup: bool,
    pub(crate) is_retained: bool,
    /// Packet Identifier; 0 without one.
    pub(crate) id: u16,
    pub(crate) alias: Option<u16>,
    /// Value of a User Property.
    pub(crate) user: Option<String>,
    pub(crate) subscription_id: Option<u8>,
}

/// What a peer is to make of a packet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Packet {
    Connect {
        version: Version,
        id: String,
        is_clean: bool,
        receive_max: Option<u16>,
        is_kept: bool,
    },
    Connack {
        is_present: bool,
        code: u8,
    },
    Publish(Publish),
    /// PUBACK, PUBREC, PUBREL, PUBCOMP: the packet type, and the identifier.
    Ack(u8, u16),
    Subscribe {
        id: u16,
        filter: String,
        options: u8,
        subscription_id: Option<u8>,
    },
    /// The identifier, and the QoS that is granted.
    Suback(u16, u8),
    Unsubscribe {
        id: u16,
        filter: String,
    },
    Unsuback(u16),
    Pingreq,
    Pingresp,
    Disconnect,
}

pub(crate) const PUBACK: u8 = 4;
pub(crate) const PUBREC: u8 = 5;
pub(crate) const PUBREL: u8 = 6;
pub(crate) const PUBCOMP: u8 = 7;

impl Packet {
    pub(crate) fn encode(&self, version: Version) -> Vec<u8> {
        let is_v5 = version == Version::V5;
        let mut body = Vec::new();
        let head = match self {
            Packet::Connect { id, is_clean, receive_max, is_kept, .. } => {
                put_connect(&mut body, is_v5, id, *is_clean, *receive_max, *is_kept);
                0x10
            }
            Packet::Connack { is_present, code } => {
                body.extend([u8::from(*is_present), *code]);
                if is_v5 {
                    // Receive Maximum, Topic Alias Maximum.
                    let inflight_max = INFLIGHT_MAX as u8;
                    put_properties(&mut body, &[0x21, 0, inflight_max, 0x22, 0, 3]);
                }
                0x20
            }
            Packet::Publish(it) => {
                put_publish(&mut body, it, is_v5);
                0x30 | u8::from(it.is_dup) << 3 | it.qos << 1 | u8::from(it.is_retained)
            }
            Packet::Ack(kind, id) => {
                body.extend(id.to_be_bytes());
                if *kind == PUBREL { 0x62 } else { kind << 4 }
            }
            Packet::Subscribe { id, filter, options, subscription_id } => {
                body.extend(id.to_be_bytes());
                if is_v5 {
                    let list: Vec<u8> = subscription_id.iter().flat_map(|it| [0x0B, *it]).collect();
                    put_properties(&mut body, &list);
                }
                body.extend(string(filter));
                body.push(*options);
                0x82
            }
            Packet::Suback(id, granted) => {
                body.extend(id.to_be_bytes());
                if is_v5 {
                    body.push(0);
                }
                body.push(*granted);
                0x90
            }
            Packet::Unsubscribe { id, filter } => {
                body.extend(id.to_be_bytes());
                if is_v5 {
                    body.push(0);
                }
                body.extend(string(filter));
                0xA2
            }
            Packet::Unsuback(id) => {
                body.extend(id.to_be_bytes());
                if is_v5 {
                    body.extend([0, 0]);
                }
                0xB0
            }
            Packet::Pingreq => 0xC0,
            Packet::Pingresp => 0xD0,
            Packet::Disconnect => 0xE0,
        };
        let mut out = vec![head];
        put_length(&mut out, body.len());
        out.extend(body);
        out
    }

    /// Takes a packet off the front, if it is there whole. `version`: of the connection, once it has told.
    ///
    /// # Panics
    /// If it is none of those above: nobody here sends others.
    pub(crate) fn take(bytes: &mut Vec<u8>, version: Version) -> Option<Packet> {
        let (length, used) = read_length(bytes.get(1..)?)?;
        let total = 1 + used + length;
        if bytes.len() < total {
            return None;
        }
        let packet: Vec<u8> = bytes.drain(..total).collect();
        Some(Packet::decode(packet[0], &packet[1 + used..], version))
    }

    fn decode(head: u8, body: &[u8], version: Version) -> Packet {
        let is_v5 = version == Version::V5;
        let mut at = Cursor(body);
        match head >> 4 {
            1 => {
                assert_eq!(at.string(), "MQTT");
                let version = if at.byte() == 5 { Version::V5 } else { Version::V311 };
                let is_clean = at.byte() & 2 != 0;
                at.word();
                let list =
                    if version == Version::V5 { at.properties() } else { Properties::default() };
                let Properties { receive_max, is_kept, .. } = list;
                Packet::Connect { version, id: at.string(), is_clean, receive_max, is_kept }
            }
            2 => Packet::Connack { is_present: at.byte() & 1 != 0, code: at.byte() },
            3 => {
                let qos = head >> 1 & 3;
                let topic = at.string();
                let id = if qos > 0 { at.word() } else { 0 };
                let list = if is_v5 { at.properties() } else { Properties::default() };
                Packet::Publish(Publish {
                    topic,
                    payload: at.0.to_vec(),
                    qos,
                    is_dup: head & 8 != 0,
                    is_retained: head & 1 != 0,
                    id,
                    alias: list.alias,
                    user: list.user,
                    subscription_id: list.subscription_id,
                })
            }
            kind @ PUBACK..=PUBCOMP => Packet::Ack(kind, at.word()),
            8 => {
                let id = at.word();
                let list = if is_v5 { at.properties() } else { Properties::default() };
                let (filter, options) = (at.string(), at.byte());
                Packet::Subscribe { id, filter, options, subscription_id: list.subscription_id }
            }
            9 => {
                let id = at.word();
                if is_v5 {
                    at.byte();
                }
                Packet::Suback(id, at.byte())
            }
            10 => {
                let id = at.word();
                if is_v5 {
                    at.byte();
                }
                Packet::Unsubscribe { id, filter: at.string() }
            }
            11 => Packet::Unsuback(at.word()),
            12 => Packet::Pingreq,
            13 => Packet::Pingresp,
            14 => Packet::Disconnect,
            kind => panic!("a packet of type {kind}"),
        }
    }
}

fn put_connect(
    body: &mut Vec<u8>,
    is_v5: bool,
    id: &str,
    is_clean: bool,
    receive_max: Option<u16>,
    is_kept: bool,
) {
    body.extend(string("MQTT"));
    body.extend([if is_v5 { 5 } else { 4 }, u8::from(is_clean) << 1, 0, 0]);
    if is_v5 {
        let mut list = Vec::new();
        list.extend(receive_max.iter().flat_map(|it| [0x21, (it >> 8) as u8, *it as u8]));
        if is_kept {
            list.extend([0x11, 0, 0, 0x0E, 0x10]);
        }
        put_properties(body, &list);
    }
    body.extend(string(id));
}

fn put_publish(body: &mut Vec<u8>, it: &Publish, is_v5: bool) {
    body.extend(string(&it.topic));
    if it.qos > 0 {
        body.extend(it.id.to_be_bytes());
    }
    if is_v5 {
        let mut list = Vec::new();
        list.extend(it.alias.iter().flat_map(|it| [0x23, (it >> 8) as u8, *it as u8]));
        list.extend(it.user.iter().flat_map(|it| [vec![0x26], string("key"), string(it)].concat()));
        list.extend(it.subscription_id.iter().flat_map(|it| [0x0B, *it]));
        put_properties(body, &list);
    }
    body.extend(&it.payload);
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn put_properties(body: &mut Vec<u8>, list: &[u8]) {
    put_length(body, list.len());
    body.extend(list);
}

fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push((length % 0x80) as u8 | 0x80);
        length /= 0x80;
    }
    out.push(length as u8);
}

fn read_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for (index, byte) in bytes.iter().enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((length, index + 1));
        }
    }
    None
}

#[derive(Default)]
struct Properties {
    alias: Option<u16>,
    user: Option<String>,
    subscription_id: Option<u8>,
    receive_max: Option<u16>,
    is_kept: bool,
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(count);
        self.0 = rest;
        front
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1)[0]
    }

    fn word(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    fn string(&mut self) -> String {
        let length = usize::from(self.word());
        String::from_utf8(self.bytes(length).to_vec()).expect("text")
    }

    fn properties(&mut self) -> Properties {
        let (length, used) = read_length(self.0).expect("properties have a length");
        self.bytes(used);
        let mut at = Cursor(self.bytes(length));
        let mut found = Properties::default();
        while !at.0.is_empty() {
            match at.byte() {
                0x0B => found.subscription_id = Some(at.byte()),
                0x11 => found.is_kept = at.bytes(4) != [0; 4],
                0x21 => found.receive_max = Some(at.word()),
                0x22 => drop(at.word()),
                0x23 => found.alias = Some(at.word()),
                0x26 => {
                    assert_eq!(at.string(), "key");
                    found.user = Some(at.string());
                }
                other => panic!("property {other:#x}"),
            }
        }
        found
    }
}

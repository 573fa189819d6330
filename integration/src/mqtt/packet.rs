//! Control packets as bytes. MQTT 3.1.1 §2–3, MQTT 5 §2–3; MQTT 3.1 differs in CONNECT only.

/// The protocol a client speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// MQTT 3.1.
    V31,
    /// MQTT 3.1.1.
    V311,
    /// MQTT 5.
    V5,
}

/// An application message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Message {
    /// Topic Name.
    pub topic: String,
    /// The application's bytes.
    pub payload: Vec<u8>,
    /// Quality of service.
    pub qos: u8,
    /// The RETAIN flag.
    pub is_retained: bool,
    /// The DUP flag.
    pub is_duplicate: bool,
    /// Packet Identifier, with QoS above 0.
    pub id: Option<u16>,
    /// Properties without their length, MQTT 5.
    pub properties: Vec<u8>,
}

impl Message {
    /// A message of QoS 0.
    #[must_use]
    pub fn new(topic: &str, payload: impl Into<Vec<u8>>) -> Message {
        Message { topic: topic.to_owned(), payload: payload.into(), ..Message::default() }
    }

    /// With another QoS.
    #[must_use]
    pub fn qos(self, qos: u8) -> Message {
        Message { qos, ..self }
    }

    /// With RETAIN.
    #[must_use]
    pub fn retained(self) -> Message {
        Message { is_retained: true, ..self }
    }
}

/// A CONNECT.
#[derive(Clone, Debug)]
pub struct Login {
    /// Protocol version.
    pub version: Version,
    /// Client Identifier.
    pub id: String,
    /// Clean Session, Clean Start.
    pub is_clean: bool,
    /// Keep Alive, seconds; 0 is none.
    pub keep_alive_s: u16,
    /// What the broker publishes if the client vanishes.
    pub will: Option<Message>,
    /// Properties without their length, MQTT 5.
    pub properties: Vec<u8>,
    /// User Name and Password.
    pub credentials: Option<(String, String)>,
}

impl Login {
    /// A clean session of MQTT 3.1.1 without keep-alive.
    #[must_use]
    pub fn new(id: &str) -> Login {
        Login {
            version: Version::V311,
            id: id.to_owned(),
            is_clean: true,
            keep_alive_s: 0,
            will: None,
            properties: Vec::new(),
            credentials: None,
        }
    }

    /// With another version.
    #[must_use]
    pub fn version(self, version: Version) -> Login {
        Login { version, ..self }
    }

    /// With a session that outlives the connection, in MQTT 5 by an hour.
    #[must_use]
    pub fn persistent(self) -> Login {
        let properties = match self.version {
            // Session Expiry Interval.
            Version::V5 => [&[0x11][..], &3600_u32.to_be_bytes()].concat(),
            _ => Vec::new(),
        };
        Login { is_clean: false, properties, ..self }
    }

    /// With a will.
    #[must_use]
    pub fn will(self, will: Message) -> Login {
        Login { will: Some(will), ..self }
    }

    /// With a User Name and a Password.
    #[must_use]
    pub fn credentials(self, user: &str, password: &str) -> Login {
        Login { credentials: Some((user.to_owned(), password.to_owned())), ..self }
    }

    /// The packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (name, level) = match self.version {
            Version::V31 => ("MQIsdp", 3),
            Version::V311 => ("MQTT", 4),
            Version::V5 => ("MQTT", 5),
        };
        let mut flags = u8::from(self.is_clean) << 1;
        if let Some(will) = &self.will {
            flags |= 4 | will.qos << 3 | u8::from(will.is_retained) << 5;
        }
        if self.credentials.is_some() {
            flags |= 0xc0;
        }
        let mut body = string(name);
        body.extend([level, flags]);
        body.extend(self.keep_alive_s.to_be_bytes());
        self.put_properties(&mut body, &self.properties);
        body.extend(string(&self.id));
        if let Some(will) = &self.will {
            self.put_properties(&mut body, &will.properties);
            body.extend(string(&will.topic));
            body.extend(length_of(will.payload.len()));
            body.extend(&will.payload);
        }
        for text in self.credentials.iter().flat_map(|(user, password)| [user, password]) {
            body.extend(string(text));
        }
        packet(0x10, &body)
    }

    fn put_properties(&self, body: &mut Vec<u8>, properties: &[u8]) {
        if self.version == Version::V5 {
            body.extend(variable_length(properties.len()));
            body.extend(properties);
        }
    }
}

/// What arrives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Packet {
    /// PUBLISH.
    Publish(Message),
    /// Everything else.
    Other {
        /// First byte of the fixed header.
        head: u8,
        /// Everything after the fixed header.
        body: Vec<u8>,
    },
}

impl Packet {
    /// Takes one packet off the front of `bytes`, if it is there whole. Says how many bytes it took.
    ///
    /// # Panics
    /// If a broker writes what is no MQTT.
    #[must_use]
    pub fn decode(bytes: &[u8], version: Version) -> Option<(Packet, usize)> {
        let (&head, rest) = bytes.split_first()?;
        let (length, used) = read_variable_length(rest)?;
        let start = 1 + used;
        let body = bytes.get(start..start + length)?;
        let packet = match head >> 4 {
            3 => Packet::Publish(decode_publish(head, body, version)),
            _ => Packet::Other { head, body: body.to_vec() },
        };
        Some((packet, start + length))
    }
}

fn decode_publish(head: u8, body: &[u8], version: Version) -> Message {
    let qos = head >> 1 & 3;
    let topic_end = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
    let topic = String::from_utf8(body[2..topic_end].to_vec()).expect("topics are UTF-8");
    let mut at = topic_end;
    let mut id = None;
    if qos > 0 {
        id = Some(u16::from_be_bytes([body[at], body[at + 1]]));
        at += 2;
    }
    let mut properties = Vec::new();
    if version == Version::V5 {
        let (length, used) = read_variable_length(&body[at..]).expect("properties have a length");
        properties = body[at + used..at + used + length].to_vec();
        at += used + length;
    }
    Message {
        topic,
        payload: body[at..].to_vec(),
        qos,
        is_retained: head & 1 != 0,
        is_duplicate: head & 8 != 0,
        id,
        properties,
    }
}

/// A PUBLISH.
#[must_use]
pub fn encode_publish(message: &Message, version: Version) -> Vec<u8> {
    let flags =
        u8::from(message.is_duplicate) << 3 | message.qos << 1 | u8::from(message.is_retained);
    let mut body = string(&message.topic);
    body.extend(message.id.iter().flat_map(|id| id.to_be_bytes()));
    if version == Version::V5 {
        body.extend(variable_length(message.properties.len()));
        body.extend(&message.properties);
    }
    body.extend(&message.payload);
    packet(0x30 | flags, &body)
}

/// A packet of its first byte and what follows the fixed header.
#[must_use]
pub fn packet(head: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![head];
    packet.extend(variable_length(body.len()));
    packet.extend(body);
    packet
}

/// A UTF-8 string with its length.
#[must_use]
pub fn string(text: &str) -> Vec<u8> {
    let mut bytes = length_of(text.len()).to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn length_of(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("tests use short strings").to_be_bytes()
}

/// MQTT 5 §1.5.5.
fn variable_length(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).expect("seven bits");
        value >>= 7;
        bytes.push(low | if value > 0 { 0x80 } else { 0 });
        if value == 0 {
            return bytes;
        }
    }
}

fn read_variable_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate().take(4) {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    assert!(bytes.len() < 4, "a length of five bytes");
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publish_survives_the_round_trip_in_every_version() {
        for version in [Version::V31, Version::V311, Version::V5] {
            let mut message = Message::new("a/b", vec![7; 200]).qos(1).retained();
            message.id = Some(258);
            let bytes = encode_publish(&message, version);
            let (packet, used) = Packet::decode(&bytes, version).unwrap();
            assert_eq!((packet, used), (Packet::Publish(message), bytes.len()));
            assert_eq!(Packet::decode(&bytes[..bytes.len() - 1], version), None);
        }
    }

    #[test]
    fn lengths_take_the_fewest_bytes() {
        assert_eq!(variable_length(127), [0x7f]);
        assert_eq!(variable_length(128), [0x80, 1]);
        assert_eq!(read_variable_length(&[0xff, 0xff, 0x7f]), Some((2_097_151, 3)));
    }
}

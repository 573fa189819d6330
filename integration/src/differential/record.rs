//! What a client received, in a form that two runs can be compared by.
//!
//! Left out or levelled, because MQTT leaves it open: packet identifiers, the order of properties of different kinds
//! (MQTT 5 §2.2.2.2), the name a broker makes up for a client without one, and how much of a message's expiry is left.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::scenario::Mark;
use crate::mqtt::{Message, Version};

/// Generated expiries are multiples of this, in seconds, and no run lasts as long.
pub(super) const EXPIRY_STEP_S: u32 = 1000;

/// One thing that arrived.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// CONNACK.
    Connack {
        /// Session present, and the reserved bits.
        flags: u8,
        /// Return or Reason Code.
        code: u8,
        /// Of MQTT 5.
        properties: Vec<String>,
    },
    /// PUBLISH.
    Publish(Received),
    /// PUBACK, PUBREC or PUBCOMP.
    Ack {
        /// Packet type.
        kind: u8,
        /// Group of the message it is for.
        group: Option<usize>,
        /// Everything after the Packet Identifier.
        rest: Vec<u8>,
    },
    /// PUBREL.
    Pubrel(Vec<u8>),
    /// SUBACK or UNSUBACK.
    Granted {
        /// Packet type.
        kind: u8,
        /// Of MQTT 5.
        properties: Vec<String>,
        /// One a filter.
        codes: Vec<u8>,
    },
    /// DISCONNECT, MQTT 5.
    Disconnect(Vec<u8>),
    /// Anything else.
    Odd(u8, Vec<u8>),
    /// One message more than the client's Receive Maximum allows.
    Excess,
    /// A message under the Packet Identifier of one that the client has not acknowledged.
    Reused,
    /// A PINGRESP nobody asked for.
    StrayPing,
    /// Something was awaited for too long.
    Silence(&'static str),
    /// The connection ended in the middle of a packet of this type, with so many bytes of it here.
    Cut(u8, usize),
    /// The connection is over.
    Closed,
}

/// A PUBLISH that arrived.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Received {
    /// Where it came from, unless its payload is empty.
    pub mark: Option<Mark>,
    /// Topic Name.
    pub topic: String,
    /// Quality of service.
    pub qos: u8,
    /// RETAIN.
    pub is_retained: bool,
    /// DUP.
    pub is_duplicate: bool,
    /// Of MQTT 5.
    pub properties: Vec<String>,
    /// Bytes of payload.
    pub payload_bytes: usize,
    /// Stands for the payload.
    pub payload_hash: u64,
}

impl Received {
    fn new(message: &Message) -> Received {
        let mut hasher = DefaultHasher::new();
        message.payload.hash(&mut hasher);
        Received {
            mark: Mark::read(&message.payload),
            topic: message.topic.clone(),
            qos: message.qos,
            is_retained: message.is_retained,
            is_duplicate: message.is_duplicate,
            properties: properties(&message.properties),
            payload_bytes: message.payload.len(),
            payload_hash: hasher.finish(),
        }
    }
}

impl From<&Message> for Event {
    fn from(message: &Message) -> Event {
        Event::Publish(Received::new(message))
    }
}

impl Event {
    /// Reads any packet but PUBLISH and PINGRESP. `group_of` tells the group of a message sent under a Packet Identifier.
    pub(super) fn read(
        head: u8,
        body: &[u8],
        version: Version,
        group_of: impl Fn(u16) -> Option<usize>,
    ) -> Event {
        let is_v5 = version == Version::V5;
        let odd = || Event::Odd(head, body.to_vec());
        match (head >> 4, body) {
            (2, [flags, code, rest @ ..]) => {
                let Some((list, [])) = split_properties(rest, is_v5) else { return odd() };
                Event::Connack { flags: *flags, code: *code, properties: properties(list) }
            }
            (4 | 5 | 7, [high, low, rest @ ..]) => {
                let group = group_of(u16::from_be_bytes([*high, *low]));
                Event::Ack { kind: head >> 4, group, rest: rest.to_vec() }
            }
            (6, [_, _, rest @ ..]) => Event::Pubrel(rest.to_vec()),
            (kind @ (9 | 11), [_, _, rest @ ..]) => {
                let Some((list, codes)) = split_properties(rest, is_v5) else { return odd() };
                let properties = properties(list);
                Event::Granted { kind, properties, codes: codes.to_vec() }
            }
            (14, rest) => Event::Disconnect(rest.to_vec()),
            _ => odd(),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Publish(it) => {
                write!(out, "PUBLISH {:?} qos={} ", it.topic, it.qos)?;
                match it.mark {
                    Some(mark) => write!(out, "#{} of client {}", mark.number, mark.client)?,
                    None => write!(out, "unmarked")?,
                }
                write!(out, " {} B ({:x})", it.payload_bytes, it.payload_hash & 0xffff)?;
                write!(out, " retain={} dup={}", it.is_retained, it.is_duplicate)?;
                write!(out, " {}", it.properties.join(" "))
            }
            Event::Odd(head, body) => write!(out, "odd {head:02x} {}", body.escape_ascii()),
            other => write!(out, "{other:?}"),
        }
    }
}

/// Splits off a property list; `None` if there is no whole one.
fn split_properties(bytes: &[u8], is_v5: bool) -> Option<(&[u8], &[u8])> {
    if !is_v5 || bytes.is_empty() {
        return Some((&[], bytes));
    }
    let (length, used) = variable_length(bytes)?;
    bytes.get(used..)?.split_at_checked(length)
}

fn variable_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate().take(4) {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Properties as text, sorted by kind; those of one kind keep their order.
pub(super) fn properties(list: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = list;
    while let Some((&kind, after)) = rest.split_first() {
        let Some((value, left)) = property_bytes(kind, after).map(|n| after.split_at(n)) else {
            found.push((u8::MAX, format!("unreadable {rest:02x?}")));
            break;
        };
        found.push((kind, property_text(kind, value)));
        rest = left;
    }
    found.sort_by_key(|(kind, _)| *kind);
    found.into_iter().map(|(_, text)| text).collect()
}

/// The Receive Maximum of a CONNECT, if it has one.
pub(super) fn receive_maximum(list: &[u8]) -> Option<u16> {
    let mut at = 0;
    while let Some((&kind, after)) = list[at..].split_first() {
        let end = at + 1 + property_bytes(kind, after)?;
        if let (0x21, &[high, low]) = (kind, &list[at + 1..end]) {
            return Some(u16::from_be_bytes([high, low]));
        }
        at = end;
    }
    None
}

/// Takes the Topic Alias out of a property list, if there is one.
pub(super) fn split_alias(list: &[u8]) -> Option<(u16, Vec<u8>)> {
    let mut at = 0;
    while let Some((&kind, after)) = list[at..].split_first() {
        let end = at + 1 + property_bytes(kind, after)?;
        if let (0x23, &[high, low]) = (kind, &list[at + 1..end]) {
            return Some((u16::from_be_bytes([high, low]), [&list[..at], &list[end..]].concat()));
        }
        at = end;
    }
    None
}

fn property_text(kind: u8, value: &[u8]) -> String {
    match (kind, value) {
        // Message Expiry Interval.
        (0x02, &[a, b, c, d]) => {
            let left = u32::from_be_bytes([a, b, c, d]);
            format!("02=about {}", left.div_ceil(EXPIRY_STEP_S) * EXPIRY_STEP_S)
        }
        // Assigned Client Identifier.
        (0x12, _) => "12=made up".to_owned(),
        _ => format!("{kind:02x}={}", value.escape_ascii()),
    }
}

/// Bytes of a property's value. MQTT 5 §2.2.2.2.
fn property_bytes(kind: u8, rest: &[u8]) -> Option<usize> {
    let string_at = |at: usize| {
        let length = rest.get(at..at + 2)?;
        Some(at + 2 + usize::from(u16::from_be_bytes([length[0], length[1]])))
    };
    let bytes = match kind {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2a => 1,
        0x13 | 0x21..=0x23 => 2,
        0x02 | 0x11 | 0x18 | 0x27 => 4,
        0x0b => variable_length(rest)?.1,
        0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1a | 0x1c | 0x1f => string_at(0)?,
        0x26 => string_at(string_at(0)?)?,
        _ => return None,
    };
    (bytes <= rest.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_properties_keep_their_order_and_kinds_do_not() {
        let first = properties(b"\x26\0\x01a\0\x01b\x01\x01\x26\0\x01a\0\x01c");
        let second = properties(b"\x01\x01\x26\0\x01a\0\x01b\x26\0\x01a\0\x01c");
        let swapped = properties(b"\x26\0\x01a\0\x01c\x01\x01\x26\0\x01a\0\x01b");
        assert_eq!(first, second);
        assert_ne!(first, swapped);
    }

    #[test]
    fn an_alias_is_found_among_other_properties_and_taken_out() {
        let list = b"\x01\x01\x23\0\x07\x26\0\x01a\0\x01b";
        let rest = b"\x01\x01\x26\0\x01a\0\x01b";
        assert_eq!(split_alias(list), Some((7, rest.to_vec())));
        assert_eq!(split_alias(rest), None);
    }

    #[test]
    fn the_rest_of_an_expiry_is_levelled() {
        assert_eq!(properties(b"\x02\0\0\x03\xe8"), properties(b"\x02\0\0\x03\xe5"));
        assert_ne!(properties(b"\x02\0\0\x03\xe8"), properties(b"\x02\0\0\x03\xe9"));
    }

    #[test]
    fn what_cannot_be_read_is_kept_as_it_is() {
        assert_eq!(Event::read(0xf0, &[7], Version::V5, |_| None), Event::Odd(0xf0, vec![7]));
        assert_eq!(properties(&[0x7f, 1]), ["unreadable [7f, 01]"]);
    }
}

//! PUBLISH (MQTT 3.1.1 §3.3, MQTT 5 §3.3): a message read from its publisher, and the copies made of it.
//!
//! ```text
//! bytes ──parse──► Publish ──encode(variant)──► Encoded ── one allocation a variant, shared by all its subscribers
//! ```
//!
//! A copy has neither RETAIN nor DUP [MQTT-3.3.1-9], [MQTT-3.3.1-3]. In version 5 it begins with the subscription's identifier
//! [MQTT-3.3.4-3]; the publisher's properties follow unchanged and in order [MQTT-3.3.2-4, -15 to -18], but for the Topic Alias, which
//! is the publisher's connection's own; the Message Expiry Interval, which counts down while a copy waits, is the last. For version 3
//! they are left out.

use std::num::NonZeroU32;
use std::time::Instant;

use bytes::Bytes;

use super::properties::{Place, Properties};
use super::{
    Malformed, Reader, Version, has_discouraged_characters, put_variable_byte_integer,
    variable_byte_integer_len,
};
use crate::mqtt::topic;

/// Bytes of a Topic Alias property.
const ALIAS_BYTES: usize = 3;
/// Bytes of a Message Expiry Interval property.
const EXPIRY_BYTES: usize = 5;
/// Bytes of a Packet Identifier.
const ID_BYTES: usize = 2;

/// One of the ways a PUBLISH looks on the wire.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Variant {
    /// Versions 3.1 and 3.1.1.
    V3,
    /// Version 5: with a property list.
    V5 {
        /// The Subscription Identifier the copy carries.
        identifier: Option<NonZeroU32>,
    },
}

/// A copy, to be shared by all subscribers of its variant.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    pub(crate) packet: Bytes,
    /// Place of the Packet Identifier, which each subscriber has its own of; `None` with QoS 0.
    pub(crate) id_at: Option<usize>,
    pub(crate) expiry: Option<ExpiryField>,
}

/// How long a copy may wait, and where it says so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ExpiryField {
    /// Place of the four bytes in the packet; `None`: in version 3 it does not say, and expires all the same.
    pub(crate) at: Option<usize>,
    pub(crate) seconds: u32,
}

impl ExpiryField {
    /// Whole seconds that are left of the time.
    pub(crate) fn left_s(&self, since: Instant, now: Instant) -> u32 {
        let waited_s = now.saturating_duration_since(since).as_secs();
        self.seconds.saturating_sub(u32::try_from(waited_s).unwrap_or(u32::MAX))
    }
}

/// A well-formed PUBLISH.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Publish<'a> {
    /// Empty only if there is a Topic Alias.
    pub(crate) topic: &'a str,
    /// Only with QoS 1 and 2.
    pub(crate) packet_id: Option<u16>,
    /// The property list without its length; empty in version 3.
    properties: Properties<'a>,
    pub(crate) payload: &'a [u8],
    /// Topic or properties hold characters some brokers refuse.
    pub(crate) has_discouraged_characters: bool,
}

impl<'a> Publish<'a> {
    /// Reads what follows the fixed header. `qos` is the fixed header's.
    pub(crate) fn parse(version: Version, qos: u8, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let topic = reader.string()?;
        let packet_id = if qos > 0 { Some(reader.packet_id()?) } else { None };
        let properties = match version {
            Version::V5 => Properties::read(&mut reader, Place::PUBLISH)?,
            Version::V31 | Version::V311 => Properties::default(),
        };
        if topic.is_empty() && properties.topic_alias.is_none() {
            return Err(Malformed::TopicName);
        }
        topic::validate_name(topic)?;
        Ok(Self {
            topic,
            packet_id,
            properties,
            payload: reader.rest(),
            has_discouraged_characters: properties.has_discouraged_characters
                || has_discouraged_characters(topic),
        })
    }

    /// The Topic Alias, if there is one.
    pub(crate) fn topic_alias(&self) -> Option<u16> {
        self.properties.topic_alias.map(|alias| alias.value)
    }

    /// How long the message may wait, in seconds, if it may not wait for ever.
    pub(crate) fn expiry_s(&self) -> Option<u32> {
        self.properties.message_expiry_s.map(|expiry| expiry.value)
    }

    /// The publisher's properties that every version 5 copy takes over as they are.
    fn kept(&self) -> [&'a [u8]; 3] {
        let alias = self.properties.topic_alias.map(|it| (it.at, it.at + ALIAS_BYTES));
        let expiry = self.properties.message_expiry_s.map(|it| (it.at, it.at + EXPIRY_BYTES));
        let mut cuts = [alias, expiry].map(|cut| cut.unwrap_or((usize::MAX, usize::MAX)));
        cuts.sort_unstable();
        let list = self.properties.bytes;
        let end = |at: usize| at.min(list.len());
        let [(first, after_first), (second, after_second)] = cuts;
        [&list[..end(first)], &list[end(after_first)..end(second)], &list[end(after_second)..]]
    }

    /// Bytes of a version 5 copy's property list, without its length.
    fn list_bytes(&self, identifier: Option<NonZeroU32>) -> usize {
        let identifier =
            identifier.map_or(0, |id| 1 + variable_byte_integer_len(id.get() as usize));
        let expiry = self.expiry_s().map_or(0, |_| EXPIRY_BYTES);
        identifier + self.kept().iter().map(|part| part.len()).sum::<usize>() + expiry
    }

    fn remaining_bytes(&self, variant: Variant, qos: u8) -> usize {
        let properties = match variant {
            Variant::V3 => 0,
            Variant::V5 { identifier } => {
                let list = self.list_bytes(identifier);
                variable_byte_integer_len(list) + list
            }
        };
        let id = if qos > 0 { ID_BYTES } else { 0 };
        2 + self.topic.len() + id + properties + self.payload.len()
    }

    /// Bytes of the whole encoded packet.
    pub(crate) fn encoded_bytes(&self, variant: Variant, qos: u8) -> usize {
        let remaining = self.remaining_bytes(variant, qos);
        1 + variable_byte_integer_len(remaining) + remaining
    }

    /// The copy a subscriber of this variant gets with this QoS, 0 or 1. The Packet Identifier is 0.
    pub(crate) fn encode(&self, variant: Variant, qos: u8) -> Encoded {
        let len = self.encoded_bytes(variant, qos);
        let topic_len = u16::try_from(self.topic.len()).expect("parsed behind a 16-bit length");
        let mut out = Vec::with_capacity(len);
        out.push(0x30 | qos << 1);
        put_variable_byte_integer(&mut out, self.remaining_bytes(variant, qos));
        out.extend_from_slice(&topic_len.to_be_bytes());
        out.extend_from_slice(self.topic.as_bytes());
        let id_at = (qos > 0).then_some(out.len());
        if qos > 0 {
            out.extend_from_slice(&[0; ID_BYTES]);
        }
        let expiry = match variant {
            Variant::V3 => self.expiry_s().map(|seconds| ExpiryField { at: None, seconds }),
            Variant::V5 { identifier } => self.put_properties(&mut out, identifier),
        };
        out.extend_from_slice(self.payload);
        debug_assert_eq!(out.len(), len);
        Encoded { packet: Bytes::from(out), id_at, expiry }
    }

    fn put_properties(
        &self,
        out: &mut Vec<u8>,
        identifier: Option<NonZeroU32>,
    ) -> Option<ExpiryField> {
        put_variable_byte_integer(out, self.list_bytes(identifier));
        if let Some(identifier) = identifier {
            out.push(0x0B);
            put_variable_byte_integer(out, identifier.get() as usize);
        }
        for part in self.kept() {
            out.extend_from_slice(part);
        }
        self.expiry_s().map(|seconds| {
            out.push(0x02);
            let at = Some(out.len());
            out.extend_from_slice(&seconds.to_be_bytes());
            ExpiryField { at, seconds }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V5: Variant = Variant::V5 { identifier: None };

    fn parse(version: Version, body: &[u8]) -> Result<Publish<'_>, Malformed> {
        Publish::parse(version, 0, body)
    }

    fn copy(publish: &Publish<'_>, variant: Variant) -> Vec<u8> {
        publish.encode(variant, 0).packet.to_vec()
    }

    #[test]
    fn a_version_3_copy_equals_the_packet_it_came_from() {
        let publish = parse(Version::V311, b"\x00\x03a/bhello").unwrap();
        assert_eq!(copy(&publish, Variant::V3), b"\x30\x0A\x00\x03a/bhello");
    }

    #[test]
    fn properties_reach_version_5_and_not_version_3() {
        let body = b"\x00\x01t\x05\x02\x00\x00\x00\x09x";
        let publish = parse(Version::V5, body).unwrap();
        let mut whole = vec![0x30, 10];
        whole.extend(body);
        assert_eq!(copy(&publish, V5), whole);
        assert_eq!(copy(&publish, Variant::V3), b"\x30\x04\x00\x01tx");
    }

    #[test]
    fn a_version_3_message_gets_an_empty_property_list_for_version_5() {
        let publish = parse(Version::V31, b"\x00\x01tx").unwrap();
        assert_eq!(copy(&publish, V5), b"\x30\x05\x00\x01t\x00x");
    }

    #[test]
    fn a_copy_carries_its_identifier_first_and_its_expiry_last_and_no_alias() {
        let (user, expiry, alias) =
            (b"\x26\x00\x01k\x00\x01v", b"\x02\x00\x00\x00\x09", b"\x23\x00\x03");
        let expected =
            [&b"\x30\x1A\x00\x01t\x15\x0B\xC8\x01"[..], user, user, expiry, b"x"].concat();
        let expected = {
            let mut it = expected;
            it[1] = (it.len() - 2) as u8;
            it[5] = 22;
            it
        };
        let orders: [[&[u8]; 4]; 3] =
            [[user, expiry, alias, user], [alias, user, user, expiry], [expiry, user, alias, user]];
        for order in orders {
            let list = order.concat();
            let body = [&b"\x00\x01t"[..], &[list.len() as u8], &list, b"x"].concat();
            let publish = parse(Version::V5, &body).unwrap();
            assert_eq!((publish.topic_alias(), publish.expiry_s()), (Some(3), Some(9)));
            let encoded = publish.encode(Variant::V5 { identifier: NonZeroU32::new(200) }, 0);
            assert_eq!(encoded.packet, expected);
            let field = encoded.expiry.unwrap();
            let at = field.at.unwrap();
            assert_eq!((&encoded.packet[at..at + 4], field.seconds), (&[0, 0, 0, 9][..], 9));
        }
    }

    #[test]
    fn encoded_size_is_known_before_encoding() {
        for payload in [0, 123, 124, 125, 16_380, 16_381, 65_536] {
            let mut body = b"\x00\x01t".to_vec();
            body.resize(3 + payload, b'x');
            let publish = parse(Version::V311, &body).unwrap();
            let with_identifier = Variant::V5 { identifier: NonZeroU32::new(268_435_455) };
            for variant in [Variant::V3, V5, with_identifier] {
                for qos in [0, 1] {
                    let copy = publish.encode(variant, qos);
                    assert_eq!(copy.packet.len(), publish.encoded_bytes(variant, qos));
                }
            }
        }
    }

    #[test]
    fn a_packet_identifier_comes_with_quality_of_service() {
        let body = b"\x00\x01t\x00\x07x";
        let publish = Publish::parse(Version::V311, 1, body).unwrap();
        assert_eq!((publish.packet_id, publish.payload), (Some(7), &b"x"[..]));
        assert_eq!(parse(Version::V311, body).unwrap().packet_id, None);
        let numbered = publish.encode(Variant::V3, 1);
        assert_eq!(&numbered.packet[..], b"\x32\x06\x00\x01t\x00\x00x");
        assert_eq!(numbered.id_at, Some(5));
        assert_eq!(copy(&publish, Variant::V3), b"\x30\x04\x00\x01tx");
        assert_eq!(Publish::parse(Version::V311, 2, b"\x00\x01t\x00\x00x"), {
            Err(Malformed::Value("packet identifier"))
        });
    }

    #[test]
    fn empty_topic_needs_an_alias() {
        assert_eq!(parse(Version::V311, b"\x00\x00x"), Err(Malformed::TopicName));
        assert_eq!(parse(Version::V5, b"\x00\x00\x00x"), Err(Malformed::TopicName));
        let publish = parse(Version::V5, b"\x00\x00\x03\x23\x00\x01x").unwrap();
        assert_eq!(publish.topic_alias(), Some(1));
    }

    #[test]
    fn topic_with_wildcard_is_malformed() {
        assert_eq!(parse(Version::V311, b"\x00\x03a/+x"), Err(Malformed::TopicName));
        assert_eq!(parse(Version::V311, b"\x00\x01#x"), Err(Malformed::TopicName));
    }

    #[test]
    fn subscription_identifier_from_a_client_is_malformed() {
        let body = b"\x00\x01t\x02\x0B\x01x";
        assert_eq!(parse(Version::V5, body), Err(Malformed::Property(0x0B)));
    }
}

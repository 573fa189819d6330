//! PUBLISH (MQTT 3.1.1 §3.3, MQTT 5 §3.3): a message read from its publisher, and the copies made of it.
//!
//! ```text
//! bytes ──parse──► Publish ──encode(V3)──► Bytes ─┐ one allocation a variant,
//!                          └─encode(V5)──► Bytes ─┴ shared by all subscribers of that version
//! ```
//!
//! Only QoS 0 is read: everything else has been ruled out by its fixed header. A copy has neither RETAIN nor DUP
//! [MQTT-3.3.1-9], [MQTT-3.3.1-3]; the publisher's properties pass unchanged to version 5 [MQTT-3.3.2-4, -15 to -18] and are left out
//! for version 3.

use bytes::Bytes;

use super::properties::{Place, Properties};
use super::{
    Malformed, Reader, Version, has_discouraged_characters, put_variable_byte_integer,
    variable_byte_integer_len,
};
use crate::mqtt::topic;

/// The two ways a QoS 0 PUBLISH looks on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Variant {
    /// Versions 3.1 and 3.1.1.
    V3,
    /// Version 5: with a property list.
    V5,
}

/// A well-formed PUBLISH with QoS 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Publish<'a> {
    /// Empty only if there is a Topic Alias.
    pub(crate) topic: &'a str,
    /// The property list without its length; empty in version 3.
    properties: &'a [u8],
    pub(crate) payload: &'a [u8],
    pub(crate) has_topic_alias: bool,
    /// Topic or properties hold characters some brokers refuse.
    pub(crate) has_discouraged_characters: bool,
}

impl<'a> Publish<'a> {
    pub(crate) fn parse(version: Version, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let topic = reader.string()?;
        let properties = match version {
            Version::V5 => Properties::read(&mut reader, Place::PUBLISH)?,
            Version::V31 | Version::V311 => Properties::default(),
        };
        if topic.is_empty() && !properties.has_topic_alias {
            return Err(Malformed::TopicName);
        }
        topic::validate_name(topic)?;
        Ok(Self {
            topic,
            properties: properties.bytes,
            payload: reader.rest(),
            has_topic_alias: properties.has_topic_alias,
            has_discouraged_characters: properties.has_discouraged_characters
                || has_discouraged_characters(topic),
        })
    }

    fn remaining_bytes(&self, variant: Variant) -> usize {
        let properties = match variant {
            Variant::V3 => 0,
            Variant::V5 => variable_byte_integer_len(self.properties.len()) + self.properties.len(),
        };
        2 + self.topic.len() + properties + self.payload.len()
    }

    /// Bytes of the whole encoded packet.
    pub(crate) fn encoded_bytes(&self, variant: Variant) -> usize {
        let remaining = self.remaining_bytes(variant);
        1 + variable_byte_integer_len(remaining) + remaining
    }

    /// The copy a subscriber of this variant gets.
    pub(crate) fn encode(&self, variant: Variant) -> Bytes {
        let len = self.encoded_bytes(variant);
        let topic_len = u16::try_from(self.topic.len()).expect("parsed behind a 16-bit length");
        let mut out = Vec::with_capacity(len);
        out.push(0x30);
        put_variable_byte_integer(&mut out, self.remaining_bytes(variant));
        out.extend_from_slice(&topic_len.to_be_bytes());
        out.extend_from_slice(self.topic.as_bytes());
        if variant == Variant::V5 {
            put_variable_byte_integer(&mut out, self.properties.len());
            out.extend_from_slice(self.properties);
        }
        out.extend_from_slice(self.payload);
        debug_assert_eq!(out.len(), len);
        Bytes::from(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_3_copy_equals_the_packet_it_came_from() {
        let publish = Publish::parse(Version::V311, b"\x00\x03a/bhello").unwrap();
        assert_eq!(&publish.encode(Variant::V3)[..], b"\x30\x0A\x00\x03a/bhello");
    }

    #[test]
    fn properties_reach_version_5_and_not_version_3() {
        let body = b"\x00\x01t\x05\x02\x00\x00\x00\x09x";
        let publish = Publish::parse(Version::V5, body).unwrap();
        let mut whole = vec![0x30, 10];
        whole.extend(body);
        assert_eq!(&publish.encode(Variant::V5)[..], whole);
        assert_eq!(&publish.encode(Variant::V3)[..], b"\x30\x04\x00\x01tx");
    }

    #[test]
    fn a_version_3_message_gets_an_empty_property_list_for_version_5() {
        let publish = Publish::parse(Version::V31, b"\x00\x01tx").unwrap();
        assert_eq!(&publish.encode(Variant::V5)[..], b"\x30\x05\x00\x01t\x00x");
    }

    #[test]
    fn encoded_size_is_known_before_encoding() {
        for payload in [0, 123, 124, 125, 16_380, 16_381, 65_536] {
            let mut body = b"\x00\x01t".to_vec();
            body.resize(3 + payload, b'x');
            let publish = Publish::parse(Version::V311, &body).unwrap();
            for variant in [Variant::V3, Variant::V5] {
                assert_eq!(publish.encode(variant).len(), publish.encoded_bytes(variant));
            }
        }
    }

    #[test]
    fn empty_topic_needs_an_alias() {
        assert_eq!(Publish::parse(Version::V311, b"\x00\x00x"), Err(Malformed::TopicName));
        assert_eq!(Publish::parse(Version::V5, b"\x00\x00\x00x"), Err(Malformed::TopicName));
        assert!(Publish::parse(Version::V5, b"\x00\x00\x03\x23\x00\x01x").unwrap().has_topic_alias);
    }

    #[test]
    fn topic_with_wildcard_is_malformed() {
        assert_eq!(Publish::parse(Version::V311, b"\x00\x03a/+x"), Err(Malformed::TopicName));
        assert_eq!(Publish::parse(Version::V311, b"\x00\x01#x"), Err(Malformed::TopicName));
    }

    #[test]
    fn subscription_identifier_from_a_client_is_malformed() {
        let body = b"\x00\x01t\x02\x0B\x01x";
        assert_eq!(Publish::parse(Version::V5, body), Err(Malformed::Property(0x0B)));
    }
}

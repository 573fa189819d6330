//! What a PUBLISH says, whatever its QoS and whoever sent it: topic and payload.
//!
//! Copies of two PUBLISHes can be equal only if both say the same. Properties are walked over, not judged: what is wrong with them
//! is the other end's to say.

use super::super::packet::{Reader, Version};

/// Topic and payload of a PUBLISH.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Content<'a> {
    /// Empty where a Topic Alias stands for it.
    pub(crate) topic: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl<'a> Content<'a> {
    /// Reads what follows the fixed header; `None` if it ends too early.
    pub(crate) fn read(version: Version, qos: u8, body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let topic = reader.binary().ok()?;
        if qos > 0 {
            // The packet identifier.
            reader.u16().ok()?;
        }
        if version == Version::V5 {
            let bytes = reader.variable_byte_integer().ok()?;
            reader.take(bytes as usize).ok()?;
        }
        Some(Self { topic, payload: reader.rest() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_and_payload_are_found_behind_identifier_and_properties() {
        let v3 = Content::read(Version::V311, 0, b"\x00\x01tx").unwrap();
        assert_eq!((v3.topic, v3.payload), (&b"t"[..], &b"x"[..]));
        let v5 = Content::read(Version::V5, 2, b"\x00\x01t\x00\x07\x02\x01\x01x").unwrap();
        assert_eq!((v5.topic, v5.payload), (&b"t"[..], &b"x"[..]));
    }

    #[test]
    fn what_ends_too_early_says_nothing() {
        for end in 0..8 {
            assert_eq!(
                Content::read(Version::V5, 1, &b"\x00\x01t\x00\x07\x02\x01\x01x"[..end]),
                None
            );
        }
    }
}

//! MQTT Control Packets of the versions 3.1, 3.1.1 and 5, as far as the card must understand them.
//!
//! A value of these types is well formed; everything else is a [`Malformed`]. Strictness is deliberate: what we refuse
//! here is not answered by us but passed to the broker unread, so a wrong refusal costs speed and a wrong acceptance
//! could make the card distribute what the broker would have punished.
//!
//! ```text
//! fixed_header ──► (framer cuts a whole packet) ──► connect │ publish │ subscribe │ … over Reader
//! ```
//!
//! Of acknowledgements of QoS 1 and 2 only the Packet Identifier is read (`core::exchanges`). Values borrow from the packet; nothing allocates but
//! the list of filters of a SUBSCRIBE. Bounded by the packet, which the framer bounds.

mod connack;
mod connect;
mod disconnect;
mod fixed_header;
mod properties;
mod publish;
mod subscribe;

pub(crate) use connack::Connack;
pub(crate) use connect::{Connect, Expiry, Will};
pub(crate) use disconnect::{AUTH_SUCCESS, Auth, Disconnect};
pub use fixed_header::{FixedHeader, PacketType};
pub(crate) use publish::{Encoded, ExpiryField, Publish, Variant};
pub(crate) use subscribe::{Acknowledgement, GrantedOptions, Subscribe, Unsubscribe};

/// The two bytes of a PINGREQ (MQTT 3.1.1 §3.12).
pub(crate) const PINGREQ: [u8; 2] = [0xC0, 0x00];

/// A PUBACK that says nothing but success (MQTT 3.1.1 §3.4; in version 5 the Reason Code may be left out then).
pub(crate) fn puback(packet_id: u16) -> [u8; 4] {
    let [high, low] = packet_id.to_be_bytes();
    [0x40, 0x02, high, low]
}

/// Protocol version of a connection, as its CONNECT announced it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Version {
    /// MQTT 3.1, protocol name `MQIsdp`, level 3.
    V31,
    /// MQTT 3.1.1, level 4.
    V311,
    /// MQTT 5, level 5.
    V5,
}

/// Why a packet is not one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// The packet type is 0, or it may not travel in this direction or at this time.
    #[error("packet type {0} is not allowed here")]
    Type(u8),
    /// The flags of the fixed header are not the ones its type requires.
    #[error("reserved flags in fixed header 0x{0:02x}")]
    Flags(u8),
    /// A Variable Byte Integer of more than four bytes, or not in its shortest form.
    #[error("malformed variable byte integer")]
    VariableByteInteger,
    /// The packet ends inside a field.
    #[error("packet ends inside a field")]
    Truncated,
    /// The packet is longer than its fields.
    #[error("{0} bytes left behind the last field")]
    TrailingBytes(usize),
    /// A string that is not UTF-8, or contains U+0000.
    #[error("string is not UTF-8 as MQTT defines it")]
    Utf8,
    /// The first packet is a CONNECT of a protocol we do not speak (a bridge sets bit 7 of the level).
    #[error("unknown protocol name or level")]
    Protocol,
    /// A field holds a value its definition excludes.
    #[error("value of {0} is not allowed")]
    Value(&'static str),
    /// A property that does not belong into this packet, or occurs twice.
    #[error("property 0x{0:02x} is not allowed here")]
    Property(u32),
    /// A Topic Name with wildcards, or empty without a Topic Alias.
    #[error("malformed topic name")]
    TopicName,
    /// A Topic Filter with a misplaced wildcard, or empty.
    #[error("malformed topic filter")]
    TopicFilter,
    /// Well formed, but larger than what we are willing to hold.
    #[error("packet of {0} bytes is larger than what is inspected")]
    TooLarge(usize),
    /// Well formed, but we have no room to remember what it says.
    #[error("limit reached: {0}")]
    Limit(&'static str),
    /// It answers something that was never asked.
    #[error("acknowledgement of nothing")]
    Unsolicited,
}

/// Takes fields off the front of a packet. No method panics, whatever the bytes.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.0.split_at_checked(n).ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(front)
    }

    /// Bytes that are left.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn starts_with(&self, bytes: &[u8]) -> bool {
        self.0.starts_with(bytes)
    }

    /// Everything that is left, which may be nothing.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.0.split_first().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        let (&front, rest) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(front))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        let (&front, rest) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(front))
    }

    /// MQTT 5 §1.5.5. An unfinished one is an error here: the packet around it is complete.
    pub(crate) fn variable_byte_integer(&mut self) -> Result<u32, Malformed> {
        let (value, len) = variable_byte_integer(self.0)?.ok_or(Malformed::Truncated)?;
        self.take(len)?;
        Ok(value)
    }

    pub(crate) fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// A UTF-8 Encoded String: no U+0000 [MQTT-1.5.4-2]; surrogates are not UTF-8 to Rust either [MQTT-1.5.4-1].
    pub(crate) fn string(&mut self) -> Result<&'a str, Malformed> {
        let text = std::str::from_utf8(self.binary()?).map_err(|_| Malformed::Utf8)?;
        if text.as_bytes().contains(&0) { Err(Malformed::Utf8) } else { Ok(text) }
    }

    /// The Packet Identifier, never zero [MQTT-2.2.1-3].
    pub(crate) fn packet_id(&mut self) -> Result<u16, Malformed> {
        match self.u16()? {
            0 => Err(Malformed::Value("packet identifier")),
            id => Ok(id),
        }
    }

    pub(crate) fn finish(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::TrailingBytes(self.0.len())) }
    }
}

/// Reads a Variable Byte Integer at the front of `bytes`: its value and length, `None` if it is not complete yet.
pub(crate) fn variable_byte_integer(bytes: &[u8]) -> Result<Option<(u32, usize)>, Malformed> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            // [MQTT-1.5.5-1]: the minimum number of bytes. Version 3.1.1 does not say so; there we are stricter.
            let shortest = index == 0 || byte != 0;
            return if shortest {
                Ok(Some((value, index + 1)))
            } else {
                Err(Malformed::VariableByteInteger)
            };
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(Malformed::VariableByteInteger) }
}

/// Bytes a Variable Byte Integer of this value takes. `value` is at most 268,435,455 by construction.
pub(crate) fn variable_byte_integer_len(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Appends a Variable Byte Integer.
pub(crate) fn put_variable_byte_integer(out: &mut Vec<u8>, mut value: usize) {
    loop {
        let low = (value & 0x7F) as u8;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Whether a string holds characters that some brokers refuse although MQTT only advises against them: controls and
/// non-characters (MQTT 5 §1.5.4). What a broker does about them is the broker's business.
pub(crate) fn has_discouraged_characters(text: &str) -> bool {
    let plain_ascii = text.bytes().all(|byte| (0x20..0x7F).contains(&byte));
    !plain_ascii
        && text.chars().any(|c| {
            c.is_control()
                || ('\u{FDD0}'..='\u{FDEF}').contains(&c)
                || matches!(u32::from(c) & 0xFFFF, 0xFFFE | 0xFFFF)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_byte_integer_boundaries_round_trip() {
        for (value, len) in [
            (0, 1),
            (127, 1),
            (128, 2),
            (16_383, 2),
            (16_384, 3),
            (2_097_151, 3),
            (2_097_152, 4),
            (268_435_455, 4),
        ] {
            let mut out = Vec::new();
            put_variable_byte_integer(&mut out, value);
            assert_eq!(out.len(), len);
            assert_eq!(variable_byte_integer_len(value), len);
            assert_eq!(variable_byte_integer(&out), Ok(Some((value as u32, len))));
            assert_eq!(variable_byte_integer(&out[..len - 1]), Ok(None));
        }
    }

    #[test]
    fn fifth_length_byte_is_malformed() {
        let bytes = [0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        assert_eq!(variable_byte_integer(&bytes), Err(Malformed::VariableByteInteger));
    }

    #[test]
    fn integer_longer_than_needed_is_malformed() {
        assert_eq!(variable_byte_integer(&[0x80, 0x00]), Err(Malformed::VariableByteInteger));
        assert_eq!(variable_byte_integer(&[0xFF, 0x80, 0x00]), Err(Malformed::VariableByteInteger));
    }

    #[test]
    fn string_with_nul_or_broken_utf8_is_malformed() {
        assert_eq!(Reader::new(b"\x00\x01\x00").string(), Err(Malformed::Utf8));
        assert_eq!(Reader::new(b"\x00\x02\xC3\x28").string(), Err(Malformed::Utf8));
        assert_eq!(Reader::new(b"\x00\x03\xED\xA0\x80").string(), Err(Malformed::Utf8));
        assert_eq!(Reader::new(b"\x00\x02\xC3\xA9").string(), Ok("é"));
    }

    #[test]
    fn controls_and_non_characters_are_discouraged_and_letters_are_not() {
        for text in ["a\u{1}", "\u{7F}", "\u{9F}", "\u{FDD0}", "x\u{FFFE}", "\u{1FFFF}"] {
            assert!(has_discouraged_characters(text), "{text:?}");
        }
        for text in ["", "a/b", "grüße", "日本", "\u{FDF0}"] {
            assert!(!has_discouraged_characters(text), "{text:?}");
        }
    }
}

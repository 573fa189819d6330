//! The fixed header every Control Packet starts with (MQTT 3.1.1 §2.2, MQTT 5 §2.1).
//!
//! ```text
//! byte 1: type (4 bits) │ flags (4 bits)      byte 2…5: Remaining Length
//! ```
//!
//! Two to five bytes; the flags are checked here, the direction is not.

use super::{Malformed, variable_byte_integer};

/// The type of a Control Packet (MQTT 5 §2.1.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum PacketType {
    /// Connection request.
    Connect = 1,
    /// Connect acknowledgment.
    Connack = 2,
    /// Publish message.
    Publish = 3,
    /// Publish acknowledgment, QoS 1.
    Puback = 4,
    /// Publish received, QoS 2.
    Pubrec = 5,
    /// Publish release, QoS 2.
    Pubrel = 6,
    /// Publish complete, QoS 2.
    Pubcomp = 7,
    /// Subscribe request.
    Subscribe = 8,
    /// Subscribe acknowledgment.
    Suback = 9,
    /// Unsubscribe request.
    Unsubscribe = 10,
    /// Unsubscribe acknowledgment.
    Unsuback = 11,
    /// PING request.
    Pingreq = 12,
    /// PING response.
    Pingresp = 13,
    /// Disconnect notification.
    Disconnect = 14,
    /// Authentication exchange, MQTT 5 only.
    Auth = 15,
}

impl PacketType {
    /// Whether it says how far its sender is with a PUBLISH it got.
    pub(crate) fn is_acknowledgement(self) -> bool {
        matches!(self, Self::Puback | Self::Pubrec | Self::Pubcomp)
    }

    fn from_first_byte(first: u8) -> Result<Self, Malformed> {
        Ok(match first >> 4 {
            1 => Self::Connect,
            2 => Self::Connack,
            3 => Self::Publish,
            4 => Self::Puback,
            5 => Self::Pubrec,
            6 => Self::Pubrel,
            7 => Self::Pubcomp,
            8 => Self::Subscribe,
            9 => Self::Suback,
            10 => Self::Unsubscribe,
            11 => Self::Unsuback,
            12 => Self::Pingreq,
            13 => Self::Pingresp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            other => return Err(Malformed::Type(other)),
        })
    }
}

/// A complete and valid fixed header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FixedHeader {
    /// Type of the packet.
    pub packet_type: PacketType,
    /// Lower four bits of the first byte.
    pub flags: u8,
    /// Bytes that follow the fixed header, at most 268,435,455.
    pub remaining_bytes: usize,
    /// Bytes of the fixed header itself, 2 to 5.
    pub header_bytes: usize,
}

impl FixedHeader {
    /// Reads the header at the front of `bytes`; `None` if more bytes are needed to tell.
    ///
    /// # Errors
    /// The bytes can never become a header.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        let packet_type = PacketType::from_first_byte(first)?;
        let flags = first & 0x0F;
        let allowed = match packet_type {
            // QoS 3 is malformed [MQTT-3.3.1-4]; the other flags are free.
            PacketType::Publish => flags & 0x06 != 0x06,
            PacketType::Pubrel | PacketType::Subscribe | PacketType::Unsubscribe => flags == 0x02,
            _ => flags == 0,
        };
        if !allowed {
            return Err(Malformed::Flags(first));
        }
        let length = variable_byte_integer(rest)?;
        Ok(length.map(|(remaining, len)| Self {
            packet_type,
            flags,
            remaining_bytes: remaining as usize,
            header_bytes: 1 + len,
        }))
    }

    /// Bytes of the whole packet.
    pub fn packet_bytes(&self) -> usize {
        self.header_bytes + self.remaining_bytes
    }

    /// QoS of a PUBLISH: 0, 1 or 2.
    pub fn qos(&self) -> u8 {
        (self.flags >> 1) & 0x03
    }

    /// RETAIN flag of a PUBLISH.
    pub fn is_retained(&self) -> bool {
        self.flags & 0x01 != 0
    }

    /// DUP flag of a PUBLISH.
    pub fn is_duplicate(&self) -> bool {
        self.flags & 0x08 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_zero_is_malformed() {
        assert_eq!(FixedHeader::parse(&[0x00]), Err(Malformed::Type(0)));
    }

    #[test]
    fn reserved_flags_are_malformed_before_the_length_is_known() {
        for first in [0x11, 0x36, 0x3E, 0x60, 0x63, 0x80, 0xA0, 0xC1, 0xE8, 0xF1] {
            assert_eq!(FixedHeader::parse(&[first]), Err(Malformed::Flags(first)));
        }
    }

    #[test]
    fn every_type_is_recognised_with_its_flags() {
        for first in
            [0x10, 0x20, 0x30, 0x40, 0x50, 0x62, 0x70, 0x82, 0x90, 0xA2, 0xB0, 0xC0, 0xD0, 0xE0]
        {
            let header = FixedHeader::parse(&[first, 0x05]).unwrap().unwrap();
            assert_eq!(header.packet_type as u8, first >> 4);
            assert_eq!(header.packet_bytes(), 7);
        }
    }

    #[test]
    fn publish_flags_are_qos_retain_and_dup() {
        let header = FixedHeader::parse(&[0x3D, 0x00]).unwrap().unwrap();
        assert_eq!((header.qos(), header.is_retained(), header.is_duplicate()), (2, true, true));
    }

    #[test]
    fn an_unfinished_length_asks_for_more() {
        assert_eq!(FixedHeader::parse(&[]), Ok(None));
        assert_eq!(FixedHeader::parse(&[0x30]), Ok(None));
        assert_eq!(FixedHeader::parse(&[0x30, 0x80, 0x80, 0x80]), Ok(None));
    }
}

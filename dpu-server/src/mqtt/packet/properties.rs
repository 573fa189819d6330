//! The property list of MQTT 5 (§2.2.2): which property may occur in which packet, how often, and with what value.
//!
//! Only the few values the card acts upon are kept; the rest is validated and stays where it is, in the packet. A
//! breach is a Malformed Packet or Protocol Error to the broker, so it must be one to us.

use std::num::NonZeroU32;

use super::{Malformed, Reader, has_discouraged_characters};

/// The packets whose property lists we read, as bits, so that a table row can name several.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place(u16);

impl Place {
    pub(crate) const CONNECT: Self = Self(1);
    pub(crate) const WILL: Self = Self(1 << 1);
    pub(crate) const CONNACK: Self = Self(1 << 2);
    /// A PUBLISH from a client; the broker's own may also carry Subscription Identifiers, and pass unread.
    pub(crate) const PUBLISH: Self = Self(1 << 3);
    pub(crate) const SUBSCRIBE: Self = Self(1 << 4);
    pub(crate) const UNSUBSCRIBE: Self = Self(1 << 5);
    pub(crate) const ACKNOWLEDGEMENT: Self = Self(1 << 6);
    pub(crate) const DISCONNECT: Self = Self(1 << 7);
    const ANY: Self = Self(0xFF);

    const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How a property's value is encoded, and what is excluded.
#[derive(Clone, Copy)]
enum Form {
    /// One byte, 0 or 1.
    Flag,
    U16,
    U16NotZero,
    U32,
    U32NotZero,
    /// Variable Byte Integer, not zero.
    Identifier,
    Text,
    /// A Topic Name: text without wildcards.
    Topic,
    Binary,
    /// Two strings; the only property that may repeat.
    Pair,
}

/// MQTT 5 table 2-4.
fn definition(id: u32) -> Option<(Form, Place)> {
    use Form::{Binary, Flag, Identifier, Pair, Text, Topic, U16, U16NotZero, U32, U32NotZero};
    const MESSAGE: Place = Place::PUBLISH.or(Place::WILL);
    const BOTH: Place = Place::CONNECT.or(Place::CONNACK);
    Some(match id {
        0x01 => (Flag, MESSAGE),
        0x02 => (U32, MESSAGE),
        0x03 => (Text, MESSAGE),
        0x08 => (Topic, MESSAGE),
        0x09 => (Binary, MESSAGE),
        0x0B => (Identifier, Place::SUBSCRIBE),
        0x11 => (U32, BOTH.or(Place::DISCONNECT)),
        0x12 => (Text, Place::CONNACK),
        0x13 => (U16, Place::CONNACK),
        0x15 => (Text, BOTH),
        0x16 => (Binary, BOTH),
        0x17 | 0x19 => (Flag, Place::CONNECT),
        0x18 => (U32, Place::WILL),
        0x1A => (Text, Place::CONNACK),
        0x1C => (Text, Place::CONNACK.or(Place::DISCONNECT)),
        0x1F => (Text, Place::CONNACK.or(Place::ACKNOWLEDGEMENT).or(Place::DISCONNECT)),
        0x21 => (U16NotZero, BOTH),
        0x22 => (U16, BOTH),
        0x23 => (U16NotZero, Place::PUBLISH),
        0x24 | 0x25 | 0x28 | 0x29 | 0x2A => (Flag, Place::CONNACK),
        0x26 => (Pair, Place::ANY),
        0x27 => (U32NotZero, BOTH),
        _ => return None,
    })
}

/// A value, and where in the list its property begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) at: usize,
}

/// What the card wants to know of a property list, and the list itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Properties<'a> {
    /// The list without its length, to be sent on as it is.
    pub(crate) bytes: &'a [u8],
    /// Session Expiry Interval in seconds, 0x11.
    pub(crate) session_expiry_s: Option<u32>,
    /// Assigned Client Identifier, 0x12.
    pub(crate) assigned_client_id: Option<&'a str>,
    /// Server Keep Alive in seconds, 0x13.
    pub(crate) server_keep_alive_s: Option<u16>,
    /// Will Delay Interval in seconds, 0x18.
    pub(crate) will_delay_s: Option<u32>,
    /// Maximum Packet Size in bytes, 0x27.
    pub(crate) packet_bytes_max: Option<u32>,
    /// Receive Maximum, 0x21.
    pub(crate) receive_max: Option<u16>,
    /// Maximum QoS, 0x24.
    pub(crate) qos_max: Option<u8>,
    /// Topic Alias Maximum, 0x22.
    pub(crate) topic_alias_max: Option<u16>,
    /// Topic Alias, 0x23.
    pub(crate) topic_alias: Option<Located<u16>>,
    /// Message Expiry Interval in seconds, 0x02.
    pub(crate) message_expiry_s: Option<Located<u32>>,
    /// Subscription Identifier, 0x0B.
    pub(crate) subscription_identifier: Option<NonZeroU32>,
    /// Whether some string holds controls or non-characters.
    pub(crate) has_discouraged_characters: bool,
}

impl<'a> Properties<'a> {
    /// Takes a property list, its length first, off the reader.
    pub(crate) fn read(reader: &mut Reader<'a>, place: Place) -> Result<Self, Malformed> {
        let len = reader.variable_byte_integer()?;
        let bytes = reader.take(len as usize)?;
        let mut list = Reader::new(bytes);
        let mut properties = Self { bytes, ..Self::default() };
        let mut seen = 0_u64;
        while !list.is_empty() {
            let at = len as usize - list.len();
            let id = list.variable_byte_integer()?;
            let (form, places) = definition(id).ok_or(Malformed::Property(id))?;
            let bit = 1_u64 << id;
            let repeated = seen & bit != 0 && !matches!(form, Form::Pair);
            if places.0 & place.0 == 0 || repeated {
                return Err(Malformed::Property(id));
            }
            seen |= bit;
            properties.read_value(id, at, form, &mut list)?;
        }
        Ok(properties)
    }

    fn read_value(
        &mut self,
        id: u32,
        at: usize,
        form: Form,
        list: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        match form {
            Form::Flag => {
                let value = list.u8()?;
                if value > 1 {
                    return Err(Malformed::Property(id));
                }
                if id == 0x24 {
                    self.qos_max = Some(value);
                }
            }
            Form::U16 | Form::U16NotZero => {
                let value = list.u16()?;
                if value == 0 && matches!(form, Form::U16NotZero) {
                    return Err(Malformed::Property(id));
                }
                match id {
                    0x13 => self.server_keep_alive_s = Some(value),
                    0x21 => self.receive_max = Some(value),
                    0x22 => self.topic_alias_max = Some(value),
                    0x23 => self.topic_alias = Some(Located { value, at }),
                    _ => {}
                }
            }
            Form::U32 | Form::U32NotZero => {
                let value = list.u32()?;
                if value == 0 && matches!(form, Form::U32NotZero) {
                    return Err(Malformed::Property(id));
                }
                match id {
                    0x02 => self.message_expiry_s = Some(Located { value, at }),
                    0x11 => self.session_expiry_s = Some(value),
                    0x18 => self.will_delay_s = Some(value),
                    0x27 => self.packet_bytes_max = Some(value),
                    _ => {}
                }
            }
            Form::Identifier => {
                let value = NonZeroU32::new(list.variable_byte_integer()?);
                self.subscription_identifier = Some(value.ok_or(Malformed::Property(id))?);
            }
            Form::Text | Form::Topic => {
                let text = self.read_text(list)?;
                // A Response Topic is a Topic Name [MQTT-3.3.2-14].
                if matches!(form, Form::Topic) && text.contains(['+', '#']) {
                    return Err(Malformed::TopicName);
                }
                if id == 0x12 {
                    self.assigned_client_id = Some(text);
                }
            }
            Form::Binary => {
                list.binary()?;
            }
            Form::Pair => {
                self.read_text(list)?;
                self.read_text(list)?;
            }
        }
        Ok(())
    }

    fn read_text(&mut self, list: &mut Reader<'a>) -> Result<&'a str, Malformed> {
        let text = list.string()?;
        self.has_discouraged_characters |= has_discouraged_characters(text);
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], place: Place) -> Result<Properties<'_>, Malformed> {
        let mut reader = Reader::new(bytes);
        let properties = Properties::read(&mut reader, place)?;
        reader.finish()?;
        Ok(properties)
    }

    #[test]
    fn an_empty_list_is_one_byte() {
        assert_eq!(read(&[0], Place::PUBLISH), Ok(Properties::default()));
    }

    #[test]
    fn values_the_card_acts_upon_are_kept() {
        let list = [
            22, 0x11, 0, 0, 0, 9, 0x12, 0, 2, b'i', b'd', 0x13, 0, 60, 0x27, 0, 0, 1, 0, 0x26, 0,
            0, 0, 0,
        ];
        // The list's length counts everything behind it.
        let mut list = list.to_vec();
        list[0] = (list.len() - 1) as u8;
        let properties = read(&list, Place::CONNACK).unwrap();
        assert_eq!(properties.session_expiry_s, Some(9));
        assert_eq!(properties.assigned_client_id, Some("id"));
        assert_eq!(properties.server_keep_alive_s, Some(60));
        assert_eq!(properties.packet_bytes_max, Some(256));
    }

    #[test]
    fn what_a_copy_does_not_take_over_is_found_in_its_place() {
        let list = [12, 0x02, 0, 0, 0, 7, 0x23, 0, 9, 0x01, 1, 0x01, 1];
        let read = |list: &[u8]| {
            let properties = read(list, Place::PUBLISH)?;
            Ok((properties.message_expiry_s, properties.topic_alias))
        };
        assert_eq!(read(&list), Err(Malformed::Property(0x01)));
        let list = [&[10], &list[1..11]].concat();
        let (expiry, alias) = (Located { value: 7, at: 0 }, Located { value: 9, at: 5 });
        assert_eq!(read(&list), Ok((Some(expiry), Some(alias))));
    }

    #[test]
    fn only_user_properties_repeat() {
        let pair = [0x26, 0, 1, b'k', 0, 1, b'v'];
        let mut twice = vec![14];
        twice.extend(pair);
        twice.extend(pair);
        assert_eq!(read(&twice, Place::PUBLISH).unwrap().bytes, &twice[1..]);
        let expiry_twice = [10, 0x02, 0, 0, 0, 1, 0x02, 0, 0, 0, 1];
        assert_eq!(read(&expiry_twice, Place::PUBLISH), Err(Malformed::Property(0x02)));
    }

    #[test]
    fn a_property_of_another_packet_is_malformed() {
        assert_eq!(read(&[2, 0x0B, 1], Place::PUBLISH), Err(Malformed::Property(0x0B)));
        assert_eq!(read(&[3, 0x23, 0, 1], Place::SUBSCRIBE), Err(Malformed::Property(0x23)));
        assert_eq!(read(&[2, 0x7E, 1], Place::PUBLISH), Err(Malformed::Property(0x7E)));
    }

    #[test]
    fn zero_is_refused_where_the_standard_refuses_it() {
        assert_eq!(read(&[3, 0x23, 0, 0], Place::PUBLISH), Err(Malformed::Property(0x23)));
        assert_eq!(read(&[2, 0x0B, 0], Place::SUBSCRIBE), Err(Malformed::Property(0x0B)));
        assert_eq!(read(&[3, 0x21, 0, 0], Place::CONNECT), Err(Malformed::Property(0x21)));
        assert_eq!(read(&[5, 0x27, 0, 0, 0, 0], Place::CONNECT), Err(Malformed::Property(0x27)));
        assert_eq!(read(&[2, 0x01, 2], Place::PUBLISH), Err(Malformed::Property(0x01)));
    }

    #[test]
    fn response_topic_with_wildcard_is_malformed() {
        assert_eq!(read(&[4, 0x08, 0, 1, b'#'], Place::PUBLISH), Err(Malformed::TopicName));
    }

    #[test]
    fn a_list_that_ends_inside_a_value_is_truncated() {
        assert_eq!(read(&[3, 0x02, 0, 0], Place::PUBLISH), Err(Malformed::Truncated));
        assert_eq!(read(&[9, 0x02], Place::PUBLISH), Err(Malformed::Truncated));
    }
}

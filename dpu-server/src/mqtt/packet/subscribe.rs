//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK (MQTT 3.1.1 §3.8–3.11, MQTT 5 the same sections).

use std::num::NonZeroU32;

use super::properties::{Place, Properties};
use super::{Malformed, Reader, Version};
use crate::mqtt::topic::Filter;

/// What a subscription asks for besides its filter, as far as it changes who gets what. Retain As Published is not here: what the
/// card distributes has no RETAIN to keep.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct GrantedOptions {
    /// The QoS that was granted; before the SUBACK the one that was asked for.
    pub(crate) qos: u8,
    /// The No Local option.
    pub(crate) no_local: bool,
    /// The Subscription Identifier of the SUBSCRIBE.
    pub(crate) identifier: Option<NonZeroU32>,
}

/// A well-formed SUBSCRIBE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Subscribe<'a> {
    pub(crate) packet_id: u16,
    /// In the packet's order, at least one.
    pub(crate) filters: Vec<(Filter<'a>, GrantedOptions)>,
}

impl<'a> Subscribe<'a> {
    pub(crate) fn parse(version: Version, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        let identifier = match version {
            Version::V5 => Properties::read(&mut reader, Place::SUBSCRIBE)?.subscription_identifier,
            Version::V31 | Version::V311 => None,
        };
        let mut filters = Vec::new();
        while !reader.is_empty() {
            let filter = Filter::parse(reader.string()?)?;
            let options = reader.u8()?;
            let reserved = if version == Version::V5 { 0xC0 } else { 0xFC };
            let (qos, retain_handling) = (options & 0x03, (options >> 4) & 0x03);
            let no_local = version == Version::V5 && options & 0x04 != 0;
            // [MQTT-3.8.3-5]; No Local on a shared subscription is a Protocol Error [MQTT-3.8.3-4].
            if options & reserved != 0
                || qos == 3
                || retain_handling == 3
                || (no_local && filter.is_shared())
            {
                return Err(Malformed::Value("subscription options"));
            }
            filters.push((filter, GrantedOptions { qos, no_local, identifier }));
        }
        if filters.is_empty() {
            return Err(Malformed::Truncated);
        }
        Ok(Self { packet_id, filters })
    }
}

/// A well-formed UNSUBSCRIBE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Unsubscribe<'a> {
    pub(crate) packet_id: u16,
    /// In the packet's order, at least one.
    pub(crate) filters: Vec<Filter<'a>>,
}

impl<'a> Unsubscribe<'a> {
    pub(crate) fn parse(version: Version, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        if version == Version::V5 {
            Properties::read(&mut reader, Place::UNSUBSCRIBE)?;
        }
        let mut filters = Vec::new();
        while !reader.is_empty() {
            filters.push(Filter::parse(reader.string()?)?);
        }
        if filters.is_empty() {
            return Err(Malformed::Truncated);
        }
        Ok(Self { packet_id, filters })
    }
}

/// A well-formed SUBACK or UNSUBACK. An UNSUBACK of version 3 has no codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Acknowledgement<'a> {
    pub(crate) packet_id: u16,
    /// One a filter of the request; 0x80 and above is a refusal.
    pub(crate) codes: &'a [u8],
}

impl<'a> Acknowledgement<'a> {
    pub(crate) fn parse(version: Version, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        if version == Version::V5 {
            Properties::read(&mut reader, Place::ACKNOWLEDGEMENT)?;
        }
        Ok(Self { packet_id, codes: reader.rest() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribe_keeps_order_and_options() {
        let body = b"\x00\x07\x02\x0B\x05\x00\x01a\x04\x00\x03b/#\x2A";
        let subscribe = Subscribe::parse(Version::V5, body).unwrap();
        assert_eq!(subscribe.packet_id, 7);
        let seen: Vec<_> = subscribe
            .filters
            .iter()
            .map(|(f, o)| (f.text(), o.no_local, o.identifier.map_or(0, NonZeroU32::get)))
            .collect();
        assert_eq!(seen, [("a", true, 5), ("b/#", false, 5)]);
    }

    #[test]
    fn version_3_has_no_options_but_qos() {
        assert!(Subscribe::parse(Version::V311, b"\x00\x01\x00\x01a\x02").is_ok());
        for options in [3, 4, 0x10] {
            let body = [0, 1, 0, 1, b'a', options];
            assert_eq!(Subscribe::parse(Version::V311, &body), {
                Err(Malformed::Value("subscription options"))
            });
        }
    }

    #[test]
    fn reserved_option_bits_of_version_5_are_malformed() {
        for options in [0x03, 0x30, 0x40, 0x80] {
            let body = [0, 1, 0, 0, 1, b'a', options];
            assert_eq!(Subscribe::parse(Version::V5, &body), {
                Err(Malformed::Value("subscription options"))
            });
        }
    }

    #[test]
    fn no_local_on_a_shared_subscription_is_malformed() {
        let body = b"\x00\x01\x00\x00\x0A$share/g/a\x04";
        assert!(Subscribe::parse(Version::V5, body).is_err());
    }

    #[test]
    fn requests_without_filters_or_packet_identifier_are_malformed() {
        assert_eq!(Subscribe::parse(Version::V311, &[0, 1]), Err(Malformed::Truncated));
        assert_eq!(Unsubscribe::parse(Version::V311, &[0, 1]), Err(Malformed::Truncated));
        assert_eq!(Unsubscribe::parse(Version::V311, b"\x00\x00\x00\x01a"), {
            Err(Malformed::Value("packet identifier"))
        });
    }

    #[test]
    fn acknowledgements_carry_one_code_a_filter() {
        let suback = Acknowledgement::parse(Version::V5, &[0, 9, 0, 0, 0x87]).unwrap();
        assert_eq!((suback.packet_id, suback.codes), (9, &[0, 0x87][..]));
        let unsuback = Acknowledgement::parse(Version::V311, &[0, 9]).unwrap();
        assert_eq!(unsuback.codes, &[] as &[u8]);
    }
}

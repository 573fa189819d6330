//! CONNACK (MQTT 3.1.1 §3.2, MQTT 5 §3.2): the broker's verdict on a connection and what it knows of the session.

use super::properties::{Place, Properties};
use super::{Malformed, Reader, Version};

/// A well-formed CONNACK.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Connack<'a> {
    /// Return code 0.
    pub(crate) is_accepted: bool,
    /// The broker had a session of this client and goes on with it. Always false in MQTT 3.1, which cannot say.
    pub(crate) session_present: bool,
    /// The broker's word on the Session Expiry Interval, if it has one.
    pub(crate) session_expiry_s: Option<u32>,
    /// The client identifier the broker made up.
    pub(crate) assigned_client_id: Option<&'a str>,
    /// Overrides the client's keep alive.
    pub(crate) server_keep_alive_s: Option<u16>,
    /// Largest packet the broker accepts, in bytes.
    pub(crate) packet_bytes_max: u32,
    /// Highest QoS the broker accepts, as far as it says; version 3 cannot say.
    pub(crate) qos_max: u8,
    /// Messages with QoS above 0 the broker takes at a time, if it says so.
    pub(crate) receive_max: Option<u16>,
    /// Largest Topic Alias the broker accepts; 0: none.
    pub(crate) topic_alias_max: u16,
}

impl<'a> Connack<'a> {
    pub(crate) fn parse(version: Version, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let acknowledge_flags = reader.u8()?;
        let code = reader.u8()?;
        // MQTT 3.1 reserves the first byte without fixing its value.
        let session_present = version != Version::V31 && acknowledge_flags & 0x01 != 0;
        if version != Version::V31 && acknowledge_flags & 0xFE != 0 {
            return Err(Malformed::Value("connect acknowledge flags"));
        }
        // [MQTT-3.2.2-4]
        if session_present && code != 0 {
            return Err(Malformed::Value("session present"));
        }
        let properties = match version {
            Version::V5 => Properties::read(&mut reader, Place::CONNACK)?,
            Version::V31 | Version::V311 => Properties::default(),
        };
        reader.finish()?;
        Ok(Self {
            is_accepted: code == 0,
            session_present,
            session_expiry_s: properties.session_expiry_s,
            assigned_client_id: properties.assigned_client_id,
            server_keep_alive_s: properties.server_keep_alive_s,
            packet_bytes_max: properties.packet_bytes_max.unwrap_or(u32::MAX),
            qos_max: properties.qos_max.unwrap_or(2),
            receive_max: properties.receive_max,
            topic_alias_max: properties.topic_alias_max.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_and_refused_in_each_version() {
        for version in [Version::V31, Version::V311] {
            assert!(Connack::parse(version, &[0, 0]).unwrap().is_accepted);
            assert!(!Connack::parse(version, &[0, 5]).unwrap().is_accepted);
        }
        assert!(Connack::parse(Version::V5, &[0, 0, 0]).unwrap().is_accepted);
        assert!(!Connack::parse(Version::V5, &[0, 0x87, 0]).unwrap().is_accepted);
    }

    #[test]
    fn session_present_needs_an_accepted_connection() {
        assert!(Connack::parse(Version::V311, &[1, 0]).unwrap().session_present);
        assert_eq!(Connack::parse(Version::V311, &[1, 5]), {
            Err(Malformed::Value("session present"))
        });
    }

    #[test]
    fn version_3_1_never_says_session_present() {
        assert!(!Connack::parse(Version::V31, &[1, 0]).unwrap().session_present);
    }

    #[test]
    fn properties_belong_to_version_5_only() {
        assert_eq!(Connack::parse(Version::V311, &[0, 0, 0]), Err(Malformed::TrailingBytes(1)));
        assert_eq!(Connack::parse(Version::V5, &[0, 0]), Err(Malformed::Truncated));
    }
}

//! CONNECT (MQTT 3.1.1 §3.1, MQTT 5 §3.1; `MQIsdp` for 3.1): who is there, for how long, and how much it can take.
//!
//! User name and password are validated and not kept: the broker acts on them.

use std::time::Duration;

use super::properties::{Place, Properties};
use super::{Malformed, Reader, Version};

/// How long a session outlives its connection (MQTT 5 §3.1.2.11.2; Clean Session in version 3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Expiry {
    AtOnce,
    After(Duration),
    Never,
}

impl Expiry {
    pub(crate) fn from_seconds(seconds: u32) -> Self {
        match seconds {
            0 => Self::AtOnce,
            u32::MAX => Self::Never,
            _ => Self::After(Duration::from_secs(seconds.into())),
        }
    }

    /// Whether the session outlives its connection at all.
    pub(crate) fn is_persistent(self) -> bool {
        self != Self::AtOnce
    }
}

/// The message the broker sends for a client that goes without a DISCONNECT.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Will<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    /// Will Delay Interval in seconds.
    pub(crate) delay_s: u32,
}

/// A well-formed CONNECT.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Connect<'a> {
    pub(crate) version: Version,
    /// Clean Session, or Clean Start of MQTT 5.
    pub(crate) is_clean: bool,
    pub(crate) keep_alive_s: u16,
    /// Empty: the broker makes one up.
    pub(crate) client_id: &'a str,
    /// How long the session outlives the connection, if the broker does not say otherwise.
    pub(crate) expiry: Expiry,
    /// Largest packet the client accepts, in bytes.
    pub(crate) packet_bytes_max: u32,
    /// Messages with QoS above 0 it takes at a time without having acknowledged them, if it says so.
    pub(crate) receive_max: Option<u16>,
    pub(crate) will: Option<Will<'a>>,
}

impl<'a> Connect<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let version = read_version(&mut reader)?;
        let flags = reader.u8()?;
        let keep_alive_s = reader.u16()?;
        let is_clean = flags & 0x02 != 0;
        let (has_will, will_qos) = (flags & 0x04 != 0, (flags >> 3) & 0x03);
        // [MQTT-3.1.2-3], and a will's QoS and RETAIN only with a will [MQTT-3.1.2-11 to 15].
        if flags & 0x01 != 0 || will_qos == 3 || (!has_will && flags & 0x38 != 0) {
            return Err(Malformed::Value("connect flags"));
        }
        let properties = match version {
            Version::V5 => Properties::read(&mut reader, Place::CONNECT)?,
            Version::V31 | Version::V311 => Properties::default(),
        };
        let client_id = reader.string()?;
        let will = has_will.then(|| read_will(&mut reader, version)).transpose()?;
        let (has_user_name, has_password) = (flags & 0x80 != 0, flags & 0x40 != 0);
        if has_user_name {
            reader.string()?;
        } else if has_password && version != Version::V5 {
            // [MQTT-3.1.2-22]; MQTT 5 allows a password alone.
            return Err(Malformed::Value("connect flags"));
        }
        if has_password {
            reader.binary()?;
        }
        reader.finish()?;
        Ok(Self {
            version,
            is_clean,
            keep_alive_s,
            client_id,
            expiry: match version {
                Version::V5 => Expiry::from_seconds(properties.session_expiry_s.unwrap_or(0)),
                Version::V31 | Version::V311 if is_clean => Expiry::AtOnce,
                Version::V31 | Version::V311 => Expiry::Never,
            },
            packet_bytes_max: properties.packet_bytes_max.unwrap_or(u32::MAX),
            receive_max: properties.receive_max,
            will,
        })
    }
}

fn read_version(reader: &mut Reader<'_>) -> Result<Version, Malformed> {
    let name = reader.binary()?;
    match (name, reader.u8()?) {
        (b"MQIsdp", 3) => Ok(Version::V31),
        (b"MQTT", 4) => Ok(Version::V311),
        (b"MQTT", 5) => Ok(Version::V5),
        _ => Err(Malformed::Protocol),
    }
}

fn read_will<'a>(reader: &mut Reader<'a>, version: Version) -> Result<Will<'a>, Malformed> {
    let properties = match version {
        Version::V5 => Properties::read(reader, Place::WILL)?,
        Version::V31 | Version::V311 => Properties::default(),
    };
    let topic = reader.string()?;
    if topic.is_empty() || topic.contains(['+', '#']) {
        return Err(Malformed::TopicName);
    }
    let payload = reader.binary()?;
    Ok(Will { topic, payload, delay_s: properties.will_delay_s.unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V311: &[u8] = b"\x00\x04MQTT\x04\x02\x00\x3C\x00\x02id";

    #[test]
    fn plain_connect_of_each_version() {
        let v31 = Connect::parse(b"\x00\x06MQIsdp\x03\x02\x00\x3C\x00\x02id").unwrap();
        let v311 = Connect::parse(V311).unwrap();
        let v5 = Connect::parse(b"\x00\x04MQTT\x05\x02\x00\x3C\x00\x00\x02id").unwrap();
        assert_eq!((v31.version, v311.version, v5.version), {
            (Version::V31, Version::V311, Version::V5)
        });
        for connect in [v31, v311, v5] {
            assert_eq!((connect.client_id, connect.keep_alive_s), ("id", 60));
            assert!(connect.is_clean && !connect.expiry.is_persistent());
        }
    }

    #[test]
    fn persistence_is_clean_session_in_3_and_expiry_in_5() {
        let v3 = Connect::parse(b"\x00\x04MQTT\x04\x00\x00\x00\x00\x01i").unwrap();
        assert_eq!(v3.expiry, Expiry::Never);
        let v5 = |list: &[u8]| {
            let mut body = b"\x00\x04MQTT\x05\x00\x00\x00".to_vec();
            body.extend(list);
            body.extend(b"\x00\x01i");
            Connect::parse(&body).map(|connect| connect.expiry)
        };
        assert_eq!(v5(&[0]), Ok(Expiry::AtOnce));
        assert_eq!(v5(&[5, 0x11, 0, 0, 0, 0]), Ok(Expiry::AtOnce));
        assert_eq!(v5(&[5, 0x11, 0, 0, 0, 1]), Ok(Expiry::After(Duration::from_secs(1))));
        assert_eq!(v5(&[5, 0x11, 0xFF, 0xFF, 0xFF, 0xFF]), Ok(Expiry::Never));
    }

    #[test]
    fn a_will_is_read_and_user_name_and_password_are_walked_over() {
        let body = b"\x00\x04MQTT\x04\xC6\x00\x00\x00\x01i\x00\x01t\x00\x03msg\x00\x01u\x00\x01p";
        let will = Will { topic: "t", payload: b"msg", delay_s: 0 };
        assert_eq!(Connect::parse(body).unwrap().will, Some(will));
        let body =
            b"\x00\x04MQTT\x05\x06\x00\x00\x00\x00\x01i\x05\x18\x00\x00\x00\x09\x00\x01t\x00\x00";
        assert_eq!(Connect::parse(body).unwrap().will.map(|will| will.delay_s), Some(9));
        let body = b"\x00\x04MQTT\x04\xC6\x00\x00\x00\x01i\x00\x01t\x00\x03msg\x00\x01u\x00\x01p";
        assert_eq!(Connect::parse(&body[..body.len() - 1]), Err(Malformed::Truncated));
    }

    #[test]
    fn bridges_and_strangers_are_another_protocol() {
        for (name, level) in [("MQTT", 0x84), ("MQIsdp", 0x83), ("MQTT", 6), ("MQIsdp", 4)] {
            let mut body = vec![0, name.len() as u8];
            body.extend(name.as_bytes());
            body.extend([level, 2, 0, 0, 0, 0]);
            assert_eq!(Connect::parse(&body), Err(Malformed::Protocol));
        }
    }

    #[test]
    fn flags_that_contradict_each_other_are_malformed() {
        for flags in [0x03, 0x1E, 0x0A, 0x22, 0x42] {
            let mut body = V311.to_vec();
            body[7] = flags;
            body.extend(b"\x00\x01t\x00\x00\x00\x01p");
            assert_eq!(Connect::parse(&body), Err(Malformed::Value("connect flags")), "{flags:x}");
        }
    }

    #[test]
    fn trailing_bytes_are_malformed() {
        let mut body = V311.to_vec();
        body.push(0);
        assert_eq!(Connect::parse(&body), Err(Malformed::TrailingBytes(1)));
    }
}

//! DISCONNECT (MQTT 5 §3.14) and AUTH (§3.15), whose reason codes steer the card.

use super::properties::{Place, Properties};
use super::{Malformed, Reader, Version};

/// Reason code of an AUTH that ends a (re-)authentication well.
pub(crate) const AUTH_SUCCESS: u8 = 0x00;

/// A well-formed DISCONNECT of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Disconnect {
    /// A new Session Expiry Interval in seconds.
    pub(crate) session_expiry_s: Option<u32>,
}

impl Disconnect {
    pub(crate) fn parse(version: Version, body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let mut session_expiry_s = None;
        // MQTT 5 §3.14.2: reason code and properties may both be left out.
        if version == Version::V5 && !reader.is_empty() {
            reader.u8()?;
            if !reader.is_empty() {
                session_expiry_s =
                    Properties::read(&mut reader, Place::DISCONNECT)?.session_expiry_s;
            }
        }
        reader.finish()?;
        Ok(Self { session_expiry_s })
    }
}

/// An AUTH of the broker; its properties pass unread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Auth {
    pub(crate) reason_code: u8,
}

impl Auth {
    /// An AUTH without a body means success (MQTT 5 §3.15.2.1).
    pub(crate) fn parse(body: &[u8]) -> Self {
        Self { reason_code: body.first().copied().unwrap_or(AUTH_SUCCESS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_3_disconnect_is_empty() {
        assert!(Disconnect::parse(Version::V311, &[]).is_ok());
        assert_eq!(Disconnect::parse(Version::V311, &[0]), Err(Malformed::TrailingBytes(1)));
    }

    #[test]
    fn version_5_disconnect_may_leave_out_what_it_does_not_need() {
        for body in [&[][..], &[0x04], &[0x00, 0x00]] {
            assert_eq!(Disconnect::parse(Version::V5, body).unwrap().session_expiry_s, None);
        }
        let body = [0x00, 5, 0x11, 0, 0, 0, 7];
        assert_eq!(Disconnect::parse(Version::V5, &body).unwrap().session_expiry_s, Some(7));
    }

    #[test]
    fn auth_without_body_is_success() {
        assert_eq!(Auth::parse(&[]).reason_code, AUTH_SUCCESS);
        assert_eq!(Auth::parse(&[0x18, 0]).reason_code, 0x18);
    }
}

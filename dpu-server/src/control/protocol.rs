//! One request and its answer, as lines of words.
//!
//! ```text
//! list-sessions                        session broker=1 program=mosquitto client_id=pump state=offline known=yes …
//!                                      done count=1
//! forget-session client_id=pump%207    done count=1
//! forget-sessions broker=1             done count=12
//! flush-routes                         done count=3
//! anything else                        error text=what%20is%20wrong,%20and%20what%20to%20do
//! ```
//!
//! In a value every byte but letters, digits and `.-_:/,` is `%` and two hexadecimal digits. `broker` may be left out of each
//! request: all are meant. The last line of an answer begins with `done` or `error`; without it the answer is not whole. Words
//! may be added to lines, none will be taken away.

use std::fmt::Write;

use super::{Listed, Which};
use crate::mqtt::SessionState;

/// A request.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Request {
    ListSessions(Which),
    ForgetSession(Which, Box<str>),
    ForgetSessions(Which),
    FlushRoutes(Which),
}

impl Request {
    /// Reads a line.
    pub(super) fn parse(line: &str) -> Result<Request, String> {
        let mut words = line.split_ascii_whitespace();
        let verb = words.next().unwrap_or_default();
        let (mut which, mut client_id) = (None, None);
        for word in words {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("{word:?} is no key=value"))?;
            let value = decode(value).ok_or_else(|| format!("{value:?} is not well encoded"))?;
            match key {
                "broker" => which = Some(value.parse().map_err(|_| format!("broker {value:?}"))?),
                "client_id" => client_id = Some(value.into()),
                _ => return Err(format!("{key:?} is not understood")),
            }
        }
        match (verb, client_id) {
            ("list-sessions", None) => Ok(Request::ListSessions(which)),
            ("forget-session", Some(client_id)) => Ok(Request::ForgetSession(which, client_id)),
            ("forget-sessions", None) => Ok(Request::ForgetSessions(which)),
            ("flush-routes", None) => Ok(Request::FlushRoutes(which)),
            _ => Err(format!("{verb:?} is no request, or not with these words")),
        }
    }
}

pub(super) fn done(count: usize) -> String {
    format!("done count={count}\n")
}

pub(super) fn error(text: &str) -> String {
    format!("error text={}\n", encode(text))
}

/// What is not known is left out: `client_id` of a client that left it empty, `expires_in_s` of a session that stays.
pub(super) fn session_line(listed: &Listed) -> String {
    let session = &listed.session;
    let state = match session.state {
        SessionState::Connected => "connected",
        SessionState::Offline => "offline",
        SessionState::Connecting => "connecting",
    };
    let yes_or_no = |is_so| if is_so { "yes" } else { "no" };
    let mut line = format!(
        "session broker={} program={} state={state} known={} persistent={} subscriptions={}",
        listed.broker,
        encode(&listed.program),
        yes_or_no(session.is_known),
        yes_or_no(session.is_persistent),
        session.subscriptions,
    );
    // Writing to a string does not fail.
    if let Some(client_id) = &session.client_id {
        let _ = write!(line, " client_id={}", encode(client_id));
    }
    if let Some(time) = session.expires_in {
        let _ = write!(line, " expires_in_s={}", time.as_secs());
    }
    line.push('\n');
    line
}

fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b".-_:/,".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        if byte == b'%' {
            let (digits, behind) = behind.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(byte);
            rest = behind;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_its_encoding() {
        for name in ["", "pump-7", "a b\n=%", "Ümlaut/\u{1F980}"] {
            let line = format!("forget-session client_id={} broker=3", encode(name));
            assert_eq!(Request::parse(&line), Ok(Request::ForgetSession(Some(3), name.into())));
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in [
            "",
            "stop",
            "list-sessions client_id=x",
            "forget-session",
            "forget-session client_id=%4",
            "forget-session client_id=%FF",
            "flush-routes broker=x",
            "flush-routes now",
            "GET / HTTP/1.1",
        ] {
            assert!(Request::parse(line).is_err(), "{line}");
        }
    }
}

//! Whether a broker is served: connect, SUBSCRIBE, PUBLISH, and the message is back.

use std::io;
use std::time::{Duration, Instant};

use crate::{Client, Login, Message, wait};

/// How long one step of an attempt may take before the next attempt is worth more.
const STEP: Duration = Duration::from_secs(1);

/// One round trip by a client of its own.
///
/// # Errors
/// Whatever step failed first.
pub(super) fn round_trip(port: u16, number: u64) -> io::Result<()> {
    let name = format!("probe-{number}");
    let mut client = Client::begin(port, &Login::new(&name))?;
    client.set_timeout(STEP);
    client.login()?;
    if client.try_subscribe(&name, 0)? != 0 {
        return Err(io::Error::other("SUBSCRIBE was refused"));
    }
    client.try_publish(&Message::new(&name, "there and back"))?;
    let message = client.try_message()?;
    if message.payload != b"there and back" {
        return Err(io::ErrorKind::InvalidData.into());
    }
    client.disconnect();
    Ok(())
}

/// Tries until a round trip works; says how long after `since` that was. `None`: it never came, for [`wait::PATIENCE`].
pub(super) fn await_service(port: u16, since: Instant, number: &mut u64) -> Option<Duration> {
    wait::poll(wait::PATIENCE, || {
        *number += 1;
        round_trip(port, *number).ok().map(|()| since.elapsed())
    })
}

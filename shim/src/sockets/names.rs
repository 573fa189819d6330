//! `getsockname(2)` and `getpeername(2)`: the card's addresses, not the placeholder's.

use std::os::fd::RawFd;

use mqttshim_session::State;
use rustix::io::Errno;

use crate::address::Raw;
use crate::outcome::Outcome;
use crate::sessions;
use crate::sockets::failed_or_stale;
use crate::table::{self, Flag, Kind};

/// The socket's own address goes to `name`.
pub(crate) fn local(fd: RawFd, name: &mut Option<Raw>) -> Outcome {
    let entry = table::get(fd);
    let Some(socket) = entry.socket() else {
        return match crate::state::lock().named(entry) {
            Some(address) => {
                *name = Some(Raw::new(address, entry.has(Flag::V6)));
                Outcome::SUCCESS
            }
            None => Outcome::Pass,
        };
    };
    let address = sessions::of(socket)
        .and_then(|session| session.local(socket.slot))
        // A session that died, or a slot that is gone, no longer knows; the record of a listener does.
        .or_else(|| crate::state::lock().record(socket).map(|record| record.address));
    match address {
        Some(address) => {
            *name = Some(Raw::new(address, entry.has(Flag::V6)));
            Outcome::SUCCESS
        }
        None if entry.kind() == Kind::Bound => Outcome::Pass,
        None => failed_or_stale(fd, Errno::NOTCONN),
    }
}

/// The client's address goes to `name`.
pub(crate) fn peer(fd: RawFd, name: &mut Option<Raw>) -> Outcome {
    let entry = table::get(fd);
    if !entry.is_placeholder() {
        return Outcome::Pass;
    }
    let address = entry
        .socket()
        .filter(|_| entry.kind() == Kind::Connection)
        .and_then(|socket| sessions::of(socket).map(|session| (socket, session)))
        // A connection that is over has no other end (TCP_CLOSE).
        .filter(|(socket, session)| {
            session.is_whole(socket.slot)
                || session.state(socket.slot) == State::Connected
                    && !session.is_over(socket.slot)
                    && session.is_alive()
        })
        .and_then(|(socket, session)| session.peer(socket.slot));
    match address {
        Some(address) => {
            *name = Some(Raw::new(address, entry.has(Flag::V6)));
            Outcome::SUCCESS
        }
        None => failed_or_stale(fd, Errno::NOTCONN),
    }
}

//! Time-outs, and `SO_RCVLOWAT`. They are the placeholder's, where blocking calls wait; a listener's time-outs are the card's too.
//!
//! TCP gives a connection the time-outs its listener has when the connection is made, not those of the moment of `accept`. As
//! long as the listener's do not change, that is the same. Once they do, the card's own end of each connection is asked, which
//! has them from the card's listener. Which of the two holds is noted in the session's memory, so that every process that
//! accepts knows.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use mqttshim_session::{Inheritance, Session, SlotId};
use rustix::io::Errno;

use crate::descriptor;
use crate::options::OptionList;
use crate::outcome::Outcome;
use crate::sessions;
use crate::table::{self, Kind};

/// Of `asm-generic/socket.h`: the names of the time-outs with 64-bit time.
const SO_RCVTIMEO_NEW: i32 = 66;
const SO_SNDTIMEO_NEW: i32 = 67;
/// Bytes of a `struct timeval`.
const TIMEVAL_BYTES: usize = size_of::<libc::timeval>();
const TIMEOUTS: [(i32, i32, usize); 2] = [
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO, TIMEVAL_BYTES),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO, TIMEVAL_BYTES),
];
const LOW_WATER: [(i32, i32, usize); 1] = [(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 4)];

/// Whether this option is the placeholder's.
pub(super) fn is_one(level: i32, name: i32) -> bool {
    const NAMES: [i32; 5] =
        [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW, libc::SO_RCVLOWAT];
    level == libc::SOL_SOCKET && NAMES.contains(&name)
}

/// Sets one.
pub(super) fn set(fd: RawFd, name: i32, value: &[u8]) -> Outcome {
    let entry = table::get(fd);
    let listener = entry.socket().filter(|_| entry.kind() == Kind::Listener);
    let Some((socket, session)) = listener.and_then(|it| Some((it, sessions::of(it)?))) else {
        return Outcome::Pass;
    };
    let before = OptionList::of(fd, &TIMEOUTS);
    if let Err(errno) = descriptor::set_option(fd, libc::SOL_SOCKET, name, value) {
        return Outcome::Fail(errno);
    }
    let changed = OptionList::of(fd, &TIMEOUTS).since(&before);
    match session.inheritance(socket.slot) {
        _ if changed != OptionList::default() => {
            session.set_inheritance(socket.slot, Inheritance::Card);
        }
        Inheritance::Nothing => session.set_inheritance(socket.slot, Inheritance::Listener),
        Inheritance::Listener | Inheritance::Card => {}
    }
    for option in changed.as_options() {
        // A card that is gone learns it when the listener is made again.
        let _ = session.set_option(socket.slot, option.level, option.name, option.value);
    }
    Outcome::SUCCESS
}

/// What a socket that begins to listen has, for the card's listener; and notes it for whoever accepts.
pub(super) fn announce(fd: RawFd, session: &Session, slot: SlotId) -> OptionList {
    let timeouts = OptionList::of(fd, &TIMEOUTS).that_are_set(0);
    let has_none = timeouts == OptionList::default()
        && OptionList::of(fd, &LOW_WATER).that_are_set(1) == OptionList::default();
    session.set_inheritance(
        slot,
        match has_none {
            true => Inheritance::Nothing,
            false => Inheritance::Listener,
        },
    );
    timeouts
}

/// Gives an accepted connection's placeholder what it inherits from the listener at `fd`.
pub(super) fn inherit(
    fd: RawFd,
    listener: SlotId,
    session: &Session,
    connection: SlotId,
    placeholder: BorrowedFd<'_>,
) {
    let from = session.inheritance(listener);
    if from == Inheritance::Nothing {
        return;
    }
    // Without, a read would wait longer than asked.
    let _ = copy(fd, placeholder);
    if from == Inheritance::Card {
        for (level, name, size) in TIMEOUTS {
            let mut value = [0; TIMEVAL_BYTES];
            let told = session.get_option(connection, level, name, &mut value[..size]);
            // A connection that the card has closed already has the listener's.
            if let Ok(length) = told {
                let _ =
                    descriptor::set_option(placeholder.as_raw_fd(), level, name, &value[..length]);
            }
        }
    }
}

/// Gives `to` the time-outs of the socket at `from`, and its `SO_RCVLOWAT`.
///
/// # Errors
/// As of `getsockopt(2)` and `setsockopt(2)`.
pub(crate) fn copy(from: RawFd, to: impl AsFd) -> Result<(), Errno> {
    for (level, name, size) in TIMEOUTS.into_iter().chain(LOW_WATER) {
        let mut value = [0; TIMEVAL_BYTES];
        let length = descriptor::get_option(from, level, name, &mut value[..size])?;
        descriptor::set_option(to.as_fd().as_raw_fd(), level, name, &value[..length])?;
    }
    Ok(())
}

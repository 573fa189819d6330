//! A listener whose session is gone is made again on the card that serves now: same address, options and placeholder. The
//! placeholder's file never changes, so epoll sets and waiting threads notice nothing.
//!
//! Forked processes may hold the same listener. The first of them makes it, the others join its session and find it there.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use mqttshim_session::{Found, Session, SlotId};
use rustix::io::Errno;
use rustix::thread::Timespec;

use crate::descriptor;
use crate::descriptors;
use crate::log::say;
use crate::sessions;
use crate::sockets::timeouts;
use crate::state::{self, Record, State};
use crate::table::{self, Entry, Kind, Socket};
use crate::verdict;

/// How often another process that is making the listener is waited for, and how long each time: a bind and a listen.
const TRIES_MAX: usize = 500;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// What became of the listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Restored {
    /// It is served again.
    Served,
    /// Nobody serves it.
    NoCard,
    /// Another thread is making it, or another process serves it: what lies on the placeholder is theirs.
    Elsewhere,
}

/// Why it was not.
enum Failure {
    NoCard,
    Refused(Errno),
}

/// A listener that is served, and whether this process made it.
struct Served {
    socket: Socket,
    is_made: bool,
}

/// See the module. `fd` is one of the listener's descriptors.
pub(super) fn restore(fd: RawFd, entry: Entry) -> Restored {
    let Some(socket) = entry.socket() else { return Restored::NoCard };
    // Held across the requests: a second thread in accept must not open a second session.
    let Some(mut state) = state::try_lock() else { return Restored::Elsewhere };
    let Some(record) = state.record(socket).cloned() else { return Restored::NoCard };
    let placeholder = descriptor::borrow(fd);
    let is_shared = sessions::are_shared();
    let served = match is_shared {
        true => find_or_make(&mut state, &record, placeholder),
        false => sessions::ensure(&mut state, verdict::program())
            .map_err(|_| Failure::NoCard)
            .and_then(|(number, session)| make(number, session, &record, placeholder)),
    };
    let served = match served {
        Ok(served) => served,
        Err(Failure::NoCard) => return Restored::NoCard,
        Err(Failure::Refused(errno)) => {
            say!(Warn, "{} could not be served again: {errno}", record.address);
            return if is_shared { Restored::Elsewhere } else { Restored::NoCard };
        }
    };
    let Some(new_entry) = Entry::offloaded(Kind::Listener, served.socket) else {
        return Restored::NoCard;
    };
    if let Some(session) = sessions::of(served.socket) {
        session.set_file(served.socket.slot, descriptor::inode(fd));
    }
    if let Some(record) = state.record(socket) {
        record.socket = served.socket;
    }
    move_descriptors(entry, new_entry, served.is_made);
    say!(Info, "{} is served by the card again", record.address);
    Restored::Served
}

/// Binds and listens once more.
fn make(
    number: u8,
    session: &Session,
    record: &Record,
    placeholder: BorrowedFd<'_>,
) -> Result<Served, Failure> {
    let failed = |errno| match errno {
        Errno::CONNRESET => Failure::NoCard,
        errno => Failure::Refused(errno),
    };
    let (slot, _) =
        session.bind(record.address, &record.bind_options.as_options()).map_err(failed)?;
    let named = Some((record.placeholder.as_str(), placeholder));
    let options =
        timeouts::announce(placeholder.as_raw_fd(), session, slot).and(&record.listen_options);
    session
        .listen(slot, record.backlog, named, &options.as_options())
        .inspect_err(|_| session.close(slot))
        .map_err(failed)?;
    Ok(served(number, slot, true))
}

/// The same where another process may be faster.
fn find_or_make(
    state: &mut State,
    record: &Record,
    placeholder: BorrowedFd<'_>,
) -> Result<Served, Failure> {
    let join = |state: &mut State| {
        sessions::open_another(state, verdict::program(), Some(placeholder))
            .map_err(|_| Failure::NoCard)
    };
    let (mut number, mut session) = match sessions::current() {
        Some(current) => current,
        None => join(state)?,
    };
    for _ in 0..TRIES_MAX {
        match session.find_listener(&record.placeholder, placeholder) {
            Ok(Found::Here(slot)) => return Ok(served(number, slot, false)),
            Ok(Found::Nowhere) => return make(number, session, record, placeholder),
            Ok(Found::Elsewhere) => (number, session) = join(state)?,
            Ok(Found::Soon) => {
                let _ = rustix::thread::nanosleep(&PAUSE);
            }
            Err(Errno::CONNRESET) => return Err(Failure::NoCard),
            Err(errno) => return Err(Failure::Refused(errno)),
        }
    }
    Err(Failure::Refused(Errno::BUSY))
}

fn served(number: u8, slot: SlotId, is_made: bool) -> Served {
    Served { socket: Socket { session: number, slot }, is_made }
}

/// Every descriptor of the old listener is one of the new. Whoever makes a socket holds it once already.
fn move_descriptors(old: Entry, new: Entry, is_made: bool) {
    let mut is_counted = is_made;
    let all: Vec<(RawFd, Entry)> = descriptors::aliases(old).collect();
    for (fd, old) in all {
        let flagged = new.with_lasting(old);
        sessions::count(flagged, true);
        let dropped = if table::exchange(fd, old, flagged) { old } else { flagged };
        sessions::count(dropped, false);
        if !is_counted {
            descriptors::retain(new);
        }
        is_counted = false;
    }
}

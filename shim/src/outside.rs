//! Listeners and connections of the program that stay with the kernel: the card cannot see who talks through them, so it is
//! told that they exist.
//!
//! Counted by descriptor. Before there is a session they are only counted; the session's first words are the count.

use std::os::fd::RawFd;

use mqttshim_schema::Notice;

use crate::descriptors;
use crate::sessions;
use crate::state::{self, Outside};
use crate::table::{self, Entry, Kind};

/// `listen` succeeded on a socket of the kernel.
pub(crate) fn listening(fd: RawFd) {
    let entry = table::get(fd);
    if !matches!(entry.kind(), Kind::KernelListener | Kind::Private) {
        descriptors::set(fd, Entry::of(Kind::KernelListener));
        appeared(Kind::KernelListener);
    }
}

/// `connect` succeeded, or began, on a TCP socket of the kernel.
pub(crate) fn connected(fd: RawFd) {
    let entry = table::get(fd);
    if entry.kind() == Kind::Undecided {
        descriptors::set(fd, Entry::of(Kind::KernelConnection));
        appeared(Kind::KernelConnection);
    }
}

/// One descriptor more of this kind; other kinds do not matter.
pub(crate) fn appeared(kind: Kind) {
    let mut state = state::lock();
    let Some((counter, appeared, _)) = notices(&mut state.outside, kind) else { return };
    *counter += 1;
    tell(appeared);
}

/// One descriptor fewer of this kind; other kinds do not matter.
pub(crate) fn disappeared(kind: Kind) {
    let mut state = state::lock();
    let Some((counter, _, gone)) = notices(&mut state.outside, kind) else { return };
    *counter = counter.saturating_sub(1);
    tell(gone);
}

/// In a forked child, which has a copy of each descriptor and shares the session.
pub(crate) fn announce_copies() {
    let outside = state::lock().outside;
    for _ in 0..outside.listeners {
        tell(Notice::ListenerOutside);
    }
    for _ in 0..outside.connections {
        tell(Notice::ConnectionOutside);
    }
}

fn notices(outside: &mut Outside, kind: Kind) -> Option<(&mut u32, Notice, Notice)> {
    match kind {
        Kind::KernelListener => {
            Some((&mut outside.listeners, Notice::ListenerOutside, Notice::ListenerOutsideGone))
        }
        Kind::KernelConnection => Some((
            &mut outside.connections,
            Notice::ConnectionOutside,
            Notice::ConnectionOutsideGone,
        )),
        _ => None,
    }
}

fn tell(what: Notice) {
    if let Some((_, session)) = sessions::current() {
        session.notice(what, "");
    }
}

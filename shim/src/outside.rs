//! Listeners and connections of the program that stay with the kernel: the card cannot see who talks through them, so it is
//! told that they exist.
//!
//! Counted by descriptor. Before there is a session they are only counted; the session's first words are the count.

use std::os::fd::RawFd;

use mqttshim_schema::Notice;

use crate::descriptors;
use crate::sessions;
use crate::sockets;
use crate::state::{self, Outside};
use crate::table::{self, Entry, Flag, Kind};

/// `listen` succeeded on a socket of the kernel.
pub(crate) fn listening(fd: RawFd) {
    if !matches!(table::get(fd).kind(), Kind::KernelListener | Kind::Private) {
        became(fd, Kind::KernelListener);
    }
}

/// `connect` succeeded, or began, on a TCP socket of the kernel.
pub(crate) fn connected(fd: RawFd) {
    if matches!(table::get(fd).kind(), Kind::Undecided | Kind::Refused) {
        became(fd, Kind::KernelConnection);
    }
}

/// The socket at `fd`, and so each of its descriptors, became one of this kind.
fn became(fd: RawFd, kind: Kind) {
    let old = table::get(fd);
    let address = sockets::kernel_address(fd).map(|address| address.to_string());
    let address = address.as_deref().unwrap_or("no TCP address");
    let others: Vec<RawFd> = match old.has(Flag::Shared) && old.kind() == Kind::Undecided {
        true => descriptors::aliases(old).map(|(other, _)| other).collect(),
        false => Vec::new(),
    };
    for fd in others.into_iter().filter(|&other| other != fd).chain([fd]) {
        descriptors::set(fd, Entry::of(kind));
        appeared(kind, address);
    }
}

/// One descriptor more of this kind; other kinds do not matter. `detail` is for the card's log.
pub(crate) fn appeared(kind: Kind, detail: &str) {
    let mut state = state::lock();
    let Some((counter, appeared, _)) = notices(&mut state.outside, kind) else { return };
    *counter += 1;
    tell(appeared, detail);
}

/// One descriptor fewer of this kind; other kinds do not matter.
pub(crate) fn disappeared(kind: Kind) {
    let mut state = state::lock();
    let Some((counter, _, gone)) = notices(&mut state.outside, kind) else { return };
    *counter = counter.saturating_sub(1);
    tell(gone, "");
}

/// In a forked child, which has a copy of each descriptor and shares the session.
pub(crate) fn announce_copies() {
    let outside = state::lock().outside;
    for _ in 0..outside.listeners {
        tell(Notice::ListenerOutside, "inherited by a fork");
    }
    for _ in 0..outside.connections {
        tell(Notice::ConnectionOutside, "inherited by a fork");
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

fn tell(what: Notice, detail: &str) {
    if let Some((_, session)) = sessions::current() {
        session.notice(what, detail);
    }
}

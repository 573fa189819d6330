//! Listeners and connections of the program that stay with the kernel: the card cannot see who talks through them, so it is
//! told that they exist.
//!
//! Counted by descriptor. Before there is a session they are only counted; the session's first words are the count.

use std::net::SocketAddr;
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
        became(fd, Kind::KernelListener, sockets::kernel_address(fd));
    }
}

/// `connect` to this address succeeded, or began, on a TCP socket of the kernel.
pub(crate) fn connected(fd: RawFd, to: Option<SocketAddr>) {
    if matches!(table::get(fd).kind(), Kind::Undecided | Kind::Refused) {
        became(fd, Kind::KernelConnection, to);
    }
}

/// The socket at `fd`, and so each of its descriptors, became one of this kind: a listener there, a connection thither.
fn became(fd: RawFd, kind: Kind, address: Option<SocketAddr>) {
    let old = table::get(fd);
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    let others: Vec<RawFd> = match old.has(Flag::Shared) && old.kind() == Kind::Undecided {
        true => descriptors::aliases(old).map(|(other, _)| other).collect(),
        false => Vec::new(),
    };
    for fd in others.into_iter().filter(|&other| other != fd).chain([fd]) {
        descriptors::set(fd, Entry::of(kind));
        appeared(kind, &address);
    }
}

/// What a socket of the kernel is called: where a listener is, where a connection leads to.
pub(crate) fn name(fd: RawFd, kind: Kind) -> String {
    let address = match kind {
        Kind::KernelConnection => sockets::kernel_peer(fd),
        _ => sockets::kernel_address(fd),
    };
    address.map(|address| address.to_string()).unwrap_or_default()
}

/// One descriptor more of this kind; other kinds do not matter. `detail` is its name.
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
        tell(Notice::ListenerOutside, "");
    }
    for _ in 0..outside.connections {
        tell(Notice::ConnectionOutside, "");
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

//! What happens to entries when descriptors are made, copied and closed.
//!
//! Entries are taken out *before* a real close: the moment after it another thread may own the number. Reference counts in the
//! session only make the last close known sooner; the truth is the wire, which hangs up when the last copy is gone.

use std::os::fd::RawFd;

use crate::epoll;
use crate::outside;
use crate::sessions;
use crate::state;
use crate::table::{self, Entry, Flag, Kind};
use crate::watches;

/// Gives `fd` a new entry; whatever had the number before is gone.
pub(crate) fn set(fd: RawFd, entry: Entry) {
    let before = table::replace(fd, entry);
    sessions::count(entry, true);
    epoll::closed(fd, before);
    drop_watches(fd, before);
    release(before);
}

/// The socket at `fd` became something else; it is the same descriptor.
pub(crate) fn change(fd: RawFd, entry: Entry) {
    sessions::count(entry, true);
    let before = table::replace(fd, entry);
    sessions::count(before, false);
}

/// Takes the entry of a descriptor that is about to be closed. [`release`] it afterwards.
pub(crate) fn take(fd: RawFd) -> Entry {
    epoll::closing(fd, table::get(fd));
    let before = table::replace(fd, Entry::PLAIN);
    drop_watches(fd, before);
    before
}

/// The descriptor with this entry has been closed.
pub(crate) fn release(entry: Entry) {
    match entry.kind() {
        Kind::KernelListener | Kind::KernelConnection => outside::disappeared(entry.kind()),
        Kind::Bound | Kind::Listener | Kind::Connection => release_socket(entry),
        Kind::Plain | Kind::Undecided | Kind::Refused | Kind::Private | Kind::Epoll => {}
    }
}

fn release_socket(entry: Entry) {
    let Some(socket) = entry.socket() else { return };
    if let Some(session) = sessions::of(socket) {
        session.close(socket.slot);
    }
    sessions::count(entry, false);
    if entry.kind() != Kind::Connection && aliases(entry).next().is_none() {
        state::lock().forget(socket);
    }
}

fn drop_watches(fd: RawFd, entry: Entry) {
    if matches!(entry.kind(), Kind::Undecided | Kind::Bound) {
        while watches::take(fd).is_some() {}
    }
}

/// `copy` is a new descriptor of the file at `fd`.
pub(crate) fn copied(fd: RawFd, copy: RawFd) {
    let entry = mark_shared(fd);
    match entry.kind() {
        Kind::Plain | Kind::Private => set(copy, Entry::PLAIN),
        Kind::KernelListener | Kind::KernelConnection => {
            set(copy, entry);
            outside::appeared(entry.kind(), &outside::name(fd, entry.kind()));
        }
        Kind::Undecided | Kind::Refused => set(copy, entry),
        Kind::Epoll => {
            set(copy, entry);
            epoll::give_up(fd);
        }
        Kind::Bound | Kind::Listener | Kind::Connection => {
            retain(entry);
            set(copy, entry);
            if entry.is_placeholder() {
                table::remember_file(copy);
            }
        }
    }
}

/// From now on more than one descriptor may name the file.
fn mark_shared(fd: RawFd) -> Entry {
    loop {
        let entry = table::get(fd);
        if matches!(entry.kind(), Kind::Plain | Kind::Private) || entry.has(Flag::Shared) {
            return entry;
        }
        if table::exchange(fd, entry, entry.with(Flag::Shared)) {
            return entry.with(Flag::Shared);
        }
    }
}

/// One descriptor more names the socket of `entry`.
pub(crate) fn retain(entry: Entry) {
    if let Some(socket) = entry.socket()
        && let Some(session) = sessions::of(socket)
    {
        session.retain(socket.slot);
    }
}

/// All descriptors that name the same socket as `entry`.
pub(crate) fn aliases(entry: Entry) -> impl Iterator<Item = (RawFd, Entry)> {
    table::entries(0, RawFd::MAX).filter(move |(_, other)| other.is_same_socket(entry))
}

/// Sets a flag on the socket at `fd`, whichever of its descriptors is asked later.
pub(crate) fn flag(fd: RawFd, flag: Flag, is_set: bool) {
    let entry = table::get(fd);
    if entry.has(Flag::Shared) {
        aliases(entry).for_each(|(alias, _)| flag_one(alias, flag, is_set));
    }
    flag_one(fd, flag, is_set);
}

fn flag_one(fd: RawFd, flag: Flag, is_set: bool) {
    loop {
        let entry = table::get(fd);
        let wanted = if is_set { entry.with(flag) } else { entry.without(flag) };
        if entry.is_plain() || entry == wanted || table::exchange(fd, entry, wanted) {
            return;
        }
    }
}

/// The number was closed behind our back and names another file: it is no placeholder any more.
pub(crate) fn forget_stale(fd: RawFd, entry: Entry) {
    if table::exchange(fd, entry, Entry::PLAIN) {
        epoll::closed(fd, entry);
        release(entry);
    }
}

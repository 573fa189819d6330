//! Puts a placeholder where the kernel's socket was.
//!
//! Every descriptor of the old file gets it, with its own close-on-exec flag. Blocking mode, time-outs and epoll registrations
//! move over: the kernel keeps them with the file, and the file changes.

use std::os::fd::{OwnedFd, RawFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::descriptor;
use crate::descriptors;
use crate::epoll as user_level;
use crate::log::say;
use crate::registrations;
use crate::sessions;
use crate::sockets::timeouts;
use crate::table::{self, Entry, Flag, Kind};
use crate::watches::{self, Watch};

/// Puts `placeholder` at `fd`, and at every other descriptor of the same socket, and gives them the entry `new` with their own
/// flags.
///
/// # Errors
/// When the kernel refuses the first of them; nothing has changed then.
pub(crate) fn install(fd: RawFd, new: Entry, placeholder: &OwnedFd) -> Result<(), Errno> {
    let old = table::get(fd);
    inherit(fd, placeholder)?;
    put(fd, old, new, placeholder)?;
    if old.has(Flag::Shared) {
        let others: Vec<(RawFd, Entry)> = descriptors::aliases(old).collect();
        for (other, entry) in others {
            if put(other, entry, new, placeholder).is_ok() && old.kind() == Kind::Undecided {
                descriptors::retain(new);
            }
        }
    }
    Ok(())
}

/// Gives a new placeholder the modes of the socket at `fd`.
fn inherit(fd: RawFd, placeholder: &OwnedFd) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(placeholder, descriptor::is_nonblocking(fd))?;
    timeouts::copy(fd, placeholder)
}

/// Takes the placeholder at `fd`, and at every other descriptor of the same socket, away again: a fresh socket of the kernel
/// comes instead, as TCP leaves one that failed to connect or stopped listening. Its options are gone; its epoll registrations are
/// made again.
///
/// # Errors
/// When there is no descriptor for the fresh socket.
pub(crate) fn withdraw(fd: RawFd) -> Result<(), Errno> {
    let old = table::get(fd);
    let family = if old.has(Flag::V6) { AddressFamily::INET6 } else { AddressFamily::INET };
    let fresh = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    inherit(fd, &fresh)?;
    let new = Entry::undecided();
    // Ends the waits of other threads on the old file.
    let _ = rustix::net::shutdown(descriptor::borrow(fd), rustix::net::Shutdown::Both);
    let all: Vec<(RawFd, Entry)> = descriptors::aliases(old).collect();
    for (alias, entry) in all {
        // What the kernel's sets have not been told of yet comes first.
        user_level::waited_elsewhere(alias);
        let watches: Vec<Watch> = registrations::of(alias)
            .into_iter()
            .map(|watch| if old.kind() == Kind::Listener { watch.as_asked() } else { watch })
            .collect();
        for watch in &watches {
            // Another copy of the file, in another process, would keep the registration alive.
            let set = descriptor::borrow(watch.epoll);
            let _ = epoll::delete(set, descriptor::borrow(alias));
        }
        // The file first: an undecided entry must never stand for a placeholder.
        let replaced = descriptor::replace(alias, &fresh);
        if replaced.is_ok() && table::exchange(alias, entry, new.with_lasting(entry)) {
            descriptors::release(entry);
        }
        for watch in watches {
            register(alias, new, watch);
            if replaced.is_ok() && !watches::remember(alias, watch) {
                descriptors::flag(alias, Flag::Pending, true);
            }
        }
    }
    Ok(())
}

fn put(fd: RawFd, old: Entry, new: Entry, placeholder: &OwnedFd) -> Result<(), Errno> {
    let new = new.with_lasting(old);
    let watches = unregister(fd);
    // The entry first: a thread that uses the descriptor meanwhile must not take the placeholder for a socket.
    descriptors::change(fd, new);
    let replaced = descriptor::replace(fd, placeholder);
    if replaced.is_err() {
        descriptors::change(fd, old);
    } else {
        let inode = table::remember_file(fd);
        if let Some(socket) = new.socket()
            && let Some(session) = sessions::of(socket)
        {
            session.set_file(socket.slot, inode);
        }
    }
    for watch in watches {
        register(fd, new, watch);
        if replaced.is_err() {
            watches::remember(fd, watch);
        }
    }
    replaced
}

/// Takes the old file out of the epoll sets it is in. Those that are gone meanwhile are forgotten; those for one event that has
/// come are for nothing from now on.
fn unregister(fd: RawFd) -> Vec<Watch> {
    let mut watches: Vec<Watch> = std::iter::from_fn(|| watches::take(fd)).collect();
    let is_for_one = |watch: &Watch| watch.events & libc::EPOLLONESHOT.cast_unsigned() != 0;
    if watches.iter().any(is_for_one) {
        let known = registrations::of(fd);
        for watch in watches.iter_mut().filter(|watch| is_for_one(watch)) {
            let spent = known.iter().find(|it| it.epoll == watch.epoll && it.is_spent());
            *watch = spent.copied().unwrap_or(*watch);
        }
    }
    watches.retain(|watch| {
        epoll::delete(descriptor::borrow(watch.epoll), descriptor::borrow(fd)).is_ok()
    });
    watches
}

fn register(fd: RawFd, entry: Entry, watch: Watch) {
    let watch = if entry.kind() == Kind::Listener { watch.of_listener() } else { watch };
    let flags = EventFlags::from_bits_retain(watch.events);
    let set = descriptor::borrow(watch.epoll);
    let data = EventData::new_u64(watch.data);
    if let Err(errno) = epoll::add(set, descriptor::borrow(fd), data, flags) {
        say!(Warn, "epoll set {} lost descriptor {fd}: {errno}", watch.epoll);
    }
    if flags.contains(EventFlags::ET)
        && let Some(socket) = entry.socket()
        && let Some(session) = sessions::of(socket)
    {
        session.mark_edge(socket.slot);
    }
}

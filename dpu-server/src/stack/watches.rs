//! Descriptors that are no sockets of a stack but wake its loop, in an epoll set of its own.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Adds a descriptor under this tag, or replaces what was asked for it ([`super::Stack::watch`]).
pub(super) fn add(
    set: &OwnedFd,
    tag: u64,
    descriptor: BorrowedFd<'_>,
    writable: bool,
) -> Result<(), Errno> {
    let data = epoll::EventData::new_u64(tag);
    let mut flags = epoll::EventFlags::IN;
    flags.set(epoll::EventFlags::OUT, writable);
    match epoll::add(set, descriptor, data, flags) {
        Err(Errno::EXIST) => epoll::modify(set, descriptor, data, flags),
        added => added,
    }
}

/// Takes a descriptor out.
pub(super) fn remove(set: &OwnedFd, descriptor: BorrowedFd<'_>) {
    // A failure means that it was not watched.
    let _ = epoll::delete(set, descriptor);
}

/// How long to sleep, as the kernel takes it.
pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

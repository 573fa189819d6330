//! The program's descriptors, as the safe calls of rustix take them.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{DupFlags, Errno, FdFlags};

use crate::errno;
use crate::real;

/// Borrows a descriptor the program named in the call we are in.
///
/// # Panics
/// Never for a descriptor that is in the table: those are not negative.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    assert!(fd >= 0, "a descriptor in the table is not negative");
    // SAFETY: it is not -1. The program passed it to the call in progress and so keeps it open until the call returns; if
    // it closes it meanwhile in another thread, the kernel answers EBADF, as it does without us.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Takes a descriptor of our own.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: it is open, and whoever kept its number has given it up.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The number of the file behind a descriptor, which tells a placeholder from whatever got its number later. 0 when closed.
pub(crate) fn inode(fd: RawFd) -> u32 {
    // Socket inodes are 32 bits wide (get_next_ino), so nothing is lost.
    rustix::fs::fstat(borrow(fd)).map_or(0, |stat| stat.st_ino as u32)
}

/// Whether the descriptor is in non-blocking mode.
pub(crate) fn is_nonblocking(fd: RawFd) -> bool {
    rustix::fs::fcntl_getfl(borrow(fd))
        .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
}

/// Whether the other end of a placeholder is closed: the connection is over, or its agent.
pub(crate) fn is_hung_up(fd: RawFd) -> bool {
    let mut watched = [PollFd::from_borrowed_fd(borrow(fd), PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut watched, Some(&now)) == Ok(1)
}

/// Waits until the descriptor is readable, or for so long.
pub(crate) fn await_readable(fd: RawFd, milliseconds_max: i64) {
    let mut watched = [PollFd::from_borrowed_fd(borrow(fd), PollFlags::IN)];
    let limit =
        Timespec { tv_sec: milliseconds_max / 1000, tv_nsec: milliseconds_max % 1000 * 1_000_000 };
    // Interrupted or too late: whoever looks next waits on its own.
    let _ = rustix::event::poll(&mut watched, Some(&limit));
}

/// `getsockopt(2)` of the kernel.
pub(crate) fn get_option(
    fd: RawFd,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> Result<usize, Errno> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: value and length are live and the length is the value's.
    let outcome =
        unsafe { real::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut length) };
    if outcome == 0 { Ok(length as usize) } else { Err(errno::last()) }
}

/// `setsockopt(2)` of the kernel.
pub(crate) fn set_option(fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the value is live and the length is its own.
    let outcome = unsafe { real::setsockopt(fd, level, name, value.as_ptr().cast(), length) };
    if outcome == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Puts the open file behind `source` on the number `fd`, which keeps its close-on-exec flag.
pub(crate) fn replace(fd: RawFd, source: impl AsFd) -> Result<(), Errno> {
    let flags = rustix::io::fcntl_getfd(borrow(fd))?;
    let flags = match flags.contains(FdFlags::CLOEXEC) {
        true => DupFlags::CLOEXEC,
        false => DupFlags::empty(),
    };
    // SAFETY: the descriptor stays the program's: ManuallyDrop keeps it open, and only its file changes.
    let target = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::dup3(source, &mut ManuallyDrop::new(target), flags)
}

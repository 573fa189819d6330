//! What programs built with `_FORTIFY_SOURCE` call instead of read, recv, recvfrom, poll and ppoll: the same, after the compiler's idea
//! of the buffer's size was held against the caller's.

use libc::{
    c_int, c_void, nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};

use super::hook;
use super::polling::{poll, ppoll};
use super::reading::{read, recv, recvfrom};
use crate::real;

hook! {
    /// read(2) into a buffer of known size.
    fn __read_chk(fd: c_int, target: *mut c_void, count: size_t, room: size_t) -> ssize_t {
        if count > room {
            real::buffer_overrun();
        }
        // SAFETY: the caller's arguments.
        unsafe { read(fd, target, count) }
    }
}

hook! {
    /// recv(2) into a buffer of known size.
    fn __recv_chk(fd: c_int, target: *mut c_void, count: size_t, room: size_t, flags: c_int) -> ssize_t {
        if count > room {
            real::buffer_overrun();
        }
        // SAFETY: the caller's arguments.
        unsafe { recv(fd, target, count, flags) }
    }
}

hook! {
    /// recvfrom(2) into a buffer of known size.
    fn __recvfrom_chk(
        fd: c_int,
        target: *mut c_void,
        count: size_t,
        room: size_t,
        flags: c_int,
        address: *mut sockaddr,
        length: *mut socklen_t,
    ) -> ssize_t {
        if count > room {
            real::buffer_overrun();
        }
        // SAFETY: the caller's arguments.
        unsafe { recvfrom(fd, target, count, flags, address, length) }
    }
}

/// Whether so many pollfds are more than a buffer of `room` bytes holds.
fn is_overrun(count: nfds_t, room: size_t) -> bool {
    usize::try_from(count).map_or(true, |count| count > room / size_of::<pollfd>())
}

hook! {
    /// poll(2) on an array of known size.
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, milliseconds: c_int, room: size_t) -> c_int {
        if is_overrun(count, room) {
            real::buffer_overrun();
        }
        // SAFETY: the caller's arguments.
        unsafe { poll(fds, count, milliseconds) }
    }
}

hook! {
    /// ppoll(2) on an array of known size.
    fn __ppoll_chk(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
        room: size_t,
    ) -> c_int {
        if is_overrun(count, room) {
            real::buffer_overrun();
        }
        // SAFETY: the caller's arguments.
        unsafe { ppoll(fds, count, timeout, mask) }
    }
}

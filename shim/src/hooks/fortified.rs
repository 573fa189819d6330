//! What programs built with `_FORTIFY_SOURCE` call instead of read, recv and recvfrom: the same, after the compiler's idea
//! of the buffer's size was held against the caller's.

use libc::{c_int, c_void, size_t, sockaddr, socklen_t, ssize_t};

use super::hook;
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

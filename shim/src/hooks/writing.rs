//! write, writev, pwritev2, send, sendto.

use libc::{c_int, c_void, iovec, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t};

use super::vectors::{self, BYTES_MAX, Parts};
use super::{drive, fail, hook, size};
use crate::address;
use crate::real;
use crate::sockets::send::Send;
use crate::table;

/// `None`: the call is the kernel's.
///
/// # Safety
/// `source` points to `count` readable bytes, or `count` is 0.
unsafe fn transmit(fd: c_int, source: *const c_void, count: size_t, flags: c_int) -> Option<isize> {
    // SAFETY: as the caller promises.
    let Parts { slices, has_hole, .. } = match unsafe { vectors::source(source, count) } {
        Ok(parts) => parts,
        Err(errno) => return Some(fail(errno)),
    };
    let mut call = Send::new(fd, flags, &slices, has_hole);
    drive(fd, |woken| call.attempt(woken))
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// `parts` points to `count` vectors whose bytes are readable.
unsafe fn transmit_parts(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    flags: c_int,
) -> Option<isize> {
    let count = match vectors::check_count(count) {
        Ok(count) => count,
        Err(errno) => return Some(fail(errno)),
    };
    let mut room = None;
    // SAFETY: as the caller promises.
    let Parts { slices, wanted, has_hole } =
        match unsafe { vectors::sources(parts, count, &mut room) } {
            Ok(parts) => parts,
            Err(errno) => return Some(fail(errno)),
        };
    // The kernel does not ask a socket for nothing, whatever became of it; write(2) does.
    if wanted == 0 {
        return Some(0);
    }
    let mut call = Send::new(fd, flags, slices, has_hole);
    drive(fd, |woken| call.attempt(woken))
}

hook! {
    /// write(2)
    fn write(fd: c_int, source: *const c_void, count: size_t) -> ssize_t
        as Write(Fd(fd), Sent(source.addr(), count), Size(count))
    {
        if table::get(fd).is_placeholder() {
            // SAFETY: write(2) obliges its caller to pass `count` readable bytes.
            if let Some(value) = unsafe { transmit(fd, source, count, 0) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::write(fd, source, count) }
    }
}

hook! {
    /// writev(2)
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t
        as Writev(Fd(fd), Gathered(parts.addr(), count as u32 as usize), Size(count as u32 as usize))
    {
        if table::get(fd).is_placeholder() {
            // SAFETY: writev(2) obliges its caller to pass `count` valid vectors.
            if let Some(value) = unsafe { transmit_parts(fd, parts, count, 0) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::writev(fd, parts, count) }
    }
}

/// pwritev2(2) with an offset of −1 is writev with flags; with any other, the kernel refuses sockets by itself.
///
/// # Safety
/// As for pwritev2.
unsafe fn transmit_at(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> Option<isize> {
    if offset != -1 || !table::get(fd).is_placeholder() {
        return None;
    }
    let flags = match vectors::message_flags(flags) {
        Ok(flags) => flags,
        Err(errno) => return Some(fail(errno)),
    };
    // SAFETY: pwritev2(2) obliges its caller to pass `count` valid vectors.
    unsafe { transmit_parts(fd, parts, count, flags) }
}

hook! {
    /// pwritev2(2)
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
        as Pwritev2(
            Fd(fd),
            Gathered(parts.addr(), count as u32 as usize),
            Size(count as u32 as usize),
            Int(offset),
            Flags(names::READ_WRITE, flags.cast_unsigned()),
        )
    {
        // SAFETY: the caller's arguments, unchanged.
        if let Some(value) = unsafe { transmit_at(fd, parts, count, offset, flags) } {
            return size(value);
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::pwritev2(fd, parts, count, offset, flags) }
    }
}

hook! {
    /// pwritev2(2), by the name 64-bit file offsets give it.
    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
        as Pwritev2(
            Fd(fd),
            Gathered(parts.addr(), count as u32 as usize),
            Size(count as u32 as usize),
            Int(offset),
            Flags(names::READ_WRITE, flags.cast_unsigned()),
        )
    {
        // SAFETY: the caller's arguments, unchanged.
        if let Some(value) = unsafe { transmit_at(fd, parts, count, offset, flags) } {
            return size(value);
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::pwritev64v2(fd, parts, count, offset, flags) }
    }
}

hook! {
    /// send(2)
    fn send(fd: c_int, source: *const c_void, count: size_t, flags: c_int) -> ssize_t
        as Sendto(
            Fd(fd),
            Sent(source.addr(), count),
            Size(count),
            Flags(names::MESSAGE, flags.cast_unsigned()),
            Pointer(0),
            Int(0),
        )
    {
        if table::get(fd).is_placeholder() {
            // SAFETY: send(2) obliges its caller to pass `count` readable bytes.
            if let Some(value) = unsafe { transmit(fd, source, count.min(BYTES_MAX), flags) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::send(fd, source, count, flags) }
    }
}

hook! {
    /// sendto(2). A connected stream ignores the address.
    fn sendto(
        fd: c_int,
        source: *const c_void,
        count: size_t,
        flags: c_int,
        address: *const sockaddr,
        length: socklen_t,
    ) -> ssize_t
        as Sendto(
            Fd(fd),
            Sent(source.addr(), count),
            Size(count),
            Flags(names::MESSAGE, flags.cast_unsigned()),
            Address(address.addr(), length.cast_signed()),
        )
    {
        if table::get(fd).is_placeholder() {
            if let Err(errno) = address::check(address, length) {
                return size(fail(errno));
            }
            // SAFETY: sendto(2) obliges its caller to pass `count` readable bytes.
            if let Some(value) = unsafe { transmit(fd, source, count.min(BYTES_MAX), flags) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::sendto(fd, source, count, flags, address, length) }
    }
}

//! read, readv, preadv2, recv, recvfrom.

use libc::{c_int, c_void, iovec, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t};

use super::vectors::{self, BYTES_MAX, Parts};
use super::{drive, fail, hook, size};
use crate::address;
use crate::real;
use crate::sockets::receive::Receive;
use crate::table;

/// `None`: the call is the kernel's.
///
/// # Safety
/// `target` points to `count` writable bytes, or leads nowhere, or `count` is 0.
unsafe fn receive(fd: c_int, target: *mut c_void, count: size_t, flags: c_int) -> Option<isize> {
    // SAFETY: as the caller promises.
    let Parts { mut slices, wanted, has_hole } = match unsafe { vectors::target(target, count) } {
        Ok(parts) => parts,
        Err(errno) => return Some(fail(errno)),
    };
    let mut call = Receive::new(fd, flags, &mut slices, wanted, has_hole);
    drive(fd, |woken| call.attempt(woken))
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// `parts` points to `count` vectors whose bytes are writable.
unsafe fn receive_parts(
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
        match unsafe { vectors::targets(parts, count, &mut room) } {
            Ok(parts) => parts,
            Err(errno) => return Some(fail(errno)),
        };
    if wanted == 0 {
        // The kernel does not ask a socket for nothing; recv(2) does.
        return Some(0);
    }
    let mut call = Receive::new(fd, flags, slices, wanted, has_hole);
    drive(fd, |woken| call.attempt(woken))
}

hook! {
    /// read(2)
    fn read(fd: c_int, target: *mut c_void, count: size_t) -> ssize_t
        as Read(Fd(fd), Received(target.addr(), count), Size(count))
    {
        if table::get(fd).is_placeholder() {
            if count == 0 {
                // The kernel does not ask a socket for nothing; recv(2) does.
                return 0;
            }
            // SAFETY: read(2) obliges its caller to pass `count` writable bytes.
            if let Some(value) = unsafe { receive(fd, target, count, 0) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::read(fd, target, count) }
    }
}

hook! {
    /// readv(2)
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t
        as Readv(Fd(fd), Scattered(parts.addr(), count as u32 as usize), Size(count as u32 as usize))
    {
        if table::get(fd).is_placeholder() {
            // SAFETY: readv(2) obliges its caller to pass `count` valid vectors.
            if let Some(value) = unsafe { receive_parts(fd, parts, count, 0) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::readv(fd, parts, count) }
    }
}

/// preadv2(2) with an offset of −1 is readv with flags; with any other, the kernel refuses sockets by itself.
///
/// # Safety
/// As for preadv2.
unsafe fn receive_at(
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
    // SAFETY: preadv2(2) obliges its caller to pass `count` valid vectors.
    unsafe { receive_parts(fd, parts, count, flags) }
}

hook! {
    /// preadv2(2)
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
        as Preadv2(
            Fd(fd),
            Scattered(parts.addr(), count as u32 as usize),
            Size(count as u32 as usize),
            Int(offset),
            Flags(names::READ_WRITE, flags.cast_unsigned()),
        )
    {
        // SAFETY: the caller's arguments, unchanged.
        if let Some(value) = unsafe { receive_at(fd, parts, count, offset, flags) } {
            return size(value);
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::preadv2(fd, parts, count, offset, flags) }
    }
}

hook! {
    /// preadv2(2), by the name 64-bit file offsets give it.
    fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
        as Preadv2(
            Fd(fd),
            Scattered(parts.addr(), count as u32 as usize),
            Size(count as u32 as usize),
            Int(offset),
            Flags(names::READ_WRITE, flags.cast_unsigned()),
        )
    {
        // SAFETY: the caller's arguments, unchanged.
        if let Some(value) = unsafe { receive_at(fd, parts, count, offset, flags) } {
            return size(value);
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::preadv64v2(fd, parts, count, offset, flags) }
    }
}

hook! {
    /// recv(2)
    fn recv(fd: c_int, target: *mut c_void, count: size_t, flags: c_int) -> ssize_t
        as Recvfrom(
            Fd(fd),
            Received(target.addr(), count),
            Size(count),
            Flags(names::MESSAGE, flags.cast_unsigned()),
            Pointer(0),
            Pointer(0),
        )
    {
        if table::get(fd).is_placeholder() {
            // SAFETY: recv(2) obliges its caller to pass `count` writable bytes.
            if let Some(value) = unsafe { receive(fd, target, count.min(BYTES_MAX), flags) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::recv(fd, target, count, flags) }
    }
}

hook! {
    /// recvfrom(2)
    fn recvfrom(
        fd: c_int,
        target: *mut c_void,
        count: size_t,
        flags: c_int,
        address: *mut sockaddr,
        length: *mut socklen_t,
    ) -> ssize_t
        as Recvfrom(
            Fd(fd),
            Received(target.addr(), count),
            Size(count),
            Flags(names::MESSAGE, flags.cast_unsigned()),
            AddressOut(address.addr(), length.addr()),
        )
    {
        if table::get(fd).is_placeholder() {
            // SAFETY: recvfrom(2) obliges its caller to pass `count` writable bytes and the room for an address.
            if let Some(value) = unsafe { receive_from(fd, target, count, flags, address, length) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::recvfrom(fd, target, count, flags, address, length) }
    }
}

/// A connection's bytes come without an address: its length is reported as 0 (measured on Linux).
///
/// # Safety
/// As for recvfrom.
unsafe fn receive_from(
    fd: c_int,
    target: *mut c_void,
    count: size_t,
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> Option<isize> {
    // SAFETY: as the caller promises.
    let value = unsafe { receive(fd, target, count.min(BYTES_MAX), flags) }?;
    if value >= 0 && !address.is_null() {
        // As the kernel does: found out when the bytes are taken already, which are lost then.
        // SAFETY: as the caller promises.
        if let Err(errno) = unsafe { address::check_room(std::ptr::null(), length) } {
            return Some(fail(errno));
        }
        // SAFETY: somewhere by the check above, and the caller's to be written.
        unsafe { length.write_unaligned(0) };
    }
    Some(value)
}

//! getsockname, getpeername.

use libc::{c_int, sockaddr, socklen_t};
use rustix::io::Errno;

use super::{drive, fail, hook, int};
use crate::address::{self, Raw};
use crate::outcome::Outcome;
use crate::real;
use crate::sockets::names;
use crate::table;

/// `None`: the call is the kernel's.
///
/// # Safety
/// `address` and `length` are as getsockname(2) takes them.
unsafe fn name(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    find: impl Fn(c_int, &mut Option<Raw>) -> Outcome,
) -> Option<c_int> {
    if table::get(fd).socket().is_none() && !table::get(fd).is_placeholder() {
        return None;
    }
    let mut found = None;
    let value = drive(fd, |_| find(fd, &mut found))?;
    // As in the kernel, the room is looked at when the name is known.
    // SAFETY: as the caller promises.
    let room = unsafe { address::check_room(address, length) };
    let room = if address.is_null() { Err(Errno::FAULT) } else { room };
    if value == 0
        && let Err(errno) = room
    {
        return Some(int(fail(errno)));
    }
    if value == 0
        && let Some(found) = &found
    {
        // SAFETY: as the caller promises.
        unsafe { address::write(address, length, found) };
    }
    Some(int(value))
}

hook! {
    /// getsockname(2)
    fn getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int
        as Getsockname(Fd(fd), AddressOut(address.addr(), length.addr()))
    {
        // SAFETY: getsockname(2) obliges its caller to pass room for an address and its length.
        if let Some(value) = unsafe { name(fd, address, length, names::local) } {
            return value;
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::getsockname(fd, address, length) }
    }
}

hook! {
    /// getpeername(2)
    fn getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int
        as Getpeername(Fd(fd), AddressOut(address.addr(), length.addr()))
    {
        // SAFETY: getpeername(2) obliges its caller to pass room for an address and its length.
        if let Some(value) = unsafe { name(fd, address, length, names::peer) } {
            return value;
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::getpeername(fd, address, length) }
    }
}

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
    if !table::get(fd).may_be_the_cards() {
        return None;
    }
    let mut found = None;
    let value = drive(fd, |_| find(fd, &mut found))?;
    let Some(found) = found.filter(|_| value == 0) else { return Some(int(value)) };
    if address.is_null() {
        return Some(int(fail(Errno::FAULT)));
    }
    // SAFETY: as the caller promises.
    if let Err(errno) = unsafe { address::check_room(address, length) } {
        return Some(int(fail(errno)));
    }
    // SAFETY: as the caller promises.
    unsafe { address::write(address, length, &found) };
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

//! recvmsg, recvmmsg, sendmsg, sendmmsg.
//!
//! A connection's messages have no address and no control data: both lengths come back as 0 (measured on Linux). Control data
//! that is sent is ignored, as TCP ignores all it does not know.

use std::time::{Duration, Instant};

use libc::{c_int, c_uint, mmsghdr, msghdr, ssize_t, timespec};
use rustix::io::Errno;

use super::vectors::{self, PARTS_MAX};
use super::{drive, fail, hook, int, size};
use crate::real;
use crate::sockets::receive::Receive;
use crate::sockets::send::Send;
use crate::table;

/// sendmsg(2): more parts than the kernel takes are EMSGSIZE here, not EINVAL.
fn check_count(count: usize) -> Result<usize, Errno> {
    if count > PARTS_MAX { Err(Errno::MSGSIZE) } else { Ok(count) }
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// `message` points to a msghdr with valid, writable vectors.
unsafe fn receive(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<isize> {
    if message.is_null() {
        return Some(fail(Errno::FAULT));
    }
    // SAFETY: not null, and a msghdr as the caller promises; copied, since vectors are all that is needed of it.
    let header = unsafe { message.read() };
    let count = match check_count(header.msg_iovlen) {
        Ok(count) => count,
        Err(errno) => return Some(fail(errno)),
    };
    // SAFETY: as the caller promises.
    let into = match unsafe { vectors::targets(header.msg_iov, count) } {
        Ok(into) => into,
        Err(errno) => return Some(fail(errno)),
    };
    let wanted = vectors::sum(into.iter().map(|part| part.len()));
    let mut call = Receive::new(fd, flags, into, wanted);
    let value = drive(fd, |woken| call.attempt(woken))?;
    if value >= 0 {
        let header = msghdr {
            msg_namelen: 0,
            msg_controllen: 0,
            msg_flags: flags & libc::MSG_CMSG_CLOEXEC,
            ..header
        };
        // SAFETY: as for the read above; recvmsg(2) writes these fields.
        unsafe { message.write(header) };
    }
    Some(value)
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// `message` points to a msghdr with valid, readable vectors.
unsafe fn transmit(fd: c_int, message: *const msghdr, flags: c_int) -> Option<isize> {
    if message.is_null() {
        return Some(fail(Errno::FAULT));
    }
    // SAFETY: not null, and a msghdr as the caller promises.
    let header = unsafe { message.read() };
    let count = match check_count(header.msg_iovlen) {
        Ok(count) => count,
        Err(errno) => return Some(fail(errno)),
    };
    // SAFETY: as the caller promises.
    let from = match unsafe { vectors::sources(header.msg_iov, count) } {
        Ok(from) => from,
        Err(errno) => return Some(fail(errno)),
    };
    let mut call = Send::new(fd, flags, from);
    drive(fd, |woken| call.attempt(woken))
}

hook! {
    /// recvmsg(2)
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t
        as Recvmsg(Fd(fd), MessageOut(message.addr()), Flags(names::MESSAGE, flags.cast_unsigned()))
    {
        if table::get(fd).is_placeholder() {
            // SAFETY: recvmsg(2) obliges its caller to pass a valid msghdr.
            if let Some(value) = unsafe { receive(fd, message, flags) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::recvmsg(fd, message, flags) }
    }
}

hook! {
    /// sendmsg(2)
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t
        as Sendmsg(Fd(fd), Message(message.addr()), Flags(names::MESSAGE, flags.cast_unsigned()))
    {
        if table::get(fd).is_placeholder() {
            // SAFETY: sendmsg(2) obliges its caller to pass a valid msghdr.
            if let Some(value) = unsafe { transmit(fd, message, flags) } {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::sendmsg(fd, message, flags) }
    }
}

/// Calls `one` for each message until one fails or is not complete. Returns how many went, or why the first did not.
///
/// # Safety
/// `messages` points to `count` mmsghdrs.
unsafe fn each(
    messages: *mut mmsghdr,
    count: c_uint,
    mut one: impl FnMut(*mut msghdr, usize) -> Option<isize>,
) -> Option<isize> {
    let count = (count as usize).min(PARTS_MAX);
    for at in 0..count {
        // SAFETY: `at` is below `count`.
        let message = unsafe { messages.add(at) };
        // SAFETY: points to one of the caller's mmsghdrs; only an address is computed.
        let header = unsafe { &raw mut (*message).msg_hdr };
        let value = one(header, at)?;
        let Ok(length) = c_uint::try_from(value) else {
            return Some(if at == 0 { -1 } else { at.cast_signed() });
        };
        // SAFETY: as above; recvmmsg(2) and sendmmsg(2) write this field.
        unsafe { (*message).msg_len = length };
    }
    Some(count.cast_signed())
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// As for recvmmsg.
unsafe fn receive_many(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *const timespec,
) -> Option<isize> {
    let deadline = match timeout.is_null() {
        true => None,
        false => {
            // SAFETY: not null, and a timespec as the caller promises.
            let limit = unsafe { timeout.read() };
            let (Ok(seconds), Ok(nanos)) =
                (u64::try_from(limit.tv_sec), u32::try_from(limit.tv_nsec))
            else {
                return Some(fail(Errno::INVAL));
            };
            Instant::now().checked_add(Duration::new(seconds, nanos))
        }
    };
    let mut is_over = false;
    let one = |header: *mut msghdr, at: usize| {
        // recvmmsg(2): the time is looked at after a message came, and a full one need not follow.
        if is_over {
            return Some(-1);
        }
        let wait_for_one = at > 0 && flags & libc::MSG_WAITFORONE != 0;
        let flags =
            flags & !libc::MSG_WAITFORONE | if wait_for_one { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: one of the caller's messages.
        let value = unsafe { receive(fd, header, flags) };
        is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        value
    };
    // SAFETY: as the caller promises.
    unsafe { each(messages, count, one) }
}

hook! {
    /// recvmmsg(2)
    fn recvmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
    ) -> c_int
        as Recvmmsg(
            Fd(fd),
            MessagesOut(messages.addr(), count as usize),
            Size(count as usize),
            Flags(names::MESSAGE, flags.cast_unsigned()),
            Timespec(timeout.addr()),
        )
    {
        if table::get(fd).is_placeholder() {
            // SAFETY: recvmmsg(2) obliges its caller to pass `count` valid messages.
            if let Some(value) = unsafe { receive_many(fd, messages, count, flags, timeout) } {
                return int(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::recvmmsg(fd, messages, count, flags, timeout) }
    }
}

hook! {
    /// sendmmsg(2)
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int
        as Sendmmsg(
            Fd(fd),
            Messages(messages.addr(), count as usize),
            Size(count as usize),
            Flags(names::MESSAGE, flags.cast_unsigned()),
        )
    {
        if table::get(fd).is_placeholder() {
            let one = |header: *mut msghdr, _: usize| {
                // SAFETY: one of the caller's messages.
                unsafe { transmit(fd, header, flags) }
            };
            // SAFETY: sendmmsg(2) obliges its caller to pass `count` valid messages.
            if let Some(value) = unsafe { each(messages, count, one) } {
                return int(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::sendmmsg(fd, messages, count, flags) }
    }
}

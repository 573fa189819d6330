//! recvmsg, recvmmsg, sendmsg, sendmmsg.
//!
//! A connection's messages have no address and no control data: both lengths come back as 0 (measured on Linux). Control data
//! that is sent is looked at as the kernel looks at it, and has no effect.

use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use libc::{c_int, c_uint, cmsghdr, mmsghdr, msghdr, ssize_t, timespec};
use rustix::io::Errno;

use super::accepting::fresh;
use super::vectors::{self, PARTS_MAX, Parts, Room};
use super::{drive, fail, hook, int, is_nowhere, note, size};
use crate::epoll;
use crate::fork;
use crate::guard;
use crate::inherit;
use crate::real;
use crate::sessions;
use crate::sockets::receive::{self, Receive};
use crate::sockets::send::Send;
use crate::table;

/// Of `__sock_cmsg_send`: SCM_RIGHTS and SCM_CREDENTIALS mean nothing to TCP, SO_MARK, SO_PRIORITY and SO_TIMESTAMPING
/// are about packets.
const CONTROL_TYPES: [c_int; 6] =
    [libc::SCM_RIGHTS, 2, libc::SO_MARK, libc::SO_PRIORITY, libc::SO_TIMESTAMPING, 65];

/// sendmsg(2): more parts than the kernel takes are EMSGSIZE here, not EINVAL.
fn check_count(count: usize) -> Result<usize, Errno> {
    if count > PARTS_MAX { Err(Errno::MSGSIZE) } else { Ok(count) }
}

/// The caller's message, copied: only its vectors are needed later.
///
/// # Safety
/// `message` points to a msghdr, or leads nowhere.
unsafe fn header(message: *const msghdr) -> Result<msghdr, Errno> {
    if is_nowhere(message) {
        return Err(Errno::FAULT);
    }
    // SAFETY: somewhere, and a msghdr as the caller promises.
    let header = unsafe { message.read_unaligned() };
    match header.msg_namelen.cast_signed() {
        ..0 if !header.msg_name.is_null() => Err(Errno::INVAL),
        _ => Ok(header),
    }
}

/// Where a message goes.
///
/// # Safety
/// `message` points to a msghdr with valid, writable vectors.
unsafe fn targets<'a>(
    message: *const msghdr,
    room: &'a mut Room,
) -> Result<(msghdr, Parts<&'a mut [IoSliceMut<'a>]>), Errno> {
    // SAFETY: as the caller promises.
    let header = unsafe { header(message) }?;
    let count = check_count(header.msg_iovlen)?;
    // SAFETY: as the caller promises.
    let parts = unsafe { vectors::targets(header.msg_iov, count, room) }?;
    Ok((header, parts))
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// `message` points to a msghdr with valid, writable vectors.
unsafe fn receive(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<isize> {
    let mut room = None;
    // SAFETY: as the caller promises.
    let (header, Parts { slices, wanted, has_hole }) = match unsafe { targets(message, &mut room) }
    {
        Ok(read) => read,
        Err(errno) => return Some(fail(errno)),
    };
    let mut call = Receive::new(fd, flags, slices, wanted, has_hole);
    let value = drive(fd, |woken| call.attempt(woken))?;
    if value >= 0 {
        let header = msghdr {
            msg_namelen: if header.msg_name.is_null() { header.msg_namelen } else { 0 },
            msg_controllen: 0,
            msg_flags: flags & libc::MSG_CMSG_CLOEXEC,
            ..header
        };
        // SAFETY: as for the read in `header`; recvmsg(2) writes these fields.
        unsafe { message.write_unaligned(header) };
    }
    Some(value)
}

/// Whether the kernel would send control data on a TCP socket (`sock_cmsg_send`).
///
/// # Safety
/// The header's control data is readable, or leads nowhere.
unsafe fn check_control(header: &msghdr) -> Result<(), Errno> {
    let (start, length) = (header.msg_control.cast::<u8>(), header.msg_controllen);
    if length > 0 && is_nowhere(start) {
        return Err(Errno::FAULT);
    }
    let mut at = 0_usize;
    while length.saturating_sub(at) >= size_of::<cmsghdr>() {
        // SAFETY: a whole header lies between `at` and `length`.
        let place = unsafe { start.add(at) };
        // SAFETY: readable as the caller promises; the alignment is the caller's.
        let control = unsafe { place.cast::<cmsghdr>().read_unaligned() };
        if !(size_of::<cmsghdr>()..=length - at).contains(&control.cmsg_len) {
            return Err(Errno::INVAL);
        }
        let is_known = CONTROL_TYPES.contains(&control.cmsg_type);
        if control.cmsg_level == libc::SOL_SOCKET && !is_known {
            return Err(Errno::INVAL);
        }
        at = at.saturating_add(control.cmsg_len.next_multiple_of(size_of::<usize>()));
    }
    Ok(())
}

/// What a message consists of.
///
/// # Safety
/// `message` points to a msghdr with valid, readable vectors.
unsafe fn sources<'a>(
    message: *const msghdr,
    room: &'a mut Room,
) -> Result<Parts<&'a [IoSlice<'a>]>, Errno> {
    // SAFETY: as the caller promises.
    let header = unsafe { header(message) }?;
    if header.msg_namelen > 0 && !header.msg_name.is_null() && is_nowhere(header.msg_name) {
        return Err(Errno::FAULT);
    }
    let count = check_count(header.msg_iovlen)?;
    // SAFETY: as the caller promises.
    let parts = unsafe { vectors::sources(header.msg_iov, count, room) }?;
    // SAFETY: as the caller promises.
    unsafe { check_control(&header) }?;
    Ok(parts)
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// `message` points to a msghdr with valid, readable vectors.
unsafe fn transmit(fd: c_int, message: *const msghdr, flags: c_int) -> Option<isize> {
    let mut room = None;
    // SAFETY: as the caller promises.
    let Parts { slices, has_hole, .. } = match unsafe { sources(message, &mut room) } {
        Ok(parts) => parts,
        Err(errno) => return Some(fail(errno)),
    };
    let mut call = Send::new(fd, flags, slices, has_hole);
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
        let value = unsafe { real::recvmsg(fd, message, flags) };
        if value >= 0 {
            // SAFETY: the kernel has filled the caller's msghdr.
            unsafe { received(message) };
        }
        value
    }
}

/// Looks at the descriptors that came with a message of the kernel's: they may be the card's sockets, and their numbers are new.
///
/// # Safety
/// `message` was filled by recvmsg(2).
unsafe fn received(message: *const msghdr) {
    let one = |fd| {
        fresh(fd);
        if fork::is_own_table() {
            inherit::claim(fd);
        }
    };
    if !guard::inside() {
        // SAFETY: as the caller promises.
        unsafe { each_right(message, one) };
    }
}

/// Descriptors are about to go with a message of the kernel's: whoever gets them waits for the card's sockets on the wires.
///
/// # Safety
/// `message` is what a caller of sendmsg(2) has to pass.
unsafe fn about_to_send(message: *const msghdr) {
    if is_nowhere(message) || guard::inside() || !sessions::has_descriptors() {
        return;
    }
    let one = |fd| {
        if fork::is_own_table() {
            epoll::passed_on(fd);
            sessions::share();
        }
    };
    // SAFETY: as the caller promises.
    unsafe { each_right(message, one) };
}

/// Calls `one` for each descriptor among the control data.
///
/// # Safety
/// `message` points to a msghdr with valid control data.
unsafe fn each_right(message: *const msghdr, one: impl Fn(c_int)) {
    // SAFETY: as the caller promises.
    let whole = unsafe { message.read_unaligned() };
    if whole.msg_controllen == 0 || is_nowhere(whole.msg_control) {
        return;
    }
    let end = whole.msg_control.addr().saturating_add(whole.msg_controllen);
    // SAFETY: as the caller promises.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !control.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return a whole header or null.
        let header = unsafe { control.read_unaligned() };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: a whole header.
            let data = unsafe { libc::CMSG_DATA(control) }.cast::<c_int>();
            // A caller's length may be anything.
            let there =
                control.addr().saturating_add(header.cmsg_len).min(end).saturating_sub(data.addr());
            for at in 0..there / size_of::<c_int>() {
                // SAFETY: within the bytes of this header.
                let place = unsafe { data.add(at) };
                // SAFETY: as above; control data need not be aligned.
                let fd = unsafe { place.read_unaligned() };
                note(|| one(fd));
            }
        }
        // SAFETY: a header of this message.
        control = unsafe { libc::CMSG_NXTHDR(message, control) };
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
        // SAFETY: sendmsg(2) obliges its caller to pass a valid msghdr.
        unsafe { about_to_send(message) };
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
    if count > 0 && is_nowhere(messages) {
        return Some(fail(Errno::FAULT));
    }
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
    timeout: *mut timespec,
) -> Option<isize> {
    let mut limit = None;
    if !timeout.is_null() {
        if is_nowhere(timeout) {
            return Some(fail(Errno::FAULT));
        }
        // SAFETY: somewhere, and a timespec as the caller promises.
        let given = unsafe { timeout.read_unaligned() };
        let (Ok(seconds), Ok(nanos @ ..1_000_000_000)) =
            (u64::try_from(given.tv_sec), u32::try_from(given.tv_nsec))
        else {
            return Some(fail(Errno::INVAL));
        };
        limit = Some(Duration::new(seconds, nanos));
    }
    if let failed @ (None | Some(-1)) = drive(fd, |_| receive::failure(fd)) {
        return failed;
    }
    let started = Instant::now();
    let mut left = limit;
    let one = |header: *mut msghdr, at: usize| {
        // recvmmsg(2): the time is looked at after a message came, and a full one need not follow.
        if at > 0 && left == Some(Duration::ZERO) {
            return Some(-1);
        }
        let wait_for_one = at > 0 && flags & libc::MSG_WAITFORONE != 0;
        let flags =
            flags & !libc::MSG_WAITFORONE | if wait_for_one { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: one of the caller's messages.
        let value = unsafe { receive(fd, header, flags) };
        if value.is_some_and(|value| value >= 0) {
            left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
        }
        value
    };
    // SAFETY: as the caller promises.
    let value = unsafe { each(messages, count, one) };
    if let Some(left) = left.filter(|_| value.is_some_and(|value| value > 0)) {
        let left = timespec {
            // No longer than what was given, which fits.
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        // SAFETY: read above; recvmmsg(2) writes what is left of the time.
        unsafe { timeout.write_unaligned(left) };
    }
    value
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
        let outcome = unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
        for at in 0..usize::try_from(outcome).unwrap_or(0) {
            // SAFETY: one of the messages the kernel has filled.
            let message = unsafe { messages.add(at) };
            // SAFETY: as above; only an address is computed.
            let header = unsafe { &raw const (*message).msg_hdr };
            // SAFETY: the kernel has filled it.
            unsafe { received(header) };
        }
        outcome
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
        for at in 0..if is_nowhere(messages) { 0 } else { (count as usize).min(PARTS_MAX) } {
            // SAFETY: sendmmsg(2) obliges its caller to pass `count` messages.
            let message = unsafe { messages.add(at) };
            // SAFETY: as above; only an address is computed.
            let header = unsafe { &raw const (*message).msg_hdr };
            // SAFETY: as above.
            unsafe { about_to_send(header) };
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::sendmmsg(fd, messages, count, flags) }
    }
}

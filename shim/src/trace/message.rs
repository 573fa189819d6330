//! Vectors and messages: `iovec`, `msghdr`, `mmsghdr`, control messages.

use libc::{cmsghdr, mmsghdr, msghdr};

use super::address;
use super::arg::Result;
use super::line::{Line, put};
use super::memory;
use super::names;
use super::text::{array, choice, flags, hex, pointer, string, time};

/// Bytes of a vector.
const IOVEC_BYTES: usize = size_of::<libc::iovec>();
const CMSGHDR_BYTES: usize = size_of::<cmsghdr>();
/// Control messages shown; a sane message has one or two.
const CONTROL_MAX: usize = 32;

/// How much of the bytes that vectors point to is shown.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    /// All.
    All,
    /// As many as were moved, in all vectors together.
    Moved(usize),
    /// None: only where they are.
    Nothing,
}

/// The vectors at `address`.
pub(super) fn vectors(line: &mut Line, address: usize, count: usize, shown: Shown) {
    let mut left = match shown {
        Shown::Moved(bytes) => bytes,
        Shown::All | Shown::Nothing => usize::MAX,
    };
    array(line, address, count, IOVEC_BYTES, |line, element| {
        let Some([base, length]) = memory::load::<[usize; 2]>(element) else { return false };
        let taken = length.min(left);
        if matches!(shown, Shown::Moved(_)) {
            left -= taken;
        }
        line.push("{iov_base=");
        match shown {
            Shown::Nothing => pointer(line, base),
            Shown::All | Shown::Moved(_) => string(line, base, taken),
        }
        put!(line, ", iov_len={length}}}");
        true
    });
}

/// The length of the name that a message at `address` has room for.
pub(super) fn name_length(address: usize) -> Option<i32> {
    memory::load::<msghdr>(address).map(|header| header.msg_namelen.cast_signed())
}

/// The message at `address`. `room` is what its name had room for when it went in, where it comes out.
pub(super) fn message(line: &mut Line, address: usize, room: Option<i32>, shown: Shown) {
    match memory::load::<msghdr>(address) {
        Some(header) => describe(line, &header, room, shown),
        None => pointer(line, address),
    }
}

fn describe(line: &mut Line, header: &msghdr, room: Option<i32>, shown: Shown) {
    let length = header.msg_namelen.cast_signed();
    line.push("{msg_name=");
    let taken = room.map_or(length, |room| length.min(room));
    address::socket_address(line, header.msg_name.addr(), taken);
    line.push(", msg_namelen=");
    if let Some(room) = room.filter(|&room| room != length) {
        put!(line, "{room} => ");
    }
    put!(line, "{length}, msg_iov=");
    vectors(line, header.msg_iov.addr(), header.msg_iovlen, shown);
    put!(line, ", msg_iovlen={}", header.msg_iovlen);
    if header.msg_controllen > 0 {
        line.push(", msg_control=");
        controls(line, header.msg_control.addr(), header.msg_controllen);
    }
    put!(line, ", msg_controllen={}, msg_flags=", header.msg_controllen);
    flags(line, names::MESSAGE, u64::from(header.msg_flags.cast_unsigned()));
    line.push("}");
}

/// The control messages in `length` bytes at `start`.
fn controls(line: &mut Line, start: usize, length: usize) {
    if length < CMSGHDR_BYTES || memory::load::<cmsghdr>(start).is_none() {
        return pointer(line, start);
    }
    line.push("[");
    let (mut at, mut left) = (start, length);
    for number in 0..CONTROL_MAX {
        let Some(header) = memory::load::<cmsghdr>(at) else { break };
        if number > 0 {
            line.push(", ");
        }
        let own = header.cmsg_len.min(left);
        control(line, &header, at + CMSGHDR_BYTES, own.saturating_sub(CMSGHDR_BYTES));
        let step = own.next_multiple_of(size_of::<usize>());
        if own < CMSGHDR_BYTES || step >= left {
            left = if own < CMSGHDR_BYTES { left - CMSGHDR_BYTES } else { 0 };
            at += CMSGHDR_BYTES;
            break;
        }
        (at, left) = (at + step, left - step);
        if left < CMSGHDR_BYTES {
            break;
        }
    }
    if left > 0 {
        put!(line, ", ... /* {at:#x} */");
    }
    line.push("]");
}

fn control(line: &mut Line, header: &cmsghdr, data: usize, length: usize) {
    put!(line, "{{cmsg_len={}, cmsg_level=", header.cmsg_len);
    choice(line, names::CONTROL_LEVEL, u64::from(header.cmsg_level.cast_unsigned()));
    line.push(", cmsg_type=");
    let kind = u64::from(header.cmsg_type.cast_unsigned());
    match header.cmsg_level {
        libc::SOL_SOCKET => {
            choice(line, names::CONTROL, kind);
            socket_control(line, header.cmsg_type, data, length);
        }
        libc::SOL_IP => {
            choice(line, names::CONTROL_IP, kind);
            if header.cmsg_type == libc::IP_TTL && length >= 4 {
                line.push(", cmsg_data=");
                array(line, data, length / 4, 4, |line, at| {
                    memory::load::<u32>(at).map(|value| put!(line, "{value}")).is_some()
                });
            } else if header.cmsg_type == libc::IP_TOS && length > 0 {
                line.push(", cmsg_data=");
                array(line, data, length, 1, byte);
            }
        }
        _ => hex(line, kind),
    }
    line.push("}");
}

fn byte(line: &mut Line, at: usize) -> bool {
    let mut value = [0];
    let is_there = memory::read(at, &mut value);
    if is_there {
        hex(line, u64::from(value[0]));
    }
    is_there
}

fn socket_control(line: &mut Line, kind: i32, data: usize, length: usize) {
    const TIMESTAMP_NEW: i32 = 63;
    const TIMESTAMPNS_NEW: i32 = 64;
    const TIMESTAMPING_NEW: i32 = 65;
    match kind {
        libc::SCM_RIGHTS if length >= 4 => {
            line.push(", cmsg_data=");
            array(line, data, length / 4, 4, |line, at| {
                memory::load::<i32>(at).map(|fd| put!(line, "{fd}")).is_some()
            });
        }
        libc::SCM_CREDENTIALS if length >= size_of::<libc::ucred>() => {
            line.push(", cmsg_data=");
            credentials(line, data);
        }
        libc::SO_TIMESTAMP | TIMESTAMP_NEW if length >= 16 => {
            line.push(", cmsg_data=");
            timestamp(line, data, "tv_usec");
        }
        libc::SO_TIMESTAMPNS | TIMESTAMPNS_NEW if length >= 16 => {
            line.push(", cmsg_data=");
            timestamp(line, data, "tv_nsec");
        }
        libc::SO_TIMESTAMPING | TIMESTAMPING_NEW if length >= 48 => {
            line.push(", cmsg_data=");
            array(line, data, 3, 16, |line, at| timestamp(line, at, "tv_nsec"));
        }
        _ => {}
    }
}

fn timestamp(line: &mut Line, at: usize, name: &str) -> bool {
    memory::load::<[i64; 2]>(at).map(|value| time(line, value, name)).is_some()
}

/// A `ucred`.
pub(super) fn credentials(line: &mut Line, address: usize) {
    let pid = memory::load::<i32>(address);
    let ids = memory::load::<[i32; 2]>(address.saturating_add(4));
    match (pid, ids) {
        // An id that is all ones is "none", shown as −1.
        (Some(pid), Some([uid, gid])) => {
            put!(line, "{{pid={pid}, uid=");
            id(line, uid);
            line.push(", gid=");
            id(line, gid);
            line.push("}");
        }
        _ => pointer(line, address),
    }
}

fn id(line: &mut Line, id: i32) {
    if id == -1 { line.push("-1") } else { put!(line, "{}", id.cast_unsigned()) }
}

/// What `sendmmsg` was given, and how much of each message went.
pub(super) fn sent_messages(line: &mut Line, address: usize, count: usize, result: Result) {
    let sent = usize::try_from(result.value).unwrap_or(0);
    many(line, address, count, |line, at, header, length| {
        describe(line, header, None, Shown::All);
        if at < sent {
            put!(line, ", msg_len={length}");
        }
    });
}

/// What `recvmmsg` got. `rooms` are the lengths of names that went in.
pub(super) fn received_messages(line: &mut Line, address: usize, rooms: &[i32], result: Result) {
    let Ok(count) = usize::try_from(result.value) else { return pointer(line, address) };
    many(line, address, count, |line, at, header, length| {
        let room = rooms.get(at).or(rooms.last()).copied();
        describe(line, header, room, Shown::Moved(length as usize));
        put!(line, ", msg_len={length}");
    });
}

fn many(
    line: &mut Line,
    address: usize,
    count: usize,
    mut one: impl FnMut(&mut Line, usize, &msghdr, u32),
) {
    let mut number = 0;
    array(line, address, count, size_of::<mmsghdr>(), |line, element| {
        let Some(message) = memory::load::<mmsghdr>(element) else { return false };
        line.push("{msg_hdr=");
        one(line, number, &message.msg_hdr, message.msg_len);
        line.push("}");
        number += 1;
        true
    });
}

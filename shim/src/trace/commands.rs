//! The commands of fcntl(2) and the requests of ioctl(2), with the argument each takes.

use super::arg::Result;
use super::line::{Line, put};
use super::memory;
use super::names;
use super::text::{choice, flags, hex, int_at, known_flags, pointer};

const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
const F_GETOWN_EX: i32 = 16;
const F_SETOWN_EX: i32 = 15;
/// Offset of a lock's owner, and of its other numbers, in `struct flock`.
const SIOCOUTQNSD: u64 = 0x894b;
const SIOCATMARK: u64 = 0x8905;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
const FIOGETOWN: u64 = 0x8903;
const SIOCGPGRP: u64 = 0x8904;

/// The command, and its argument where that is known before the call. `true` if there is no more to say after it.
pub(super) fn begin_fcntl(line: &mut Line, command: i32, argument: usize) -> bool {
    // glibc asks with the newer command, which has no ambiguous answers.
    let shown = if command == libc::F_GETOWN { F_GETOWN_EX } else { command };
    choice(line, names::FCNTL, u64::from(shown.cast_unsigned()));
    let word = argument as u32;
    match command {
        libc::F_GETLK | libc::F_OFD_GETLK | F_GETOWN_EX | libc::F_GETOWN => return false,
        libc::F_GETFD
        | libc::F_GETFL
        | libc::F_GETPIPE_SZ
        | libc::F_GETLEASE
        | libc::F_GET_SEALS
        | F_GETSIG => {}
        _ => {
            line.push(", ");
            match command {
                libc::F_SETFD => flags(line, names::DESCRIPTOR, word.into()),
                libc::F_SETFL => open_modes(line, word.into()),
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETOWN | libc::F_SETPIPE_SZ => {
                    put!(line, "{}", word.cast_signed());
                }
                libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
                    lock(line, argument, false);
                }
                F_SETOWN_EX => owner_at(line, argument),
                libc::F_NOTIFY => flags(line, names::NOTIFY, word.into()),
                libc::F_SETLEASE => choice(line, names::LOCK, argument as u64),
                libc::F_ADD_SEALS => flags(line, names::SEAL, argument as u64),
                F_SETSIG => signal(line, word),
                _ => hex(line, argument as u64),
            }
        }
    }
    true
}

/// What the call filled in.
pub(super) fn end_fcntl(line: &mut Line, command: i32, argument: usize, result: Result) {
    line.push(", ");
    match command {
        libc::F_GETOWN if result.is_failed() => line.push("..."),
        libc::F_GETOWN => {
            let kind = match result.value {
                0 => "F_OWNER_TID",
                1.. => "F_OWNER_PID",
                _ => "F_OWNER_PGRP",
            };
            put!(line, "{{type={kind}, pid={}}}", result.value.unsigned_abs());
        }
        _ if result.is_failed() => pointer(line, argument),
        F_GETOWN_EX => owner_at(line, argument),
        _ => lock(line, argument, true),
    }
}

/// The result and what it means, where a bare number does not say it. `false`: a bare number does.
pub(super) fn fcntl_result(line: &mut Line, command: i32, result: Result) -> bool {
    let value = result.value.cast_unsigned();
    if result.is_failed() {
        return false;
    }
    match command {
        libc::F_GETFD if value != 0 => {
            put!(line, "{value:#x} (flags ");
            flags(line, names::DESCRIPTOR, value);
        }
        libc::F_GETFL => {
            hex(line, value);
            line.push(" (flags ");
            open_modes(line, value);
        }
        libc::F_GETLEASE => {
            hex(line, value);
            line.push(" (");
            choice(line, names::LOCK, value);
        }
        libc::F_GET_SEALS if value != 0 => {
            put!(line, "{value:#x} (seals ");
            flags(line, names::SEAL, value);
        }
        F_GETSIG if value != 0 => {
            put!(line, "{value} (");
            signal(line, value as u32);
        }
        // Of the newer command.
        libc::F_GETOWN => {
            line.push("0");
            return true;
        }
        _ => return false,
    }
    line.push(")");
    true
}

/// How a file is open: its access mode, then the other flags.
pub(super) fn open_modes(line: &mut Line, value: u64) {
    choice(line, names::ACCESS, value & 3);
    let others = value & !3;
    if others != 0 {
        let left = known_flags(line, names::OPEN.all, others, "|");
        if left != 0 {
            put!(line, "|{left:#x}");
        }
    }
}

fn lock(line: &mut Line, address: usize, has_owner: bool) {
    let Some(lock) = memory::load::<libc::flock>(address) else { return pointer(line, address) };
    line.push("{l_type=");
    choice(line, names::LOCK, u64::from(lock.l_type.cast_unsigned()));
    line.push(", l_whence=");
    choice(line, names::WHENCE, u64::from(lock.l_whence.cast_unsigned()));
    put!(line, ", l_start={}, l_len={}", lock.l_start, lock.l_len);
    if has_owner {
        put!(line, ", l_pid={}", lock.l_pid);
    }
    line.push("}");
}

fn owner_at(line: &mut Line, address: usize) {
    let Some([kind, pid]) = memory::load::<[i32; 2]>(address) else {
        return pointer(line, address);
    };
    line.push("{type=");
    choice(line, names::OWNER, u64::from(kind.cast_unsigned()));
    put!(line, ", pid={pid}}}");
}

fn signal(line: &mut Line, number: u32) {
    match names::SIGNAL.find(number.into()) {
        Some(name) => put!(line, "SIG{name}"),
        None => put!(line, "{number}"),
    }
}

/// What a request's argument points to.
enum Points {
    /// An int that goes in.
    ToInt,
    /// An int that comes out.
    FromInt,
    /// Nothing: it is not looked at.
    Nowhere,
}

fn request(request: u64) -> Option<(&'static str, Points)> {
    Some(match request {
        libc::FIONREAD => ("FIONREAD", Points::FromInt),
        libc::TIOCOUTQ => ("TIOCOUTQ", Points::FromInt),
        libc::FIONBIO => ("FIONBIO", Points::ToInt),
        libc::FIOASYNC => ("FIOASYNC", Points::ToInt),
        libc::FIOCLEX => ("FIOCLEX", Points::Nowhere),
        libc::FIONCLEX => ("FIONCLEX", Points::Nowhere),
        SIOCATMARK => ("SIOCATMARK", Points::FromInt),
        SIOCOUTQNSD => ("SIOCOUTQNSD", Points::FromInt),
        FIOSETOWN => ("FIOSETOWN", Points::ToInt),
        SIOCSPGRP => ("SIOCSPGRP", Points::ToInt),
        FIOGETOWN => ("FIOGETOWN", Points::FromInt),
        SIOCGPGRP => ("SIOCGPGRP", Points::FromInt),
        _ => return None,
    })
}

/// Requests whose argument is shown as an address only.
fn opaque(request: u64) -> Option<&'static str> {
    Some(match request {
        libc::TCGETS => "TCGETS",
        libc::TCSETS => "TCSETS",
        libc::TIOCGWINSZ => "TIOCGWINSZ",
        libc::TIOCGPGRP => "TIOCGPGRP",
        0x8910 => "SIOCGIFNAME",
        0x8912 => "SIOCGIFCONF",
        0x8913 => "SIOCGIFFLAGS",
        0x8915 => "SIOCGIFADDR",
        0x8927 => "SIOCGIFHWADDR",
        0x8933 => "SIOCGIFINDEX",
        _ => return None,
    })
}

/// The request, and its argument where that is known before the call.
pub(super) fn begin_ioctl(line: &mut Line, code: u64, argument: usize) -> bool {
    match request(code) {
        Some((name, Points::FromInt)) => {
            line.push(name);
            false
        }
        Some((name, Points::ToInt)) => {
            line.push(name);
            line.push(", ");
            int_at(line, argument);
            true
        }
        Some((name, Points::Nowhere)) => {
            line.push(name);
            true
        }
        None => {
            match opaque(code) {
                Some(name) => line.push(name),
                None => unknown(line, code),
            }
            line.push(", ");
            hex(line, argument as u64);
            true
        }
    }
}

/// The int a request filled in.
pub(super) fn end_ioctl(line: &mut Line, argument: usize, result: Result) {
    line.push(", ");
    if result.is_failed() { pointer(line, argument) } else { int_at(line, argument) }
}

/// A request taken apart: direction, type, number, size of the argument (`asm-generic/ioctl.h`).
fn unknown(line: &mut Line, code: u64) {
    line.push("_IOC(");
    line.push(match code >> 30 & 3 {
        0 => "_IOC_NONE",
        1 => "_IOC_WRITE",
        2 => "_IOC_READ",
        _ => "_IOC_READ|_IOC_WRITE",
    });
    for part in [code >> 8 & 0xff, code & 0xff, code >> 16 & 0x3fff] {
        line.push(", ");
        hex(line, part);
    }
    line.push(")");
}

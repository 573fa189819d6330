//! getsockopt, setsockopt, ioctl.

use libc::{c_int, c_ulong, c_void, socklen_t};
use rustix::io::Errno;

use super::{drive, fail, hook, int, is_nowhere, vectors};
use crate::outcome::Outcome;
use crate::real;
use crate::sockets::{receive, send, sockopt};
use crate::table;

/// Of `linux/sockios.h`; what was written and has not been sent.
const SIOCOUTQNSD: c_ulong = 0x894b;
/// Of `asm-generic/sockios.h`; whether the urgent mark was reached, and when the last packet came.
const SIOCATMARK: c_ulong = 0x8905;
const SIOCGSTAMP: c_ulong = 0x8906;
const SIOCGSTAMPNS: c_ulong = 0x8907;

hook! {
    /// setsockopt(2)
    fn setsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: socklen_t,
    ) -> c_int
        as Setsockopt(Fd(fd), Option(level, name, value.addr(), length.cast_signed()))
    {
        if !table::get(fd).is_plain() {
            if length.cast_signed() < 0 {
                return int(fail(Errno::INVAL));
            }
            // SAFETY: setsockopt(2) obliges its caller to pass `length` readable bytes.
            let [bytes] = match unsafe { vectors::source(value, length as usize) } {
                Ok(parts) if !parts.has_hole => parts.slices,
                _ => return int(fail(Errno::FAULT)),
            };
            if let Some(value) = drive(fd, |_| sockopt::set(fd, level, name, &bytes)) {
                return int(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::setsockopt(fd, level, name, value, length) }
    }
}

hook! {
    /// getsockopt(2)
    fn getsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: *mut socklen_t,
    ) -> c_int
        as Getsockopt(Fd(fd), OptionOut(level, name, value.addr(), length.addr()))
    {
        if table::get(fd).is_placeholder() && !is_nowhere(length) {
            // SAFETY: somewhere, and a socklen_t as getsockopt(2) obliges its caller to pass.
            let room = unsafe { length.read_unaligned() };
            if room.cast_signed() < 0 {
                return int(fail(Errno::INVAL));
            }
            // SAFETY: getsockopt(2) obliges its caller to pass `room` writable bytes.
            let [mut out] = match unsafe { vectors::target(value, room as usize) } {
                Ok(parts) if !parts.has_hole => parts.slices,
                _ => return int(fail(Errno::FAULT)),
            };
            if let Some(value) = drive(fd, |_| sockopt::get(fd, level, name, &mut out)) {
                if value < 0 {
                    return int(value);
                }
                // SAFETY: as for the read above; the length is at most the room.
                unsafe { length.write_unaligned(value as socklen_t) };
                return 0;
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::getsockopt(fd, level, name, value, length) }
    }
}

/// The requests whose answer is the connection's; all others suit the placeholder (`FIONBIO`, `FIOASYNC`, …).
fn ask(fd: c_int, request: c_ulong) -> Option<Outcome> {
    Some(match request {
        libc::FIONREAD => receive::readable_bytes(fd),
        libc::TIOCOUTQ | SIOCOUTQNSD => send::unsent_bytes(fd),
        SIOCATMARK => Outcome::SUCCESS,
        // socket(7): no packet was stamped.
        SIOCGSTAMP | SIOCGSTAMPNS => Outcome::Fail(Errno::NOENT),
        _ => return None,
    })
}

hook! {
    /// ioctl(2)
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int
        as Ioctl(Fd(fd), Request(request, argument))
    {
        let is_ours = matches!(
            request,
            libc::FIONREAD
                | libc::TIOCOUTQ
                | SIOCOUTQNSD
                | SIOCATMARK
                | SIOCGSTAMP
                | SIOCGSTAMPNS
        );
        if is_ours && table::get(fd).is_placeholder() {
            let answer = drive(fd, |_| ask(fd, request).unwrap_or(Outcome::Pass));
            if let Some(value) = answer {
                if value < 0 {
                    return int(value);
                }
                let target = argument as *mut c_int;
                if is_nowhere(target) {
                    return int(fail(Errno::FAULT));
                }
                // SAFETY: somewhere, and an int as these requests oblige the caller to pass.
                unsafe { target.write_unaligned(int(value)) };
                return 0;
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::ioctl(fd, request, argument) }
    }
}

//! The libc symbols we replace. Nothing is decided here.
//!
//! ```text
//! hook ── table: not ours ─────────────────────────────► real function, same arguments
//!   └──── ours ──► fence { sockets::… } ──► Outcome ──► return value and errno
//!                        ▲                     │ Await…
//!                        └──── wait in the kernel, outside the fence
//! ```
//!
//! Each function looks its descriptor up (one load), turns pointers into slices, and asks `sockets`. The program may call us
//! from a signal handler, a forked child, or a thread with a 16 KiB stack: nothing large lives on the stack, no lock is
//! held across a wait, and data calls allocate nothing.

mod accepting;
mod calls;
mod copying;
mod descriptors;
mod fortified;
mod loading;
mod messages;
mod naming;
mod opening;
mod polling;
mod printing;
mod reading;
mod setting;
mod splicing;
mod stdio;
mod vectors;
mod waiting;
mod writing;

pub(crate) use vectors::is_nowhere;

use std::os::fd::RawFd;

use libc::{c_int, ssize_t};
use rustix::io::Errno;

use crate::epoll;
use crate::errno;
use crate::guard;
use crate::outcome::{Outcome, Woken};
use crate::sessions;
use crate::table::{self, Entry, Kind};
use crate::trace;
use crate::wait::Waiting;

/// Defines an exported function.
///
/// `as Call(arguments)` says what its line of the trace shows: the system call that libc would make of it. A function without
/// one comes down to another hook, which has it.
///
/// `C-unwind`: a cancelled thread unwinds through a hook that waits. In unit tests the names are not exported, or the test
/// program's own calls would come here.
macro_rules! hook {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the libc function of this name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, allow(dead_code, reason = "exported in the library only"))]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result $body
    };
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty
        as $call:ident($($shown:expr),* $(,)?) $body:block) => {
        hook! {
            $(#[$doc])*
            fn $name($($argument: $type),*) -> $result {
                #[inline(always)]
                unsafe fn body($($argument: $type),*) -> $result $body

                if $crate::trace::is_on() {
                    #[allow(unused_imports, reason = "each call has its own arguments")]
                    use $crate::trace::{Arg::*, names};
                    // SAFETY: the caller's arguments, unchanged.
                    let run = move || unsafe { body($($argument),*) };
                    let shown = [$($shown),*];
                    return $crate::trace::call($crate::trace::Call::$call, &shown, run, |value| value as i64);
                }
                // SAFETY: the caller's arguments, unchanged.
                unsafe { body($($argument),*) }
            }
        }
    };
}
pub(crate) use hook;

/// What a stream of ours calls, as the program would.
pub(crate) use {descriptors::close, descriptors::dup3, reading::read, writing::write};

/// Refuses a call: sets `errno` and returns what a failing call returns.
fn fail(errno: Errno) -> isize {
    trace::refused();
    failed(errno)
}

/// The same for a call that was made and failed.
fn failed(errno: Errno) -> isize {
    errno::set(errno);
    -1
}

/// Attempts a call on `fd` until it came to something. `None`: the call is the kernel's.
fn drive(fd: RawFd, mut attempt: impl FnMut(Woken) -> Outcome) -> Option<isize> {
    if guard::inside() {
        // A signal handler interrupted us: what is the kernel's works, a placeholder must not be touched.
        return table::get(fd).is_placeholder().then(|| fail(Errno::AGAIN));
    }
    let mut woken = Woken::First;
    let mut waiting = None;
    loop {
        let outcome = guard::fenced(|| attempt(woken)).unwrap_or_else(|| poison(fd));
        let moved = match outcome {
            Outcome::Done(value) => return Some(value),
            Outcome::Fail(errno) => return Some(failed(errno)),
            Outcome::Pass => return None,
            Outcome::BrokenPipe => {
                // SAFETY: raising a signal for the calling thread has no preconditions.
                unsafe { libc::raise(libc::SIGPIPE) };
                return Some(failed(Errno::PIPE));
            }
            Outcome::AwaitAcceptable | Outcome::AwaitConnected(_) | Outcome::AwaitOnce => 0,
            Outcome::AwaitReadable { moved }
            | Outcome::AwaitMore { moved }
            | Outcome::AwaitWritable { moved, .. } => moved,
        };
        if outcome != Outcome::AwaitAcceptable {
            guard::fenced(|| epoll::waited_elsewhere(fd));
        }
        let entry = table::get(fd);
        let waited = waiting.get_or_insert_with(Waiting::new).until_worth_trying(fd, outcome);
        trace::waited();
        match waited {
            // Another thread closed the descriptor, and perhaps opened another connection there, whose bytes are not ours.
            Ok(_) if moved_on(entry, table::get(fd)) => {
                return Some(if moved > 0 { moved.cast_signed() } else { failed(Errno::BADF) });
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) if outcome == Outcome::AwaitOnce => {
                return Some(0);
            }
            Ok(reason) => woken = reason,
            Err(Errno::NOTSOCK) if moved == 0 => return forget_stale(fd),
            Err(errno) if moved == 0 => return Some(failed(errno)),
            Err(_) => return Some(moved.cast_signed()),
        }
    }
}

/// Whether another thread closed a connection, so that its number means something else.
fn moved_on(before: Entry, now: Entry) -> bool {
    before.kind() == Kind::Connection && !before.is_same_socket(now)
}

/// The number names another file by now.
fn forget_stale(fd: RawFd) -> Option<isize> {
    guard::fenced(|| crate::descriptors::forget_stale(fd, table::get(fd)));
    None
}

/// After a panic: the socket is dead from now on. What is the kernel's stays the kernel's.
#[cold]
fn poison(fd: RawFd) -> Outcome {
    let entry = table::get(fd);
    let poisoned = guard::fenced(|| {
        let session = entry.socket().and_then(|socket| Some((socket, sessions::of(socket)?)));
        if let Some((socket, session)) = session {
            session.poison(socket.slot);
        }
    });
    match (entry.is_placeholder(), poisoned) {
        (true, _) => Outcome::Fail(Errno::CONNRESET),
        (false, _) => Outcome::Pass,
    }
}

/// For bookkeeping after a real call: its panic changes nothing about the call.
fn note(work: impl FnOnce()) {
    if !guard::inside() {
        guard::fenced(work);
    }
}

/// A return value of `int`.
fn int(value: isize) -> c_int {
    // Descriptors, lengths of options, 0 and −1.
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// A return value of `ssize_t`.
fn size(value: isize) -> ssize_t {
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Socket;
    use mqttshim_session::SlotId;

    /// A descriptor number no test opens, with the entry of a connection whose session is gone.
    fn connection(fd: RawFd) {
        let slot = SlotId { index: 0, generation: 0 };
        let entry = Entry::offloaded(Kind::Connection, Socket { session: 15, slot });
        table::replace(fd, entry.unwrap());
    }

    #[test]
    fn a_panic_kills_one_socket_and_leaves_the_kernels_alone() {
        connection(900_001);
        assert_eq!(drive(900_001, |_| panic!("on purpose")), Some(-1));
        assert_eq!(errno::last(), Errno::CONNRESET);
        assert_eq!(drive(900_002, |_| panic!("on purpose")), None);
    }

    #[test]
    fn a_call_from_inside_never_touches_a_placeholder() {
        connection(900_003);
        let never = |_: Woken| -> Outcome { unreachable!("not attempted") };
        let inside = guard::fenced(|| (drive(900_003, never), drive(900_004, never)));
        assert_eq!(inside, Some((Some(-1), None)));
    }
}

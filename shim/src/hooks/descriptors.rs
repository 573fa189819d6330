//! close, close_range, closefrom, dup, dup2, dup3, fcntl, fcntl64.
//!
//! Entries go before a real close and come after a real copy. In a vforked child, which runs on its parent's memory, nothing
//! is written down. Descriptors of our own look closed to the program.

use libc::{c_int, c_uint};
use rustix::io::Errno;

use super::{fail, hook, int, note};
use crate::descriptors;
use crate::fork;
use crate::guard;
use crate::real;
use crate::sessions;
use crate::table::{self, Entry, Kind};

/// `CLOSE_RANGE_UNSHARE`: the only flag with which something is closed.
const CLOSE_RANGE_UNSHARE: c_int = 2;

/// Takes the entry out if the table is this process's; the caller closes and then calls `released`.
fn taken(fd: c_int) -> Entry {
    if table::get(fd).is_plain() {
        return Entry::PLAIN;
    }
    let take = || if fork::is_own_table() { descriptors::take(fd) } else { Entry::PLAIN };
    guard::fenced(take).unwrap_or(Entry::PLAIN)
}

fn released(entry: Entry) {
    if !entry.is_plain() {
        note(|| descriptors::release(entry));
    }
}

/// A close in the middle of our own code: a descriptor of ours, or a signal handler that interrupted us.
fn close_inside(fd: c_int) -> c_int {
    if table::get(fd).kind() != Kind::Private {
        sessions::count(table::replace(fd, Entry::PLAIN), false);
    }
    // SAFETY: close(2) takes any number. The plain system call is no cancellation point, at which a thread would unwind
    // through our code.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

hook! {
    /// close(2)
    fn close(fd: c_int) -> c_int
        as Close(Fd(fd))
    {
        if guard::inside() {
            return close_inside(fd);
        }
        if table::get(fd).kind() == Kind::Private {
            return int(fail(Errno::BADF));
        }
        let entry = taken(fd);
        // SAFETY: the caller's arguments, unchanged.
        let outcome = unsafe { real::close(fd) };
        released(entry);
        outcome
    }
}

hook! {
    /// close_range(2)
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int
        as CloseRange(
            Size(first as usize),
            Size(last as usize),
            Flags(names::CLOSE_RANGE, flags.cast_unsigned()),
        )
    {
        if guard::inside() || flags & !CLOSE_RANGE_UNSHARE != 0 || first > last {
            // Ours are close-on-exec already; a bad range or flag is the kernel's to refuse.
            // SAFETY: the caller's arguments, unchanged.
            return unsafe { real::close_range(first, last, flags) };
        }
        let mut from = first;
        let last_known = c_int::try_from(last).unwrap_or(c_int::MAX);
        let first_known = c_int::try_from(first).unwrap_or(c_int::MAX);
        // Piecewise: around descriptors of our own, and one by one where we have something to note.
        for (fd, entry) in table::entries(first_known, last_known) {
            let number = fd.cast_unsigned();
            if number > from {
                // SAFETY: part of the range the caller wants closed.
                let outcome = unsafe { real::close_range(from, number - 1, flags) };
                if outcome != 0 {
                    return outcome;
                }
            }
            from = number + 1;
            if entry.kind() != Kind::Private {
                let entry = taken(fd);
                // SAFETY: part of the range the caller wants closed.
                unsafe { real::close(fd) };
                released(entry);
            }
        }
        if from > last {
            return 0;
        }
        // SAFETY: the rest of the range the caller wants closed.
        unsafe { real::close_range(from, last, flags) }
    }
}

hook! {
    /// closefrom(3)
    fn closefrom(first: c_int) -> () {
        let lowest = first.max(0).cast_unsigned();
        // SAFETY: close_range(2) takes any numbers.
        if unsafe { close_range(lowest, c_uint::MAX, 0) } != 0 {
            // Linux before 5.9 has no such call, and libc has another way.
            // SAFETY: the caller's argument, unchanged.
            unsafe { real::closefrom(first) };
        }
    }
}

/// A descriptor was copied.
fn copied(fd: c_int, copy: c_int) {
    if copy >= 0 && !(table::get(fd).is_plain() && table::get(copy).is_plain()) {
        note(|| {
            if fork::is_own_table() {
                descriptors::copied(fd, copy);
            }
        });
    }
}

hook! {
    /// dup(2)
    fn dup(fd: c_int) -> c_int
        as Dup(Fd(fd))
    {
        // SAFETY: the caller's arguments, unchanged.
        let copy = unsafe { real::dup(fd) };
        copied(fd, copy);
        copy
    }
}

/// dup2 and dup3 close their target.
fn copy_onto(fd: c_int, target: c_int, copy: impl FnOnce() -> c_int) -> c_int {
    if guard::inside() || fd == target {
        return copy();
    }
    if table::get(target).kind() == Kind::Private {
        // dup(2) knows EBUSY: the number is being used.
        return int(fail(Errno::BUSY));
    }
    // SAFETY: F_GETFD takes no argument.
    let is_open = unsafe { real::fcntl(fd, libc::F_GETFD, 0) } >= 0;
    let before = if is_open { taken(target) } else { Entry::PLAIN };
    let outcome = copy();
    if outcome >= 0 {
        released(before);
        copied(fd, target);
    } else if !before.is_plain() {
        table::replace(target, before);
    }
    outcome
}

hook! {
    /// dup2(2)
    fn dup2(fd: c_int, target: c_int) -> c_int
        as Dup2(Fd(fd), Fd(target))
    {
        // SAFETY: the caller's arguments, unchanged.
        copy_onto(fd, target, || unsafe { real::dup2(fd, target) })
    }
}

hook! {
    /// dup3(2)
    fn dup3(fd: c_int, target: c_int, flags: c_int) -> c_int
        as Dup3(Fd(fd), Fd(target), Flags(names::OPEN, flags.cast_unsigned()))
    {
        // SAFETY: the caller's arguments, unchanged.
        copy_onto(fd, target, || unsafe { real::dup3(fd, target, flags) })
    }
}

hook! {
    /// fcntl(2). Its third argument travels in the same register, whatever it is.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int
        as Fcntl(Fd(fd), Command(command, argument))
    {
        // SAFETY: the caller's arguments, unchanged.
        let value = unsafe { real::fcntl(fd, command, argument) };
        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            copied(fd, value);
        }
        value
    }
}

hook! {
    /// fcntl(2), by the name 64-bit file offsets give it.
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int
        as Fcntl(Fd(fd), Command(command, argument))
    {
        // SAFETY: the caller's arguments, unchanged.
        let value = unsafe { real::fcntl64(fd, command, argument) };
        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            copied(fd, value);
        }
        value
    }
}

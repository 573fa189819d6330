//! The calling thread's `errno`.
//!
//! A call that succeeds must leave it alone (`errno(3)` only allows a change; programs that look at it anyway exist), so the
//! fence around our code saves and restores it and only a failing hook sets it.

use rustix::io::Errno;

fn location() -> *mut i32 {
    // SAFETY: `__errno_location` has no preconditions; it returns the address of the calling thread's own `errno`.
    unsafe { libc::__errno_location() }
}

/// Its value.
pub(crate) fn get() -> i32 {
    // SAFETY: the address is valid and aligned as long as the thread lives, and no other thread uses it.
    unsafe { location().read() }
}

/// Sets it to `value`.
pub(crate) fn restore(value: i32) {
    // SAFETY: as in `get`.
    unsafe { location().write(value) }
}

/// Sets it, for a call that fails with `errno`.
pub(crate) fn set(errno: Errno) {
    restore(errno.raw_os_error());
}

/// It, as the failure of the call just made.
pub(crate) fn last() -> Errno {
    Errno::from_raw_os_error(get())
}

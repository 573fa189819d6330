//! The fence around our code: re-entrancy, `errno`, panics.
//!
//! Inside the fence, a call that comes back into a hook (std closing a descriptor of ours, a signal handler of the program)
//! is recognised by [`inside`] and served by the kernel alone. A panic stops at the fence; the hook then reports a failure.
//! Waits happen *outside* the fence: a cancelled thread unwinds there through frames without destructors, and a signal
//! handler finds its sockets usable.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

use crate::errno;

thread_local! {
    // Const and without a destructor: usable in signal handlers and after thread-local storage is torn down.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is inside the fence already.
pub(crate) fn inside() -> bool {
    DEPTH.get() > 0
}

/// Runs `work` inside the fence. `None` if it panicked. `errno` is as before.
pub(crate) fn fenced<T>(work: impl FnOnce() -> T) -> Option<T> {
    let saved = errno::get();
    DEPTH.set(DEPTH.get() + 1);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    errno::restore(saved);
    outcome.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn errno_survives_the_fence() {
        errno::set(Errno::NOTTY);
        fenced(|| errno::set(Errno::BADF));
        assert_eq!(errno::last(), Errno::NOTTY);
    }

    #[test]
    fn a_panic_stops_at_the_fence_and_leaves_it() {
        assert!(!inside());
        let outcome: Option<()> = fenced(|| {
            assert!(inside());
            panic!("on purpose");
        });
        assert_eq!(outcome, None);
        assert!(!inside());
    }
}

//! Signals, held back while a line is written: a handler's own calls would find the trace in use by their own thread.

use std::mem::MaybeUninit;

use crate::kernel::system_call;

/// Bytes of a mask.
const MASK_BYTES: usize = size_of::<u64>();

/// A signal mask of the kernel.
#[derive(Clone, Copy)]
pub(super) struct Mask(u64);

/// Blocks every signal for this thread. The system call itself: libc's function leaves out the signals with which it cancels
/// threads.
pub(super) fn block() -> Mask {
    let (all, mut before) = (u64::MAX, MaybeUninit::<u64>::zeroed());
    // SAFETY: both masks are live and as long as is said.
    unsafe {
        system_call!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            &raw const all,
            before.as_mut_ptr(),
            MASK_BYTES,
        )
    };
    // SAFETY: zeroed, and written by the kernel since.
    Mask(unsafe { before.assume_init() })
}

/// Takes a signal that a write of ours raised for this thread, so that the program never gets it.
pub(super) fn swallow(signal: i32) {
    let set = 1_u64 << (signal - 1);
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let nowhere = std::ptr::null_mut::<libc::siginfo_t>();
    // SAFETY: the mask and the time are live and as long as is said; nothing is to be written.
    unsafe {
        system_call!(libc::SYS_rt_sigtimedwait, &raw const set, nowhere, &raw const now, MASK_BYTES,)
    };
}

/// Puts back what [`block`] found.
pub(super) fn restore(mask: Mask) {
    let nowhere = std::ptr::null_mut::<u64>();
    // SAFETY: the mask is live and as long as is said.
    unsafe {
        system_call!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask.0,
            nowhere,
            MASK_BYTES,
        )
    };
}

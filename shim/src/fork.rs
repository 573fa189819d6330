//! What a fork means for us.
//!
//! ```text
//! fork     prepare: lock, count the child's copies │ parent: unlock │ child: unlock, forget thread id, tell the card
//! vfork    no handler runs and memory is the parent's: nothing may be written down on the child's behalf
//! clone    no handler runs and memory is a copy: found out at the next close, by a page the kernel wipes on fork
//! ```
//!
//! The session itself is shared with the child on purpose: its memory and its control socket serve both.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::descriptors;
use crate::epoll;
use crate::guard;
use crate::outside;
use crate::sessions;
use crate::state;
use crate::table;
use crate::trace;

/// The process whose descriptors the table describes.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// A word that holds 1, and 0 in a forked child (`MADV_WIPEONFORK`). Null where the kernel refused.
static WIPED: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static HOLDS_STATE: Cell<bool> = const { Cell::new(false) };
}

/// Notes the process and has fork tell us. Called by the constructor.
pub(crate) fn register() {
    PROCESS.store(own_pid(), Ordering::Relaxed);
    // SAFETY: the three functions are of this library, which is never unloaded (linked with `nodelete`).
    let outcome = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    debug_assert_eq!(outcome, 0, "pthread_atfork(3) fails only without memory");
}

/// Makes the page that tells a forked child from a vforked one. Called at the first TCP socket.
pub(crate) fn prepare_page() {
    if !WIPED.load(Ordering::Relaxed).is_null() {
        return;
    }
    let length = size_of::<AtomicU32>();
    // SAFETY: no address is asked for, so no mapping of anybody else is touched.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let Ok(page) = page else { return };
    // SAFETY: the advice concerns the mapping just made, which nobody else knows.
    let advised = unsafe { rustix::mm::madvise(page, length, Advice::LinuxWipeOnFork) };
    let word = page.cast::<AtomicU32>();
    if advised.is_ok() && mark(word) {
        // A second thread that was faster leaves one page too many, once.
        WIPED.store(word, Ordering::Release);
    }
}

fn mark(word: *mut AtomicU32) -> bool {
    // SAFETY: null, or the start of a page mapped for good, of which every bit pattern is an AtomicU32.
    let word = unsafe { word.as_ref() };
    word.is_some_and(|word| {
        word.store(1, Ordering::Release);
        true
    })
}

fn is_wiped() -> bool {
    // SAFETY: as in `mark`.
    let word = unsafe { WIPED.load(Ordering::Acquire).as_ref() };
    word.is_some_and(|word| word.load(Ordering::Acquire) == 0)
}

/// Whether the table describes this process's descriptors. Not in a vforked child, which runs on its parent's memory.
pub(crate) fn is_own_table() -> bool {
    if own_pid() == PROCESS.load(Ordering::Relaxed) {
        return true;
    }
    if is_wiped() {
        become_child(true);
        return true;
    }
    false
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn become_child(may_lock: bool) {
    PROCESS.store(own_pid(), Ordering::Relaxed);
    mark(WIPED.load(Ordering::Acquire));
    mqttshim_session::forget_thread_id();
    epoll::become_child();
    if sessions::has_descriptors() {
        // clone(2) without a handler: the parent does not know.
        sessions::share();
    }
    if may_lock {
        outside::announce_copies();
    }
}

extern "C" fn prepare() {
    if guard::inside() {
        // A signal handler forks while this thread is in our code, and may hold the lock; its child inherits it in use.
        return;
    }
    state::acquire_for_fork();
    trace::acquire_for_fork();
    guard::fenced(epoll::prepare_fork);
    HOLDS_STATE.set(true);
    guard::fenced(|| {
        if sessions::has_descriptors() {
            sessions::share();
            table::entries(0, RawFd::MAX).for_each(|(_, entry)| descriptors::retain(entry));
        }
    });
}

extern "C" fn parent() {
    if HOLDS_STATE.replace(false) {
        trace::release_in_parent();
        epoll::release_after_fork();
        state::release_after_fork();
    }
}

extern "C" fn child() {
    if HOLDS_STATE.replace(false) {
        trace::release_in_child();
        epoll::release_after_fork();
        state::release_after_fork();
    }
    let may_lock = !guard::inside();
    guard::fenced(|| become_child(may_lock));
}

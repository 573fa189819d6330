//! A lock that lives in shared memory and survives its holder's death.
//!
//! The word holds the thread id of its holder. A waiter yields, and now and then asks the kernel whether that thread still
//! exists; if not, the lock is taken over. What it guards is written so that a holder who dies half-way leaves the old
//! state: a position is published last. The lock is held for a copy of at most some 64 KiB, never across a wait.
//!
//! A thread that already holds the lock and asks again (a signal handler that interrupted its own read) gets `None`
//! instead of a deadlock.

use std::cell::Cell;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use rustix::thread::{gettid, nanosleep, sched_yield};

use crate::sync::{AtomicU32, Ordering};

/// Yields between two looks at whether the holder still exists.
const YIELDS_BEFORE_CHECK: u32 = 64;
/// Pause after a look that found the holder alive: it was most likely preempted.
const PAUSE_AFTER_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

thread_local! {
    static THREAD_ID: Cell<u32> = const { Cell::new(0) };
}

/// Forgets the cached id of this thread. Call in a forked child: there, its one thread has a new id.
pub fn forget_thread_id() {
    THREAD_ID.with(|id| id.set(0));
}

fn thread_id() -> u32 {
    THREAD_ID.with(|id| {
        if id.get() == 0 {
            id.set(gettid().as_raw_nonzero().get().unsigned_abs());
        }
        id.get()
    })
}

/// Releases the lock when dropped.
pub(crate) struct Guard<'a> {
    word: &'a AtomicU32,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release);
    }
}

/// Takes the lock in `word`. `None` when this very thread holds it already.
pub(crate) fn lock(word: &AtomicU32) -> Option<Guard<'_>> {
    let own = thread_id();
    let mut yields = 0;
    loop {
        let holder = match word.compare_exchange_weak(0, own, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => return Some(Guard { word }),
            Err(holder) => holder,
        };
        if holder == own {
            return None;
        }
        yields += 1;
        if holder == 0 || yields % YIELDS_BEFORE_CHECK != 0 {
            sched_yield();
            continue;
        }
        if is_gone(holder) {
            let taken = word.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return Some(Guard { word });
            }
        } else {
            // The plain system call: libc's is a cancellation point, and a thread must not unwind from here.
            let _ = nanosleep(&PAUSE_AFTER_CHECK);
        }
    }
}

/// Whether no thread with this id runs any more. A word that is no id at all, as only a hostile process writes it, counts as
/// gone; so does a process that died and was not waited for yet, because whoever has to may be waiting here.
fn is_gone(thread: u32) -> bool {
    let Some(id) = i32::try_from(thread).ok().and_then(Pid::from_raw) else { return true };
    test_kill_process(id) == Err(Errno::SRCH) || is_unreaped(id)
}

/// pidfd_open(2): readable once the process has terminated. The threads beside a process's first leave nothing behind.
fn is_unreaped(id: Pid) -> bool {
    // No descriptor to be had, or an old kernel: it counts as alive, and is asked again.
    let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return false };
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_try_of_the_same_thread_is_refused_not_a_deadlock() {
        let word = AtomicU32::new(0);
        let first = lock(&word);
        assert!(first.is_some());
        assert!(lock(&word).is_none());
        drop(first);
        assert!(lock(&word).is_some());
    }

    #[test]
    fn a_lock_whose_holder_is_gone_is_taken_over() {
        let gone = std::thread::spawn(thread_id).join().unwrap();
        let word = AtomicU32::new(gone);
        assert!(lock(&word).is_some());
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_lock_whose_holder_was_killed_is_taken_over_before_anybody_waited_for_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let word = AtomicU32::new(child.id());
        child.kill().unwrap();
        assert!(lock(&word).is_some());
        child.wait().unwrap();
    }

    #[test]
    fn two_threads_never_hold_it_together() {
        let word = AtomicU32::new(0);
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let guard = lock(&word).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        drop(guard);
                    }
                });
            }
        });
    }
}

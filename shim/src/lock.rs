//! A mutex that can be held across `fork(2)`.
//!
//! std's mutex cannot be released by a forked child that inherits it locked. Here `pthread_atfork`'s prepare handler takes
//! the lock, so nobody is half-way through the data while memory is copied, and parent and child each release their copy.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use rustix::time::Timespec;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A value that one thread at a time may use.
pub(crate) struct ForkLock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a `Held`, of which the word admits one at a time.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T> ForkLock<T> {
    pub(crate) const fn new(value: T) -> ForkLock<T> {
        ForkLock { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the value.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        self.acquire();
        Held { lock: self }
    }

    /// The value, if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        self.word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| Held { lock: self })
    }

    /// Waits for the value, but not for longer than `patience`.
    pub(crate) fn lock_for(&self, patience: Duration) -> Option<Held<'_, T>> {
        if let Some(held) = self.try_lock() {
            return Some(held);
        }
        let started = Instant::now();
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            let left = Timespec::try_from(patience.checked_sub(started.elapsed())?).ok()?;
            // As in `acquire`.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, CONTENDED, Some(&left));
        }
        Some(Held { lock: self })
    }

    /// Takes the lock without its value, before a fork.
    pub(crate) fn acquire(&self) {
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            // Woken, interrupted or changed meanwhile: the swap looks again.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, CONTENDED, None);
        }
    }

    /// Gives back what [`acquire`](Self::acquire) took, after a fork.
    pub(crate) fn release(&self) {
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            // Nobody is left waiting in a forked child: then this wakes none.
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }
}

/// The value, until dropped.
pub(crate) struct Held<'a, T> {
    lock: &'a ForkLock<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this `Held` is the only one, so nobody changes the value meanwhile.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this `Held` is the only one, and borrowed mutably here.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_and_none_is_forgotten() {
        let total = ForkLock::new(0_u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *total.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*total.lock(), 40_000);
    }

    #[test]
    fn a_held_lock_is_not_taken_twice() {
        let lock = ForkLock::new(());
        let held = lock.try_lock();
        assert!(held.is_some());
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none(), "an attempt that fails releases nothing");
        assert!(lock.lock_for(Duration::from_millis(1)).is_none());
        drop(held);
        assert!(lock.lock_for(Duration::ZERO).is_some());
        lock.acquire();
        assert!(lock.try_lock().is_none());
        lock.release();
        assert!(lock.try_lock().is_some());
    }
}

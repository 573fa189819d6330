//! The ready list itself: slots with news, a stack in shared memory.
//!
//! Whoever has news puts its slot on, by exchange; one process takes all at once. A slot is on the list once at most, so its link is
//! written by whoever put it there and by nobody else.
//!
//! The bell is a pipe, not an eventfd: the kernel then knows that the ringer is about to sleep (`wake_up_sync`), and lets the sleeper go
//! on on the same core, as it does between the two ends of a local TCP connection.

use std::os::fd::BorrowedFd;

use crate::layout::Slot;
use crate::memory::Memory;
use crate::sync::{Ordering, fence};

/// Puts a slot on the list, and rings if a thread of the program dozes.
pub(crate) fn put(memory: &Memory, index: u32, words: &Slot, bell: BorrowedFd<'_>) {
    let header = memory.header();
    if words.agent.ready_on.swap(1, Ordering::SeqCst) == 0 {
        let newest = &header.ready.0;
        let mut next = newest.load(Ordering::Relaxed);
        loop {
            words.agent.ready_next.store(next, Ordering::Relaxed);
            let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
            match newest.compare_exchange_weak(next, index + 1, success, failure) {
                Ok(_) => break,
                Err(other) => next = other,
            }
        }
    }
    fence(Ordering::SeqCst);
    rouse(memory, bell);
}

/// Rings if a thread of the program dozes.
pub(crate) fn rouse(memory: &Memory, bell: BorrowedFd<'_>) {
    let dozing = &memory.header().dozing.0;
    if dozing.load(Ordering::SeqCst) == 1 && dozing.swap(0, Ordering::SeqCst) == 1 {
        // One that is full already wakes.
        let _ = rustix::io::write(bell, &[0]);
    }
}

/// Empties the list: calls `news` for each slot, the newest first. Bounded by the number of slots.
pub(crate) fn take(memory: &Memory, mut news: impl FnMut(u32)) {
    let newest = &memory.header().ready.0;
    if newest.load(Ordering::SeqCst) == 0 {
        return;
    }
    let mut next = newest.swap(0, Ordering::SeqCst);
    for _ in 0..memory.slots() {
        let Some(index) = next.checked_sub(1) else { return };
        let Some(words) = memory.slot(index) else { return };
        // Read first: once it is off the list, it may be put on again.
        next = words.agent.ready_next.load(Ordering::Relaxed);
        words.agent.ready_on.store(0, Ordering::SeqCst);
        news(index);
    }
}

//! The ready list: news of sockets without a byte on their wires.
//!
//! ```text
//! agent: data ──► slot on the list ──► bell, if the program dozes        program: doze ──► list ──► sleep, or not
//! ```
//!
//! For a program that waits for many sockets in one place of its own. One process of the session takes from the list: whoever
//! shares it after a fork waits on the wires.

use std::os::fd::{AsFd, BorrowedFd};

use crate::entry::Kind;
use crate::lock;
use crate::program::{Session, SlotId, stream};
use crate::sync::{Ordering, fence};

impl Session {
    /// What becomes readable when news came while the program dozed. `None`: the agent knows no ready list.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|bell| bell.as_fd())
    }

    /// From now on news of this socket comes on the ready list. What is announced on its wire already stays there.
    pub fn list(&self, slot: SlotId) {
        if let Some(words) = self.slot(slot) {
            words.listed.store(1, Ordering::Relaxed);
        }
    }

    /// Whether news of this socket comes on the ready list.
    pub fn is_listed(&self, slot: SlotId) -> bool {
        self.slot(slot).is_some_and(|words| words.listed.load(Ordering::Relaxed) == 1)
    }

    /// From now on news of this socket comes on its wire. `true`: there is some already, and its byte is on the way.
    pub fn unlist(&self, slot: SlotId) -> bool {
        let Some(words) = self.slot(slot) else { return false };
        let Some(guard) = lock::lock(&words.lock) else { return false };
        words.listed.store(0, Ordering::Relaxed);
        let lacks_byte = stream::rx_token(words).wants_bytes();
        drop(guard);
        if lacks_byte {
            self.say(Kind::WantsByte, slot);
        }
        lacks_byte
    }

    /// Whether a read would find bytes.
    pub fn has_bytes(&self, slot: SlotId) -> bool {
        self.readable_bytes(slot) > 0
    }

    /// Calls `news` for every slot on the ready list, the newest first, and empties it. Bounded by the number of slots.
    pub fn take_ready(&self, mut news: impl FnMut(u32)) {
        let newest = &self.memory.header().ready.0;
        if newest.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut next = newest.swap(0, Ordering::SeqCst);
        for _ in 0..self.memory.slots() {
            let Some(index) = next.checked_sub(1) else { return };
            let Some(words) = self.memory.slot(index) else { return };
            // Read first: once it is off the list, the agent may put it on again.
            next = words.agent.ready_next.load(Ordering::Relaxed);
            words.agent.ready_on.store(0, Ordering::SeqCst);
            news(index);
        }
    }

    /// Says that a thread is about to sleep on the [`bell`](Self::bell). `false`: there is news, do not.
    pub fn doze(&self) -> bool {
        let header = self.memory.header();
        header.dozing.0.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_quiet = header.ready.0.load(Ordering::SeqCst) == 0;
        if !is_quiet {
            self.wake();
        }
        is_quiet
    }

    /// The thread is awake.
    pub fn wake(&self) {
        self.memory.header().dozing.0.store(0, Ordering::SeqCst);
    }

    /// Wakes a thread of this program that dozes.
    pub fn rouse(&self) {
        let dozing = &self.memory.header().dozing.0;
        if dozing.swap(0, Ordering::SeqCst) == 1
            && let Some(bell) = &self.bell
        {
            // One that is full already wakes.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }
}

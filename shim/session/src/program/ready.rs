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
use crate::layout::{LISTED, Slot, WIRE, WIRE_FOR_GOOD};
use crate::lock;
use crate::program::{Session, SlotId, stream};
use crate::ready;
use crate::sync::{AtomicU32, Ordering, fence};

impl Session {
    /// What becomes readable when news came while the program dozed. `None`: the agent knows no ready list.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|bell| bell.hears.as_fd())
    }

    /// From now on news of this socket comes on the ready list. What is announced on its wire already stays there. `false`: it
    /// stays on the wire for good, or is gone.
    pub fn list(&self, slot: SlotId) -> bool {
        self.slot(slot).is_some_and(|words| {
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            let before = words.listed.compare_exchange(WIRE, LISTED, success, failure);
            before.unwrap_or_else(|other| other) != WIRE_FOR_GOOD
        })
    }

    /// Whether news of this socket comes on the ready list.
    pub fn is_listed(&self, slot: SlotId) -> bool {
        self.slot(slot).is_some_and(|words| words.listed.load(Ordering::Relaxed) == LISTED)
    }

    /// From now on news of this socket comes on its wire. `true`: there is some already, and its byte is on the way.
    pub fn unlist(&self, slot: SlotId) -> bool {
        self.leave_list(slot, |listed| {
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            // On the wire already, perhaps for good: nothing changes.
            let _ = listed.compare_exchange(LISTED, WIRE, success, failure);
        })
    }

    /// The same, for good: a process holds the socket, or is about to, that does not see the list.
    pub fn keep_on_wire(&self, slot: SlotId) -> bool {
        self.leave_list(slot, |listed| listed.store(WIRE_FOR_GOOD, Ordering::Relaxed))
    }

    fn leave_list(&self, slot: SlotId, change: impl FnOnce(&AtomicU32)) -> bool {
        let Some(words) = self.slot(slot) else { return false };
        let Some(guard) = lock::lock(&words.lock) else { return false };
        change(&words.listed);
        let lacks_byte = stream::rx_token(words).wants_bytes();
        drop(guard);
        if lacks_byte {
            self.say(Kind::WantsByte, slot);
        }
        lacks_byte
    }

    /// Whether a read would find bytes. If not, the next to come are announced: what was announced already may have been read
    /// before its news was taken from the list, and an announcement is made only once.
    pub fn has_bytes(&self, slot: SlotId, placeholder: BorrowedFd<'_>) -> bool {
        let Some(words) = self.slot(slot) else { return false };
        if self.readable_bytes(slot) > 0 {
            return true;
        }
        if stream::rx_token(words).is_armed() {
            return false;
        }
        let Some(guard) = lock::lock(&words.lock) else { return false };
        self.look(slot, words, placeholder);
        drop(guard);
        self.readable_bytes(slot) > 0
    }

    /// Empties the ready list: calls `news` for each slot index on it, the newest first.
    pub fn take_ready(&self, news: impl FnMut(u32)) {
        ready::take(&self.memory, news);
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

    /// Silences the bell. Call when it was heard: one that is not empty need not be heard again.
    pub fn hush(&self) {
        if let Some(bell) = self.bell() {
            // A thread that dozes rings at most once; there may be a few.
            let _ = rustix::io::read(bell, &mut [0_u8; 16]);
        }
    }

    /// Wakes a thread of this program that dozes.
    pub fn rouse(&self) {
        if let Some(bell) = &self.bell {
            ready::rouse(&self.memory, bell.rings.as_fd());
        }
    }

    /// Puts a socket on the list for data that nobody else announces.
    pub(super) fn put_on_list(&self, slot: SlotId, words: &Slot) {
        if let Some(bell) = &self.bell {
            ready::put(&self.memory, slot.index, words, bell.rings.as_fd());
        }
    }
}

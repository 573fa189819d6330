//! The registrations of one epoll set that are kept at user level, by descriptor, and which of them are ready.
//!
//! A registration is also in the kernel's set, but for changes that were not made there yet. All words are reached under the
//! set's lock, or, where a descriptor is only asked whether it is a member, without.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Descriptors, and slots, that can be members: those beyond wait on their wires.
pub(super) const MEMBERS_MAX: usize = 1 << 18;
/// Registrations that differ from the kernel's at one time.
const CHANGES_MAX: usize = 32;
const NONE: i32 = -1;

/// What the program asked epoll to report, and the word to report it with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Interest {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

struct Words {
    /// The stamp of the set it is a member of.
    stamp: AtomicU32,
    /// The same, while it is in the chain of ready ones.
    chained: AtomicU32,
    next: AtomicI32,
    wanted: AtomicU32,
    kept: AtomicU32,
    data: AtomicU64,
    kept_data: AtomicU64,
}

static WORDS: [Words; MEMBERS_MAX] = [const {
    Words {
        stamp: AtomicU32::new(0),
        chained: AtomicU32::new(0),
        next: AtomicI32::new(NONE),
        wanted: AtomicU32::new(0),
        kept: AtomicU32::new(0),
        data: AtomicU64::new(0),
        kept_data: AtomicU64::new(0),
    }
}; MEMBERS_MAX];
/// The member that is this slot's descriptor, plus one.
static SLOTS: [AtomicI32; MEMBERS_MAX] = [const { AtomicI32::new(0) }; MEMBERS_MAX];

fn words(fd: RawFd) -> Option<&'static Words> {
    usize::try_from(fd).ok().and_then(|at| WORDS.get(at))
}

/// The members of one set. A new stamp makes a new set of nobody.
pub(super) struct Members {
    stamp: u32,
    first: RawFd,
    last: RawFd,
    highest: RawFd,
    changed: [RawFd; CHANGES_MAX],
    changes: usize,
}

impl Members {
    pub(super) const fn new() -> Members {
        Members {
            stamp: 1,
            first: NONE,
            last: NONE,
            highest: NONE,
            changed: [NONE; CHANGES_MAX],
            changes: 0,
        }
    }

    /// Nobody is a member any more.
    pub(super) fn clear(&mut self) {
        self.stamp = self.stamp.wrapping_add(1).max(1);
        (self.first, self.last, self.highest) = (NONE, NONE, NONE);
        self.changes = 0;
    }

    pub(super) fn has(&self, fd: RawFd) -> bool {
        words(fd).is_some_and(|words| words.stamp.load(Ordering::Relaxed) == self.stamp)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = RawFd> {
        (0..=self.highest).filter(|&fd| self.has(fd))
    }

    /// A descriptor was registered in the kernel's set. `slot` is its socket's.
    pub(super) fn add(&mut self, fd: RawFd, slot: u32, interest: Interest) {
        let (Some(words), Some(by_slot)) = (words(fd), SLOTS.get(slot as usize)) else { return };
        words.wanted.store(interest.events, Ordering::Relaxed);
        words.kept.store(interest.events, Ordering::Relaxed);
        words.data.store(interest.data, Ordering::Relaxed);
        words.kept_data.store(interest.data, Ordering::Relaxed);
        words.stamp.store(self.stamp, Ordering::Relaxed);
        by_slot.store(fd + 1, Ordering::Relaxed);
        self.highest = self.highest.max(fd);
    }

    /// A descriptor is no member any more. In the chain it stays, where nobody reports it.
    pub(super) fn remove(&mut self, fd: RawFd) {
        if let Some(words) = words(fd).filter(|_| self.has(fd)) {
            words.stamp.store(0, Ordering::Relaxed);
        }
    }

    /// The member that is this slot's descriptor. It may be another slot's by now.
    pub(super) fn of_slot(&self, slot: u32) -> Option<RawFd> {
        let fd = SLOTS.get(slot as usize)?.load(Ordering::Relaxed) - 1;
        (fd >= 0 && self.has(fd)).then_some(fd)
    }

    /// What the program asked for.
    pub(super) fn interest(&self, fd: RawFd) -> Option<Interest> {
        let words = words(fd).filter(|_| self.has(fd))?;
        let events = words.wanted.load(Ordering::Relaxed);
        Some(Interest { events, data: words.data.load(Ordering::Relaxed) })
    }

    /// The program asks for something else. `false`: there is no room to remember it, the kernel has to be told now.
    pub(super) fn change(&mut self, fd: RawFd, interest: Interest) -> bool {
        let Some(words) = words(fd).filter(|_| self.has(fd)) else { return false };
        words.wanted.store(interest.events, Ordering::Relaxed);
        words.data.store(interest.data, Ordering::Relaxed);
        if self.lag(fd).is_none() || self.changed[..self.changes].contains(&fd) {
            return true;
        }
        if self.changes == CHANGES_MAX {
            self.forget_undone();
        }
        let has_room = self.changes < CHANGES_MAX;
        if has_room {
            self.changed[self.changes] = fd;
            self.changes += 1;
        }
        has_room
    }

    /// Drops changes that were undone before the kernel heard of them.
    fn forget_undone(&mut self) {
        let mut kept = 0;
        for at in 0..self.changes {
            let fd = self.changed[at];
            if self.lag(fd).is_some() {
                self.changed[kept] = fd;
                kept += 1;
            }
        }
        self.changes = kept;
    }

    /// What the kernel has to be told of this member, if anything.
    fn lag(&self, fd: RawFd) -> Option<Interest> {
        let words = words(fd)?;
        let interest = self.interest(fd)?;
        let is_kept = words.kept.load(Ordering::Relaxed) == interest.events
            && words.kept_data.load(Ordering::Relaxed) == interest.data;
        (!is_kept).then_some(interest)
    }

    /// Takes one change the kernel has not been told of, until `None`.
    pub(super) fn take_change(&mut self) -> Option<(RawFd, Interest)> {
        while self.changes > 0 {
            self.changes -= 1;
            let fd = self.changed[self.changes];
            if let Some(interest) = self.lag(fd) {
                self.told(fd, interest);
                return Some((fd, interest));
            }
        }
        None
    }

    /// The kernel has been told.
    pub(super) fn told(&mut self, fd: RawFd, interest: Interest) {
        if let Some(words) = words(fd) {
            words.kept.store(interest.events, Ordering::Relaxed);
            words.kept_data.store(interest.data, Ordering::Relaxed);
        }
    }

    /// Puts a member at the end of the chain of ready ones, unless it is there.
    pub(super) fn chain(&mut self, fd: RawFd) {
        let Some(words) = words(fd) else { return };
        if words.chained.swap(self.stamp, Ordering::Relaxed) == self.stamp {
            return;
        }
        words.next.store(NONE, Ordering::Relaxed);
        match WORDS.get(usize::try_from(self.last).unwrap_or(usize::MAX)) {
            Some(last) => last.next.store(fd, Ordering::Relaxed),
            None => self.first = fd,
        }
        self.last = fd;
    }

    /// Takes the first off the chain.
    pub(super) fn unchain(&mut self) -> Option<RawFd> {
        let fd = self.first;
        let words = words(fd)?;
        self.first = words.next.load(Ordering::Relaxed);
        if self.first == NONE {
            self.last = NONE;
        }
        words.chained.store(0, Ordering::Relaxed);
        Some(fd)
    }

    /// The last of the chain: where a walk that puts members back ends.
    pub(super) fn last(&self) -> Option<RawFd> {
        (self.last != NONE).then_some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN: Interest = Interest { events: 1, data: 7 };
    const IN_OUT: Interest = Interest { events: 5, data: 7 };

    /// One test, because the tables are the process's.
    #[test]
    fn members_are_chained_once_changed_lazily_and_forgotten_with_their_set() {
        let mut members = Members::new();
        for fd in 10..14 {
            members.add(fd, fd as u32 + 100, IN);
        }
        assert_eq!(members.of_slot(112), Some(12));
        members.chain(11);
        members.chain(13);
        members.chain(11);
        assert_eq!((members.unchain(), members.last()), (Some(11), Some(13)));
        members.chain(11);
        members.remove(13);
        let chained: Vec<_> = std::iter::from_fn(|| members.unchain()).collect();
        assert_eq!(chained, [13, 11], "who was removed is met once more, and is no member");
        assert!(!members.has(13) && members.interest(13).is_none());

        assert!(members.change(10, IN_OUT) && members.change(11, IN_OUT));
        assert!(members.change(10, IN), "undone");
        assert_eq!(members.take_change(), Some((11, IN_OUT)));
        assert_eq!(members.take_change(), None);

        for round in 0..2 {
            for fd in 0..CHANGES_MAX as i32 {
                members.add(1000 + fd, 1000 + fd as u32, IN);
                assert!(members.change(1000 + fd, IN_OUT));
                assert!(round == 1 || members.change(1000 + fd, IN));
            }
        }
        assert!(!members.change(10, IN_OUT), "no room");

        members.clear();
        assert_eq!(members.all().count(), 0);
        assert_eq!((members.unchain(), members.take_change()), (None, None));
        assert_eq!(members.of_slot(112), None);
    }
}

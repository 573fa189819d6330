//! The epoll registrations of sockets whose verdict has not fallen.
//!
//! The kernel keeps a registration with the open file, so it is lost when a placeholder takes the descriptor's number
//! (`epoll(7)`, Q6). Those made before are remembered here and made again for the placeholder. A registration that finds no
//! room marks its socket as one that must stay with the kernel. No lock: a record is claimed and freed by its key.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Registrations of undecided sockets at one time. A broker has one or two for each listener.
const WATCHES_MAX: usize = 256;

const FREE: u64 = 0;
const CLAIMED: u64 = u64::MAX;

struct Slot {
    /// Epoll descriptor and descriptor, which are never both 0.
    key: AtomicU64,
    events: AtomicU32,
    data: AtomicU64,
}

static SLOTS: [Slot; WATCHES_MAX] = [const {
    Slot { key: AtomicU64::new(FREE), events: AtomicU32::new(0), data: AtomicU64::new(0) }
}; WATCHES_MAX];

/// One registration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Watch {
    pub(crate) epoll: RawFd,
    pub(crate) events: u32,
    pub(crate) data: u64,
}

fn key(epoll: RawFd, fd: RawFd) -> u64 {
    u64::from(epoll.cast_unsigned()) << 32 | u64::from(fd.cast_unsigned())
}

/// Remembers a registration that was just made or changed. `false` when there is no room.
pub(crate) fn remember(fd: RawFd, watch: Watch) -> bool {
    let key = key(watch.epoll, fd);
    let slot = SLOTS.iter().find(|slot| slot.key.load(Ordering::Acquire) == key).or_else(|| {
        SLOTS.iter().find(|slot| {
            slot.key.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    });
    let Some(slot) = slot else { return false };
    slot.events.store(watch.events, Ordering::Relaxed);
    slot.data.store(watch.data, Ordering::Relaxed);
    slot.key.store(key, Ordering::Release);
    true
}

/// A registration was deleted.
pub(crate) fn forget(epoll: RawFd, fd: RawFd) {
    let key = key(epoll, fd);
    for slot in &SLOTS {
        // Changed meanwhile: then somebody else forgot it.
        let _ = slot.key.compare_exchange(key, FREE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Takes the registrations of a descriptor, one by one, until `None`.
pub(crate) fn take(fd: RawFd) -> Option<Watch> {
    SLOTS.iter().find_map(|slot| {
        let key = slot.key.load(Ordering::Acquire);
        if key == FREE || key == CLAIMED || key as u32 != fd.cast_unsigned() {
            return None;
        }
        let watch = Watch {
            epoll: ((key >> 32) as u32).cast_signed(),
            events: slot.events.load(Ordering::Relaxed),
            data: slot.data.load(Ordering::Relaxed),
        };
        slot.key
            .compare_exchange(key, FREE, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
            .then_some(watch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the table is the process's.
    #[test]
    fn registrations_are_kept_changed_forgotten_and_taken_within_the_limit() {
        let watch = |epoll, data| Watch { epoll, events: 1, data };
        assert!(remember(70, watch(5, 1)));
        assert!(remember(70, watch(6, 2)));
        assert!(remember(71, watch(5, 3)));
        assert!(remember(70, watch(5, 4)));
        forget(6, 70);
        assert_eq!(take(70), Some(watch(5, 4)));
        assert_eq!(take(70), None);
        assert_eq!(take(71), Some(watch(5, 3)));
        for fd in 0..WATCHES_MAX as i32 {
            assert!(remember(1000 + fd, watch(3, 0)), "{fd}");
        }
        assert!(!remember(70, watch(3, 0)));
        for fd in 0..WATCHES_MAX as i32 {
            assert!(take(1000 + fd).is_some());
        }
    }
}

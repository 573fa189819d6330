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

/// Room to write, by its three names.
const ROOM: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND).cast_unsigned();
/// No socket ever tells it: in a listener's registration it stands for the room that was asked for.
const LEFT_OUT: u32 = libc::EPOLLMSG.cast_unsigned();
/// What stays of a registration for one event once that has come (`EP_PRIVATE_BITS` of the kernel).
const KEPT_WHEN_SPENT: u32 =
    (libc::EPOLLWAKEUP | libc::EPOLLONESHOT | libc::EPOLLET | libc::EPOLLEXCLUSIVE).cast_unsigned();

impl Watch {
    /// Whether it was for one event, which has come.
    pub(crate) fn is_spent(self) -> bool {
        self.events & !KEPT_WHEN_SPENT == 0
    }

    /// As a listener's placeholder has it.
    pub(crate) fn of_listener(self) -> Watch {
        Watch { events: of_listener(self.events), ..self }
    }

    /// As the program asked for it, of a listener.
    pub(crate) fn as_asked(self) -> Watch {
        let room = if self.events & LEFT_OUT == 0 { 0 } else { libc::EPOLLOUT.cast_unsigned() };
        Watch { events: self.events & !LEFT_OUT | room, ..self }
    }
}

/// What a listener's placeholder is watched for, in place of `events`: it is never writable, but its placeholder always is.
pub(crate) fn of_listener(events: u32) -> u32 {
    let left_out = if events & ROOM == 0 { 0 } else { LEFT_OUT };
    events & !ROOM | left_out
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

    #[test]
    fn a_listener_is_not_watched_for_room_until_it_listens_no_more() {
        let [both, input] = [libc::EPOLLIN | libc::EPOLLOUT, libc::EPOLLIN].map(|events| Watch {
            epoll: 5,
            events: events.cast_unsigned(),
            data: 1,
        });
        assert_eq!(both.of_listener().events & ROOM, 0);
        assert_eq!(both.of_listener().as_asked(), both);
        assert_eq!(input.of_listener().as_asked(), input);
        assert_eq!(input.of_listener(), input);
    }

    #[test]
    fn a_registration_for_one_event_is_spent_when_nothing_else_is_left_of_it() {
        let watch = |events: i32| Watch { epoll: 5, events: events.cast_unsigned(), data: 1 };
        assert!(watch(libc::EPOLLONESHOT | libc::EPOLLET).is_spent());
        assert!(!watch(libc::EPOLLONESHOT | libc::EPOLLHUP).is_spent());
    }

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

//! poll, select and their kin. The kernel answers; what they are asked about must show there.
//!
//! A listener is never writable, but its placeholder always is: nobody is asked whether it is.

use libc::{c_int, c_long, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use super::{hook, is_nowhere, note};
use crate::epoll;
use crate::real;
use crate::table::{self, Kind};
use crate::trace::MASK_BYTES;

/// Makes sure that the kernel knows what there is to know of `fd`.
fn looked_at(fd: c_int) {
    if matches!(table::get(fd).kind(), Kind::Connection | Kind::Epoll) {
        note(|| epoll::waited_elsewhere(fd));
    }
}

/// What a listener's placeholder says and a listener does not.
pub(super) const ROOM: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;
/// Listeners asked for room in one poll that are noticed.
const MUTED_MAX: usize = 16;

/// What was asked for of listeners, to be asked for again by whoever uses the same pollfds again.
struct Muted {
    places: [(usize, i16); MUTED_MAX],
    used: usize,
}

impl Muted {
    /// # Safety
    /// `fds` leads nowhere or points to `count` pollfds.
    unsafe fn look_at_all(fds: *mut pollfd, count: nfds_t) -> Muted {
        let mut muted = Muted { places: [(0, 0); MUTED_MAX], used: 0 };
        for at in 0..usize::try_from(count).unwrap_or(0).min(table::DESCRIPTORS_MAX) {
            if is_nowhere(fds) {
                break;
            }
            // SAFETY: one of the caller's, which lie somewhere.
            let place = unsafe { fds.add(at) };
            // SAFETY: as above.
            let asked = unsafe { place.read_unaligned() };
            looked_at(asked.fd);
            let is_listener = table::get(asked.fd).kind() == Kind::Listener;
            if is_listener && asked.events & ROOM != 0 && muted.used < MUTED_MAX {
                muted.places[muted.used] = (at, asked.events);
                muted.used += 1;
                let asked = pollfd { events: asked.events & !ROOM, ..asked };
                // SAFETY: as above; poll(2) writes there, too.
                unsafe { place.write_unaligned(asked) };
            }
        }
        muted
    }

    /// # Safety
    /// As for [`look_at_all`](Self::look_at_all), with the same pollfds.
    unsafe fn restore(&self, fds: *mut pollfd) {
        for &(at, events) in &self.places[..self.used] {
            // SAFETY: one of the caller's.
            let place = unsafe { fds.add(at) };
            // SAFETY: as above.
            let answered = unsafe { place.read_unaligned() };
            // SAFETY: as above.
            unsafe { place.write_unaligned(pollfd { events, ..answered }) };
        }
    }
}

hook! {
    /// poll(2)
    fn poll(fds: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int
        as Poll(Watched(fds.addr(), count as usize), Size(count as usize), Int(milliseconds.into()))
    {
        // SAFETY: poll(2) obliges its caller to pass so many pollfds.
        let muted = unsafe { Muted::look_at_all(fds, count) };
        // SAFETY: the caller's arguments, but for what listeners do not know.
        let outcome = unsafe { real::poll(fds, count, milliseconds) };
        // SAFETY: the same pollfds.
        unsafe { muted.restore(fds) };
        outcome
    }
}

hook! {
    /// ppoll(2)
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int
        as Ppoll(
            Watched(fds.addr(), count as usize),
            Size(count as usize),
            Timespec(timeout.addr()),
            Mask(mask.addr(), MASK_BYTES),
            Size(MASK_BYTES),
        )
    {
        // SAFETY: ppoll(2) obliges its caller to pass so many pollfds.
        let muted = unsafe { Muted::look_at_all(fds, count) };
        // SAFETY: the caller's arguments, but for what listeners do not know.
        let outcome = unsafe { real::ppoll(fds, count, timeout, mask) };
        // SAFETY: the same pollfds.
        unsafe { muted.restore(fds) };
        outcome
    }
}

/// # Safety
/// Each set is null or reaches up to descriptor `count`.
unsafe fn look_at_sets(count: c_int, [reads, writes, others]: [*mut fd_set; 3]) {
    const WORD_BITS: usize = c_long::BITS as usize;
    let count = usize::try_from(count).unwrap_or(0).min(table::DESCRIPTORS_MAX);
    for set in [reads, writes, others].into_iter().filter(|&set| !is_nowhere(set)) {
        for at in 0..count.div_ceil(WORD_BITS) {
            // SAFETY: a word of the set, which reaches that far.
            let place = unsafe { set.cast::<c_long>().add(at) };
            // SAFETY: as above.
            let asked = unsafe { place.read_unaligned() };
            let (mut bits, mut kept) = (asked, asked);
            while bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                if at * WORD_BITS + bit < count {
                    let fd = c_int::try_from(at * WORD_BITS + bit).unwrap_or(-1);
                    looked_at(fd);
                    if set == writes && table::get(fd).kind() == Kind::Listener {
                        kept &= !(1 << bit);
                    }
                }
            }
            if kept != asked {
                // SAFETY: as above; select(2) writes there, too.
                unsafe { place.write_unaligned(kept) };
            }
        }
    }
}

hook! {
    /// select(2)
    fn select(
        count: c_int,
        reads: *mut fd_set,
        writes: *mut fd_set,
        others: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int
        as Pselect6(
            Sets(count, [reads.addr(), writes.addr(), others.addr()]),
            Timeval(timeout.addr()),
            Pointer(0),
        )
    {
        // SAFETY: select(2) obliges its caller to pass sets that reach so far.
        unsafe { look_at_sets(count, [reads, writes, others]) };
        // SAFETY: the caller's arguments, but for what listeners do not know.
        unsafe { real::select(count, reads, writes, others, timeout) }
    }
}

hook! {
    /// pselect(2)
    fn pselect(
        count: c_int,
        reads: *mut fd_set,
        writes: *mut fd_set,
        others: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int
        as Pselect6(
            Sets(count, [reads.addr(), writes.addr(), others.addr()]),
            Timespec(timeout.addr()),
            MaskWrapped(mask.addr()),
        )
    {
        // SAFETY: pselect(2) obliges its caller to pass sets that reach so far.
        unsafe { look_at_sets(count, [reads, writes, others]) };
        // SAFETY: the caller's arguments, but for what listeners do not know.
        unsafe { real::pselect(count, reads, writes, others, timeout, mask) }
    }
}

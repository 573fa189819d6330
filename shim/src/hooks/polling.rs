//! poll, select and their kin. The kernel answers; what they are asked about must show there.

use libc::{c_int, c_long, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use super::{hook, note};
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

/// # Safety
/// `fds` is null or points to `count` pollfds.
unsafe fn look_at_all(fds: *const pollfd, count: nfds_t) {
    for at in 0..usize::try_from(count).unwrap_or(0).min(table::DESCRIPTORS_MAX) {
        if fds.is_null() {
            return;
        }
        // SAFETY: one of the caller's, which are not null.
        let place = unsafe { fds.add(at) };
        // SAFETY: as above.
        looked_at(unsafe { place.read_unaligned() }.fd);
    }
}

hook! {
    /// poll(2)
    fn poll(fds: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int
        as Poll(Watched(fds.addr(), count as usize), Size(count as usize), Int(milliseconds.into()))
    {
        // SAFETY: poll(2) obliges its caller to pass so many pollfds.
        unsafe { look_at_all(fds, count) };
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::poll(fds, count, milliseconds) }
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
        unsafe { look_at_all(fds, count) };
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::ppoll(fds, count, timeout, mask) }
    }
}

/// # Safety
/// Each set is null or reaches up to descriptor `count`.
unsafe fn look_at_sets(count: c_int, sets: [*const fd_set; 3]) {
    const WORD_BITS: usize = c_long::BITS as usize;
    let count = usize::try_from(count).unwrap_or(0).min(table::DESCRIPTORS_MAX);
    for set in sets.into_iter().filter(|set| !set.is_null()) {
        for at in 0..count.div_ceil(WORD_BITS) {
            // SAFETY: a word of the set, which reaches that far.
            let place = unsafe { set.cast::<c_long>().add(at) };
            // SAFETY: as above.
            let mut bits = unsafe { place.read_unaligned() };
            while bits != 0 {
                let fd = at * WORD_BITS + bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                if fd < count {
                    looked_at(c_int::try_from(fd).unwrap_or(-1));
                }
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
        // SAFETY: the caller's arguments, unchanged.
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
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::pselect(count, reads, writes, others, timeout, mask) }
    }
}

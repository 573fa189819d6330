//! What waits: epoll's events, poll's descriptors, select's sets, time-outs and signal masks.

use libc::{epoll_event, pollfd};

use super::arg::Result;
use super::line::{Line, put};
use super::memory;
use super::names;
use super::text::{SHOWN_MAX, array, flags, known_flags, pointer, time};

/// Bytes of a signal mask, as the kernel has it.
pub(crate) const MASK_BYTES: usize = 8;
/// Bits of the words select's sets are made of.
const WORD_BITS: usize = 64;
/// Most descriptors of one select that are looked at.
const SELECT_MAX: usize = 1 << 20;
const SETS: [&str; 3] = ["in", "out", "except"];

/// The event given to epoll_ctl.
pub(super) fn epoll_event_in(line: &mut Line, operation: i32, address: usize) {
    if operation == libc::EPOLL_CTL_DEL || !epoll_event_at(line, address) {
        pointer(line, address);
    }
}

fn epoll_event_at(line: &mut Line, address: usize) -> bool {
    let Some(event) = memory::load::<epoll_event>(address) else { return false };
    let (events, data) = (event.events, event.u64);
    line.push("{events=");
    flags(line, names::EPOLL, events.into());
    put!(line, ", data={{u32={}, u64={data}}}}}", data as u32);
    true
}

/// The events epoll_wait brought.
pub(super) fn epoll_events(line: &mut Line, address: usize, result: Result) {
    match usize::try_from(result.value) {
        Ok(count) => array(line, address, count, size_of::<epoll_event>(), epoll_event_at),
        Err(_) => pointer(line, address),
    }
}

/// The descriptors poll was given.
pub(super) fn poll_set(line: &mut Line, address: usize, count: usize) {
    array(line, address, count, size_of::<pollfd>(), |line, element| {
        let Some(watched) = memory::load::<pollfd>(element) else { return false };
        put!(line, "{{fd={}", watched.fd);
        if watched.fd >= 0 {
            line.push(", events=");
            flags(line, names::POLL, (watched.events as u16).into());
        }
        line.push("}");
        true
    });
}

/// After a result: which descriptors are ready, and the time that is left.
pub(super) fn poll_note(
    line: &mut Line,
    address: usize,
    count: usize,
    left: Option<[i64; 2]>,
    result: Result,
) {
    if result.value == 0 {
        return line.push(" (Timeout)");
    }
    if result.is_failed() || address == 0 || count == 0 {
        return;
    }
    let (mut shown, mut separator) = (0, " ([");
    for at in 0..count.min(SELECT_MAX) {
        let Some(watched) = memory::load::<pollfd>(address + at * size_of::<pollfd>()) else {
            break;
        };
        if watched.revents == 0 {
            continue;
        }
        line.push(separator);
        separator = ", ";
        if shown == SHOWN_MAX {
            line.push("...");
            break;
        }
        shown += 1;
        put!(line, "{{fd={}, revents=", watched.fd);
        let others = known_flags(line, names::POLL.all, u64::from(watched.revents as u16), "");
        if others != 0 {
            put!(line, "|{others:#x}");
        }
        line.push("}");
    }
    line.push("]");
    if let Some(left) = left {
        line.push(", left ");
        time(line, left, "tv_nsec");
    }
    line.push(")");
}

/// A mask of `length` bytes; where most signals are in it, those that are not.
pub(super) fn signal_mask(line: &mut Line, address: usize, length: usize) {
    if length != MASK_BYTES {
        return pointer(line, address);
    }
    let Some(mask) = memory::load::<u64>(address) else { return pointer(line, address) };
    let is_inverted = mask.count_ones() >= 64 * 2 / 3;
    let shown = if is_inverted { !mask } else { mask };
    line.push(if is_inverted { "~[" } else { "[" });
    let mut separator = "";
    for signal in (1..=64_u64).filter(|signal| shown >> (signal - 1) & 1 == 1) {
        line.push(separator);
        separator = " ";
        match names::SIGNAL.find(signal) {
            Some(name) => line.push(name),
            None => put!(line, "RT_{}", signal - 32),
        }
    }
    line.push("]");
}

/// A mask as pselect's system call takes it: with its length.
pub(super) fn wrapped_mask(line: &mut Line, address: usize) {
    line.push("{sigmask=");
    signal_mask(line, address, MASK_BYTES);
    put!(line, ", sigsetsize={MASK_BYTES}}}");
}

/// The members of one of select's sets, of descriptors below `count`.
fn members(address: usize, count: usize) -> impl Iterator<Item = usize> {
    let words = count.div_ceil(WORD_BITS);
    (0..words).flat_map(move |at| {
        let word = memory::load::<u64>(address + at * size_of::<u64>()).unwrap_or(0);
        (0..WORD_BITS)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| at * WORD_BITS + bit)
            .filter(move |&fd| fd < count)
    })
}

fn select_count(count: i32) -> usize {
    usize::try_from(count).unwrap_or(0).min(SELECT_MAX)
}

/// What select was given.
pub(super) fn select_sets(line: &mut Line, count: i32, sets: [usize; 3]) {
    put!(line, "{count}");
    let count = select_count(count);
    for set in sets {
        line.push(", ");
        if count == 0 || memory::load::<u64>(set).is_none() {
            pointer(line, set);
            continue;
        }
        let mut separator = "[";
        for fd in members(set, count) {
            put!(line, "{separator}{fd}");
            separator = " ";
        }
        line.push(if separator == "[" { "[]" } else { "]" });
    }
}

/// After a result: which descriptors are ready, and the time that is left.
pub(super) fn select_note(
    line: &mut Line,
    count: i32,
    sets: [usize; 3],
    left: Option<[i64; 2]>,
    result: Result,
) {
    if result.value == 0 {
        return line.push(" (Timeout)");
    }
    let Ok(mut ready) = usize::try_from(result.value) else { return };
    line.push(" (");
    let (count, mut is_first) = (select_count(count), true);
    for (set, name) in sets.into_iter().zip(SETS).filter(|&(set, _)| set != 0) {
        let mut separator = " [";
        for fd in members(set, count).take(ready) {
            if separator == " [" {
                line.push(if is_first { "" } else { ", " });
                line.push(name);
            }
            put!(line, "{separator}{fd}");
            separator = " ";
            is_first = false;
        }
        if separator == " " {
            line.push("]");
        }
        ready -= members(set, count).take(ready).count();
    }
    if let Some(left) = left {
        line.push(if is_first { "left " } else { ", left " });
        time(line, left, "tv_nsec");
    }
    line.push(")");
}

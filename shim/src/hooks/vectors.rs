//! The program's buffers as Rust's.

use std::io::{IoSlice, IoSliceMut};
use std::slice;

use libc::{c_int, c_void, iovec, size_t};
use rustix::io::Errno;

/// Most parts of one call (`UIO_MAXIOV`).
pub(super) const PARTS_MAX: usize = 1024;
/// Most bytes of one call (`MAX_RW_COUNT`): the kernel cuts longer ones.
pub(super) const BYTES_MAX: usize = 0x7fff_f000;

/// Of `linux/fs.h`: do not wait; and the flags preadv2(2) and pwritev2(2) take of any file, of which this is one.
const RWF_NOWAIT: c_int = 8;
const RWF_TAKEN: c_int = 0x3f;

/// The flags of recvmsg(2) and sendmsg(2) that say what these of preadv2(2) and pwritev2(2) do.
pub(super) fn message_flags(flags: c_int) -> Result<c_int, Errno> {
    match flags & RWF_NOWAIT {
        _ if flags & !RWF_TAKEN != 0 => Err(Errno::OPNOTSUPP),
        0 => Ok(0),
        _ => Ok(libc::MSG_DONTWAIT),
    }
}

/// What no program has mapped: the first page (`vm.mmap_min_addr`).
const FIRST_PAGE_BYTES: usize = 4096;

/// Whether the kernel refuses these bytes without looking, because they reach into its own half of the addresses.
pub(super) fn is_outside(address: usize, count: usize) -> bool {
    address.checked_add(count).is_none_or(|end| end.cast_signed() < 0)
}

/// Whether a pointer to something leads nowhere, as far as that can be seen: null, null with an offset, or the kernel's.
pub(crate) fn is_nowhere<T>(pointer: *const T) -> bool {
    (pointer as usize).cast_signed() < FIRST_PAGE_BYTES.cast_signed()
}

/// A call's buffers.
pub(super) struct Parts<T> {
    pub(super) slices: T,
    /// Bytes of all of them.
    pub(super) wanted: usize,
    /// One of them leads nowhere: the call fails with EFAULT when it comes to copying, and none may be touched.
    pub(super) has_hole: bool,
}

/// # Errors
/// EFAULT, when the kernel refuses the buffer without looking.
///
/// # Safety
/// `target` points to `count` writable bytes, or leads nowhere, or `count` is 0.
pub(super) unsafe fn target<'a>(
    target: *mut c_void,
    count: size_t,
) -> Result<Parts<[IoSliceMut<'a>; 1]>, Errno> {
    if is_outside(target as usize, count) {
        return Err(Errno::FAULT);
    }
    if count == 0 || is_nowhere(target) {
        let slices = [IoSliceMut::new(&mut [])];
        return Ok(Parts { slices, wanted: count, has_hole: count > 0 });
    }
    // SAFETY: somewhere, and then writable for at least `count` bytes as the caller promises.
    let bytes = unsafe { slice::from_raw_parts_mut(target.cast(), count.min(BYTES_MAX)) };
    Ok(Parts { wanted: count, slices: [IoSliceMut::new(bytes)], has_hole: false })
}

/// # Errors
/// EFAULT, when the kernel refuses the buffer without looking.
///
/// # Safety
/// `source` points to `count` readable bytes, or leads nowhere, or `count` is 0.
pub(super) unsafe fn source<'a>(
    source: *const c_void,
    count: size_t,
) -> Result<Parts<[IoSlice<'a>; 1]>, Errno> {
    if is_outside(source as usize, count) {
        return Err(Errno::FAULT);
    }
    if count == 0 || is_nowhere(source) {
        return Ok(Parts { slices: [IoSlice::new(&[])], wanted: count, has_hole: count > 0 });
    }
    // SAFETY: somewhere, and then readable for at least `count` bytes as the caller promises.
    let bytes = unsafe { slice::from_raw_parts(source.cast(), count.min(BYTES_MAX)) };
    Ok(Parts { wanted: count, slices: [IoSlice::new(bytes)], has_hole: false })
}

/// How many parts `readv` and `writev` take: too many, or fewer than none, are an error.
pub(super) fn check_count(count: c_int) -> Result<usize, Errno> {
    usize::try_from(count).ok().filter(|&count| count <= PARTS_MAX).ok_or(Errno::INVAL)
}

/// Where the parts with bytes go if an empty one has no address: a slice of Rust's must have one.
pub(super) type Room = Option<[iovec; ROOM_PARTS_MAX]>;
/// As many as fit the stack. What is beyond them is not moved, as if there had been less room or data.
const ROOM_PARTS_MAX: usize = 16;

/// What is known of the parts of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Checked {
    /// Bytes of all of them.
    wanted: usize,
    /// One with bytes leads nowhere.
    has_hole: bool,
    /// One has no address.
    has_null: bool,
}

/// Looks at all parts.
///
/// # Errors
/// EINVAL for a length that no call can return, EFAULT for what the kernel refuses without looking.
///
/// # Safety
/// `parts` points to `count` vectors, or leads nowhere, or `count` is 0.
unsafe fn check(parts: *const iovec, count: usize) -> Result<Checked, Errno> {
    let (mut wanted, mut has_hole, mut has_null) = (0_usize, false, false);
    if count > 0 && is_nowhere(parts) {
        return Err(Errno::FAULT);
    }
    for at in 0..count {
        // SAFETY: `at` is below `count`.
        let part = unsafe { parts.add(at) };
        // SAFETY: points to one of the caller's vectors; two words are read, no reference made.
        let iovec { iov_base, iov_len } = unsafe { part.read_unaligned() };
        if iov_len.cast_signed() < 0 {
            return Err(Errno::INVAL);
        }
        if is_outside(iov_base as usize, iov_len) {
            return Err(Errno::FAULT);
        }
        wanted = wanted.saturating_add(iov_len).min(BYTES_MAX);
        has_hole |= iov_len > 0 && is_nowhere(iov_base);
        has_null |= iov_base.is_null();
    }
    Ok(Checked { wanted, has_hole, has_null })
}

/// The parts that have bytes, as many as there is room for.
///
/// # Safety
/// `parts` points to `count` vectors.
#[cold]
unsafe fn compact(parts: *const iovec, count: usize, room: &mut Room) -> (*const iovec, usize) {
    let room = room.insert([iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; ROOM_PARTS_MAX]);
    let mut there = 0;
    for at in 0..count {
        // SAFETY: `at` is below `count`.
        let part = unsafe { parts.add(at) };
        // SAFETY: points to one of the caller's vectors; copied, no reference made.
        let part = unsafe { part.read_unaligned() };
        if part.iov_len > 0 {
            let Some(free) = room.get_mut(there) else { break };
            *free = part;
            there += 1;
        }
    }
    (room.as_ptr(), there)
}

/// # Errors
/// See [`check`].
///
/// # Safety
/// `parts` points to `count` vectors whose bytes are writable, or leads nowhere, or `count` is 0.
pub(super) unsafe fn targets<'a>(
    parts: *const iovec,
    count: usize,
    room: &'a mut Room,
) -> Result<Parts<&'a mut [IoSliceMut<'a>]>, Errno> {
    // SAFETY: as the caller promises.
    let Checked { wanted, has_hole, has_null } = unsafe { check(parts, count) }?;
    if count == 0 || has_hole {
        return Ok(Parts { slices: &mut [], wanted, has_hole });
    }
    let (parts, count) = match has_null {
        false => (parts, count),
        // SAFETY: as the caller promises.
        true => unsafe { compact(parts, count, room) },
    };
    // SAFETY: std guarantees that an IoSliceMut has the layout of an iovec, and each has an address. The vectors themselves are
    // never written: the session fills the bytes they point to.
    let slices = unsafe { slice::from_raw_parts_mut(parts.cast_mut().cast(), count) };
    Ok(Parts { slices, wanted, has_hole })
}

/// # Errors
/// See [`check`].
///
/// # Safety
/// `parts` points to `count` vectors whose bytes are readable, or leads nowhere, or `count` is 0.
pub(super) unsafe fn sources<'a>(
    parts: *const iovec,
    count: usize,
    room: &'a mut Room,
) -> Result<Parts<&'a [IoSlice<'a>]>, Errno> {
    // SAFETY: as the caller promises.
    let Checked { wanted, has_hole, has_null } = unsafe { check(parts, count) }?;
    if count == 0 || has_hole {
        return Ok(Parts { slices: &[], wanted, has_hole });
    }
    let (parts, count) = match has_null {
        false => (parts, count),
        // SAFETY: as the caller promises.
        true => unsafe { compact(parts, count, room) },
    };
    // SAFETY: std guarantees that an IoSlice has the layout of an iovec, and each has an address.
    let slices = unsafe { slice::from_raw_parts(parts.cast(), count) };
    Ok(Parts { slices, wanted, has_hole })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_counts_are_pinned_on_both_sides() {
        assert_eq!(check_count(0), Ok(0));
        assert_eq!(check_count(1024), Ok(1024));
        assert_eq!(check_count(1025), Err(Errno::INVAL));
        assert_eq!(check_count(-1), Err(Errno::INVAL));
    }

    #[test]
    fn lengths_no_call_can_return_and_addresses_no_program_has_are_refused() {
        let mut byte = 0_u8;
        let base: *mut c_void = (&raw mut byte).cast();
        let check = |iov_base, iov_len| {
            // SAFETY: one vector, whose bytes are not touched.
            let checked = unsafe { super::check(&iovec { iov_base, iov_len }, 1) };
            checked.map(|it| (it.wanted, it.has_hole))
        };
        assert_eq!(check(base, 1), Ok((1, false)));
        assert_eq!(check(base, isize::MAX as usize), Err(Errno::FAULT));
        assert_eq!(check(base, isize::MAX as usize + 1), Err(Errno::INVAL));
        assert_eq!(check(std::ptr::without_provenance_mut(8), 1), Ok((1, true)));
        assert_eq!(check(std::ptr::null_mut(), 0), Ok((0, false)));
        assert_eq!(check(std::ptr::without_provenance_mut(usize::MAX - 8), 1), Err(Errno::FAULT));
    }

    #[test]
    fn empty_parts_without_an_address_are_left_out() {
        let mut bytes = *b"ab";
        let [a, b] = [0, 1].map(|at| iovec { iov_base: (&raw mut bytes[at]).cast(), iov_len: 1 });
        let nowhere = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let seen = |parts: &[iovec]| {
            let mut room = None;
            // SAFETY: as many vectors, whose bytes are readable.
            let parts = unsafe { sources(parts.as_ptr(), parts.len(), &mut room) }.ok()?;
            Some(parts.slices.iter().map(|part| part[0]).collect::<Vec<u8>>())
        };
        assert_eq!(seen(&[nowhere, a, nowhere, b, nowhere]), Some(b"ab".to_vec()));
        assert_eq!(seen(&[nowhere, nowhere]), Some(Vec::new()));
        assert_eq!(seen(&[]), Some(Vec::new()));
        let mut many = [a; 40];
        many[20] = nowhere;
        assert_eq!(seen(&many), Some(vec![b'a'; ROOM_PARTS_MAX]));
    }
}

//! The program's buffers as Rust's.

use std::io::{IoSlice, IoSliceMut};
use std::slice;

use libc::{c_int, c_void, iovec, size_t};
use rustix::io::Errno;

/// Most parts of one call (`UIO_MAXIOV`).
pub(super) const PARTS_MAX: usize = 1024;
/// Most bytes of one call (`MAX_RW_COUNT`): the kernel cuts longer ones.
const BYTES_MAX: usize = 0x7fff_f000;

/// # Safety
/// `target` points to `count` writable bytes, or `count` is 0.
pub(super) unsafe fn target<'a>(target: *mut c_void, count: size_t) -> IoSliceMut<'a> {
    if count == 0 || target.is_null() {
        return IoSliceMut::new(&mut []);
    }
    // SAFETY: not null, and writable for at least `count` bytes as the caller promises.
    IoSliceMut::new(unsafe { slice::from_raw_parts_mut(target.cast(), count.min(BYTES_MAX)) })
}

/// # Safety
/// `source` points to `count` readable bytes, or `count` is 0.
pub(super) unsafe fn source<'a>(source: *const c_void, count: size_t) -> IoSlice<'a> {
    if count == 0 || source.is_null() {
        return IoSlice::new(&[]);
    }
    // SAFETY: not null, and readable for at least `count` bytes as the caller promises.
    IoSlice::new(unsafe { slice::from_raw_parts(source.cast(), count.min(BYTES_MAX)) })
}

/// The bytes of all parts; their sum was checked when they were made.
pub(super) fn sum(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(0, usize::saturating_add)
}

/// How many parts `readv` and `writev` take: too many, or fewer than none, are an error.
pub(super) fn check_count(count: c_int) -> Result<usize, Errno> {
    usize::try_from(count).ok().filter(|&count| count <= PARTS_MAX).ok_or(Errno::INVAL)
}

/// Whether the parts' lengths add up to something a call can return.
///
/// # Safety
/// `parts` points to `count` vectors, or `count` is 0.
unsafe fn check_sum(parts: *const iovec, count: usize) -> Result<(), Errno> {
    let mut sum = 0_usize;
    for at in 0..count {
        // SAFETY: `at` is below `count`.
        let part = unsafe { parts.add(at) };
        // SAFETY: points to one of the caller's vectors; a field is read, no reference made.
        let length = unsafe { (*part).iov_len };
        sum = sum.checked_add(length).filter(|&sum| sum.cast_signed() >= 0).ok_or(Errno::INVAL)?;
    }
    Ok(())
}

/// # Safety
/// `parts` points to `count` vectors whose bytes are writable, or `count` is 0.
pub(super) unsafe fn targets<'a>(
    parts: *const iovec,
    count: usize,
) -> Result<&'a mut [IoSliceMut<'a>], Errno> {
    if count == 0 || parts.is_null() {
        return Ok(&mut []);
    }
    // SAFETY: as the caller promises.
    unsafe { check_sum(parts, count) }?;
    // SAFETY: std guarantees that an IoSliceMut has the layout of an iovec. The vectors themselves are never written: the
    // session fills the bytes they point to.
    Ok(unsafe { slice::from_raw_parts_mut(parts.cast_mut().cast(), count) })
}

/// # Safety
/// `parts` points to `count` vectors whose bytes are readable, or `count` is 0.
pub(super) unsafe fn sources<'a>(
    parts: *const iovec,
    count: usize,
) -> Result<&'a [IoSlice<'a>], Errno> {
    if count == 0 || parts.is_null() {
        return Ok(&[]);
    }
    // SAFETY: as the caller promises.
    unsafe { check_sum(parts, count) }?;
    // SAFETY: std guarantees that an IoSlice has the layout of an iovec.
    Ok(unsafe { slice::from_raw_parts(parts.cast(), count) })
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
    fn lengths_that_overflow_a_return_value_are_refused() {
        let parts = [isize::MAX as usize, 1]
            .map(|iov_len| iovec { iov_base: std::ptr::null_mut(), iov_len });
        // SAFETY: two vectors, whose bytes are not touched.
        assert_eq!(unsafe { check_sum(parts.as_ptr(), 2) }, Err(Errno::INVAL));
        // SAFETY: one vector.
        assert_eq!(unsafe { check_sum(parts.as_ptr(), 1) }, Ok(()));
    }
}

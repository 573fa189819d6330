//! Asks the processor for memory that will be needed soon.
//!
//! A fan-out visits some thousands of connections, each in a handful of places, once: what it costs is the wait for memory. A loop that
//! knows who comes next asks for it while it is busy with somebody else.

#![allow(unsafe_code, reason = "the processor's instruction for this takes a bare pointer")]

/// Bytes that come together.
const LINE_BYTES: usize = 64;

/// Says that all of `value` is needed soon. Nothing waits.
#[inline]
pub(crate) fn soon<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of_val(value)).step_by(LINE_BYTES) {
        line(start.wrapping_add(offset));
    }
}

/// Says that the beginning of `value` is needed soon, so many bytes of it.
#[inline]
pub(crate) fn soon_bytes<T>(value: &T, bytes: usize) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    let bytes = bytes.min(size_of::<T>());
    for offset in (0..bytes).step_by(LINE_BYTES) {
        line(start.wrapping_add(offset));
    }
    // Where it begins inside a line, it ends in one more.
    line(start.wrapping_add(bytes.saturating_sub(1)));
}

/// Says that what begins here is needed soon, one line of it.
#[inline]
pub(crate) fn soon_at<T>(place: *const T) {
    line(place.cast());
}

#[inline]
fn line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: PREFETCHT0 reads nothing that the program sees and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: PRFM reads nothing that the program sees and faults at no address (Arm ARM, C6.2 PRFM).
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(readonly, nostack, preserves_flags));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_may_be_asked_for_and_none_changes() {
        let many = [7_u8; 1000];
        soon(&many);
        soon(&many[3..3]);
        soon("text");
        assert_eq!(many, [7; 1000]);
    }
}

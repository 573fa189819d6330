//! Asks the processor for memory that will be needed soon.
//!
//! A fan-out visits some thousands of connections, each in a handful of places, once: what it costs is the wait for memory. A loop that
//! knows who comes next asks for it while it is busy with somebody else.

/// Bytes that come together.
const LINE_BYTES: usize = 64;

/// Says that all of `value` is needed soon. Nothing waits.
#[inline]
pub fn soon<T: ?Sized>(value: &T) {
    soon_bytes(std::ptr::from_ref(value).cast(), size_of_val(value));
}

/// Says that so many bytes from here on are needed soon; they need not be anybody's.
#[inline]
pub(super) fn soon_bytes(start: *const u8, bytes: usize) {
    for offset in (0..bytes).step_by(LINE_BYTES) {
        line(start.wrapping_add(offset));
    }
    // Where it begins inside a line, it ends in one more.
    if !start.addr().is_multiple_of(LINE_BYTES) && bytes > 0 {
        line(start.wrapping_add(bytes - 1));
    }
}

/// Says that what begins here is needed soon, one line of it.
#[inline]
pub fn soon_at<T>(place: *const T) {
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

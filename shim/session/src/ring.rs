//! Copies bytes into and out of a ring in shared memory.
//!
//! A position counts bytes and never wraps; the ring's size is a power of two. Nothing here says which bytes are valid:
//! that is the business of the head and tail words of `layout`. What is copied out may have been written by anybody at any
//! moment, so it is plain bytes until its reader has checked it.

use std::marker::PhantomData;
use std::ptr;

/// A ring's bytes, somewhere in a mapping that outlives `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    base: *mut u8,
    bytes: usize,
    mapping: PhantomData<&'a [u8]>,
}

impl<'a> Ring<'a> {
    /// # Safety
    /// - `base` points to `bytes` bytes that stay mapped, readable and writable, for `'a`;
    /// - `bytes` is a power of two;
    /// - no Rust reference to any of these bytes exists during `'a`.
    pub(crate) unsafe fn new(base: *mut u8, bytes: usize) -> Ring<'a> {
        debug_assert!(bytes.is_power_of_two());
        Ring { base, bytes, mapping: PhantomData }
    }

    /// Copies `source` in at `position`. At most the ring's size is taken.
    pub(crate) fn copy_in(&self, position: u64, source: &[u8]) {
        assert!(source.len() <= self.bytes, "a write larger than its ring");
        let (at, first) = self.split(position, source.len());
        let (head, rest) = source.split_at(first);
        // SAFETY: `at < bytes` by the mask in `split`, so the pointer stays inside the ring's allocation.
        let to = unsafe { self.base.add(at) };
        // SAFETY: `split` makes `at + first <= bytes`; `Ring::new`'s caller keeps those bytes mapped and unreferenced.
        unsafe { ptr::copy_nonoverlapping(head.as_ptr(), to, head.len()) };
        // SAFETY: `rest.len() <= bytes` by the assertion above; same mapping, from its first byte.
        unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), self.base, rest.len()) };
    }

    /// Copies from `position` out into `target`. At most the ring's size is given.
    pub(crate) fn copy_out(&self, position: u64, target: &mut [u8]) {
        assert!(target.len() <= self.bytes, "a read larger than its ring");
        let (at, first) = self.split(position, target.len());
        let (head, rest) = target.split_at_mut(first);
        // SAFETY: `at < bytes` by the mask in `split`, so the pointer stays inside the ring's allocation.
        let from = unsafe { self.base.add(at) };
        // SAFETY: `split` makes `at + first <= bytes`; `Ring::new`'s caller keeps those bytes mapped and unreferenced.
        unsafe { ptr::copy_nonoverlapping(from, head.as_mut_ptr(), head.len()) };
        // SAFETY: `rest.len() <= bytes` by the assertion above; same mapping, from its first byte.
        unsafe { ptr::copy_nonoverlapping(self.base, rest.as_mut_ptr(), rest.len()) };
    }

    /// Where `position` lies, and how many of `length` bytes come before the ring's end.
    fn split(&self, position: u64, length: usize) -> (usize, usize) {
        let at = (position & (self.bytes as u64 - 1)) as usize;
        (at, length.min(self.bytes - at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_across_the_end_of_the_ring() {
        let mut memory = vec![0_u8; 16];
        // SAFETY: 16 bytes, a power of two, owned by `memory`, which is not touched otherwise until the ring is dropped.
        let ring = unsafe { Ring::new(memory.as_mut_ptr(), 16) };
        for position in 0..40 {
            for length in 0..=16 {
                let source: Vec<u8> = (0..length).map(|i| (position as u8) ^ (i as u8)).collect();
                ring.copy_in(position, &source);
                let mut target = vec![0; length];
                ring.copy_out(position, &mut target);
                assert_eq!(target, source);
            }
        }
    }

    #[test]
    #[should_panic(expected = "larger than its ring")]
    fn a_write_larger_than_the_ring_is_a_bug_of_ours() {
        let mut memory = vec![0_u8; 8];
        // SAFETY: 8 bytes, a power of two, owned by `memory`, which is not touched otherwise until the ring is dropped.
        let ring = unsafe { Ring::new(memory.as_mut_ptr(), 8) };
        ring.copy_in(0, &[0; 9]);
    }
}

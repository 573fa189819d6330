//! The memory that frames lie in (`UMEM`, Documentation/networking/af_xdp.rst), cut into chunks that the kernel and we hold by
//! turns.
//!
//! Whose a chunk is, is told by [`Chunk`]: there is one of each, made with the memory; it goes into a ring when its bytes are the
//! kernel's to read or to write, and comes out of one when they are ours again. So who has a [`Chunk`] alone has its bytes.

use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::prefetch::soon_bytes;

/// See the module.
#[derive(Debug)]
pub(crate) struct Umem {
    base: NonNull<u8>,
    chunk_bytes: usize,
    chunks: u32,
}

/// The right to the bytes of a chunk.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Chunk(u32);

// SAFETY: the memory is reached through chunks alone, and of each there is one.
unsafe impl Send for Umem {}
// SAFETY: see `Send`.
unsafe impl Sync for Umem {}

impl Umem {
    /// Maps `chunks` chunks of `chunk_bytes` bytes, a power of two, and all rights to them.
    pub(crate) fn new(chunk_bytes: usize, chunks: u32) -> Result<(Umem, Vec<Chunk>), Errno> {
        assert!(chunk_bytes.is_power_of_two());
        let bytes = chunk_bytes * chunks as usize;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: mmap(2) with a null hint picks an unused range, so no existing mapping is touched.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, flags) }?;
        // Few large pages: a fan-out writes thousands of frames, each in another page, and where a page is has to be looked up before
        // that. A kernel that has none goes on with small ones.
        // SAFETY: the whole of the mapping just made, which nobody uses yet; MADV_HUGEPAGE changes no byte (madvise(2)).
        let _ = unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok((Umem { base, chunk_bytes, chunks }, (0..chunks).map(Chunk).collect()))
    }

    /// Where it begins, and its bytes.
    pub(crate) fn place(&self) -> (u64, u64) {
        let bytes = self.chunk_bytes * self.chunks as usize;
        (self.base.as_ptr().expose_provenance() as u64, bytes as u64)
    }

    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// `length` bytes of a chunk, `at` bytes from its beginning.
    ///
    /// # Panics
    /// If the chunk has not as many.
    pub(crate) fn bytes<'a>(
        &'a self,
        chunk: &'a mut Chunk,
        at: usize,
        length: usize,
    ) -> &'a mut [u8] {
        assert!(chunk.0 < self.chunks && at <= self.chunk_bytes && length <= self.chunk_bytes - at);
        let offset = chunk.0 as usize * self.chunk_bytes + at;
        // SAFETY: within the mapping by the assertion.
        let first = unsafe { self.base.add(offset) };
        // SAFETY: `length` bytes from there are within the chunk by the assertion, and initialised, as all of a new mapping is.
        // Nobody else reaches them: the one right to them is borrowed for as long, and the kernel keeps away from chunks it was not
        // given (see the module).
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), length) }
    }

    /// Says that the first bytes of a chunk will be written soon. Nothing waits.
    pub(crate) fn expect(&self, chunk: &Chunk, bytes: usize) {
        let first = self.base.as_ptr().wrapping_add(chunk.0 as usize * self.chunk_bytes);
        soon_bytes(first, bytes);
    }

    /// How the kernel names the beginning of a chunk.
    pub(super) fn address(&self, chunk: Chunk) -> u64 {
        u64::from(chunk.0) * self.chunk_bytes as u64
    }

    /// The chunk that the kernel gives back, and how far in it the address lies. `None`: there is no such place.
    ///
    /// It is for the rings, which ask once for each address that the kernel put into them; the kernel gives each chunk back once for
    /// each time it got it.
    pub(super) fn given_back(&self, address: u64) -> Option<(Chunk, usize)> {
        let chunk = u32::try_from(address / self.chunk_bytes as u64).ok()?;
        let at = (address % self.chunk_bytes as u64) as usize;
        (chunk < self.chunks).then_some((Chunk(chunk), at))
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        let bytes = self.chunk_bytes * self.chunks as usize;
        // SAFETY: exactly the range `new` mapped; whoever has a slice of it borrows `self`. A kernel that still uses it holds pages
        // of its own.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_do_not_overlap_and_come_back_by_any_address_in_them() {
        let (umem, mut chunks) = Umem::new(2048, 3).unwrap();
        for (number, chunk) in chunks.iter_mut().enumerate() {
            umem.bytes(chunk, 0, 2048).fill(number as u8);
        }
        for (number, chunk) in chunks.into_iter().enumerate() {
            let address = umem.address(chunk);
            let (mut chunk, at) = umem.given_back(address + 256).unwrap();
            assert_eq!(at, 256);
            assert!(umem.bytes(&mut chunk, 0, 2048).iter().all(|byte| *byte == number as u8));
        }
        assert_eq!(umem.given_back(3 * 2048), None);
    }
}

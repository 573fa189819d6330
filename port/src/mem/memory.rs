//! The bytes both ends look at, and the words beside them: a sealed memfd, mapped.
//!
//! ```text
//! page 0: magic, layout │ words of ring 0 │ words of ring 1      then ring 0's bytes, then ring 1's
//! ```
//!
//! Sealed against shrinking, so that neither end can make the other's access fault. All access is by atomics and by copies:
//! whoever is at the other end may write anything at any moment.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of one ring: a power of two, and large enough that a fan-out to some thousands does not wait for its reader.
pub(super) const RING_BYTES: usize = 1 << 20;
const HEADER_BYTES: usize = 4096;
const TOTAL_BYTES: usize = HEADER_BYTES + 2 * RING_BYTES;
/// "MQTTFRAM" as little-endian bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"MQTTFRAM");
/// Changes with every meaning of these bytes.
const LAYOUT: u32 = 1;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A word with cache lines of its own: two, because processors fetch them in pairs.
#[repr(C, align(128))]
pub(super) struct Alone<T>(pub(super) T);

/// What the ends of a ring tell each other.
#[repr(C)]
pub(super) struct Words {
    /// Bytes ever written; its writer's.
    pub(super) head: Alone<AtomicU64>,
    /// Bytes ever taken; its reader's.
    pub(super) tail: Alone<AtomicU64>,
    /// 1 while the reader wants to be woken.
    pub(super) sleeps: Alone<AtomicU32>,
}

#[repr(C)]
struct Header {
    magic: AtomicU64,
    layout: AtomicU32,
    rings: [Words; 2],
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES && RING_BYTES.is_power_of_two());

/// A mapping of both rings.
#[derive(Debug)]
pub(super) struct Memory(NonNull<u8>);

// SAFETY: the mapping is only reached through atomics and through copies of plain bytes; any thread may.
unsafe impl Send for Memory {}
// SAFETY: see `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes, seals and maps two empty rings.
    pub(super) fn create() -> Result<(Memory, OwnedFd), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("mqttshim-frames", flags)?;
        rustix::fs::ftruncate(&file, TOTAL_BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let memory = Memory::map(file.as_fd())?;
        memory.header().layout.store(LAYOUT, Ordering::Relaxed);
        memory.header().magic.store(MAGIC, Ordering::Release);
        Ok((memory, file))
    }

    /// Maps what another process made.
    ///
    /// # Errors
    /// EPROTO: it is not what this module makes.
    pub(super) fn open(file: BorrowedFd<'_>) -> Result<Memory, Errno> {
        let seals = rustix::fs::fcntl_get_seals(file)?;
        let bytes = rustix::fs::fstat(file)?.st_size;
        if !seals.contains(SealFlags::SHRINK) || bytes != TOTAL_BYTES as i64 {
            return Err(Errno::PROTO);
        }
        let memory = Memory::map(file)?;
        let header = memory.header();
        let is_ours = header.magic.load(Ordering::Acquire) == MAGIC
            && header.layout.load(Ordering::Relaxed) == LAYOUT;
        if is_ours { Ok(memory) } else { Err(Errno::PROTO) }
    }

    fn map(file: BorrowedFd<'_>) -> Result<Memory, Errno> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: mmap(2) with a null hint picks an unused range, so no existing mapping is touched.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), TOTAL_BYTES, access, flags, file, 0) }?;
        NonNull::new(base.cast()).map(Memory).ok_or(Errno::NOMEM)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, longer than a header, lives as long as `self`, and `Header` is atomics only, for
        // which every bit pattern is valid and changes by another process are no data race.
        unsafe { self.0.cast::<Header>().as_ref() }
    }

    /// The words of a ring, 0 or 1.
    pub(super) fn words(&self, ring: usize) -> &Words {
        &self.header().rings[ring]
    }

    /// Copies `source` into a ring at `position`, around its end.
    pub(super) fn copy_in(&self, ring: usize, position: u64, source: &[u8]) {
        let (at, first) = place(position, source.len());
        let (head, rest) = source.split_at(first);
        // SAFETY: `place` keeps `at + first` within the ring; a mapping has no Rust references into its rings.
        unsafe { ptr::copy_nonoverlapping(head.as_ptr(), self.byte(ring, at), head.len()) };
        if !rest.is_empty() {
            // SAFETY: a source is no longer than the ring (`place`); otherwise as above.
            unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), self.byte(ring, 0), rest.len()) };
        }
    }

    /// Copies out of a ring at `position`, around its end.
    pub(super) fn copy_out(&self, ring: usize, position: u64, target: &mut [u8]) {
        let (at, first) = place(position, target.len());
        let (head, rest) = target.split_at_mut(first);
        // SAFETY: as in `copy_in`. What another process writes meanwhile is torn bytes, which are as good as any of its.
        unsafe { ptr::copy_nonoverlapping(self.byte(ring, at), head.as_mut_ptr(), head.len()) };
        if !rest.is_empty() {
            // SAFETY: as above.
            unsafe { ptr::copy_nonoverlapping(self.byte(ring, 0), rest.as_mut_ptr(), rest.len()) };
        }
    }

    fn byte(&self, ring: usize, at: usize) -> *mut u8 {
        assert!(ring < 2 && at < RING_BYTES);
        let offset = HEADER_BYTES + ring * RING_BYTES + at;
        // SAFETY: below TOTAL_BYTES by the assertion.
        unsafe { self.0.as_ptr().add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the range `map` mapped, and every reference into it borrowed from `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), TOTAL_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Where `position` lies, and how many of `length` bytes come before the ring's end.
fn place(position: u64, length: usize) -> (usize, usize) {
    assert!(length <= RING_BYTES, "nothing longer than the ring goes into it");
    let at = (position & (RING_BYTES as u64 - 1)) as usize;
    (at, length.min(RING_BYTES - at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mapping_sees_the_same_bytes_across_the_end_of_a_ring() {
        let (one, file) = Memory::create().unwrap();
        let other = Memory::open(file.as_fd()).unwrap();
        let position = 3 * RING_BYTES as u64 - 4;
        for ring in 0..2 {
            let written = [ring as u8 + 1; 9];
            one.copy_in(ring, position, &written);
            let mut read = [0; 9];
            other.copy_out(ring, position, &mut read);
            assert_eq!(read, written);
        }
    }

    #[test]
    fn what_somebody_else_made_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("other", flags).unwrap();
        rustix::fs::ftruncate(&file, TOTAL_BYTES as u64).unwrap();
        assert_eq!(Memory::open(file.as_fd()).map(drop), Err(Errno::PROTO), "not sealed");
        rustix::fs::fcntl_add_seals(&file, SEALS).unwrap();
        assert_eq!(Memory::open(file.as_fd()).map(drop), Err(Errno::PROTO), "no magic");
    }
}

//! The mapping both sides look at: made and sealed by the agent, mapped by the program.
//!
//! The memfd is sealed against shrinking and growing, so neither side can make the other's access fault (a truncated one
//! kills its other holder with SIGBUS). Mapping is all that happens here; `layout` says what the bytes mean.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::layout::{Header, LAYOUT_MAX, LAYOUT_MIN, MAGIC, Offsets, RX_BYTES, Slot, TX_BYTES};
use crate::ring::Ring;
use crate::sync::Ordering;

/// Why a session's memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel refused one of the steps.
    #[error("the session's shared memory: {step}: {errno}")]
    System {
        /// The call that failed.
        step: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
    /// The file is not sealed as an agent seals it.
    #[error("the session's shared memory is not sealed against shrinking and growing")]
    Unsealed,
    /// The file is not a session's memory, or of another layout.
    #[error("the session's shared memory has layout {layout}, this build knows {LAYOUT_MAX}")]
    Layout {
        /// What its first page says; 0 when it is no session at all.
        layout: u32,
    },
}

fn system(step: &'static str) -> impl Fn(Errno) -> MemoryError {
    move |errno| MemoryError::System { step, errno }
}

/// A mapped session.
pub(crate) struct Memory {
    base: NonNull<u8>,
    offsets: Offsets,
    slots: u32,
}

// SAFETY: the mapping is only reached through atomics (`header`, `slot`) and through `Ring`, which copies; any thread may.
unsafe impl Send for Memory {}
// SAFETY: see `Send`.
unsafe impl Sync for Memory {}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Memory {
    /// Makes, seals and maps the memory of a session with `slots` sockets.
    pub(crate) fn create(slots: u32) -> Result<(Memory, OwnedFd), MemoryError> {
        let offsets = Offsets::of(slots).ok_or_else(|| system("its size")(Errno::INVAL))?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file =
            rustix::fs::memfd_create("mqttshim-session", flags).map_err(system("memfd_create"))?;
        rustix::fs::ftruncate(&file, offsets.total as u64).map_err(system("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(system("sealing"))?;
        let memory = Memory::map(file.as_fd(), offsets, slots)?;
        let header = memory.header();
        header.slots.store(slots, Ordering::Relaxed);
        header.layout.store(u32::from(LAYOUT_MAX), Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok((memory, file))
    }

    /// Maps a session made by an agent.
    pub(crate) fn open(file: BorrowedFd<'_>) -> Result<Memory, MemoryError> {
        let seals = rustix::fs::fcntl_get_seals(file).map_err(system("reading its seals"))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(MemoryError::Unsealed);
        }
        let bytes = rustix::fs::fstat(file).map_err(system("fstat"))?.st_size.unsigned_abs();
        // The first page alone says how many slots there are.
        let smallest = Offsets::of(1).expect("one slot fits every address space");
        if bytes < smallest.total as u64 {
            return Err(MemoryError::Layout { layout: 0 });
        }
        let slots = {
            let first = Memory::map(file, smallest, 1)?;
            let header = first.header();
            let layout = header.layout.load(Ordering::Relaxed);
            let known = u32::from(LAYOUT_MIN)..=u32::from(LAYOUT_MAX);
            if header.magic.load(Ordering::Acquire) != MAGIC || !known.contains(&layout) {
                return Err(MemoryError::Layout { layout });
            }
            header.slots.load(Ordering::Relaxed)
        };
        match Offsets::of(slots) {
            Some(offsets) if offsets.total as u64 == bytes => Memory::map(file, offsets, slots),
            _ => Err(MemoryError::Layout { layout: 0 }),
        }
    }

    fn map(file: BorrowedFd<'_>, offsets: Offsets, slots: u32) -> Result<Memory, MemoryError> {
        #[cfg(one_mapping)]
        if let Some(base) = shared::find(file, offsets.total) {
            return Ok(Memory { base, offsets, slots });
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: mmap(2) with a null hint picks an unused range, so no existing mapping is touched.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), offsets.total, access, flags, file, 0) }
                .map_err(system("mmap"))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| system("mmap")(Errno::NOMEM))?;
        Ok(Memory { base, offsets, slots })
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, at least a page long, lives as long as `self`, and `Header` is atomics only, for
        // which every bit pattern is valid and changes by another process are no data race.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// The slot with this index, if the session has one.
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        if index >= self.slots {
            return None;
        }
        let at = self.offsets.slots + index as usize * size_of::<Slot>();
        // SAFETY: `at` plus a slot's size lies inside the mapping by `Offsets::of` and the check above.
        let slot = unsafe { self.base.add(at) };
        // SAFETY: the table starts on a page and a slot's size is a multiple of its alignment; it lives as long as `self`, and
        // `Slot` is atomics only.
        Some(unsafe { slot.cast::<Slot>().as_ref() })
    }

    /// The session's send ring.
    pub(crate) fn tx(&self) -> Ring<'_> {
        // SAFETY: `offsets.tx` lies inside the mapping.
        let base = unsafe { self.base.add(self.offsets.tx) };
        // SAFETY: `TX_BYTES`, a power of two, follow inside the mapping by `Offsets::of`; nobody makes references into a ring.
        unsafe { Ring::new(base.as_ptr(), TX_BYTES) }
    }

    /// The receive ring of the slot with this index, if the session has one.
    pub(crate) fn rx(&self, index: u32) -> Option<Ring<'_>> {
        let at = self.rx_offset(index)?;
        // SAFETY: `rx_offset` lies inside the mapping.
        let base = unsafe { self.base.add(at) };
        // SAFETY: `RX_BYTES`, a power of two, follow inside the mapping by `Offsets::of`; nobody makes references into a ring.
        Some(unsafe { Ring::new(base.as_ptr(), RX_BYTES) })
    }

    fn rx_offset(&self, index: u32) -> Option<usize> {
        (index < self.slots).then(|| self.offsets.rx + index as usize * RX_BYTES)
    }

    /// Gives the pages of an empty receive ring back to the kernel. Its bytes read as zero afterwards.
    pub(crate) fn release_rx(&self, file: BorrowedFd<'_>, index: u32) -> Result<(), MemoryError> {
        let Some(at) = self.rx_offset(index) else { return Ok(()) };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, flags, at as u64, RX_BYTES as u64)
            .map_err(system("giving pages back"))
    }
}

/// Both ends of a session in one process on one mapping, so that ThreadSanitizer, which goes by addresses, sees both.
#[cfg(one_mapping)]
mod shared {
    use std::os::fd::BorrowedFd;
    use std::ptr::NonNull;

    /// Where this process has mapped so many bytes of the file, if it has.
    pub(super) fn find(file: BorrowedFd<'_>, length: usize) -> Option<NonNull<u8>> {
        let inode = rustix::fs::fstat(file).ok()?.st_ino.to_string();
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        maps.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let start = usize::from_str_radix(start, 16).ok()?;
            let end = usize::from_str_radix(end, 16).ok()?;
            // After the range: permissions, offset, device, inode.
            let is_it = words.nth(3) == Some(&*inode) && line.contains("mqttshim-session");
            (is_it && end - start >= length)
                .then(|| NonNull::new(std::ptr::with_exposed_provenance_mut(start)))?
        })
    }
}

// Where ends share a mapping it stays: neither knows of the other's.
#[cfg(not(one_mapping))]
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the range `map` mapped, and every reference into it borrowed from `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.offsets.total) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_session_opens_and_cannot_be_truncated() {
        let (made, file) = Memory::create(4).unwrap();
        let opened = Memory::open(file.as_fd()).unwrap();
        assert_eq!(opened.slots(), 4);
        made.header().read.store(7, Ordering::SeqCst);
        assert_eq!(opened.header().read.load(Ordering::SeqCst), 7);
        assert_eq!(rustix::fs::ftruncate(&file, 0), Err(Errno::PERM));
        assert!(opened.slot(3).is_some() && opened.slot(4).is_none());
        assert!(opened.rx(3).is_some() && opened.rx(4).is_none());
    }

    #[test]
    fn a_file_that_is_no_session_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("other", flags).unwrap();
        assert!(matches!(Memory::open(file.as_fd()), Err(MemoryError::Unsealed)));
        rustix::fs::ftruncate(&file, Offsets::of(1).unwrap().total as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, SEALS).unwrap();
        assert!(matches!(Memory::open(file.as_fd()), Err(MemoryError::Layout { layout: 0 })));
    }

    #[test]
    fn released_pages_read_as_zero_and_can_be_used_again() {
        let (memory, file) = Memory::create(2).unwrap();
        let ring = memory.rx(1).unwrap();
        ring.copy_in(0, b"hello");
        memory.release_rx(file.as_fd(), 1).unwrap();
        let mut read = [9; 5];
        ring.copy_out(0, &mut read);
        assert_eq!(read, [0; 5]);
        ring.copy_in(0, b"again");
        ring.copy_out(0, &mut read);
        assert_eq!(&read, b"again");
    }
}

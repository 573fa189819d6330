//! The rings between an AF_XDP socket and the kernel: one end produces, the other consumes.
//!
//! Each ring has its two numbers and its flags in memory shared with the kernel. Ours is written for a whole burst at once
//! ([`Producer::publish`], [`Consumer::release`]), and the kernel's is read again only when what was last read is used up, because
//! each look costs a cache line on its way between two cores.
//! Source: Documentation/networking/af_xdp.rst; the memory order is that of net/xdp/xsk_queue.h.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::{XdpDesc, XdpDescOptions, XdpRingFlags, XdpRingOffset};

use super::umem::{Chunk, Umem};

/// One ring's memory.
#[derive(Debug)]
struct Ring<T> {
    base: NonNull<u8>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// A power of two.
    count: u32,
}

// SAFETY: the numbers are atomics; an entry is touched by the one end whose turn it is, and the ends of a ring that are ours are
// not cloned.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `count` entries that lies at `page` of the socket's memory.
    fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        offsets: &XdpRingOffset,
        count: u32,
    ) -> Result<Ring<T>, Errno> {
        // Kernels before 5.4 have no flags.
        let flags = offsets.flags.ok_or(Errno::NOSYS)? as usize;
        let bytes = offsets.desc as usize + count as usize * size_of::<T>();
        let (access, how) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: mmap(2) with a null hint picks an unused range, so no existing mapping is touched.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, access, how, socket, page) }?;
        let base: NonNull<u8> = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let at = |offset: usize| {
            assert!(offset < bytes && offset.is_multiple_of(4));
            // SAFETY: within the mapping by the assertion.
            unsafe { base.add(offset) }
        };
        Ok(Ring {
            producer: at(offsets.producer as usize).cast(),
            consumer: at(offsets.consumer as usize).cast(),
            flags: at(flags).cast(),
            entries: at(offsets.desc as usize).cast(),
            base,
            bytes,
            count,
        })
    }

    fn word(&self, at: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: one of the three pointers `map` made: within the mapping, which lives as long as `self`, aligned to 4; the kernel
        // changes it by atomics too.
        unsafe { at.as_ref() }
    }

    fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: `count` entries lie there (`map`), and the mask keeps within them.
        unsafe { self.entries.add((number & (self.count - 1)) as usize) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the range `map` mapped; every reference into it borrowed from `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The end that puts entries in.
#[derive(Debug)]
struct Producer<T> {
    ring: Ring<T>,
    /// Of the next entry. Numbers wrap.
    next: u32,
    /// The kernel's, when last looked at.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    fn new(ring: Ring<T>) -> Producer<T> {
        Producer { ring, next: 0, consumed: 0 }
    }

    fn has_room(&mut self) -> bool {
        if self.next.wrapping_sub(self.consumed) == self.ring.count {
            self.consumed = self.consumed();
        }
        self.next.wrapping_sub(self.consumed) < self.ring.count
    }

    /// Puts an entry in, for which there must be room.
    fn put(&mut self, value: T) {
        assert!(self.has_room(), "no ring is given more than it has room for");
        // SAFETY: an entry between the numbers is ours to write; the kernel reads it after `publish`.
        unsafe { self.ring.entry(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
    }

    /// Lets the kernel see what was put in.
    fn publish(&mut self) {
        self.ring.word(self.ring.producer).store(self.next, Ordering::Release);
    }

    /// How far the kernel has come.
    fn consumed(&self) -> u32 {
        self.ring.word(self.ring.consumer).load(Ordering::Acquire)
    }

    /// Whether the kernel has to be told that there is something.
    fn needs_wakeup(&self) -> bool {
        // It sets the flag before it looks a last time: one of the two sees what the other wrote.
        fence(Ordering::SeqCst);
        let flags = self.ring.word(self.ring.flags).load(Ordering::Relaxed);
        XdpRingFlags::from_bits_retain(flags).contains(XdpRingFlags::XDP_RING_NEED_WAKEUP)
    }
}

/// The end that takes entries out.
#[derive(Debug)]
struct Consumer<T> {
    ring: Ring<T>,
    /// Of the next entry. Numbers wrap.
    next: u32,
    /// The kernel's, when last looked at.
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    fn new(ring: Ring<T>) -> Consumer<T> {
        Consumer { ring, next: 0, produced: 0 }
    }

    fn take(&mut self) -> Option<T> {
        if self.next == self.produced {
            self.produced = self.ring.word(self.ring.producer).load(Ordering::Acquire);
            if self.next == self.produced {
                return None;
            }
        }
        // SAFETY: the kernel wrote this entry before its number, and leaves it alone until ours has passed it (`release`). Every bit
        // pattern is a value of the two types there are.
        let value = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(value)
    }

    /// Lets the kernel use the entries that were taken again.
    fn release(&mut self) {
        self.ring.word(self.ring.consumer).store(self.next, Ordering::Release);
    }
}

/// Chunks for the kernel to receive into.
#[derive(Debug)]
pub(crate) struct Fill(Producer<u64>);

impl Fill {
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        count: u32,
    ) -> Result<Fill, Errno> {
        let page = rustix::net::xdp::XDP_UMEM_PGOFF_FILL_RING;
        Ok(Fill(Producer::new(Ring::map(socket, page, offsets, count)?)))
    }

    /// Whether the kernel has read an entry that can be written again. It may have used a chunk and not said so yet.
    pub(crate) fn has_room(&mut self) -> bool {
        self.0.has_room()
    }

    /// Gives a chunk.
    ///
    /// # Panics
    /// If it has been given more than the ring has room for.
    pub(crate) fn put(&mut self, umem: &Umem, chunk: Chunk) {
        self.0.put(umem.address(chunk));
    }

    pub(crate) fn publish(&mut self) {
        self.0.publish();
    }

    pub(crate) fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

/// Chunks with frames that arrived.
#[derive(Debug)]
pub(crate) struct Arrived(Consumer<XdpDesc>);

impl Arrived {
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        count: u32,
    ) -> Result<Arrived, Errno> {
        let page = rustix::net::xdp::XDP_PGOFF_RX_RING;
        Ok(Arrived(Consumer::new(Ring::map(socket, page, offsets, count)?)))
    }

    /// The next frame: its chunk, and where in it and how long it is. `Some(Err(_))`: the kernel named a place that is none.
    pub(crate) fn take(&mut self, umem: &Umem) -> Option<Result<(Chunk, usize, usize), Errno>> {
        let it = self.0.take()?;
        let (place, length) = (umem.given_back(it.addr), it.len as usize);
        Some(match place {
            Some((chunk, at)) if length <= umem.chunk_bytes() - at => Ok((chunk, at, length)),
            _ => Err(Errno::FAULT),
        })
    }

    pub(crate) fn release(&mut self) {
        self.0.release();
    }
}

/// Chunks with frames to send.
#[derive(Debug)]
pub(crate) struct Leaving(Producer<XdpDesc>);

impl Leaving {
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        count: u32,
    ) -> Result<Leaving, Errno> {
        let page = rustix::net::xdp::XDP_PGOFF_TX_RING;
        Ok(Leaving(Producer::new(Ring::map(socket, page, offsets, count)?)))
    }

    /// Whether the kernel has read an entry that can be written again. It may have sent a chunk and not said so yet.
    pub(crate) fn has_room(&mut self) -> bool {
        self.0.has_room()
    }

    /// Gives a chunk, whose first `length` bytes are a frame.
    ///
    /// # Panics
    /// If it has been given more than the ring has room for.
    pub(crate) fn put(&mut self, umem: &Umem, chunk: Chunk, length: usize) {
        let (addr, options) = (umem.address(chunk), XdpDescOptions::empty());
        self.0.put(XdpDesc { addr, len: length as u32, options });
    }

    pub(crate) fn publish(&mut self) {
        self.0.publish();
    }

    pub(crate) fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }

    /// How many published frames the kernel has not looked at.
    pub(crate) fn waiting(&self) -> u32 {
        self.0.next.wrapping_sub(self.0.consumed())
    }
}

/// Chunks with frames that were sent.
#[derive(Debug)]
pub(crate) struct Sent(Consumer<u64>);

impl Sent {
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        offsets: &XdpRingOffset,
        count: u32,
    ) -> Result<Sent, Errno> {
        let page = rustix::net::xdp::XDP_UMEM_PGOFF_COMPLETION_RING;
        Ok(Sent(Consumer::new(Ring::map(socket, page, offsets, count)?)))
    }

    /// The next chunk that is ours again. One the kernel invents is not.
    pub(crate) fn take(&mut self, umem: &Umem) -> Option<Chunk> {
        loop {
            if let Some((chunk, _)) = umem.given_back(self.0.take()?) {
                return Some(chunk);
            }
        }
    }

    pub(crate) fn release(&mut self) {
        self.0.release();
    }
}

//! Raw Ethernet frames on one interface: an AF_PACKET socket with a memory-mapped receive ring.
//!
//! packet(7) and the kernel's `packet_mmap` description, TPACKET_V2:
//!
//! ```text
//! interface ──► [ slot | slot | slot … ]  each: header, timestamp, frame of up to one slot
//!                  └─ a larger frame (segmentation offload of the other end): its copy waits in the socket's queue
//! ```
//!
//! The kernel stamps every frame when it reaches the ring, so reading late does not falsify a latency. Frames we send
//! do not come back. The only unsafe code of this program. Memory: [`SLOTS`] × [`SLOT_BYTES`] plus a
//! socket queue of [`QUEUE_BYTES`]; a frame that fits neither is lost and counted.

#![allow(
    unsafe_code,
    reason = "AF_PACKET's ring is memory shared with the kernel; libc has the only interface"
)]

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, MMsgHdr, Protocol, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    SocketType, netdevice, sockopt,
};

/// Slots in the receive ring.
const SLOTS: usize = 16_384;
/// Bytes of one slot: header, alignment and a frame of the usual MTU.
const SLOT_BYTES: usize = 2048;
/// Bytes of one contiguous piece of the ring.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of frames larger than a slot that may wait.
const QUEUE_BYTES: usize = 64 << 20;
/// Largest frame: a segmentation-offload super-frame.
const FRAME_BYTES_MAX: usize = 192 << 10;
/// Frames sent by one system call.
const SEND_BATCH: usize = 256;

/// The socket and its ring.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    /// Start of the mapping of `SLOTS * SLOT_BYTES` bytes; unmapped in `Drop`.
    ring: NonNull<u8>,
    /// The slot the kernel fills next, so the next we read.
    next: usize,
    large: Vec<u8>,
}

/// Frames waiting to be sent, back to back.
#[derive(Debug, Default)]
pub(crate) struct FrameBatch {
    bytes: Vec<u8>,
    /// Where each frame ends in `bytes`.
    ends: Vec<usize>,
}

impl FrameBatch {
    /// Appends one frame that `build` writes.
    pub(crate) fn push(&mut self, build: impl FnOnce(&mut Vec<u8>)) {
        build(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Number of frames.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The frames, in order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl PacketSocket {
    /// Opens the ring on `interface`. Needs CAP_NET_RAW.
    pub(crate) fn open(interface: &str) -> Result<PacketSocket> {
        let every_protocol = u32::from(u16::to_be(0x0003));
        let protocol = every_protocol.try_into().ok().map(Protocol::from_raw);
        let fd = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            protocol,
        )
        .context("raw frames need CAP_NET_RAW: run this as root")?;
        let index = netdevice::name_to_index(&fd, interface)
            .with_context(|| format!("no interface is called {interface}"))?;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(fd.as_fd(), libc::PACKET_VERSION, &version).context("PACKET_VERSION")?;
        set_option(fd.as_fd(), libc::PACKET_IGNORE_OUTGOING, &1).context("IGNORE_OUTGOING")?;
        set_option(fd.as_fd(), libc::PACKET_COPY_THRESH, &1).context("PACKET_COPY_THRESH")?;
        if sockopt::set_socket_recv_buffer_size_force(&fd, QUEUE_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&fd, QUEUE_BYTES).context("SO_RCVBUF")?;
        }
        let ring = libc::tpacket_req {
            tp_block_size: u32::try_from(BLOCK_BYTES).context("constant")?,
            tp_block_nr: u32::try_from(SLOTS * SLOT_BYTES / BLOCK_BYTES).context("constant")?,
            tp_frame_size: u32::try_from(SLOT_BYTES).context("constant")?,
            tp_frame_nr: u32::try_from(SLOTS).context("constant")?,
        };
        set_option(fd.as_fd(), libc::PACKET_RX_RING, &ring).context("PACKET_RX_RING")?;
        let ring = map_ring(fd.as_fd())?;
        let socket = PacketSocket { fd, ring, next: 0, large: vec![0; FRAME_BYTES_MAX] };
        socket.bind(index).with_context(|| format!("cannot bind to {interface}"))?;
        Ok(socket)
    }

    fn bind(&self, interface: u32) -> Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as libc::sa_family_t,
            sll_protocol: u16::to_be(0x0003),
            sll_ifindex: i32::try_from(interface).context("interface index")?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: bind(2) reads `len` bytes at the pointer: both are those of `address`, which outlives the call.
        let result = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
    }

    /// Hands at most `max` received frames with their arrival time to `sink`; returns how many there were.
    pub(crate) fn receive(
        &mut self,
        max: usize,
        sink: &mut dyn FnMut(&[u8], u64),
    ) -> Result<usize> {
        for count in 0..max {
            let status = self.status(self.next);
            let seen = status.load(Ordering::Acquire);
            if seen & libc::TP_STATUS_USER == 0 {
                return Ok(count);
            }
            let (frame, at_ns) = self.slot(self.next);
            if seen & libc::TP_STATUS_COPY == 0 {
                sink(frame, at_ns);
            } else {
                match rustix::net::recv(&self.fd, &mut self.large[..], RecvFlags::DONTWAIT) {
                    Ok((bytes, _)) => sink(&self.large[..bytes], at_ns),
                    Err(Errno::AGAIN) => {}
                    Err(error) => return Err(error).context("recv of a large frame"),
                }
            }
            self.status(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % SLOTS;
        }
        Ok(max)
    }

    /// The ownership word of a slot.
    fn status(&self, slot: usize) -> &AtomicU32 {
        let at = self.slot_pointer(slot);
        // SAFETY: the mapping is aligned to a page and SLOT_BYTES is a multiple of 16, so the word is aligned; it lives
        // as long as `self`; kernel and we access it only as one atomic word.
        unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) }
    }

    fn slot_pointer(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < SLOTS, "callers count modulo SLOTS");
        // SAFETY: NonNull::add needs the result inside the mapping of SLOTS * SLOT_BYTES bytes: asserted above.
        unsafe { self.ring.add(slot * SLOT_BYTES) }
    }

    /// The frame in a slot that the kernel has handed over, and when it arrived.
    fn slot(&self, slot: usize) -> (&[u8], u64) {
        let start = self.slot_pointer(slot);
        // SAFETY: the status word said the slot is ours, so the kernel has written the header and leaves it alone until
        // the status goes back; a tpacket2_hdr is plain integers, aligned as in `status`.
        let header = unsafe { start.cast::<libc::tpacket2_hdr>().as_ref() };
        let (from, bytes) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        assert!(from + bytes <= SLOT_BYTES, "the kernel keeps a frame within its slot");
        // SAFETY: `from` is inside the slot, asserted above, so inside the mapping.
        let data = unsafe { start.add(from) };
        // SAFETY: `bytes` bytes from here end inside the slot, asserted above; the kernel initialised them and does not
        // touch them until we give the slot back, which needs `&mut self` and so ends this borrow.
        let frame = unsafe { std::slice::from_raw_parts(data.as_ptr(), bytes) };
        let at_ns = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
        (frame, at_ns)
    }

    /// Waits until a frame is there, at most `wait`.
    pub(crate) fn wait(&self, wait: Duration) -> Result<()> {
        let timeout = wait.try_into().context("timeout")?;
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("poll"),
        }
    }

    /// Sends every frame of `batch` and empties it. A frame the interface has no room for is lost, as on a wire.
    pub(crate) fn send(&self, batch: &mut FrameBatch) -> Result<()> {
        let slices: Vec<[IoSlice<'_>; 1]> = batch.frames().map(|f| [IoSlice::new(f)]).collect();
        for part in slices.chunks(SEND_BATCH) {
            let mut none: Vec<_> = part.iter().map(|_| SendAncillaryBuffer::default()).collect();
            let mut messages: Vec<_> =
                part.iter().zip(&mut none).map(|(iov, none)| MMsgHdr::new(iov, none)).collect();
            let mut sent = 0;
            while sent < messages.len() {
                match rustix::net::sendmmsg(&self.fd, &mut messages[sent..], SendFlags::empty()) {
                    Ok(count) => sent += count,
                    Err(Errno::AGAIN | Errno::NOBUFS) => sent += 1,
                    Err(Errno::INTR) => {}
                    Err(Errno::NETDOWN | Errno::NXIO) => bail!("the interface is gone or down"),
                    Err(error) => return Err(error).context("sendmmsg"),
                }
            }
        }
        batch.clear();
        Ok(())
    }

    /// Frames lost since last asked, because ring and queue were full.
    pub(crate) fn take_lost(&self) -> u32 {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut bytes = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: getsockopt(2) writes at most `bytes` bytes to `stats`, whose size that is; both outlive the call.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut bytes,
            )
        };
        if result == 0 { stats.tp_drops } else { 0 }
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // SAFETY: `ring` is the start of our own mapping of exactly this length; nothing borrows it once `self` drops.
        let _ = unsafe { rustix::mm::munmap(self.ring.as_ptr().cast(), SLOTS * SLOT_BYTES) };
    }
}

fn map_ring(fd: BorrowedFd<'_>) -> Result<NonNull<u8>> {
    let bytes = SLOTS * SLOT_BYTES;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a null hint lets the kernel choose unused addresses, so no memory of ours is replaced; the result is
    // kept in a PacketSocket, which unmaps it.
    let start = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0)
    }
    .context("cannot map the receive ring")?;
    NonNull::new(start.cast()).context("the ring was mapped at address zero")
}

fn set_option<T>(fd: BorrowedFd<'_>, name: libc::c_int, value: &T) -> std::io::Result<()> {
    // SAFETY: setsockopt(2) reads `size_of::<T>()` bytes at `value`, which is a T; callers pass the plain integer or
    // struct that packet(7) names for the option.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

//! One queue of an interface: a socket, its memory, and what its rings hold.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::tag::{TAG_BYTES, tag, untag};
use crate::sys;
use crate::sys::bpf::Mode;
use crate::sys::ring::{Arrived, Fill, Leaving, Sent};
use crate::sys::umem::{Chunk, Umem};

/// Frames that may wait to be received, and as many to be sent: more than a fan-out to a thousand.
const FRAMES: u32 = 2048;
/// What the kernel keeps free before a received frame (`XDP_PACKET_HEADROOM`, linux/bpf.h).
const HEADROOM: usize = 256;
/// Bytes of a chunk: the smallest that holds a frame, of the two that drivers know.
const CHUNK_BYTES: [usize; 2] = [2048, 4096];
/// The longest frame there is room for.
pub(super) const FRAME_BYTES_MAX: usize = CHUNK_BYTES[1] - HEADROOM;
/// Bytes on their way through the kernel that a socket may answer for. The rings are the bound; the usual one of 208 KiB would let
/// some 200 frames go at once.
const SEND_BUFFER_BYTES: usize = 16 << 20;

/// So many frames ahead the memory of one is asked for, as long as this one: a fan-out is of equal ones.
const AHEAD: usize = 12;

/// For how long a queue that is in use is waited for: a second in all.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
const BUSY_PAUSES_MAX: u32 = 50;

/// A socket for all that is to come.
pub(super) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
}

/// Opens a queue for frames of at most `frame_bytes`, all with the tag of `vlan`, or all without one.
pub(super) fn open(
    interface: u32,
    queue: u32,
    mode: Mode,
    frame_bytes: usize,
    vlan: Option<u16>,
) -> Result<(Receiver, Sender), Errno> {
    let chunk_bytes =
        if frame_bytes + HEADROOM <= CHUNK_BYTES[0] { CHUNK_BYTES[0] } else { CHUNK_BYTES[1] };
    let (umem, mut chunks) = Umem::new(chunk_bytes, 2 * FRAMES)?;
    let socket = socket()?;
    register(&socket, &umem)?;
    let offsets = sockopt::xdp_mmap_offsets(&socket)?;
    let ring = socket.as_fd();
    let mut fill = Fill::map(ring, &offsets.fr, FRAMES)?;
    let arrived = Arrived::map(ring, &offsets.rx, FRAMES)?;
    let leaving = Leaving::map(ring, &offsets.tx, FRAMES)?;
    let sent = Sent::map(ring, &offsets.cr, FRAMES)?;
    for chunk in chunks.split_off(FRAMES as usize) {
        fill.put(&umem, chunk);
    }
    fill.publish();
    bind(&socket, interface, queue, mode)?;
    // Without the right to it, or on an older kernel: fewer at once.
    let _ = sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER_BYTES);
    let _ = sys::set_frames_a_send(&socket, FRAMES);
    let (umem, socket) = (Arc::new(umem), Arc::new(socket));
    let receiver = Receiver {
        umem: Arc::clone(&umem),
        socket: Arc::clone(&socket),
        arrived,
        fill,
        kept: Vec::with_capacity(FRAMES as usize),
        is_tagged: vlan.is_some(),
    };
    let spare = vec![0; chunk_bytes].into();
    Ok((receiver, Sender { umem, socket, leaving, sent, free: chunks, spare, vlan, lost: 0 }))
}

fn register(socket: &OwnedFd, umem: &Umem) -> Result<(), Errno> {
    let (addr, len) = umem.place();
    sockopt::set_xdp_umem_reg(
        socket,
        XdpUmemReg {
            addr,
            len,
            chunk_size: umem.chunk_bytes() as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        },
    )?;
    sockopt::set_xdp_umem_fill_ring_size(socket, FRAMES)?;
    sockopt::set_xdp_umem_completion_ring_size(socket, FRAMES)?;
    sockopt::set_xdp_rx_ring_size(socket, FRAMES)?;
    sockopt::set_xdp_tx_ring_size(socket, FRAMES)
}

fn bind(socket: &OwnedFd, interface: u32, queue: u32, mode: Mode) -> Result<(), Errno> {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    if mode == Mode::Generic {
        flags |= SocketAddrXdpFlags::XDP_COPY;
    }
    // Otherwise the kernel takes zero-copy where the driver offers it.
    let address = SocketAddrXdp::new(flags, interface, queue);
    let mut pauses = 0;
    loop {
        match rustix::net::bind(socket, &address) {
            // A queue is free again only some time after its last socket was closed, as when a card is restarted.
            Err(Errno::BUSY) if pauses < BUSY_PAUSES_MAX => std::thread::sleep(BUSY_PAUSE),
            outcome => return outcome,
        }
        pauses += 1;
    }
}

/// The receiving half of a queue.
#[derive(Debug)]
pub(super) struct Receiver {
    umem: Arc<Umem>,
    socket: Arc<OwnedFd>,
    arrived: Arrived,
    fill: Fill,
    /// Chunks for which the fill ring has no room yet.
    kept: Vec<Chunk>,
    is_tagged: bool,
}

impl Receiver {
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the driver and we use the same memory.
    pub(super) fn is_zero_copy(&self) -> Result<bool, Errno> {
        let options = sockopt::xdp_options(&self.socket)?;
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Hands at most `frames_max` frames to `each`, and their chunks back to the kernel.
    pub(super) fn burst(
        &mut self,
        frames_max: usize,
        each: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, Errno> {
        let mut taken = 0;
        while taken < frames_max
            && let Some(place) = self.arrived.take(&self.umem)
        {
            let (mut chunk, at, length) = place?;
            let frame = self.umem.bytes(&mut chunk, at, length);
            each(if self.is_tagged { untag(frame) } else { frame });
            self.kept.push(chunk);
            taken += 1;
        }
        if taken > 0 {
            self.arrived.release();
        }
        self.refill()?;
        Ok(taken)
    }

    /// Gives chunks back to the kernel, as far as the ring has room: the kernel shows a frame before it says that it has read the entry its
    /// chunk was in (`xsk_flush`, net/xdp/xsk.c), so that what is quick here may come too soon.
    fn refill(&mut self) -> Result<(), Errno> {
        let before = self.kept.len();
        while self.fill.has_room()
            && let Some(chunk) = self.kept.pop()
        {
            self.fill.put(&self.umem, chunk);
        }
        if self.kept.len() < before {
            self.fill.publish();
            if self.fill.needs_wakeup() {
                self.wake_driver()?;
            }
        }
        Ok(())
    }

    /// A driver that had no chunks left waits for a word.
    fn wake_driver(&self) -> Result<(), Errno> {
        match rustix::net::recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::BUSY | Errno::NETDOWN) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Frames for which there was no chunk, or no room to say that they are there.
    pub(super) fn lost(&self) -> u64 {
        sockopt::xdp_statistics(&self.socket)
            .map_or(0, |it| it.rx_dropped + it.rx_ring_full.unwrap_or_default())
    }

    /// Whether the interface is still there.
    pub(super) fn check(&self) -> Result<(), Errno> {
        sockopt::socket_error(&self.socket)?
    }
}

/// The sending half of a queue.
#[derive(Debug)]
pub(super) struct Sender {
    umem: Arc<Umem>,
    socket: Arc<OwnedFd>,
    leaving: Leaving,
    sent: Sent,
    free: Vec<Chunk>,
    /// Where a frame is made that there is no room for.
    spare: Box<[u8]>,
    vlan: Option<u16>,
    lost: u64,
}

impl Sender {
    pub(super) fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        !self.free.is_empty() && self.leaving.has_room()
    }

    pub(super) fn frame<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let has_room = self.has_room();
        let Some(mut chunk) = self.free.pop_if(|_| has_room) else {
            self.lost += 1;
            return fill(&mut self.spare[..length]);
        };
        let room = if self.vlan.is_some() { TAG_BYTES } else { 0 };
        if let Some(later) = self.free.len().checked_sub(AHEAD) {
            self.umem.expect(&self.free[later], room + length);
        }
        let bytes = self.umem.bytes(&mut chunk, 0, room + length);
        let outcome = fill(&mut bytes[room..]);
        if let Some(vlan) = self.vlan {
            tag(bytes, vlan);
        }
        self.leaving.put(&self.umem, chunk, room + length);
        outcome
    }

    /// Frames for which there was no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Lets the frames go, as far as the kernel takes them at once.
    pub(super) fn kick(&mut self) -> Result<(), Errno> {
        self.leaving.publish();
        let mut waiting = self.leaving.waiting();
        while waiting > 0 && self.leaving.needs_wakeup() {
            // It takes some each time (32, before Linux 6.17), and says EAGAIN while there are more.
            match rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                // An interface that is down takes nothing; the frames wait.
                Err(Errno::NETDOWN) => break,
                Err(error) => return Err(error),
            }
            let rest = self.leaving.waiting();
            if rest == waiting {
                break;
            }
            waiting = rest;
        }
        self.reclaim();
        Ok(())
    }

    /// Whether frames wait that only another kick gets out.
    pub(super) fn is_pending(&self) -> bool {
        self.leaving.waiting() > 0 && self.leaving.needs_wakeup()
    }

    /// Takes back the chunks whose frames are sent.
    fn reclaim(&mut self) {
        let before = self.free.len();
        while let Some(chunk) = self.sent.take(&self.umem) {
            self.free.push(chunk);
        }
        if self.free.len() > before {
            self.sent.release();
        }
    }
}

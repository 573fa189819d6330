//! One message and the descriptors that go with it, over an AF_UNIX SEQPACKET socket.
//!
//! The control path between a program and its agent: rendezvous, requests, wires. Data never passes here.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, UCred,
};

/// Largest control message, in bytes. The largest one in use carries [`mqttshim_schema::OPTIONS_MAX`] options.
pub const FRAME_BYTES_MAX: usize = 32 * 1024;
/// Most descriptors one frame carries: a memory, a doorbell and both ends of a bell. A request has a reply socket and a wire.
pub const FRAME_FDS_MAX: usize = 4;

/// The descriptors a frame brought, in the order they were sent.
pub type FrameFds = [Option<OwnedFd>; FRAME_FDS_MAX];

/// A frame that arrived.
#[derive(Debug)]
pub struct Received {
    /// Bytes written to the buffer; 0 when the other side is gone.
    pub length: usize,
    /// The descriptors it brought.
    pub fds: FrameFds,
    /// Who sent it, as the kernel saw it at that moment; only on a socket with `SO_PASSCRED`.
    pub sender: Option<UCred>,
    /// Descriptors were sent that did not arrive: there were too many, or this process has no number left for them.
    pub is_cut: bool,
}

/// Sends `bytes` with `fds`. Waits for room as long as the socket's own time-out allows, unless `flags` say not to.
///
/// # Errors
/// As `sendmsg(2)`; EPIPE and ECONNRESET when the other side is gone. Never raises SIGPIPE.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FRAME_FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let flags = flags | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags)
    })
    .map(|_| ())
}

/// Receives one frame into `buffer`. Its descriptors are close-on-exec.
///
/// # Errors
/// As `recvmsg(2)`; EMSGSIZE when the frame did not fit.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> Result<Received, Errno> {
    const SPACE: usize = rustix::cmsg_space!(ScmRights(FRAME_FDS_MAX), ScmCredentials(1));
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let message = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)
    })?;
    let mut fds = FrameFds::default();
    let mut sender = None;
    for item in control.drain() {
        match item {
            RecvAncillaryMessage::ScmRights(received) => {
                for (place, fd) in fds.iter_mut().zip(received) {
                    *place = Some(fd);
                }
            }
            RecvAncillaryMessage::ScmCredentials(who) => sender = Some(who),
            _ => {}
        }
    }
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    let is_cut = message.flags.contains(ReturnFlags::CTRUNC);
    Ok(Received { length: message.bytes, fds, sender, is_cut })
}

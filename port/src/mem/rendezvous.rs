//! How the ends of a memory port find each other: a socket, over which the card hands out memory and bells.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mqttshim_channel::emulated::{BindError, Listener};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::memory::Memory;

/// Sent with the descriptors; a message without bytes would read like the end.
const HELLO: &[u8] = b"mqttshim frames 1";
/// How long a card may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no memory port.
#[derive(Debug, thiserror::Error)]
pub enum MemError {
    /// The card cannot wait for its peer there.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Nobody there, or not for us.
    #[error("no card answers on {}: {errno}; is dpu-server running with --port mem:{}?", path.display(), path.display())]
    Connect {
        /// Where.
        path: PathBuf,
        /// What the system said.
        errno: Errno,
    },
    /// It has a peer.
    #[error("the card on {} has another peer already, or is of another version", path.display())]
    Refused {
        /// Where.
        path: PathBuf,
    },
    /// Memory or bells.
    #[error("cannot set up shared memory: {0}")]
    System(#[from] Errno),
}

/// What both ends have in common once they met.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) memory: Arc<Memory>,
    /// Hangs up when the other end is gone.
    pub(super) socket: OwnedFd,
    /// Rung for us.
    pub(super) own_bell: OwnedFd,
    /// Rung for the other end.
    pub(super) other_bell: OwnedFd,
}

/// The card waits under a path.
#[derive(Debug)]
pub(super) struct Rendezvous(Listener);

impl Rendezvous {
    /// # Errors
    /// [`MemError::Bind`].
    pub(super) fn bind(path: &Path) -> Result<Rendezvous, MemError> {
        Ok(Rendezvous(Listener::bind(path)?))
    }

    /// Takes the next peer that waits, if one does. One that comes while another is there is turned away.
    pub(super) fn next(&self, has_peer: bool) -> Result<Option<Met>, Errno> {
        while let Some(socket) = self.0.take().map_err(|error| error.0)? {
            // A peer that is gone again, or for which there is no memory, is turned away too.
            if !has_peer && let Ok(met) = hand_out(socket) {
                return Ok(Some(met));
            }
        }
        Ok(None)
    }
}

impl AsFd for Rendezvous {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn hand_out(socket: OwnedFd) -> Result<Met, Errno> {
    let (memory, file) = Memory::create()?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let (own_bell, other_bell) = (eventfd(0, flags)?, eventfd(0, flags)?);
    let descriptors = [file.as_fd(), other_bell.as_fd(), own_bell.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    message.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(&socket, &[IoSlice::new(HELLO)], &mut message, SendFlags::NOSIGNAL)?;
    Ok(Met { memory: Arc::new(memory), socket, own_bell, other_bell })
}

/// Goes to the card that waits under `path`. Waits some seconds at most.
pub(super) fn meet(path: &Path) -> Result<Met, MemError> {
    let failed = |errno| MemError::Connect { path: path.to_owned(), errno };
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &address).map_err(failed)?;
    let patience = PATIENCE.try_into().map_err(|_| MemError::System(Errno::INVAL))?;
    let mut answers = [PollFd::new(&socket, PollFlags::IN)];
    if rustix::event::poll(&mut answers, Some(&patience))? == 0 {
        return Err(failed(Errno::TIMEDOUT));
    }
    let refused = || MemError::Refused { path: path.to_owned() };
    let mut hello = [0; HELLO.len() + 1];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut hello)];
    let got = rustix::net::recvmsg(&socket, parts, &mut message, RecvFlags::CMSG_CLOEXEC)
        .map_err(|_| refused())?;
    let mut descriptors = message.drain().flat_map(|part| match part {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let mut next = || descriptors.next().ok_or_else(refused);
    let (file, own_bell, other_bell) = (next()?, next()?, next()?);
    if hello[..got.bytes] != *HELLO {
        return Err(refused());
    }
    let memory = Memory::open(file.as_fd()).map_err(|_| refused())?;
    Ok(Met { memory: Arc::new(memory), socket, own_bell, other_bell })
}

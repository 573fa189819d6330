//! A channel between two processes of one machine, with DOCA's limits and failure modes.
//!
//! ```text
//! agent: Emulated::connect(path) ──AF_UNIX SOCK_SEQPACKET──► card: Listener::bind(path), accept()
//! ```
//!
//! unix(7): SOCK_SEQPACKET keeps message boundaries and order, is reliable, and tells when the other end is gone. What we
//! add is DOCA's message size (4080 bytes) and a send queue of fixed size, so that whoever runs on this meets what the
//! card will do: `WouldBlock`, sizes, a peer that is gone in the middle.
//!
//! The queue is the socket's send buffer: messages count against it until the other end has taken them. After a
//! [`SendError::WouldBlock`] the descriptor of [`CommChannel::readiness`] becomes writable once three quarters of
//! the queue have been taken (unix(7) sockets wake writers in batches); a `send` may succeed earlier.
//!
//! An empty packet reads like the end of the connection, so no message is empty. A packet larger than the limit comes
//! from something that is not this module: the channel is closed and [`Lost`](RecvError::Lost). No thread, no allocation.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

pub use listener::{AcceptError, BindError, Listener};

use crate::{CommChannel, RecvError, SendError};

mod listener;

/// Largest message, in bytes: what DOCA Comch carries on BlueField-2 and -3.
pub const EMULATED_MESSAGE_BYTES_MAX: usize = 4080;

/// Send buffer asked for, in bytes. Linux doubles it and counts its own overhead against it: about forty messages of full
/// size, some hundreds of small ones. Below the usual net.core.wmem_max, so that no privilege is needed.
const SEND_BUFFER_BYTES: usize = 192 * 1024;

/// One end of an emulated channel.
#[derive(Debug)]
pub struct Emulated {
    socket: OwnedFd,
}

/// Why no channel was opened.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConnectError {
    /// No file, or nobody behind it.
    #[error("nobody listens on {}: is `dpu-server run --channel emulated:{}` running?", path.display(), path.display())]
    NobodyListens {
        /// The socket's file.
        path: PathBuf,
    },
    /// The listener has not accepted earlier connections.
    #[error("the listener on {} is busy: try again", path.display())]
    Busy {
        /// The socket's file.
        path: PathBuf,
    },
    /// The file may not be written to.
    #[error("no permission to connect to {}: run as the user who owns it, or as root", path.display())]
    Permission {
        /// The socket's file.
        path: PathBuf,
    },
    /// The path does not fit a socket address.
    #[error("{} is too long for a socket (unix(7) allows 107 bytes)", path.display())]
    Path {
        /// What was asked for.
        path: PathBuf,
    },
    /// Anything else.
    #[error("cannot connect to {}", path.display())]
    System {
        /// The socket's file.
        path: PathBuf,
        /// What the system said.
        #[source]
        errno: Errno,
    },
}

impl ConnectError {
    /// Whether the same call may succeed later by itself.
    pub fn is_retryable(&self) -> bool {
        matches!(self, ConnectError::NobodyListens { .. } | ConnectError::Busy { .. })
    }
}

impl Emulated {
    /// Opens a channel to whoever listens on `path`.
    ///
    /// # Errors
    /// [`ConnectError`]. Never waits.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ConnectError> {
        let path = path.as_ref();
        let system = |errno| ConnectError::System { path: path.to_owned(), errno };
        let Ok(address) = SocketAddrUnix::new(path) else {
            return Err(ConnectError::Path { path: path.to_owned() });
        };
        let socket = packet_socket().map_err(system)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => Emulated::new(socket).map_err(system),
            Err(errno) => Err(match errno {
                Errno::NOENT | Errno::CONNREFUSED => {
                    ConnectError::NobodyListens { path: path.to_owned() }
                }
                Errno::AGAIN => ConnectError::Busy { path: path.to_owned() },
                Errno::ACCESS | Errno::PERM => ConnectError::Permission { path: path.to_owned() },
                errno => system(errno),
            }),
        }
    }

    /// Takes over a connected socket that does not block.
    fn new(socket: OwnedFd) -> Result<Self, Errno> {
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES)?;
        Ok(Emulated { socket })
    }

    /// Ends a channel whose other end broke the rules, as if that end were gone.
    fn abandon(&self) {
        // Fails only when the other end is gone already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

fn packet_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl AsFd for Emulated {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl CommChannel for Emulated {
    fn max_message_bytes(&self) -> usize {
        EMULATED_MESSAGE_BYTES_MAX
    }

    fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let size = SendError::Size { bytes: message.len(), limit: EMULATED_MESSAGE_BYTES_MAX };
        if message.is_empty() || message.len() > EMULATED_MESSAGE_BYTES_MAX {
            return Err(size);
        }
        loop {
            return match rustix::net::send(&self.socket, message, SendFlags::NOSIGNAL) {
                Ok(taken) => {
                    debug_assert_eq!(taken, message.len(), "a packet is taken whole");
                    Ok(())
                }
                Err(Errno::INTR) => continue,
                // NOBUFS, NOMEM: the kernel has no memory for it; it is gone again when some is freed.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Err(SendError::WouldBlock),
                Err(Errno::MSGSIZE) => Err(size),
                Err(_) => Err(SendError::Lost),
            };
        }
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> Result<(), RecvError> {
        buffer.clear();
        buffer.reserve(EMULATED_MESSAGE_BYTES_MAX);
        loop {
            // TRUNC: the packet's own length, also where it is larger than the buffer.
            return match rustix::net::recv(&self.socket, spare_capacity(buffer), RecvFlags::TRUNC) {
                Ok((_, 0)) => Err(RecvError::Lost),
                Ok((_, bytes)) if bytes > EMULATED_MESSAGE_BYTES_MAX => {
                    buffer.clear();
                    self.abandon();
                    Err(RecvError::Lost)
                }
                Ok(_) => Ok(()),
                Err(Errno::AGAIN) => Err(RecvError::Empty),
                // The other end closed before it took all we sent. Linux says so once, ahead of what it had sent us.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Err(_) => Err(RecvError::Lost),
            };
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

#[cfg(test)]
mod tests;

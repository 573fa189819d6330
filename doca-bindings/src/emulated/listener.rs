//! The card's end of emulated channels: waits for agents under a path.
//!
//! Whoever connects speaks for a host's programs, users included, so the file is its owner's alone (mode 0600, set before
//! anybody can connect). A file left behind by a killed process is replaced, if nobody answers on it: the question costs a
//! living listener one connection that closes at once. Two processes that start at the same time over the same stale file
//! may both believe they have it; the later one does.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};

use super::{Emulated, packet_socket};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 8;

/// Waits for the host ends of emulated channels.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of our file: a later owner's is not removed.
    file: (u64, u64),
}

/// Why a path is not listened on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BindError {
    /// Somebody answers there.
    #[error("{} is in use by another process: stop it, or choose another path", path.display())]
    InUse {
        /// The socket's file.
        path: PathBuf,
    },
    /// Something else has that name.
    #[error("{} exists and is not a socket: remove it, or choose another path", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The folder is missing.
    #[error("the folder of {} does not exist: create it", path.display())]
    NoFolder {
        /// The socket's file.
        path: PathBuf,
    },
    /// The folder or a file in it may not be written to.
    #[error("no permission to make {}: choose a folder you own, or run as root", path.display())]
    Permission {
        /// The socket's file.
        path: PathBuf,
    },
    /// The path does not fit a socket address.
    #[error("{} is too long for a socket (unix(7) allows 107 bytes): choose a shorter one", path.display())]
    Path {
        /// What was asked for.
        path: PathBuf,
    },
    /// Anything else.
    #[error("cannot listen on {}", path.display())]
    System {
        /// The socket's file.
        path: PathBuf,
        /// What the system said.
        #[source]
        errno: Errno,
    },
}

/// Why a waiting connection was not accepted: the process has too many descriptors, most likely. It keeps waiting.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cannot accept a channel")]
pub struct AcceptError(#[source] pub Errno);

impl Listener {
    /// Listens under `path`. Removes a socket file there that nobody answers on.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, BindError> {
        let path = path.as_ref();
        let Ok(address) = SocketAddrUnix::new(path) else {
            return Err(BindError::Path { path: path.to_owned() });
        };
        let failed = |errno| bind_error(path, errno);
        let socket = packet_socket().map_err(failed)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(path, &address)?;
                rustix::net::bind(&socket, &address)
            }
            outcome => outcome,
        }
        .map_err(failed)?;
        let file = own_file(path).map_err(|error| failed(errno_of(&error)))?;
        // The file exists from here on: what fails below must not leave it behind.
        let listener = Listener { socket, path: path.to_owned(), file };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|error| failed(errno_of(&error)))?;
        rustix::net::listen(&listener.socket, BACKLOG).map_err(failed)?;
        Ok(listener)
    }

    /// Takes one waiting connection; `None` when there is none. Never waits: poll the listener's descriptor for reading.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn accept(&self) -> Result<Option<Emulated>, AcceptError> {
        self.take()?.map(Emulated::new).transpose().map_err(AcceptError)
    }

    /// Takes one waiting connection as [`accept`](Listener::accept) does, for a protocol of the caller's: a SOCK_SEQPACKET socket that
    /// does not block.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn take(&self) -> Result<Option<OwnedFd>, AcceptError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            return match rustix::net::accept_with(&self.socket, flags) {
                Ok(socket) => Ok(Some(socket)),
                Err(Errno::AGAIN) => Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => Err(AcceptError(errno)),
            };
        }
    }

    /// The socket's file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if own_file(&self.path).is_ok_and(|file| file == self.file) {
            // If it cannot be removed, the next listener finds it stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the file at `path` if it is a socket on which nobody answers.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let failed = |errno| bind_error(path, errno);
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(BindError::NotASocket { path: path.to_owned() }),
        Err(error) => return Err(failed(errno_of(&error))),
    }
    let probe = packet_socket().map_err(failed)?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(|error| failed(errno_of(&error))),
        // PROTOTYPE: it is a socket of another kind, so its owner lives. AGAIN: its backlog is full.
        Ok(()) | Err(Errno::PROTOTYPE | Errno::AGAIN) => {
            Err(BindError::InUse { path: path.to_owned() })
        }
        Err(errno) => Err(failed(errno)),
    }
}

fn own_file(path: &Path) -> std::io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn bind_error(path: &Path, errno: Errno) -> BindError {
    let path = path.to_owned();
    match errno {
        Errno::ADDRINUSE => BindError::InUse { path },
        Errno::NOENT | Errno::NOTDIR => BindError::NoFolder { path },
        Errno::ACCESS | Errno::PERM | Errno::ROFS => BindError::Permission { path },
        errno => BindError::System { path, errno },
    }
}

//! Where programs find the agent: the session socket and its directory.
//!
//! The directory also holds the names of listeners' placeholders. They outlive an agent: the next one wakes them, and a
//! name that refuses is a listener that is gone.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::listener::{self, NAME_PREFIX};

/// Why the agent cannot serve. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else serves this path.
    #[error(
        "the session path {} is in use by another dpu-server; stop it, or choose another with --session PATH",
        .0.display()
    )]
    InUse(PathBuf),
    /// The path cannot be made.
    #[error(
        "cannot make the session path {}: {what}: {errno}; choose one this user may write with --session PATH",
        path.display()
    )]
    Path {
        /// The session path.
        path: PathBuf,
        /// Which step.
        what: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
    /// The directory belongs to somebody else.
    #[error(
        "the session directory {} belongs to uid {owner}, not to this user; remove it, or choose another path with --session PATH",
        path.display()
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// No such group.
    #[error(
        "there is no group {0:?}: choose one of those that `getent group` lists with --session-group, or make it with groupadd"
    )]
    Group(String),
    /// The process could not make what it needs.
    #[error("{what}: {errno}")]
    System {
        /// Which step.
        what: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

/// Connections a program may have waiting at the session socket.
const BACKLOG: i32 = 128;

/// The session socket and its directory.
pub(crate) struct Rendezvous {
    path: PathBuf,
    socket: OwnedFd,
    /// Sends wake-ups to placeholders; not bound.
    sender: OwnedFd,
}

/// The path dpu-server serves when none is given: root's, else the user's runtime directory, else a folder of the user's own
/// in the temporary one.
fn default_path() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    if uid == 0 {
        return "/run/mqttshim/session.sock".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) if !runtime.is_empty() => Path::new(&runtime).join("mqttshim/session.sock"),
        _ => std::env::temp_dir().join(format!("mqttshim-{uid}/session.sock")),
    }
}

impl Rendezvous {
    /// Serves `path`, or the default one.
    pub(crate) fn open(path: Option<&Path>, group: Option<&str>) -> Result<Rendezvous, OpenError> {
        let path = path.map_or_else(default_path, Path::to_path_buf);
        make_directory(&path)?;
        let system = |what| move |errno| OpenError::System { what, errno };
        let socket = unix_socket(SocketType::SEQPACKET).map_err(system("a session socket"))?;
        bind(&socket, &path)?;
        let failed = |what| {
            let path = path.clone();
            move |errno| OpenError::Path { path, what, errno }
        };
        restrict(&path, group)?;
        rustix::net::listen(&socket, BACKLOG).map_err(failed("listen"))?;
        let sender = unix_socket(SocketType::DGRAM).map_err(system("a wake-up socket"))?;
        Ok(Rendezvous { path, socket, sender })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next program that knocks.
    pub(crate) fn accept(&self) -> Result<Option<OwnedFd>, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::io::retry_on_intr(|| rustix::net::accept_with(&self.socket, flags)) {
            Ok(control) => Ok(Some(control)),
            Err(Errno::AGAIN | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Puts one byte on a listener's placeholder.
    pub(crate) fn wake(&self, name: &str) -> Result<(), Errno> {
        let address = SocketAddrUnix::new(self.directory().join(name))?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendto(&self.sender, &[1], flags, &address) {
            // A full queue wakes as well.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Wakes every listener an earlier agent left, so that its program opens a session here; forgets those that are gone.
    /// Returns the names of the others.
    pub(crate) fn wake_orphans(&self) -> Vec<String> {
        let mut orphans = Vec::new();
        let Ok(entries) = std::fs::read_dir(self.directory()) else { return orphans };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(NAME_PREFIX)) else {
                continue;
            };
            match self.wake(name) {
                Ok(()) => {
                    tracing::info!(listener = name, "woke a listener of an earlier agent");
                    orphans.push(name.into());
                }
                Err(Errno::CONNREFUSED) => {
                    // Failing leaves a name that refuses, which harms nobody.
                    let _ = std::fs::remove_file(entry.path());
                }
                Err(errno) => tracing::warn!(listener = name, %errno, "cannot wake a listener"),
            }
        }
        orphans
    }

    /// Whether some process still holds the placeholder of this name. If none does, the name goes.
    pub(crate) fn keep_held(&self, name: &str) -> bool {
        let is_held = listener::is_held(self.directory(), name);
        if !is_held {
            // Failing leaves a name that refuses, which the next agent removes.
            let _ = std::fs::remove_file(self.directory().join(name));
        }
        is_held
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        // A stale name is found out by the next agent: it refuses.
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(crate) fn unix_socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
}

fn make_directory(path: &Path) -> Result<(), OpenError> {
    let directory = path.parent().filter(|parent| parent.as_os_str() != OsStr::new(""));
    let directory = directory.unwrap_or(Path::new("."));
    let failed = |what| {
        let path = path.to_path_buf();
        move |error: std::io::Error| OpenError::Path {
            path,
            what,
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        }
    };
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.map_err(failed("its directory"))?;
    let owner = std::fs::metadata(directory).map_err(failed("its directory"))?.uid();
    let is_shared = directory == std::env::temp_dir();
    if !is_shared && owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(OpenError::Owner { path: directory.into(), owner });
    }
    Ok(())
}

/// Binds, taking over a name that nobody answers on.
fn bind(socket: &OwnedFd, path: &Path) -> Result<(), OpenError> {
    let failed = |errno| OpenError::Path { path: path.into(), what: "bind", errno };
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    match rustix::net::bind(socket, &address) {
        Ok(()) => return Ok(()),
        Err(Errno::ADDRINUSE) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let probe = unix_socket(SocketType::SEQPACKET).map_err(failed)?;
    match rustix::net::connect(&probe, &address) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => {}
        _ => return Err(OpenError::InUse(path.into())),
    }
    rustix::fs::unlink(path).map_err(failed)?;
    rustix::net::bind(socket, &address).map_err(failed)
}

/// 0666, or 0660 for one group.
fn restrict(path: &Path, group: Option<&str>) -> Result<(), OpenError> {
    let failed = |what| {
        move |error: std::io::Error| OpenError::Path {
            path: path.into(),
            what,
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        }
    };
    let mode = match group {
        Some(group) => {
            let gid = group_id(group).ok_or_else(|| OpenError::Group(group.into()))?;
            std::os::unix::fs::chown(path, None, Some(gid)).map_err(failed("its group"))?;
            0o660
        }
        None => 0o666,
    };
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).map_err(failed("its mode"))
}

/// The number of a group: given as one, or found in group(5).
fn group_id(group: &str) -> Option<u32> {
    if let Ok(gid) = group.parse() {
        return Some(gid);
    }
    let database = std::fs::read_to_string("/etc/group").ok()?;
    database.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(group)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_use_is_an_error_that_names_it_and_a_stale_one_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/session.sock");
        let first = Rendezvous::open(Some(&path), None).unwrap();
        let second = Rendezvous::open(Some(&path), None).err().unwrap();
        assert!(matches!(second, OpenError::InUse(_)));
        assert!(second.to_string().contains("--session PATH"));
        // A killed agent leaves its name behind.
        std::mem::forget(std::fs::File::open(folder.path()).unwrap());
        let Rendezvous { ref socket, .. } = first;
        let copy = rustix::io::dup(socket).unwrap();
        drop(first);
        drop(copy);
        let stale = unix_socket(SocketType::SEQPACKET).unwrap();
        rustix::net::bind(&stale, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        drop(stale);
        assert!(path.exists());
        let third = Rendezvous::open(Some(&path), None).unwrap();
        assert_eq!(third.path(), path);
    }

    #[test]
    fn everybody_may_connect_unless_a_group_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.sock");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let open = Rendezvous::open(Some(&path), None).unwrap();
        assert_eq!(mode(), 0o666);
        drop(open);
        let own = rustix::process::getegid().as_raw().to_string();
        let narrow = Rendezvous::open(Some(&path), Some(&own)).unwrap();
        assert_eq!(mode(), 0o660);
        drop(narrow);
        let missing = Rendezvous::open(Some(&path), Some("no-such-group"));
        assert!(matches!(missing.err(), Some(OpenError::Group(_))));
    }
}

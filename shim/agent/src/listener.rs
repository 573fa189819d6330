//! A listener's placeholder: an AF_UNIX datagram socket with a name in the session directory.
//!
//! Nobody is connected to it, so the agent's death does not hang it up (a hung-up listener makes a broker spin), and the next
//! agent reaches it by its name. Whether any copy of it is left is asked by connecting: a name that refuses is gone.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrUnix, SocketType};

use crate::rendezvous::unix_socket;

/// Every placeholder's file name starts so.
pub(crate) const NAME_PREFIX: &str = "listener-";

/// Makes a placeholder under a new name in `directory`.
pub(crate) fn make(directory: &Path, counter: &mut u32) -> Result<(OwnedFd, String), Errno> {
    let socket = unix_socket(SocketType::DGRAM)?;
    loop {
        *counter = counter.wrapping_add(1);
        let pid = rustix::process::getpid().as_raw_nonzero();
        let name = format!("{NAME_PREFIX}{pid}-{counter}");
        match rustix::net::bind(&socket, &SocketAddrUnix::new(directory.join(&name))?) {
            Ok(()) => return Ok((socket, name)),
            Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether some process still holds the placeholder of this name. Wakes nobody.
pub(crate) fn is_held(directory: &Path, name: &str) -> bool {
    let connect = || {
        let probe = unix_socket(SocketType::DGRAM)?;
        rustix::net::connect(&probe, &SocketAddrUnix::new(directory.join(name))?)
    };
    // No descriptor left for the probe says nothing about the listener.
    !matches!(connect(), Err(Errno::CONNREFUSED | Errno::NOENT))
}

/// Whether `fd` is the placeholder of this name. Neither its address nor its inode says so: the first is a text, which a
/// mount namespace of one's own makes true elsewhere, the second is no file's. But a datagram socket that is connected to
/// the placeholder takes from nobody else (unix(7)): what `fd` can send there, the placeholder sends.
pub(crate) fn is_held_by(directory: &Path, name: &str, fd: impl AsFd) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let prove = || {
        let ear = unix_socket(SocketType::DGRAM)?;
        // An address of the kernel's choice.
        rustix::net::bind(&ear, &SocketAddrUnix::new_unnamed())?;
        rustix::net::connect(&ear, &SocketAddrUnix::new(directory.join(name))?)?;
        rustix::net::sendto(&fd, &[0], flags, &rustix::net::getsockname(&ear)?)
    };
    is_valid_name(name) && prove().is_ok()
}

/// The name a placeholder was given, as it says itself.
pub(crate) fn name_of(fd: impl AsFd) -> Option<String> {
    let address = SocketAddrUnix::try_from(rustix::net::getsockname(fd).ok()?).ok()?;
    let path = address.path()?;
    let name = Path::new(OsStr::from_bytes(path.to_bytes())).file_name()?.to_str()?;
    is_valid_name(name).then(|| name.to_owned())
}

/// Whether a program may name this placeholder as its own: one of ours, in our directory.
pub(crate) fn is_valid_name(name: &str) -> bool {
    name.len() <= 64
        && name.strip_prefix(NAME_PREFIX).is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_until_its_last_copy_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let mut counter = 0;
        let (socket, name) = make(folder.path(), &mut counter).unwrap();
        let copy = rustix::io::dup(&socket).unwrap();
        drop(socket);
        assert!(is_held(folder.path(), &name));
        drop(copy);
        assert!(!is_held(folder.path(), &name));
        assert!(!is_held(folder.path(), "listener-0-0"));
    }

    #[test]
    fn only_the_placeholder_itself_proves_that_it_is_held() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut counter = 0;
        let (placeholder, name) = make(folder.path(), &mut counter).unwrap();
        counter = 0;
        // The same name elsewhere, as in a mount namespace of one's own.
        let (namesake, same) = make(other.path(), &mut counter).unwrap();
        assert_eq!((name_of(&namesake), &same), (Some(name.clone()), &name));
        assert!(is_held_by(folder.path(), &name, &placeholder));
        assert!(!is_held_by(folder.path(), &name, &namesake));
        let stream = unix_socket(SocketType::STREAM).unwrap();
        let file = std::fs::File::open(folder.path()).unwrap();
        assert!(
            !is_held_by(folder.path(), &name, &stream) && !is_held_by(folder.path(), &name, &file)
        );
        assert_eq!((name_of(&stream), name_of(&file)), (None, None));
        assert!(!is_held_by(folder.path(), "listener-0-0", &placeholder));
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        assert!(is_valid_name("listener-12-3"));
        for name in ["listener-", "listener-../x", "session.sock", "listener-1/2", ""] {
            assert!(!is_valid_name(name), "{name}");
        }
    }
}

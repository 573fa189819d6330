//! A listener's placeholder: an AF_UNIX datagram socket with a name in the session directory.
//!
//! Nobody is connected to it, so the agent's death does not hang it up (a hung-up listener makes a broker spin), and the next
//! agent reaches it by its name. Whether any copy of it is left is asked by connecting: a name that refuses is gone.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType};

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
    fn a_name_cannot_leave_the_directory() {
        assert!(is_valid_name("listener-12-3"));
        for name in ["listener-", "listener-../x", "session.sock", "listener-1/2", ""] {
            assert!(!is_valid_name(name), "{name}");
        }
    }
}

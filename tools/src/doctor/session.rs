//! Is a session served where the library looks for one?
//!
//! The library tries four paths in order and takes the first that answers; it refuses one whose owner is neither root nor
//! its own user, since whoever owns the socket sees every byte of the broker.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::Finding;

/// What is at a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Absent,
    NoSocket,
    /// Owned by somebody the library does not trust.
    Foreign,
    /// Nobody listens: left behind.
    Stale,
    Refused,
    Failed(Errno),
    Answers,
}

/// Looks at every path, and sums up.
pub(super) fn check() -> Vec<Finding> {
    let uid = rustix::process::geteuid().as_raw();
    let paths = own_paths();
    let states: Vec<State> = paths.iter().map(|path| state(path, uid)).collect();
    let looked = paths.iter().zip(&states).map(|(path, &state)| finding(path, state));
    let mut findings: Vec<Finding> = looked.collect();
    if !states.contains(&State::Answers) {
        findings.push(Finding::mend(
            "session",
            "nobody serves a session: an offloaded broker would fall back to kernel sockets",
            "start `dpu-server run` (or mqttshim-agent), or set MQTTSHIM_SESSION to its --session path",
        ));
    }
    findings
}

/// Where the library looks in this process's environment, in order.
pub(crate) fn own_paths() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let uid = rustix::process::geteuid().as_raw();
    paths(variable("MQTTSHIM_SESSION"), variable("XDG_RUNTIME_DIR"), variable("TMPDIR"), uid)
}

/// Where the library looks, in order.
fn paths(
    named: Option<OsString>,
    runtime: Option<OsString>,
    temporary: Option<OsString>,
    uid: u32,
) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = named.map(PathBuf::from).into_iter().collect();
    paths.extend(runtime.map(|folder| Path::new(&folder).join("mqttshim/session.sock")));
    paths.push(PathBuf::from("/run/mqttshim/session.sock"));
    let temporary = temporary.unwrap_or_else(|| OsString::from("/tmp"));
    paths.push(Path::new(&temporary).join(format!("mqttshim-{uid}/session.sock")));
    paths
}

fn state(path: &Path, uid: u32) -> State {
    use std::os::unix::fs::FileTypeExt;
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return State::Refused;
        }
        Err(_) => return State::Absent,
    };
    if !metadata.file_type().is_socket() {
        return State::NoSocket;
    }
    if metadata.uid() != 0 && metadata.uid() != uid {
        return State::Foreign;
    }
    match knock(path) {
        Ok(()) => State::Answers,
        Err(Errno::CONNREFUSED) => State::Stale,
        Err(Errno::ACCESS | Errno::PERM) => State::Refused,
        Err(errno) => State::Failed(errno),
    }
}

fn knock(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        // A full backlog: somebody is there, and busy.
        Ok(()) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn finding(path: &Path, state: State) -> Finding {
    let subject = "session";
    let shown = path.display();
    let whose = || {
        fs::metadata(path).map_or_else(
            |_| String::new(),
            |m| {
                format!(" (owner uid {}, gid {}, mode {:04o})", m.uid(), m.gid(), m.mode() & 0o7777)
            },
        )
    };
    match state {
        State::Answers => Finding::ok(subject, format!("{shown} answers{}", whose())),
        State::Absent => Finding::ok(subject, format!("{shown} is not there")),
        State::NoSocket => Finding::mend(
            subject,
            format!("{shown} is not a socket"),
            "remove it, or name another path with MQTTSHIM_SESSION",
        ),
        State::Foreign => Finding::mend(
            subject,
            format!("{shown} belongs to neither root nor this user{}", whose()),
            "the library refuses it: serve the session as root or as the broker's user",
        ),
        State::Stale => Finding::note(
            subject,
            format!("{shown} is left over: nobody listens{}", whose()),
            "the next dpu-server replaces it",
        ),
        State::Refused => Finding::mend(
            subject,
            format!("{shown} may not be opened by this user{}", whose()),
            "run dpu-server with --session-group and a group of this user, or check the folders above it",
        ),
        State::Failed(errno) => Finding::mend(
            subject,
            format!("{shown} cannot be reached: {errno}{}", whose()),
            "stop whatever serves this path and start dpu-server again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn own_uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn paths_come_in_the_librarys_order() {
        let found = paths(Some("/a/s".into()), Some("/r".into()), Some("/t".into()), 7);
        let expected = [
            "/a/s",
            "/r/mqttshim/session.sock",
            "/run/mqttshim/session.sock",
            "/t/mqttshim-7/session.sock",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        let bare = paths(None, None, None, 7);
        assert_eq!(
            bare,
            ["/run/mqttshim/session.sock", "/tmp/mqttshim-7/session.sock"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_served_a_left_over_and_a_missing_socket_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.sock");
        assert_eq!(state(&path, own_uid()), State::Absent);
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        assert_eq!(state(&path, own_uid()), State::Answers);
        drop(socket);
        assert_eq!(state(&path, own_uid()), State::Stale);
    }

    #[test]
    fn what_is_no_session_socket_is_to_be_mended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(state(&file, own_uid()), State::NoSocket);
        let datagram = folder.path().join("datagram");
        let _kept = UnixDatagram::bind(&datagram).unwrap();
        let found = state(&datagram, own_uid());
        assert!(matches!(found, State::Failed(_)), "{found:?}");
        if own_uid() != 0 {
            eprintln!("SKIPPED the rest: giving a socket away needs root");
            return;
        }
        std::os::unix::fs::chown(&datagram, Some(65_534), None).unwrap();
        assert_eq!(state(&datagram, 0), State::Foreign);
    }
}

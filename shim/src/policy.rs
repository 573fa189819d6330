//! The policy epoch: what the program does after which it may permit something else than before.
//!
//! A broker's access rules change when it reads a file or loads code. The card decides by what it learned of the broker, so it
//! has to know first: each such call raises a counter in the session's memory before it returns to the program. A rise too
//! many costs the card what it has learned, so paths of which it is certain that no broker keeps its rules there are left out:
//! [`is_never_policy`], the only list of them (docs/adr/0014).
//!
//! What is not seen: files that libc opens for itself (name resolution, time zones, character sets), which hold no broker's rules; reads of a
//! descriptor that was open before; rules that come over a connection, which is a blind spot of its own.
//!
//! Async-signal-safe, without a lock, and without a system call while the agent is awake.

use std::ffi::CStr;

use libc::{O_ACCMODE, O_CREAT, O_EXCL, O_TRUNC, O_WRONLY, c_int};
use rustix::io::Errno;

use crate::errno;
use crate::sessions;

/// The program may permit something else from here on.
pub(crate) fn rise() {
    sessions::in_use().for_each(mqttshim_session::Session::raise_policy_epoch);
}

/// Whether anybody would hear of a rise.
pub(crate) fn is_heard() -> bool {
    sessions::in_use().next().is_some()
}

/// Whether a file opened with these flags can show the program what others wrote.
pub(crate) fn reads(flags: c_int) -> bool {
    let is_empty = flags & O_TRUNC != 0 || flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
    flags & O_ACCMODE != O_WRONLY && !is_empty
}

/// The same for a mode of fopen(3).
pub(crate) fn mode_reads(mode: &CStr) -> bool {
    let mode = mode.to_bytes();
    match mode.first() {
        Some(b'r') => true,
        // Before `,ccs=`, which names a character set.
        Some(b'a') => {
            mode.iter().take_while(|&&letter| letter != b',').any(|&letter| letter == b'+')
        }
        _ => false,
    }
}

/// Whether a call that just ended may have read `path` at all: where it failed because the path itself cannot be read, there is
/// none. A file that is missing can mean as much as one that is there.
pub(crate) fn has_path(is_open: bool) -> bool {
    is_open || errno::last() != Errno::FAULT
}

/// Files that cannot hold a broker's rules: their paths are compiled into the libraries that read them, and their formats are others.
const NEVER_POLICY: [&str; 15] = [
    // libwrap reads both at every accept. Whom they turn away is disconnected, which the card sees.
    "/etc/hosts.allow",
    "/etc/hosts.deny",
    // Resolvers other than libc's own.
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    // Time zones.
    "/etc/localtime",
    "/etc/timezone",
    // Devices without content of their own.
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
];
/// Folders in which nothing is anybody's to write, but the kernel's or the distribution's.
const NEVER_POLICY_FOLDERS: [&str; 3] = ["/proc/", "/sys/", "/usr/share/zoneinfo/"];
/// Names under /proc that lead to any file there is.
const DOORS: [&[u8]; 4] = [b"fd", b"root", b"cwd", b"map_files"];

/// Whether a broker's rules are certainly not in this file. Relative paths and detours are not certain.
pub(crate) fn is_never_policy(path: &CStr) -> bool {
    let path = path.to_bytes();
    if NEVER_POLICY.iter().any(|never| path == never.as_bytes()) {
        return true;
    }
    let is_in = NEVER_POLICY_FOLDERS.iter().any(|folder| path.starts_with(folder.as_bytes()));
    let is_detour = |part: &[u8]| part == b".." || DOORS.contains(&part);
    is_in && !path.split(|&byte| byte == b'/').any(is_detour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_for_reading_counts_and_for_writing_does_not() {
        assert!(reads(libc::O_RDONLY) && reads(libc::O_RDWR | O_CREAT) && reads(libc::O_PATH));
        assert!(!reads(O_WRONLY | O_CREAT | libc::O_APPEND));
        assert!(!reads(libc::O_RDWR | O_TRUNC) && !reads(libc::O_RDWR | O_CREAT | O_EXCL));
        for mode in [c"r", c"rb", c"rte", c"r+", c"a+", c"ab+", c"r,ccs=utf-8"] {
            assert!(mode_reads(mode), "{mode:?}");
        }
        for mode in [c"w", c"wt", c"w+", c"a", c"at", c"a,ccs=c+", c""] {
            assert!(!mode_reads(mode), "{mode:?}");
        }
    }

    #[test]
    fn what_libraries_read_by_themselves_is_no_policy() {
        for path in
            [c"/etc/hosts.allow", c"/etc/hosts.deny", c"/proc/self/stat", c"/sys/fs/cgroup/x"]
        {
            assert!(is_never_policy(path), "{path:?}");
        }
    }

    #[test]
    fn whatever_an_operator_may_name_is_policy() {
        for path in [
            c"/etc/mosquitto/acl",
            c"/etc/hosts.allow.acl",
            c"/etc/passwd",
            c"/dev/shm/acl",
            c"/dev/stdin",
            c"etc/hosts",
            c"acl",
            c"",
        ] {
            assert!(!is_never_policy(path), "{path:?}");
        }
    }

    #[test]
    fn a_door_out_of_proc_is_policy() {
        for path in [
            c"/proc/self/fd/7",
            c"/proc/1/root/etc/mosquitto/acl",
            c"/proc/thread-self/cwd/acl",
            c"/proc/../etc/mosquitto/acl",
            c"/usr/share/zoneinfo/../../../srv/acl",
        ] {
            assert!(!is_never_policy(path), "{path:?}");
        }
    }
}

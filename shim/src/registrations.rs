//! The epoll registrations of a descriptor, as the kernel tells them in `/proc/self/fdinfo`.
//!
//! Connections are not remembered by [`crate::watches`]: theirs stay where they are, as a placeholder is never replaced but when
//! a connect failed and the program tries again. Then every descriptor of the process is looked at, which costs a system call
//! each, and every line of every epoll set. Without `/proc` nothing is found.

use std::os::fd::{OwnedFd, RawFd};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::descriptor;
use crate::watches::Watch;

/// What `/proc/self/fd` has for an epoll set.
const EPOLL: &[u8] = b"anon_inode:[eventpoll]";
/// Read at once from a set's list.
const CHUNK_BYTES: usize = 4096;

/// The registrations of `fd`, in all epoll sets of this process.
pub(crate) fn of(fd: RawFd) -> Vec<Watch> {
    let mut found = Vec::new();
    let Ok(names) = open("/proc/self/fd", OFlags::DIRECTORY).and_then(Dir::new) else {
        return found;
    };
    let inode = descriptor::inode(fd);
    for name in names.flatten() {
        let Some(epoll) = name.file_name().to_str().ok().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let link = rustix::fs::readlink(format!("/proc/self/fd/{epoll}"), Vec::new());
        if link.is_ok_and(|link| link.as_bytes() == EPOLL)
            && let Ok(list) = read(&format!("/proc/self/fdinfo/{epoll}"))
        {
            found.extend(list.lines().filter_map(|line| registration(line, epoll, fd, inode)));
        }
    }
    found
}

/// The registration in one line, if it is of `fd` and of the file with this inode: `epoll(7)`, Q6, keeps those of files that a
/// number named before.
fn registration(line: &str, epoll: RawFd, fd: RawFd, inode: u32) -> Option<Watch> {
    let mut words = line.split_whitespace();
    let mut after = |label: &str| {
        let word = words.find_map(|word| word.strip_prefix(label))?;
        if word.is_empty() { words.next() } else { Some(word) }
    };
    let target: RawFd = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let data = u64::from_str_radix(after("data:")?, 16).ok()?;
    let file = u64::from_str_radix(after("ino:")?, 16).ok()?;
    (target == fd && file == u64::from(inode)).then_some(Watch { epoll, events, data })
}

fn open(path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty())
}

fn read(path: &str) -> Result<String, Errno> {
    let file = open(path, OFlags::empty())?;
    let mut text = Vec::new();
    loop {
        let end = text.len();
        text.resize(end + CHUNK_BYTES, 0);
        let read = rustix::io::read(&file, &mut text[end..])?;
        text.truncate(end + read);
        if read == 0 {
            return String::from_utf8(text).map_err(|_| Errno::ILSEQ);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::net::{AddressFamily, SocketType};

    use super::*;

    #[test]
    fn registrations_are_found_with_events_and_data_in_every_set() {
        let socket = || rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let (watched, other) = (socket(), socket());
        let sets = [(); 2].map(|()| epoll::create(CreateFlags::CLOEXEC).unwrap());
        let flags = EventFlags::OUT | EventFlags::ET;
        epoll::add(&sets[0], &watched, EventData::new_u64(u64::MAX), flags).unwrap();
        epoll::add(&sets[0], &other, EventData::new_u64(1), EventFlags::IN).unwrap();
        epoll::add(&sets[1], &watched, EventData::new_u64(0), EventFlags::IN).unwrap();

        let mut found = of(watched.as_raw_fd());
        found.sort_by_key(|watch| watch.data);
        let [second, first] = found[..] else { panic!("{found:?}") };
        let is = |watch: Watch| (watch.epoll, watch.data);
        assert_eq!(is(first), (sets[0].as_raw_fd(), u64::MAX));
        assert_eq!(is(second), (sets[1].as_raw_fd(), 0));
        // The kernel adds those it always reports.
        assert!(EventFlags::from_bits_retain(first.events).contains(flags));
    }

    #[test]
    fn a_line_of_another_file_or_none_is_no_registration() {
        let line = "tfd:        5 events:       19 data: 7ffd00000005  pos:0 ino:1c sdev:9";
        let watch = Watch { epoll: 3, events: 0x19, data: 0x7ffd_0000_0005 };
        assert_eq!(registration(line, 3, 5, 0x1c), Some(watch));
        assert_eq!(registration(line, 3, 6, 0x1c), None);
        assert_eq!(registration(line, 3, 5, 0x1d), None);
        assert_eq!(registration("pos:\t0", 3, 5, 0x1c), None);
    }
}

//! Where the trace goes: a descriptor of our own, with a high number, that the program cannot close by accident.
//!
//! The table says that the number is ours, which the hooks of close, close_range and dup2 respect. What goes past them
//! (`closefrom`, raw system calls) is found out before each write: if the number is closed or names another file, it is
//! given up and the file opened again. Nothing here allocates once the trace has begun.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::setting::Target;
use crate::descriptor;
use crate::table::{self, Entry, Kind};

/// Numbers tried, out of the way of programs that count on small ones or on `select`.
const FD_MIN: [RawFd; 3] = [900, 200, 10];
/// How long a full pipe or terminal is waited for, before a line is lost.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A file, as the kernel tells it from all others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Identity {
    device: u64,
    inode: u64,
}

/// See the module.
pub(super) struct Output {
    fd: RawFd,
    identity: Identity,
    /// To open it again. `None` for standard error.
    path: Option<CString>,
}

impl Output {
    pub(super) const NONE: Output =
        Output { fd: -1, identity: Identity { device: 0, inode: 0 }, path: None };

    /// Opens it.
    ///
    /// # Errors
    /// As `open(2)`, or EBADF where standard error is closed.
    pub(super) fn open(target: Target<'_>) -> Result<Output, Errno> {
        let mut output = Output::NONE;
        if let Target::File(name) = target {
            output.path = Some(absolute(name)?);
        }
        output.reopen()?;
        Ok(output)
    }

    /// Whether lines of several programs may meet here, so that each names its process.
    pub(super) fn is_file(&self) -> bool {
        self.path.is_some()
    }

    fn reopen(&mut self) -> Result<(), Errno> {
        let fd = match &self.path {
            Some(path) => raise(open_file(path)?)?,
            None => raise_copy(descriptor::borrow(2))?,
        };
        let identity = identity(&fd)?;
        // Another file may have come to standard error meanwhile, which is the program's affair.
        if self.path.is_none() && self.identity != Identity::default() && self.identity != identity
        {
            return Err(Errno::BADF);
        }
        self.identity = identity;
        self.fd = fd.into_raw_fd();
        table::replace(self.fd, Entry::of(Kind::Private));
        Ok(())
    }

    /// Gives the number up if it is not ours any more.
    pub(super) fn check(&mut self) {
        if self.fd >= 0 && identity(descriptor::borrow(self.fd)) != Ok(self.identity) {
            table::exchange(self.fd, Entry::of(Kind::Private), Entry::PLAIN);
            self.fd = -1;
        }
    }

    /// Writes a line, with one call if the kernel takes it whole. To be called with all signals blocked.
    ///
    /// # Errors
    /// As `write(2)`: the line, or its end, is lost.
    pub(super) fn write(&mut self, mut line: &[u8]) -> Result<(), Errno> {
        self.check();
        if self.fd < 0 {
            self.reopen()?;
        }
        let fd = descriptor::borrow(self.fd);
        while !line.is_empty() {
            match rustix::io::write(fd, line) {
                Ok(written) => line = &line[written.min(line.len())..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut watched = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                    if rustix::event::poll(&mut watched, Some(&PATIENCE))? == 0 {
                        return Err(Errno::AGAIN);
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// The name as it is from the root: programs change their folder.
fn absolute(name: &OsStr) -> Result<CString, Errno> {
    let mut path = Vec::new();
    if !name.as_bytes().starts_with(b"/") {
        path.extend(rustix::process::getcwd(Vec::new())?.into_bytes());
        path.push(b'/');
    }
    path.extend(name.as_bytes());
    CString::new(path).map_err(|_| Errno::INVAL)
}

fn open_file(path: &CString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY;
    // Not to wait for ever for the reader of a pipe with a name.
    rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::from_raw_mode(0o666))
}

/// The same file on a high number.
fn raise(low: OwnedFd) -> Result<OwnedFd, Errno> {
    raise_copy(&low)
}

fn raise_copy(low: impl AsFd) -> Result<OwnedFd, Errno> {
    let mut outcome = Err(Errno::MFILE);
    for floor in FD_MIN {
        outcome = rustix::io::fcntl_dupfd_cloexec(&low, floor);
        // EINVAL: the process may not have a number that high.
        if !matches!(outcome, Err(Errno::INVAL | Errno::MFILE)) {
            break;
        }
    }
    outcome
}

fn identity(fd: impl AsFd) -> Result<Identity, Errno> {
    rustix::fs::fstat(fd).map(|found| Identity { device: found.st_dev, inode: found.st_ino })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_was_closed_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let mut output = Output::open(Target::File(path.as_os_str())).unwrap();
        output.write(b"one\n").unwrap();
        let first = output.fd;
        assert!(table::get(first).kind() == Kind::Private);
        // Behind our back: the number names another file by now.
        let other = std::fs::File::create(folder.path().join("other")).unwrap();
        descriptor::replace(first, &other).unwrap();
        output.write(b"two\n").unwrap();
        assert_ne!(output.fd, first);
        assert!(table::get(first).is_plain());
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        assert_eq!(std::fs::read(folder.path().join("other")).unwrap(), b"");
    }

    #[test]
    fn what_cannot_be_written_says_why() {
        let missing = Target::File(OsStr::new("/nonexistent/trace"));
        assert_eq!(Output::open(missing).err(), Some(Errno::NOENT));
        let mut full = Output::open(Target::File(OsStr::new("/dev/full"))).unwrap();
        assert_eq!(full.write(b"line\n"), Err(Errno::NOSPC));
    }
}

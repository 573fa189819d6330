//! The write family on a connection.
//!
//! Bytes go into the session's ring: no allocation, no lock but the ring's, and a system call only to wake a sleeping agent.
//! What finds no room waits on the placeholder, in the kernel.

use std::io::IoSlice;
use std::os::fd::RawFd;

use mqttshim_session::Write;
use rustix::io::Errno;

use crate::descriptor;
use crate::outcome::{Outcome, Woken};
use crate::sockets::{connection, failed_or_stale};

/// A write in progress.
pub(crate) struct Send<'a, 'b> {
    fd: RawFd,
    flags: i32,
    from: &'a [IoSlice<'b>],
    wanted: usize,
    moved: usize,
    has_hole: bool,
    is_continued: bool,
}

impl<'a, 'b> Send<'a, 'b> {
    /// `flags` as `send(2)` takes them; with a hole, there is something to send that cannot be read.
    pub(crate) fn new(fd: RawFd, flags: i32, from: &'a [IoSlice<'b>], has_hole: bool) -> Self {
        let wanted = from.iter().map(|part| part.len()).fold(0, usize::saturating_add);
        Send { fd, flags, from, wanted, moved: 0, has_hole, is_continued: false }
    }

    /// It is part of a call that has sent something before.
    pub(crate) fn continued(self, is_continued: bool) -> Self {
        Send { is_continued, ..self }
    }

    /// One attempt.
    pub(crate) fn attempt(&mut self, woken: Woken) -> Outcome {
        let (target, session) = match connection(self.fd, self.broken_pipe()) {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        if self.flags & libc::MSG_OOB != 0 {
            // Urgent data is not carried, see the crate's head.
            return Outcome::Fail(Errno::OPNOTSUPP);
        }
        if self.flags & libc::MSG_FASTOPEN != 0 {
            return Outcome::Fail(Errno::ISCONN);
        }
        let (slot, placeholder) = (target.socket.slot, descriptor::borrow(self.fd));
        loop {
            let written = match self.rest() {
                None => session.write(slot, placeholder, self.from),
                Some(rest) => session.write(slot, placeholder, &[rest]),
            };
            match written {
                Write::Bytes(0) if self.has_hole => return Outcome::Fail(Errno::FAULT),
                Write::Bytes(bytes) => {
                    self.moved += bytes;
                    if self.moved >= self.wanted || bytes == 0 {
                        return Outcome::moved(self.moved);
                    }
                }
                Write::Full if self.wanted == 0 => return Outcome::moved(0),
                Write::Full => return self.found_no_room(woken),
                Write::Failed(_) if self.moved > 0 => return Outcome::moved(self.moved),
                Write::Failed(Errno::PIPE) => return self.broken_pipe(),
                Write::Failed(errno) => return failed_or_stale(self.fd, errno),
            }
        }
    }

    /// Whether less was taken than was offered.
    pub(crate) fn is_short(&self) -> bool {
        self.moved < self.wanted
    }

    /// What is left of the part that was written half-way. `None` at the very start.
    fn rest(&self) -> Option<IoSlice<'_>> {
        let mut skip = self.moved;
        if skip == 0 {
            return None;
        }
        for part in self.from {
            if skip < part.len() {
                return Some(IoSlice::new(&part[skip..]));
            }
            skip -= part.len();
        }
        Some(IoSlice::new(&[]))
    }

    fn broken_pipe(&self) -> Outcome {
        match self.flags & libc::MSG_NOSIGNAL {
            0 => Outcome::BrokenPipe,
            _ => Outcome::Fail(Errno::PIPE),
        }
    }

    fn found_no_room(&self, woken: Woken) -> Outcome {
        let may_wait = self.flags & libc::MSG_DONTWAIT == 0 && !descriptor::is_nonblocking(self.fd);
        match (may_wait, self.moved) {
            (true, _) if woken == Woken::HungUp => Outcome::Fail(Errno::CONNRESET),
            (true, moved) => {
                let may_restart = moved == 0 && !self.is_continued;
                Outcome::AwaitWritable { moved, may_restart }
            }
            (false, 0) => Outcome::Fail(Errno::AGAIN),
            (false, moved) => Outcome::moved(moved),
        }
    }
}

/// `ioctl(SIOCOUTQ)`.
pub(crate) fn unsent_bytes(fd: RawFd) -> Outcome {
    match connection(fd, Outcome::Fail(Errno::INVAL)) {
        Ok((target, session)) => Outcome::moved(session.unsent_bytes(target.socket.slot)),
        Err(outcome) => outcome,
    }
}

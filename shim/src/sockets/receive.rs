//! The read family on a connection.
//!
//! Bytes come out of the session's ring: no system call, no allocation, no lock but the socket's. A read that finds nothing
//! waits on the placeholder, in the kernel.

use std::io::IoSliceMut;
use std::os::fd::RawFd;

use mqttshim_session::{Read, Session};
use rustix::io::Errno;

use crate::descriptor::{self, is_nonblocking};
use crate::outcome::{Outcome, Target, Woken};
use crate::sockets::{connection, failed_or_stale};
use crate::table;

/// Bytes thrown away at once by `MSG_TRUNC`: on the stack of threads that may have little.
const SCRATCH_BYTES: usize = 256;

/// A read in progress.
pub(crate) struct Receive<'a, 'b> {
    fd: RawFd,
    flags: i32,
    into: &'a mut [IoSliceMut<'b>],
    wanted: usize,
    moved: usize,
    has_hole: bool,
}

impl<'a, 'b> Receive<'a, 'b> {
    /// `flags` as `recv(2)` takes them; `wanted` is what the caller asks for, which is more than there is room for when there
    /// is a hole, where nothing can be written.
    pub(crate) fn new(
        fd: RawFd,
        flags: i32,
        into: &'a mut [IoSliceMut<'b>],
        wanted: usize,
        has_hole: bool,
    ) -> Self {
        Receive { fd, flags, into, wanted, moved: 0, has_hole }
    }

    /// One attempt.
    pub(crate) fn attempt(&mut self, woken: Woken) -> Outcome {
        if self.has(libc::MSG_ERRQUEUE) && table::get(self.fd).is_placeholder() {
            return Outcome::Fail(Errno::AGAIN);
        }
        let (target, session) = match connection(self.fd, Outcome::Fail(Errno::NOTCONN)) {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        if self.has(libc::MSG_OOB) {
            // recv(2): no urgent data is there. Urgent data is not carried, see the crate's head.
            return Outcome::Fail(Errno::INVAL);
        }
        if self.wanted == 0 || (self.has_hole && !self.has(libc::MSG_TRUNC)) {
            return self.look(target, session, woken);
        }
        let slot = target.socket.slot;
        if self.has(libc::MSG_PEEK) {
            // What was looked at is still there.
            self.moved = 0;
        }
        loop {
            match self.take(target, session) {
                Read::Bytes(bytes) if self.has(libc::MSG_PEEK) => {
                    self.moved = bytes;
                    let is_enough = bytes >= self.wanted || session.is_read_over(slot);
                    if is_enough || !self.has(libc::MSG_WAITALL) || self.has(libc::MSG_DONTWAIT) {
                        return Outcome::moved(bytes);
                    }
                    session.mark_edge(slot);
                    return Outcome::AwaitMore { moved: bytes };
                }
                Read::Bytes(bytes) => {
                    self.moved += bytes;
                    let is_enough = !self.has(libc::MSG_WAITALL) || self.moved >= self.wanted;
                    // tcp(7): what was read goes first, and the error waits for the next call.
                    if is_enough || is_failure_next(target, session) {
                        return Outcome::moved(self.moved);
                    }
                }
                Read::Eof => return Outcome::moved(self.moved),
                Read::Empty => return self.found_nothing(woken),
                Read::Failed(_) if self.moved > 0 => return Outcome::moved(self.moved),
                Read::Failed(errno) => return failed_or_stale(self.fd, errno),
            }
        }
    }

    /// A call that takes no bytes and yet waits for some: for none at all, or for such as have no place to go.
    fn look(&mut self, target: Target, session: &Session, woken: Woken) -> Outcome {
        match session.read(target.socket.slot, descriptor::borrow(target.fd), &mut [], true) {
            Read::Bytes(_) if self.has_hole => Outcome::Fail(Errno::FAULT),
            Read::Bytes(_) | Read::Eof => Outcome::moved(0),
            Read::Empty => match self.found_nothing(woken) {
                // tcp_recvmsg(): it waits once, and asks for what came only if there is something left to take.
                Outcome::AwaitReadable { .. } if !self.has_hole => match is_nonblocking(self.fd) {
                    true => Outcome::Fail(Errno::AGAIN),
                    false => Outcome::AwaitOnce,
                },
                outcome => outcome,
            },
            Read::Failed(errno) => failed_or_stale(self.fd, errno),
        }
    }

    fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn found_nothing(&self, woken: Woken) -> Outcome {
        if self.has(libc::MSG_DONTWAIT) && self.moved > 0 {
            Outcome::moved(self.moved)
        } else if self.has(libc::MSG_DONTWAIT) {
            Outcome::Fail(Errno::AGAIN)
        } else if woken == Woken::HungUp {
            // The wire is closed and the session says nothing: do not wait for what cannot come.
            Outcome::Fail(Errno::CONNRESET)
        } else {
            Outcome::AwaitReadable { moved: self.moved }
        }
    }

    /// Takes bytes for where the target stands.
    fn take(&mut self, target: Target, session: &Session) -> Read {
        let (slot, placeholder) = (target.socket.slot, descriptor::borrow(target.fd));
        let is_peek = self.has(libc::MSG_PEEK);
        if self.has(libc::MSG_TRUNC) {
            return self.discard(target, session, is_peek);
        }
        if self.moved == 0 {
            return session.read(slot, placeholder, self.into, is_peek);
        }
        // What was filled already is skipped without touching the caller's vector.
        let mut skip = self.moved;
        for part in self.into.iter_mut() {
            if skip < part.len() {
                let rest = &mut [IoSliceMut::new(&mut part[skip..])];
                return session.read(slot, placeholder, rest, is_peek);
            }
            skip -= part.len();
        }
        Read::Eof
    }

    /// tcp(7), MSG_TRUNC: the bytes are counted and not copied.
    fn discard(&self, target: Target, session: &Session, is_peek: bool) -> Read {
        let (slot, placeholder) = (target.socket.slot, descriptor::borrow(target.fd));
        let mut scratch = [0_u8; SCRATCH_BYTES];
        let mut dropped = 0;
        loop {
            let length = SCRATCH_BYTES.min(self.wanted - self.moved - dropped);
            let into = &mut [IoSliceMut::new(&mut scratch[..length])];
            match session.read(slot, placeholder, into, is_peek) {
                Read::Bytes(_) if is_peek => {
                    return Read::Bytes(session.readable_bytes(slot).min(self.wanted));
                }
                Read::Bytes(bytes) => {
                    dropped += bytes;
                    if dropped == self.wanted - self.moved || is_failure_next(target, session) {
                        return Read::Bytes(dropped);
                    }
                }
                _ if dropped > 0 => return Read::Bytes(dropped),
                other => return other,
            }
        }
    }
}

/// Whether another read would take the connection's error.
fn is_failure_next(target: Target, session: &Session) -> bool {
    let slot = target.socket.slot;
    // The error first: when it is there, no more bytes come.
    session.has_failed(slot) && session.readable_bytes(slot) == 0
}

/// The error of a connection that is gone, taken: recvmmsg(2) looks for one before it looks for anything else.
pub(crate) fn failure(fd: RawFd) -> Outcome {
    match connection(fd, Outcome::SUCCESS) {
        Ok((target, session)) => {
            let failure = session.take_error(target.socket.slot, descriptor::borrow(fd));
            failure.map_or(Outcome::SUCCESS, Outcome::Fail)
        }
        Err(outcome) => outcome,
    }
}

/// `ioctl(FIONREAD)`.
pub(crate) fn readable_bytes(fd: RawFd) -> Outcome {
    match connection(fd, Outcome::Fail(Errno::INVAL)) {
        Ok((target, session)) => Outcome::moved(session.readable_bytes(target.socket.slot)),
        Err(outcome) => outcome,
    }
}

//! splice(2) with a connection at one end.
//!
//! The kernel moves pages; a connection's bytes go through a buffer mapped for the call. Nothing is lost on the way: bytes of a
//! connection are looked at and taken off it once they are in the pipe, and bytes of a pipe are duplicated by tee(2) and taken
//! out once the connection has them.

use std::io::{IoSlice, IoSliceMut};

use libc::{c_int, c_uint, off64_t, size_t, ssize_t};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::pipe::{PIPE_BUF, PipeFlags, SpliceFlags};

use super::copying::Buffer;
use super::{drive, fail, hook, size};
use crate::descriptor;
use crate::guard;
use crate::real;
use crate::sockets::receive::Receive;
use crate::sockets::send::Send;
use crate::table;

/// Every flag of splice(2).
const FLAGS_TAKEN: c_uint = 0xf;
/// The offset of pwritev2(2) that means "where the file stands".
const HERE: u64 = u64::MAX;

/// Whether the other end is a pipe that can be used so.
fn check_pipe(pipe: c_int, is_target: bool) -> Result<(), Errno> {
    if pipe < 0 {
        return Err(Errno::BADF);
    }
    let file = descriptor::borrow(pipe);
    let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
    if kind != FileType::Fifo {
        return Err(Errno::INVAL);
    }
    let unfit = if is_target { OFlags::RDONLY } else { OFlags::WRONLY };
    match rustix::fs::fcntl_getfl(file)? & OFlags::ACCMODE == unfit {
        true => Err(Errno::BADF),
        false => Ok(()),
    }
}

/// Writes to a pipe what it has room for, after waiting for room if it may.
fn put(pipe: c_int, bytes: &[u8], may_wait: bool) -> Result<usize, Errno> {
    let pipe = descriptor::borrow(pipe);
    loop {
        match rustix::io::pwritev2(pipe, &[IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT) {
            Err(Errno::AGAIN) if may_wait => {}
            // Before Linux 6.4 a pipe does not know it. It has room for so much when it says that it has room.
            Err(Errno::OPNOTSUPP) => {
                return rustix::io::write(pipe, &bytes[..bytes.len().min(PIPE_BUF)]);
            }
            written => return written,
        }
        rustix::event::poll(&mut [PollFd::from_borrowed_fd(pipe, PollFlags::OUT)], None)?;
    }
}

/// `None`: the call is the kernel's.
fn from_socket(socket: c_int, pipe: c_int, may_wait: bool, buffer: &mut [u8]) -> Option<isize> {
    let wanted = buffer.len();
    let seen = {
        let into = &mut [IoSliceMut::new(buffer)];
        let mut look = Receive::new(socket, libc::MSG_PEEK, into, wanted, false);
        drive(socket, |woken| look.attempt(woken))?
    };
    let Ok(seen @ 1..) = usize::try_from(seen) else { return Some(seen) };
    match put(pipe, &buffer[..seen], may_wait) {
        Ok(moved) => {
            let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
            let mut take = Receive::new(socket, flags, &mut [], moved, false);
            drive(socket, |woken| take.attempt(woken))
        }
        Err(errno) => Some(fail(errno)),
    }
}

/// `None`: the call is the kernel's.
fn to_socket(pipe: c_int, socket: c_int, may_wait: bool, buffer: &mut [u8]) -> Option<isize> {
    let pipe = descriptor::borrow(pipe);
    let flags = if may_wait { SpliceFlags::empty() } else { SpliceFlags::NONBLOCK };
    let copied =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).and_then(
            |(out, back)| match rustix::pipe::tee(pipe, &back, buffer.len(), flags)? {
                0 => Ok(0),
                there => rustix::io::read(&out, &mut buffer[..there]),
            },
        );
    let moved = match copied {
        Ok(0) => return Some(0),
        Ok(there) => {
            let parts = [IoSlice::new(&buffer[..there])];
            let mut call = Send::new(socket, 0, &parts, false);
            drive(socket, |woken| call.attempt(woken))?
        }
        Err(errno) => return Some(fail(errno)),
    };
    let mut left = usize::try_from(moved).unwrap_or(0);
    while left > 0 {
        match rustix::io::read(pipe, &mut buffer[..left]) {
            Ok(taken @ 1..) => left -= taken,
            // Somebody else reads this pipe, too.
            _ => break,
        }
    }
    Some(moved)
}

/// `None`: the call is the kernel's.
fn splice_through(
    (from, has_from_offset): (c_int, bool),
    (to, has_to_offset): (c_int, bool),
    count: size_t,
    flags: c_uint,
) -> Option<isize> {
    if count == 0 {
        return Some(0);
    }
    if flags & !FLAGS_TAKEN != 0 {
        return Some(fail(Errno::INVAL));
    }
    let flags = SpliceFlags::from_bits_retain(flags);
    let is_source = table::get(from).is_placeholder();
    let (pipe, has_offset) = if is_source { (to, has_to_offset) } else { (from, has_from_offset) };
    let checked = match check_pipe(pipe, is_source) {
        Ok(()) if has_offset => Err(Errno::SPIPE),
        Ok(()) if has_from_offset || has_to_offset => Err(Errno::INVAL),
        checked => checked.and_then(|()| Buffer::map()),
    };
    let mut buffer = match checked {
        Ok(buffer) => buffer,
        Err(errno) => return Some(fail(errno)),
    };
    let may_wait = !flags.contains(SpliceFlags::NONBLOCK) && !descriptor::is_nonblocking(pipe);
    let length = buffer.bytes().len().min(count);
    let bytes = &mut buffer.bytes()[..length];
    let moved = match is_source {
        true => from_socket(from, to, may_wait, bytes),
        false => to_socket(from, to, may_wait, bytes),
    };
    buffer.unmap();
    moved
}

hook! {
    /// splice(2)
    fn splice(
        from: c_int,
        from_offset: *mut off64_t,
        to: c_int,
        to_offset: *mut off64_t,
        count: size_t,
        flags: c_uint,
    ) -> ssize_t
        as Splice(
            Fd(from),
            Position(from_offset.addr()),
            Fd(to),
            Position(to_offset.addr()),
            Size(count),
            Flags(names::SPLICE, flags),
        )
    {
        let is_ours = table::get(from).is_placeholder() || table::get(to).is_placeholder();
        if is_ours && !guard::inside() {
            let (from, to) = ((from, !from_offset.is_null()), (to, !to_offset.is_null()));
            if let Some(value) = splice_through(from, to, count, flags) {
                return size(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::splice(from, from_offset, to, to_offset, count, flags) }
    }
}

//! sendfile, sendfile64.
//!
//! A file's bytes reach a connection through a buffer mapped for the call: the stack is too small and an allocator may be the
//! program's own.

use std::io::IoSlice;
use std::slice;

use libc::{c_int, off_t, off64_t, size_t, ssize_t};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::{drive, fail, hook, size};
use crate::descriptor;
use crate::guard;
use crate::real;
use crate::sockets::send::Send;
use crate::table;

/// Bytes read from the file at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// Most bytes of one call (`MAX_RW_COUNT`).
const BYTES_MAX: usize = 0x7fff_f000;

/// A buffer for one call.
pub(super) struct Buffer(*mut u8);

impl Buffer {
    pub(super) fn map() -> Result<Buffer, Errno> {
        // SAFETY: no address is asked for, so no mapping of anybody else is touched.
        let address = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                BUFFER_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        address.map(|address| Buffer(address.cast()))
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped readable, writable and zeroed at this length, and only this call knows it.
        unsafe { slice::from_raw_parts_mut(self.0, BUFFER_BYTES) }
    }

    /// Not a destructor: a thread cancelled while it waits unwinds without running any.
    pub(super) fn unmap(self) {
        // SAFETY: mapped by `map` at this length; the value is consumed, so nobody uses it afterwards.
        let unmapped = unsafe { rustix::mm::munmap(self.0.cast(), BUFFER_BYTES) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}

/// Copies from `start` in the file. Returns the bytes sent, or why none were. `None`: the call is the kernel's.
fn copy(to: c_int, from: c_int, start: u64, count: usize, buffer: &mut [u8]) -> Option<isize> {
    let count = count.min(BYTES_MAX);
    let mut sent = 0_usize;
    while sent < count {
        let length = buffer.len().min(count - sent);
        let file = descriptor::borrow(from);
        let read =
            rustix::io::pread(file, &mut buffer[..length], start.saturating_add(sent as u64));
        let there = match read {
            Ok(0) => break,
            Ok(there) => there,
            Err(_) if sent > 0 => break,
            Err(errno) => return Some(fail(errno)),
        };
        let parts = [IoSlice::new(&buffer[..there])];
        let mut call = Send::new(to, 0, &parts, false).continued(sent > 0);
        match drive(to, |woken| call.attempt(woken))? {
            moved @ 1.. => sent += moved.cast_unsigned(),
            _ if sent > 0 => break,
            failed => return Some(failed),
        }
        if call.is_short() {
            break;
        }
    }
    Some(sent.cast_signed())
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// `offset` is null or points to a file offset.
unsafe fn send_file(to: c_int, from: c_int, offset: *mut i64, count: size_t) -> Option<isize> {
    if table::get(from).is_placeholder() {
        // sendfile(2): a socket is no source.
        return Some(fail(Errno::INVAL));
    }
    if !table::get(to).is_placeholder() || guard::inside() {
        return None;
    }
    if from < 0 {
        return Some(fail(Errno::BADF));
    }
    let file = descriptor::borrow(from);
    let start = match offset.is_null() {
        true => match rustix::fs::seek(file, rustix::fs::SeekFrom::Current(0)) {
            Ok(start) => start,
            Err(Errno::SPIPE) => return Some(fail(Errno::INVAL)),
            Err(errno) => return Some(fail(errno)),
        },
        false => {
            // SAFETY: not null, and an offset as the caller promises.
            match u64::try_from(unsafe { offset.read_unaligned() }) {
                Ok(start) => start,
                Err(_) => return Some(fail(Errno::INVAL)),
            }
        }
    };
    let mut buffer = match Buffer::map() {
        Ok(buffer) => buffer,
        Err(errno) => return Some(fail(errno)),
    };
    let sent = copy(to, from, start, count, buffer.bytes());
    buffer.unmap();
    let end = start + sent?.max(0).cast_unsigned() as u64;
    if offset.is_null() {
        // The file was seekable a moment ago.
        let _ = rustix::fs::seek(file, rustix::fs::SeekFrom::Start(end));
    } else {
        // SAFETY: as for the read above.
        unsafe { offset.write_unaligned(end.cast_signed()) };
    }
    sent
}

hook! {
    /// sendfile(2)
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t
        as Sendfile(Fd(to), Fd(from), PositionMoved(offset.addr()), Size(count))
    {
        // SAFETY: sendfile(2) obliges its caller to pass null or an offset.
        if let Some(value) = unsafe { send_file(to, from, offset, count) } {
            return size(value);
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::sendfile(to, from, offset, count) }
    }
}

hook! {
    /// sendfile(2), by the name 64-bit file offsets give it.
    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t
        as Sendfile(Fd(to), Fd(from), PositionMoved(offset.addr()), Size(count))
    {
        // SAFETY: sendfile(2) obliges its caller to pass null or an offset.
        if let Some(value) = unsafe { send_file(to, from, offset, count) } {
            return size(value);
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::sendfile64(to, from, offset, count) }
    }
}

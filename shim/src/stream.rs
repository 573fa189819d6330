//! A stdio stream whose bytes go through our hooks instead of libc's own calls to itself.
//!
//! `fopencookie(3)` makes a stream of four functions; ours call the hooks on the number, so that the stream follows whatever
//! becomes of the socket: on the card, the kernel's, or another file by `dup2`. One thing a cookie stream lacks is put right in
//! the stream itself, whose layout glibc shows to every program (`bits/types/struct_FILE.h`): its number, which `fileno(3)`
//! returns. The markers glibc leaves in a new cookie stream and what `fileno(3)` says afterwards tell whether the layout is the
//! one known here; if not, the stream works without a number. Wide characters are refused, as on any cookie stream.

use std::ffi::c_void;

use libc::{FILE, c_char, c_int, size_t, ssize_t};
use rustix::io::Errno;

use crate::errno;
use crate::hooks;
use crate::real;

/// Characters of a mode that fdopen(3) looks at in glibc, the first included.
const MODE_CHARACTERS_MAX: usize = 6;
/// What glibc puts for the number of a cookie stream.
const COOKIE_NUMBER: c_int = -2;

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

/// What glibc puts for the wide characters of a cookie stream: it has none.
const NO_WIDE: usize = usize::MAX;
/// `_IO_NO_READS`, `_IO_NO_WRITES` and `_IO_IS_APPENDING` of glibc.
const MODE_FLAGS: c_int = 0x4 | 0x8 | 0x1000;

/// The beginning of `struct _IO_FILE`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    flags: c_int,
    /// Eight of the buffers, three of the saved ones, the markers, the next stream.
    pointers: [usize; 13],
    number: c_int,
    more_flags: c_int,
    old_offset: i64,
    column: [u8; 4],
    lock: usize,
    offset: i64,
    conversion: usize,
    wide: usize,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpurge(stream: *mut FILE);
}

/// `fdopen(3)` on a socket of ours.
///
/// # Safety
/// `mode` is a C string.
pub(crate) unsafe fn open(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller promises.
    let mode = match unsafe { normal_mode(mode) } {
        Ok(mode) => mode,
        Err(errno) => return failed(errno),
    };
    // SAFETY: F_GETFL takes no argument.
    let status = unsafe { real::fcntl(fd, libc::F_GETFL, 0) };
    if status < 0 {
        return std::ptr::null_mut();
    }
    if mode[0] == b'a' && status & libc::O_APPEND == 0 {
        let status = (status | libc::O_APPEND).cast_unsigned() as usize;
        // SAFETY: F_SETFL takes a number.
        if unsafe { real::fcntl(fd, libc::F_SETFL, status) } < 0 {
            return std::ptr::null_mut();
        }
    }
    let cookie = std::ptr::without_provenance_mut(fd.cast_unsigned() as usize);
    let functions = Functions { read, write, seek, close };
    // SAFETY: the mode is a string, and the functions make of the cookie a number again, so it may be any.
    let stream = unsafe { fopencookie(cookie, mode.as_ptr().cast(), functions) };
    if !stream.is_null() {
        // SAFETY: just made, and nobody else knows it.
        unsafe { give_number(stream, fd) };
    }
    stream
}

fn failed(errno: Errno) -> *mut FILE {
    errno::set(errno);
    std::ptr::null_mut()
}

/// The mode in the three forms fopencookie(3) knows: one letter, perhaps "+", NUL.
///
/// # Safety
/// `mode` is a C string.
unsafe fn normal_mode(mode: *const c_char) -> Result<[u8; 3], Errno> {
    let mut normal = [0; 3];
    for at in 0..MODE_CHARACTERS_MAX {
        // SAFETY: none before this one was the string's end.
        let address = unsafe { mode.add(at) };
        // SAFETY: within the string, its end included.
        match unsafe { address.read() } as u8 {
            0 => break,
            letter @ (b'r' | b'w' | b'a') if at == 0 => normal[0] = letter,
            _ if at == 0 => return Err(Errno::INVAL),
            b'+' => normal[1] = b'+',
            _ => {}
        }
    }
    if normal[0] == 0 { Err(Errno::INVAL) } else { Ok(normal) }
}

/// # Safety
/// `stream` was just made by fopencookie(3), and no other thread knows it.
unsafe fn give_number(stream: *mut FILE, fd: c_int) {
    let head = stream.cast::<Head>();
    // SAFETY: glibc's streams begin with this, and are larger, in every version since 2.0.
    let before = unsafe { head.read() };
    if before.number != COOKIE_NUMBER || before.wide != NO_WIDE {
        return;
    }
    let after = Head { number: fd, ..before };
    // SAFETY: as for the read; only the number differs from what was read.
    unsafe { head.write(after) };
    // SAFETY: an open stream.
    if unsafe { libc::fileno(stream) } != fd {
        // SAFETY: as above: what was there comes back.
        unsafe { head.write(before) };
    }
}

/// Whether a stream is one of ours: no other without wide characters has a number.
///
/// # Safety
/// `stream` is an open stream.
unsafe fn is_ours(stream: *mut FILE) -> bool {
    // SAFETY: glibc's streams begin with this.
    let head = unsafe { stream.cast::<Head>().read() };
    head.wide == NO_WIDE && head.number >= 0
}

/// `freopen(3)` on a stream of ours, which glibc cannot do: the number gets the new file, and the stream stays. `None` if it is
/// none of ours.
///
/// # Safety
/// As for `freopen(3)`; `open` is the form of `fopen(3)` to use.
pub(crate) unsafe fn reopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
    open: unsafe fn(*const c_char, *const c_char) -> *mut FILE,
) -> Option<*mut FILE> {
    // SAFETY: as the caller promises.
    if !unsafe { is_ours(stream) } {
        return None;
    }
    // SAFETY: an open stream. freopen(3): a failure to write is ignored.
    unsafe { libc::fflush(stream) };
    // SAFETY: an open stream.
    unsafe { __fpurge(stream) };
    // SAFETY: an open stream.
    let fd = unsafe { libc::fileno(stream) };
    // A socket cannot be opened again by its own name, as the kernel says of /proc/self/fd.
    let fresh = match path.is_null() {
        true => failed(Errno::NXIO),
        // SAFETY: strings, as the caller promises.
        false => unsafe { open(path, mode) },
    };
    if fresh.is_null() {
        let error = errno::get();
        // SAFETY: an open stream, which a failing freopen(3) closes.
        unsafe { real::fclose(stream) };
        errno::restore(error);
        return Some(fresh);
    }
    // SAFETY: just opened.
    let new = unsafe { libc::fileno(fresh) };
    // SAFETY: F_GETFD takes no argument.
    let is_closing = unsafe { real::fcntl(new, libc::F_GETFD, 0) } & libc::FD_CLOEXEC != 0;
    // SAFETY: dup3(2) takes any numbers.
    unsafe { hooks::dup3(new, fd, if is_closing { libc::O_CLOEXEC } else { 0 }) };
    // SAFETY: just opened, and nobody else knows it.
    let opened = unsafe { fresh.cast::<Head>().read() };
    // SAFETY: as above.
    unsafe { real::fclose(fresh) };
    let head = stream.cast::<Head>();
    // SAFETY: glibc's streams begin with this.
    let before = unsafe { head.read() };
    let flags = before.flags & !MODE_FLAGS | opened.flags & MODE_FLAGS;
    // SAFETY: as for the read; only the flags of the mode differ from what was read.
    unsafe { head.write(Head { flags, ..before }) };
    // SAFETY: an open stream.
    unsafe { libc::clearerr(stream) };
    Some(stream)
}

fn number(cookie: *mut c_void) -> c_int {
    // It was made from one in `open`.
    cookie.addr() as c_int
}

unsafe extern "C-unwind" fn read(
    cookie: *mut c_void,
    target: *mut c_char,
    count: size_t,
) -> ssize_t {
    // SAFETY: stdio passes `count` writable bytes.
    unsafe { hooks::read(number(cookie), target.cast(), count) }
}

/// Writes everything unless it fails, as stdio's own does; fewer bytes than asked for tell of a failure.
unsafe extern "C-unwind" fn write(
    cookie: *mut c_void,
    source: *const c_char,
    count: size_t,
) -> ssize_t {
    let mut done = 0;
    while done < count {
        // SAFETY: `done` is within the bytes stdio passes.
        let rest = unsafe { source.add(done) };
        // SAFETY: the rest of the bytes stdio passes.
        let written = unsafe { hooks::write(number(cookie), rest.cast(), count - done) };
        if written < 0 {
            break;
        }
        done += written.cast_unsigned();
    }
    done.cast_signed()
}

/// On a socket the kernel says ESPIPE.
unsafe extern "C-unwind" fn seek(cookie: *mut c_void, position: *mut i64, whence: c_int) -> c_int {
    // SAFETY: stdio passes an offset.
    let offset = unsafe { position.read() };
    // SAFETY: lseek(2) takes any numbers.
    let reached = unsafe { libc::lseek64(number(cookie), offset, whence) };
    if reached < 0 {
        return -1;
    }
    // SAFETY: as for the read.
    unsafe { position.write(reached) };
    0
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: close(2) takes any number.
    unsafe { hooks::close(number(cookie)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(mode: &std::ffi::CStr) -> Result<[u8; 3], Errno> {
        // SAFETY: a C string.
        unsafe { normal_mode(mode.as_ptr()) }
    }

    #[test]
    fn modes_are_taken_as_fdopen_takes_them() {
        assert_eq!(normal(c"r"), Ok(*b"r\0\0"));
        assert_eq!(normal(c"wb+"), Ok(*b"w+\0"));
        assert_eq!(normal(c"ae"), Ok(*b"a\0\0"));
        assert_eq!(normal(c"rbcme+"), Ok(*b"r+\0"));
        assert_eq!(normal(c"rbcmex+"), Ok(*b"r\0\0"), "glibc stops looking");
        for bad in [c"", c"x", c"+r"] {
            assert_eq!(normal(bad), Err(Errno::INVAL));
        }
    }
}

//! fdopen, fclose, freopen, daemon: where stdio, which calls the kernel by itself, takes over or gives up a descriptor.
//!
//! A stream on a socket that is, or may come to be, on the card is one of our own making ([`crate::stream`]); all others are
//! libc's. A stream of libc's can still end up on such a number, by `dup2` below it: then closing it closes our descriptor
//! without a call of `close`.

use libc::{FILE, c_char, c_int};

use super::opening::stream_opened;
use super::{hook, note};
use crate::descriptors;
use crate::errno;
use crate::fork;
use crate::guard;
use crate::real;
use crate::stream;
use crate::table::{self, Entry};
use crate::trace::{self, Arg, Call};

hook! {
    /// fdopen(3)
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        if trace::is_on() && !guard::inside() {
            // libc asks for the mode inside, where nobody sees it: shown by asking first.
            // SAFETY: F_GETFL takes no argument.
            unsafe { super::descriptors::fcntl(fd, libc::F_GETFL, 0) };
        }
        if table::get(fd).may_be_the_cards() && !guard::inside() && !mode.is_null() {
            // SAFETY: fdopen(3) obliges its caller to pass a string; it is not null.
            return unsafe { stream::open(fd, mode) };
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::fdopen(fd, mode) }
    }
}

/// The number below a stream and what it is to us, or plain.
///
/// # Safety
/// `file` is null or an open stream.
unsafe fn below(file: *mut FILE) -> (c_int, Entry) {
    if file.is_null() || guard::inside() {
        return (-1, Entry::PLAIN);
    }
    let errno = errno::get();
    // SAFETY: an open stream, as the caller promises. One without a number has −1.
    let fd = unsafe { libc::fileno(file) };
    errno::restore(errno);
    (fd, table::get(fd))
}

/// The number that had this entry was closed, or names another file, unless a stream of ours has said so already.
fn closed_below(fd: c_int, entry: Entry) {
    if !entry.is_plain() && table::get(fd) == entry {
        note(|| {
            if fork::is_own_table() {
                descriptors::forget_stale(fd, entry);
            }
        });
    }
}

hook! {
    /// fclose(3)
    fn fclose(file: *mut FILE) -> c_int {
        // SAFETY: fclose(3) obliges its caller to pass an open stream.
        let (fd, entry) = unsafe { below(file) };
        // SAFETY: the caller's arguments, unchanged.
        let close = || unsafe { real::fclose(file) };
        // A stream of ours comes down to our close, which has a line of its own.
        let outcome = match fd >= 0 && !entry.may_be_the_cards() && trace::is_on() {
            true => trace::call(Call::Close, &[Arg::Fd(fd)], close, i64::from),
            false => close(),
        };
        closed_below(fd, entry);
        outcome
    }
}

/// `None`: the stream is one of libc's.
///
/// # Safety
/// As for freopen.
unsafe fn own_reopened(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
    open: unsafe fn(*const c_char, *const c_char) -> *mut FILE,
) -> Option<*mut FILE> {
    if file.is_null() || mode.is_null() || guard::inside() {
        return None;
    }
    // SAFETY: as the caller promises; neither is null.
    unsafe { stream::reopen(path, mode, file, open) }
}

hook! {
    /// freopen(3)
    fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
        // SAFETY: freopen(3) obliges its caller to pass an open stream.
        let (fd, entry) = unsafe { below(file) };
        // SAFETY: as for the call itself.
        if let Some(stream) = unsafe { own_reopened(path, mode, file, real::fopen) } {
            // SAFETY: the call was made with these.
            return unsafe { stream_opened(stream, path, mode) };
        }
        // SAFETY: the caller's arguments, unchanged.
        let outcome = unsafe { real::freopen(path, mode, file) };
        closed_below(fd, entry);
        // SAFETY: the call was made with these.
        unsafe { stream_opened(outcome, path, mode) }
    }
}

hook! {
    /// freopen(3), by the name 64-bit file offsets give it.
    fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
        // SAFETY: freopen(3) obliges its caller to pass an open stream.
        let (fd, entry) = unsafe { below(file) };
        // SAFETY: as for the call itself.
        if let Some(stream) = unsafe { own_reopened(path, mode, file, real::fopen64) } {
            // SAFETY: the call was made with these.
            return unsafe { stream_opened(stream, path, mode) };
        }
        // SAFETY: the caller's arguments, unchanged.
        let outcome = unsafe { real::freopen64(path, mode, file) };
        closed_below(fd, entry);
        // SAFETY: the call was made with these.
        unsafe { stream_opened(outcome, path, mode) }
    }
}

hook! {
    /// daemon(3). In the child, standard input, output and error may name another file.
    fn daemon(keeps_folder: c_int, keeps_stdio: c_int) -> c_int {
        // SAFETY: the caller's arguments, unchanged.
        let outcome = unsafe { real::daemon(keeps_folder, keeps_stdio) };
        if outcome == 0 && keeps_stdio == 0 {
            for fd in libc::STDIN_FILENO..=libc::STDERR_FILENO {
                closed_below(fd, table::get(fd));
            }
        }
        outcome
    }
}

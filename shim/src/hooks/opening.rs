//! Functions that hand out a descriptor number for a file that is none of ours: open, pipe, eventfd and their like.
//!
//! A file opened for reading may hold what the program permits: the policy epoch rises before the number is given to the
//! program ([`crate::policy`]).
//!
//! A number the kernel gives out is free, so an entry it still has is of a file that was closed behind our back (by a
//! system call of the program's own, or by io_uring). It goes here, before the number's next owner can use it.

use std::ffi::CStr;

use libc::{AT_FDCWD, FILE, c_char, c_int, c_uint, sigset_t};

use super::accepting::fresh;
use super::{hook, note};
use crate::policy;
use crate::real;
use crate::table;
use crate::trace::{self, Arg, Call, MASK_BYTES};

/// How mkstemp(3) opens its file, and for whom.
const TEMPORARY: c_int = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
const PRIVATE: c_uint = 0o600;

/// Looks at a number that was just given out, or at what is no number: a failure.
pub(super) fn given_out(fd: c_int) -> c_int {
    if !table::get(fd).is_plain() {
        note(|| fresh(fd));
    }
    fd
}

/// A call that opens a file has ended with `fd`: the policy epoch rises if the file may hold what the program permits.
///
/// # Safety
/// `path` is what the call was made with: a string, or else the call failed with EFAULT.
pub(super) unsafe fn opened(fd: c_int, path: *const c_char, flags: c_int) -> c_int {
    if policy::reads(flags) {
        // SAFETY: as the caller promises.
        unsafe { may_have_read(fd >= 0, path) };
    }
    given_out(fd)
}

/// # Safety
/// As for [`opened`].
unsafe fn may_have_read(is_open: bool, path: *const c_char) {
    if policy::is_heard() && policy::has_path(is_open) && !path.is_null() {
        // SAFETY: the kernel, or libc, has read the string there, or said EFAULT, which was asked above.
        let path = unsafe { CStr::from_ptr(path) };
        if !policy::is_never_policy(path) {
            policy::rise();
        }
    }
}

/// The same for a stream, opened with `mode`.
///
/// # Safety
/// As for [`opened`]; `mode` is a string or null.
pub(super) unsafe fn stream_opened(
    stream: *mut FILE,
    path: *const c_char,
    mode: *const c_char,
) -> *mut FILE {
    if !mode.is_null() {
        // SAFETY: as the caller promises.
        let mode = unsafe { CStr::from_ptr(mode) };
        if policy::mode_reads(mode) {
            // SAFETY: as the caller promises.
            unsafe { may_have_read(!stream.is_null(), path) };
        }
    }
    stream
}

/// Hooks that open a file.
macro_rules! opening_file {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) of($path:ident, $flags:ident) as $call:ident($($shown:expr),* $(,)?);)*) => {
        $(hook! {
            $(#[$doc])*
            fn $name($($argument: $type),*) -> c_int as $call($($shown),*) {
                // SAFETY: the caller's arguments, unchanged.
                let fd = unsafe { real::$name($($argument),*) };
                // SAFETY: the call was made with this path.
                unsafe { opened(fd, $path, $flags) }
            }
        })*
    };
}

/// Hooks that only look at the number they return.
macro_rules! opening {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) as $call:ident($($shown:expr),* $(,)?);)*) => {
        $(hook! {
            $(#[$doc])*
            fn $name($($argument: $type),*) -> c_int as $call($($shown),*) {
                // SAFETY: the caller's arguments, unchanged.
                given_out(unsafe { real::$name($($argument),*) })
            }
        })*
    };
}

opening_file! {
    /// open(2). Its third argument travels in the same register, whether or not it is given.
    fn open(path: *const c_char, flags: c_int, mode: c_uint)
        of(path, flags) as Openat(Folder(AT_FDCWD), Path(path.addr()), Open(flags, mode));
    /// open(2), by the name 64-bit file offsets give it.
    fn open64(path: *const c_char, flags: c_int, mode: c_uint)
        of(path, flags) as Openat(Folder(AT_FDCWD), Path(path.addr()), Open(flags, mode));
    /// openat(2)
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint)
        of(path, flags) as Openat(Folder(folder), Path(path.addr()), Open(flags, mode));
    /// openat(2), by the name 64-bit file offsets give it.
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint)
        of(path, flags) as Openat(Folder(folder), Path(path.addr()), Open(flags, mode));
    /// open(2) with flags the compiler knows.
    fn __open_2(path: *const c_char, flags: c_int)
        of(path, flags) as Openat(Folder(AT_FDCWD), Path(path.addr()), Open(flags, 0));
    /// See `__open_2`.
    fn __open64_2(path: *const c_char, flags: c_int)
        of(path, flags) as Openat(Folder(AT_FDCWD), Path(path.addr()), Open(flags, 0));
    /// openat(2) with flags the compiler knows.
    fn __openat_2(folder: c_int, path: *const c_char, flags: c_int)
        of(path, flags) as Openat(Folder(folder), Path(path.addr()), Open(flags, 0));
    /// See `__openat_2`.
    fn __openat64_2(folder: c_int, path: *const c_char, flags: c_int)
        of(path, flags) as Openat(Folder(folder), Path(path.addr()), Open(flags, 0));
}

opening! {
    /// creat(2)
    fn creat(path: *const c_char, mode: c_uint)
        as Creat(Path(path.addr()), Permissions(mode));
    /// creat(2), by the name 64-bit file offsets give it.
    fn creat64(path: *const c_char, mode: c_uint)
        as Creat(Path(path.addr()), Permissions(mode));
    /// eventfd(2)
    fn eventfd(value: c_uint, flags: c_int)
        as Eventfd2(Size(value as usize), Flags(names::EVENTFD, flags.cast_unsigned()));
    /// timerfd_create(2)
    fn timerfd_create(clock: c_int, flags: c_int)
        as TimerfdCreate(Choice(names::CLOCK, clock), Flags(names::TIMERFD, flags.cast_unsigned()));
    /// inotify_init(2)
    fn inotify_init()
        as InotifyInit();
    /// inotify_init1(2)
    fn inotify_init1(flags: c_int)
        as InotifyInit1(Flags(names::INOTIFY, flags.cast_unsigned()));
    /// memfd_create(2)
    fn memfd_create(name: *const c_char, flags: c_uint)
        as MemfdCreate(Path(name.addr()), Flags(names::MEMFD, flags));
    /// mkstemp(3)
    fn mkstemp(template: *mut c_char)
        as Openat(Folder(AT_FDCWD), PathOut(template.addr()), Open(TEMPORARY, PRIVATE));
    /// mkstemp(3), by the name 64-bit file offsets give it.
    fn mkstemp64(template: *mut c_char)
        as Openat(Folder(AT_FDCWD), PathOut(template.addr()), Open(TEMPORARY, PRIVATE));
    /// mkostemp(3)
    fn mkostemp(template: *mut c_char, flags: c_int)
        as Openat(Folder(AT_FDCWD), PathOut(template.addr()), Open(TEMPORARY | flags, PRIVATE));
    /// mkostemp(3), by the name 64-bit file offsets give it.
    fn mkostemp64(template: *mut c_char, flags: c_int)
        as Openat(Folder(AT_FDCWD), PathOut(template.addr()), Open(TEMPORARY | flags, PRIVATE));
}

hook! {
    /// signalfd(2). It hands out a number only if it was given none.
    fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int
        as Signalfd4(
            Int(fd.into()),
            Mask(mask.addr(), MASK_BYTES),
            Size(MASK_BYTES),
            Flags(names::SIGNALFD, flags.cast_unsigned()),
        )
    {
        // SAFETY: the caller's arguments, unchanged.
        let made = unsafe { real::signalfd(fd, mask, flags) };
        if made == fd { made } else { given_out(made) }
    }
}

/// # Safety
/// `pair` points to the two descriptors a successful pipe(2) has just written.
unsafe fn pair_given_out(outcome: c_int, pair: *mut c_int) -> c_int {
    if outcome == 0 {
        // SAFETY: as the caller promises; the kernel has written there.
        let numbers = unsafe { pair.cast::<[c_int; 2]>().read() };
        numbers.into_iter().for_each(|fd| {
            given_out(fd);
        });
    }
    outcome
}

hook! {
    /// pipe(2)
    fn pipe(pair: *mut c_int) -> c_int
        as Pipe2(PairOut(pair.addr()), Int(0))
    {
        // SAFETY: the caller's arguments, unchanged.
        let outcome = unsafe { real::pipe(pair) };
        // SAFETY: the kernel has filled the pair if it succeeded.
        unsafe { pair_given_out(outcome, pair) }
    }
}

hook! {
    /// pipe2(2)
    fn pipe2(pair: *mut c_int, flags: c_int) -> c_int
        as Pipe2(PairOut(pair.addr()), Flags(names::OPEN, flags.cast_unsigned()))
    {
        // SAFETY: the caller's arguments, unchanged.
        let outcome = unsafe { real::pipe2(pair, flags) };
        // SAFETY: the kernel has filled the pair if it succeeded.
        unsafe { pair_given_out(outcome, pair) }
    }
}

/// # Safety
/// `stream` is null or an open stream.
unsafe fn stream_given_out(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: open, as the caller promises.
        given_out(unsafe { libc::fileno(stream) });
    }
    stream
}

/// The call libc makes for fopen(3), where calls are traced.
///
/// # Safety
/// `open` returns an open stream or null.
unsafe fn traced_stream(
    path: *const c_char,
    mode: *const c_char,
    open: impl FnOnce() -> *mut FILE,
) -> *mut FILE {
    let open = || {
        // SAFETY: as the caller promises.
        unsafe { stream_given_out(open()) }
    };
    if !trace::is_on() {
        return open();
    }
    let shown = [Arg::Folder(AT_FDCWD), Arg::Path(path.addr()), Arg::Mode(mode.addr())];
    trace::call(Call::Openat, &shown, open, |stream| match stream.is_null() {
        true => -1,
        // SAFETY: just opened.
        false => unsafe { libc::fileno(stream) }.into(),
    })
}

hook! {
    /// fopen(3)
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let open = || {
            // SAFETY: the caller's arguments, unchanged.
            let stream = unsafe { real::fopen(path, mode) };
            // SAFETY: the call was made with these.
            unsafe { stream_opened(stream, path, mode) }
        };
        // SAFETY: it opens a stream.
        unsafe { traced_stream(path, mode, open) }
    }
}

hook! {
    /// fopen(3), by the name 64-bit file offsets give it.
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let open = || {
            // SAFETY: the caller's arguments, unchanged.
            let stream = unsafe { real::fopen64(path, mode) };
            // SAFETY: the call was made with these.
            unsafe { stream_opened(stream, path, mode) }
        };
        // SAFETY: it opens a stream.
        unsafe { traced_stream(path, mode, open) }
    }
}

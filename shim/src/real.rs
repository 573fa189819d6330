//! The functions behind our hooks: libc's, or the next preloaded library's.
//!
//! All are looked up once, by the constructor; never in a hook, where `dlsym` could meet its own lock or an allocator that is
//! just starting. A call that comes before the constructor, or finds no such function in an old libc, is made as a plain
//! system call. Functions of stdio, which are more than a system call, are looked up when they are called so early: no allocator
//! needs those to start.

use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, c_char, c_int, c_long, c_uint, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t,
    off_t, off64_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

use crate::kernel;
use crate::trace;

/// The functions and, for each, the system call that does the same.
///
/// Variadic ones (`fcntl`, `ioctl`) are declared with the one argument they can have: on x86-64 and aarch64 it travels in the
/// same register either way.
macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $call:ident($($raw:expr),*);)*) => {
        $(
            /// Calls the function of this name that comes after ours.
            ///
            /// # Safety
            /// As for the function itself.
            #[inline]
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                trace::asked_kernel();
                let address = pointers::$name.load(Ordering::Relaxed);
                if address.is_null() {
                    // SAFETY: the caller keeps the function's contract, which is that of its system call.
                    return unsafe { kernel::system_call!(libc::$call, $($raw),*) } as $result;
                }
                // SAFETY: dlsym returned this address for this name, whose C prototype is the one given here.
                let function = unsafe {
                    mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> $result>(address)
                };
                // SAFETY: the caller keeps the function's contract.
                unsafe { function($($argument),*) }
            }
        )*

        #[allow(non_upper_case_globals, reason = "each is named after the function it points to")]
        mod pointers {
            use super::{AtomicPtr, c_void};
            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }

        fn resolve_calls() {
            $(pointers::$name.store(next(concat!(stringify!($name), "\0")), Ordering::Relaxed);)*
        }
    };
}

/// The same for functions that no single system call stands for.
macro_rules! real_stdio {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $otherwise:expr;)*) => {
        $(
            /// Calls the function of this name that comes after ours.
            ///
            /// # Safety
            /// As for the function itself.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                trace::asked_kernel();
                let mut address = stdio_pointers::$name.load(Ordering::Relaxed);
                if address.is_null() {
                    address = next(concat!(stringify!($name), "\0"));
                    stdio_pointers::$name.store(address, Ordering::Relaxed);
                }
                if address.is_null() {
                    crate::errno::set(rustix::io::Errno::NOSYS);
                    return $otherwise;
                }
                // SAFETY: dlsym returned this address for this name, whose C prototype is the one given here.
                let function = unsafe {
                    mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> $result>(address)
                };
                // SAFETY: the caller keeps the function's contract.
                unsafe { function($($argument),*) }
            }
        )*

        #[allow(non_upper_case_globals, reason = "each is named after the function it points to")]
        mod stdio_pointers {
            use super::{AtomicPtr, c_void};
            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }

        fn resolve_stdio() {
            $(stdio_pointers::$name.store(next(concat!(stringify!($name), "\0")), Ordering::Relaxed);)*
        }
    };
}

/// Looks all of them up.
pub(crate) fn resolve() {
    resolve_calls();
    resolve_stdio();
    DLOPEN.store(next("dlopen\0"), Ordering::Relaxed);
    DLMOPEN.store(next("dlmopen\0"), Ordering::Relaxed);
    SYSCALL.store(next("syscall\0"), Ordering::Relaxed);
}

real! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int
        = SYS_socket(domain, kind, protocol);
    socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int
        = SYS_socketpair(domain, kind, protocol, pair);
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int
        = SYS_bind(fd, address, length);
    listen(fd: c_int, backlog: c_int) -> c_int = SYS_listen(fd, backlog);
    accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int
        = SYS_accept(fd, address, length);
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int
        = SYS_accept4(fd, address, length, flags);
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int
        = SYS_connect(fd, address, length);
    shutdown(fd: c_int, how: c_int) -> c_int = SYS_shutdown(fd, how);
    getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int
        = SYS_getsockname(fd, address, length);
    getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int
        = SYS_getpeername(fd, address, length);
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int
        = SYS_getsockopt(fd, level, name, value, length);
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int
        = SYS_setsockopt(fd, level, name, value, length);

    read(fd: c_int, target: *mut c_void, count: size_t) -> ssize_t = SYS_read(fd, target, count);
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = SYS_readv(fd, parts, count);
    preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
        = SYS_preadv2(fd, parts, count, offset, 0, flags);
    preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
        = SYS_preadv2(fd, parts, count, offset, 0, flags);
    recv(fd: c_int, target: *mut c_void, count: size_t, flags: c_int) -> ssize_t
        = SYS_recvfrom(fd, target, count, flags, 0, 0);
    recvfrom(fd: c_int, target: *mut c_void, count: size_t, flags: c_int, address: *mut sockaddr, length: *mut socklen_t) -> ssize_t
        = SYS_recvfrom(fd, target, count, flags, address, length);
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = SYS_recvmsg(fd, message, flags);
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int
        = SYS_recvmmsg(fd, messages, count, flags, timeout);

    write(fd: c_int, source: *const c_void, count: size_t) -> ssize_t = SYS_write(fd, source, count);
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = SYS_writev(fd, parts, count);
    pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t
        = SYS_pwritev2(fd, parts, count, offset, 0, flags);
    pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
        = SYS_pwritev2(fd, parts, count, offset, 0, flags);
    send(fd: c_int, source: *const c_void, count: size_t, flags: c_int) -> ssize_t
        = SYS_sendto(fd, source, count, flags, 0, 0);
    sendto(fd: c_int, source: *const c_void, count: size_t, flags: c_int, address: *const sockaddr, length: socklen_t) -> ssize_t
        = SYS_sendto(fd, source, count, flags, address, length);
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = SYS_sendmsg(fd, message, flags);
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int
        = SYS_sendmmsg(fd, messages, count, flags);
    sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t
        = SYS_sendfile(to, from, offset, count);
    sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t
        = SYS_sendfile(to, from, offset, count);
    splice(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t
        = SYS_splice(from, from_offset, to, to_offset, count, flags);

    close(fd: c_int) -> c_int = SYS_close(fd);
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = SYS_close_range(first, last, flags);
    dup(fd: c_int) -> c_int = SYS_dup(fd);
    dup2(fd: c_int, target: c_int) -> c_int = SYS_dup3(fd, target, 0);
    dup3(fd: c_int, target: c_int, flags: c_int) -> c_int = SYS_dup3(fd, target, flags);
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = SYS_fcntl(fd, command, argument);
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = SYS_fcntl(fd, command, argument);
    ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int = SYS_ioctl(fd, request, argument);
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int
        = SYS_epoll_ctl(epoll, operation, fd, event);
    epoll_wait(epoll: c_int, events: *mut epoll_event, room: c_int, milliseconds: c_int) -> c_int
        = SYS_epoll_pwait(epoll, events, room, milliseconds, 0, 0);
    epoll_pwait(epoll: c_int, events: *mut epoll_event, room: c_int, milliseconds: c_int, mask: *const sigset_t) -> c_int
        = SYS_epoll_pwait(epoll, events, room, milliseconds, mask, KERNEL_SIGSET_BYTES);
    epoll_pwait2(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = SYS_epoll_pwait2(epoll, events, room, timeout, mask, KERNEL_SIGSET_BYTES);
    poll(fds: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int
        = SYS_ppoll(fds, count, pointer(&milliseconds_span(milliseconds)), 0, 0);
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = SYS_ppoll(fds, count, timeout, mask, KERNEL_SIGSET_BYTES);
    select(count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *mut timeval) -> c_int
        = SYS_pselect6(count, reads, writes, others, pointer(&timeval_span(timeout)), 0);
    pselect(count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = SYS_pselect6(count, reads, writes, others, timeout, [mask.addr(), KERNEL_SIGSET_BYTES].as_ptr());

    open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = SYS_openat(libc::AT_FDCWD, path, flags, mode);
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = SYS_openat(libc::AT_FDCWD, path, flags | libc::O_LARGEFILE, mode);
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = SYS_openat(folder, path, flags, mode);
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int
        = SYS_openat(folder, path, flags | libc::O_LARGEFILE, mode);
    __open_2(path: *const c_char, flags: c_int) -> c_int = SYS_openat(libc::AT_FDCWD, path, flags, 0);
    __open64_2(path: *const c_char, flags: c_int) -> c_int
        = SYS_openat(libc::AT_FDCWD, path, flags | libc::O_LARGEFILE, 0);
    __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int
        = SYS_openat(folder, path, flags, 0);
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int
        = SYS_openat(folder, path, flags | libc::O_LARGEFILE, 0);
    creat(path: *const c_char, mode: c_uint) -> c_int
        = SYS_openat(libc::AT_FDCWD, path, CREAT, mode);
    creat64(path: *const c_char, mode: c_uint) -> c_int
        = SYS_openat(libc::AT_FDCWD, path, CREAT | libc::O_LARGEFILE, mode);
    pipe(pair: *mut c_int) -> c_int = SYS_pipe2(pair, 0);
    pipe2(pair: *mut c_int, flags: c_int) -> c_int = SYS_pipe2(pair, flags);
    eventfd(value: c_uint, flags: c_int) -> c_int = SYS_eventfd2(value, flags);
    epoll_create(size: c_int) -> c_int = SYS_epoll_create1(if size > 0 { 0 } else { -1 });
    epoll_create1(flags: c_int) -> c_int = SYS_epoll_create1(flags);
    timerfd_create(clock: c_int, flags: c_int) -> c_int = SYS_timerfd_create(clock, flags);
    inotify_init() -> c_int = SYS_inotify_init1(0);
    inotify_init1(flags: c_int) -> c_int = SYS_inotify_init1(flags);
    memfd_create(name: *const c_char, flags: c_uint) -> c_int = SYS_memfd_create(name, flags);
}

/// Bytes of the kernel's signal set, which is shorter than libc's.
const KERNEL_SIGSET_BYTES: size_t = 8;

fn pointer(span: &Option<timespec>) -> *const timespec {
    span.as_ref().map_or(ptr::null(), ptr::from_ref)
}

/// What poll(2) means by so many milliseconds. `None`: for ever.
fn milliseconds_span(milliseconds: c_int) -> Option<timespec> {
    (milliseconds >= 0).then(|| timespec {
        tv_sec: i64::from(milliseconds) / 1000,
        tv_nsec: i64::from(milliseconds) % 1000 * 1_000_000,
    })
}

/// What select(2) means by its time-out. `None`: for ever.
fn timeval_span(timeout: *const timeval) -> Option<timespec> {
    // SAFETY: null or a timeval, as select(2) obliges its caller to pass.
    let timeout = unsafe { timeout.as_ref() }?;
    Some(timespec { tv_sec: timeout.tv_sec, tv_nsec: timeout.tv_usec * 1000 })
}

/// What creat(2) opens with.
const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

real_stdio! {
    fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = ptr::null_mut();
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = ptr::null_mut();
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE = ptr::null_mut();
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = ptr::null_mut();
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = ptr::null_mut();
    fclose(stream: *mut FILE) -> c_int = -1;
    vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int = -1;
    __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int = -1;
    mkstemp(template: *mut c_char) -> c_int = -1;
    mkstemp64(template: *mut c_char) -> c_int = -1;
    mkostemp(template: *mut c_char, flags: c_int) -> c_int = -1;
    mkostemp64(template: *mut c_char, flags: c_int) -> c_int = -1;
    signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int = -1;
    daemon(keeps_folder: c_int, keeps_stdio: c_int) -> c_int = -1;
    closefrom(first: c_int) -> () = Default::default();
}

/// `dlopen(3)`: libc's, or the next library's.
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// `dlmopen(3)`: libc's, or the next library's.
static DLMOPEN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Where the `dlopen` is that comes after ours, for a hook that jumps there.
pub(crate) fn dlopen_address() -> *mut c_void {
    found(&DLOPEN, "dlopen\0")
}

/// The same of `dlmopen`.
pub(crate) fn dlmopen_address() -> *mut c_void {
    found(&DLMOPEN, "dlmopen\0")
}

/// What the constructor has found; before it has run, what is found now.
fn found(known: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let address = known.load(Ordering::Relaxed);
    if address.is_null() { next(name) } else { address }
}

/// `syscall(2)`: libc's, or the next library's.
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Calls the `syscall` that comes after ours.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn syscall(number: c_long, arguments: [usize; 6]) -> c_long {
    let address = SYSCALL.load(Ordering::Relaxed);
    if address.is_null() {
        // SAFETY: the caller keeps the call's contract.
        return unsafe { kernel::call(number, arguments) };
    }
    type Function =
        unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    // SAFETY: dlsym returned this address for `syscall`; six arguments of word size are what it passes on.
    let function = unsafe { mem::transmute::<*mut c_void, Function>(address) };
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the caller keeps the call's contract.
    unsafe { function(number, first, second, third, fourth, fifth, sixth) }
}

fn next(name: &'static str) -> *mut c_void {
    debug_assert!(name.ends_with('\0'));
    // SAFETY: the name ends with NUL, and RTLD_NEXT is valid in any loaded object.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) }
}

unsafe extern "C" {
    /// Ends the process the way glibc ends one whose buffer a fortified call would overrun.
    fn __chk_fail() -> !;
}

/// What a fortified function does when the buffer is smaller than the caller's count.
pub(crate) fn buffer_overrun() -> ! {
    // SAFETY: no preconditions; it does not return.
    unsafe { __chk_fail() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_work_before_the_constructor_and_after_it() {
        let call = || {
            // SAFETY: AF_UNIX needs no arguments that could dangle.
            let fd = unsafe { socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
            assert!(fd >= 0);
            // SAFETY: the descriptor was made above and is used by nobody else.
            assert_eq!(unsafe { close(fd) }, 0);
        };
        call();
        resolve();
        assert!(!pointers::recvmmsg.load(Ordering::Relaxed).is_null());
        call();
    }
}

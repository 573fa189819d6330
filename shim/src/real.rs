//! The functions behind our hooks: libc's, or the next preloaded library's.
//!
//! All are looked up once, by the constructor; never in a hook, where `dlsym` could meet its own lock or an allocator that is
//! just starting. A call that comes before the constructor, or finds no such function in an old libc, is made as a plain
//! system call.

use std::ffi::c_void;
use std::mem;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    c_char, c_int, c_uint, epoll_event, iovec, mmsghdr, msghdr, off_t, off64_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec,
};

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
                let address = pointers::$name.load(Ordering::Relaxed);
                if address.is_null() {
                    // SAFETY: the caller keeps the function's contract, which is that of its system call.
                    return unsafe { libc::syscall(libc::$call, $($raw),*) } as $result;
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

        /// Looks all of them up.
        pub(crate) fn resolve() {
            $(pointers::$name.store(next(concat!(stringify!($name), "\0")), Ordering::Relaxed);)*
        }
    };
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

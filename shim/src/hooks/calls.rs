//! syscall(2): programs that make system calls by number (libuv closes its sockets so) meet the same hooks.
//!
//! Only calls that concern descriptors are looked at; all others go on as they are. What goes past libc altogether, by an
//! instruction of the program's own or through io_uring, is out of reach.

use std::ffi::{c_char, c_int, c_long};

use super::{
    accepting, copying, descriptors, hook, messages, naming, opening, polling, reading, setting,
    splicing, waiting, writing,
};
use crate::guard;
use crate::real;

/// An argument as a function takes it, from the word it travels in.
trait FromWord {
    fn from_word(word: usize) -> Self;
}

macro_rules! from_word {
    ($($type:ty),*) => {
        $(impl FromWord for $type {
            fn from_word(word: usize) -> $type {
                // The upper half of a narrower argument's word says nothing: System V ABI, §3.2.3.
                word as $type
            }
        })*
    };
}
from_word!(i32, u32, i64, u64, usize);

impl<T> FromWord for *const T {
    fn from_word(word: usize) -> *const T {
        std::ptr::with_exposed_provenance(word)
    }
}

impl<T> FromWord for *mut T {
    fn from_word(word: usize) -> *mut T {
        std::ptr::with_exposed_provenance_mut(word)
    }
}

/// Calls the hook of a system call with as many of its arguments as it takes.
macro_rules! call {
    ($hook:path, $words:expr, $($at:literal)*) => {
        // SAFETY: syscall(2) obliges its caller to pass what the system call takes, which is what the function takes.
        unsafe { $hook($(FromWord::from_word($words[$at])),*) } as c_long
    };
}

/// `None`: the call is none of ours.
fn dispatch(number: c_long, words: &[usize; 6]) -> Option<c_long> {
    Some(match number {
        libc::SYS_read => call!(reading::read, words, 0 1 2),
        libc::SYS_readv => call!(reading::readv, words, 0 1 2),
        libc::SYS_recvfrom => call!(reading::recvfrom, words, 0 1 2 3 4 5),
        libc::SYS_recvmsg => call!(messages::recvmsg, words, 0 1 2),
        libc::SYS_recvmmsg => call!(messages::recvmmsg, words, 0 1 2 3 4),
        libc::SYS_write => call!(writing::write, words, 0 1 2),
        libc::SYS_writev => call!(writing::writev, words, 0 1 2),
        libc::SYS_sendto => call!(writing::sendto, words, 0 1 2 3 4 5),
        libc::SYS_sendmsg => call!(messages::sendmsg, words, 0 1 2),
        libc::SYS_sendmmsg => call!(messages::sendmmsg, words, 0 1 2 3),
        libc::SYS_sendfile => call!(copying::sendfile64, words, 0 1 2 3),
        libc::SYS_splice => call!(splicing::splice, words, 0 1 2 3 4 5),
        libc::SYS_close => call!(descriptors::close, words, 0),
        libc::SYS_close_range => call!(descriptors::close_range, words, 0 1 2),
        libc::SYS_dup => call!(descriptors::dup, words, 0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => call!(descriptors::dup2, words, 0 1),
        libc::SYS_dup3 => call!(descriptors::dup3, words, 0 1 2),
        libc::SYS_fcntl => call!(descriptors::fcntl, words, 0 1 2),
        libc::SYS_ioctl => call!(setting::ioctl, words, 0 1 2),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_create => call!(waiting::epoll_create, words, 0),
        libc::SYS_epoll_create1 => call!(waiting::epoll_create1, words, 0),
        libc::SYS_epoll_ctl => call!(waiting::epoll_ctl, words, 0 1 2 3),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => call!(waiting::epoll_wait, words, 0 1 2 3),
        libc::SYS_epoll_pwait => call!(waiting::epoll_pwait, words, 0 1 2 3 4),
        libc::SYS_epoll_pwait2 => call!(waiting::epoll_pwait2, words, 0 1 2 3 4),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => call!(polling::poll, words, 0 1 2),
        libc::SYS_ppoll => call!(polling::ppoll, words, 0 1 2 3),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => call!(polling::select, words, 0 1 2 3 4),
        libc::SYS_setsockopt => call!(setting::setsockopt, words, 0 1 2 3 4),
        libc::SYS_getsockopt => call!(setting::getsockopt, words, 0 1 2 3 4),
        libc::SYS_getsockname => call!(naming::getsockname, words, 0 1 2),
        libc::SYS_getpeername => call!(naming::getpeername, words, 0 1 2),
        libc::SYS_socket => call!(accepting::socket, words, 0 1 2),
        libc::SYS_socketpair => call!(accepting::socketpair, words, 0 1 2 3),
        libc::SYS_bind => call!(accepting::bind, words, 0 1 2),
        libc::SYS_listen => call!(accepting::listen, words, 0 1),
        libc::SYS_accept => call!(accepting::accept, words, 0 1 2),
        libc::SYS_accept4 => call!(accepting::accept4, words, 0 1 2 3),
        libc::SYS_connect => call!(accepting::connect, words, 0 1 2),
        libc::SYS_shutdown => call!(accepting::shutdown, words, 0 1),
        libc::SYS_pipe2 => call!(opening::pipe2, words, 0 1),
        _ => return None,
    })
}

/// Whether the call returns a new number of a file that is none of ours.
fn hands_out(number: c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(number, libc::SYS_open | libc::SYS_creat | libc::SYS_eventfd) {
        return true;
    }
    matches!(
        number,
        libc::SYS_openat
            | libc::SYS_openat2
            | libc::SYS_eventfd2
            | libc::SYS_timerfd_create
            | libc::SYS_inotify_init1
            | libc::SYS_memfd_create
            | libc::SYS_pidfd_open
            | libc::SYS_io_uring_setup
    )
}

/// The path and the flags of a call that opens a file.
fn opens(number: c_long, words: &[usize; 6]) -> Option<(*const c_char, c_int)> {
    let path = |at: usize| FromWord::from_word(words[at]);
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => Some((path(0), FromWord::from_word(words[1]))),
        libc::SYS_openat => Some((path(1), FromWord::from_word(words[2]))),
        // Its flags lie in memory: perhaps it reads.
        libc::SYS_openat2 => Some((path(1), libc::O_RDONLY)),
        _ => None,
    }
}

hook! {
    /// syscall(2). Its arguments travel in the same registers, and on the same place of the stack, however many are given.
    fn syscall(
        number: c_long,
        first: usize,
        second: usize,
        third: usize,
        fourth: usize,
        fifth: usize,
        sixth: usize,
    ) -> c_long {
        let words = [first, second, third, fourth, fifth, sixth];
        if !guard::inside() && let Some(value) = dispatch(number, &words) {
            return value;
        }
        // SAFETY: the caller's arguments, unchanged.
        let value = unsafe { real::syscall(number, words) };
        if hands_out(number) && let Ok(fd) = c_int::try_from(value) {
            if let Some((path, flags)) = opens(number, &words) {
                // SAFETY: the call was made with this path.
                unsafe { opening::opened(fd, path, flags) };
            } else {
                opening::given_out(fd);
            }
        }
        value
    }
}

//! Waiting on a placeholder: in the kernel, by libc's own functions, outside the fence.
//!
//! `recv(MSG_PEEK)` waits for readability exactly as a blocking read of the socket would: non-blocking mode, `SO_RCVTIMEO`,
//! signals with and without `SA_RESTART` and `pthread_cancel` are all the kernel's and libc's. For writability there is only
//! `poll(2)`, and for a listener too: a receive wakes one waiter a datagram, and one datagram may stand for many connections.
//! There, the time-out and the restart after a signal are done here.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};

use crate::descriptor;
use crate::errno;
use crate::outcome::Woken;
use crate::real;

/// Signals there are: SIGRTMAX on every Linux but MIPS.
const SIGNALS_MAX: c_int = 64;

/// Waits until a read of the placeholder would not block.
///
/// # Errors
/// As `recv(2)`.
pub(crate) fn readable(fd: RawFd) -> Result<Woken, Errno> {
    let mut byte = 0_u8;
    let target = (&raw mut byte).cast();
    // SAFETY: one byte may be written to `byte`, which is live.
    let seen = unsafe { real::recv(fd, target, 1, libc::MSG_PEEK) };
    match seen {
        1.. => Ok(Woken::Ready),
        0 => Ok(Woken::HungUp),
        _ if errno::last() == Errno::CONNRESET => Ok(Woken::HungUp),
        _ => Err(errno::last()),
    }
}

/// Waits until a write to the placeholder would not block, from `started` at most as long as `SO_SNDTIMEO` says.
///
/// # Errors
/// EAGAIN when the time is up, EINTR when a signal is to end the wait, as `send(2)`.
pub(crate) fn writable(fd: RawFd, started: Instant) -> Result<Woken, Errno> {
    ready(fd, libc::POLLOUT, Timeout::Send, started)
}

/// Waits until a listener's placeholder has something, from `started` at most as long as `SO_RCVTIMEO` says.
///
/// # Errors
/// EAGAIN when the time is up, EINTR when a signal is to end the wait, as `accept(2)`.
pub(crate) fn acceptable(fd: RawFd, started: Instant) -> Result<Woken, Errno> {
    ready(fd, libc::POLLIN, Timeout::Recv, started)
}

fn ready(fd: RawFd, events: i16, limit: Timeout, started: Instant) -> Result<Woken, Errno> {
    let limit = sockopt::socket_timeout(descriptor::borrow(fd), limit)?;
    loop {
        let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
        let mut watched = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one pollfd, which is live.
        let ready = unsafe { real::poll(&raw mut watched, 1, milliseconds(left)) };
        if ready > 0 {
            let is_over = watched.revents & (libc::POLLHUP | libc::POLLNVAL) != 0;
            return Ok(if is_over { Woken::HungUp } else { Woken::Ready });
        }
        if ready == 0 {
            return Err(Errno::AGAIN);
        }
        // signal(7): a call with a time-out set is never restarted.
        if errno::last() != Errno::INTR || limit.is_some() || !every_handler_restarts() {
            return Err(errno::last());
        }
    }
}

/// For `poll(2)`: −1 is for ever, and a wait that is nearly over still waits.
fn milliseconds(left: Option<Duration>) -> c_int {
    left.map_or(-1, |left| c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX))
}

/// Whether every signal handler of the process was installed with `SA_RESTART`. Which signal ended a poll cannot be known;
/// where handlers differ, EINTR is what a program must expect anyway.
fn every_handler_restarts() -> bool {
    (1..=SIGNALS_MAX).all(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: nothing is installed, and `action` has room for what is.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
        // SAFETY: zeroed, which is a valid sigaction, and written by the kernel since.
        let action = unsafe { action.assume_init() };
        let is_caught = known == 0
            && action.sa_sigaction != libc::SIG_DFL
            && action.sa_sigaction != libc::SIG_IGN;
        !is_caught || action.sa_flags & libc::SA_RESTART != 0
    })
}

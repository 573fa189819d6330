//! Waiting on a placeholder: in the kernel, by libc's own functions, outside the fence.
//!
//! `recv(MSG_PEEK)` waits for readability exactly as a blocking read of the socket would: non-blocking mode, `SO_RCVTIMEO`,
//! signals with and without `SA_RESTART` and `pthread_cancel` are all the kernel's and libc's. For writability there is only
//! `poll(2)`, and for a listener too: a receive wakes one waiter a datagram, and one datagram may stand for many connections.
//! There, the time-out and the restart after a signal are done here.

use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};

use crate::descriptor;
use crate::errno;
use crate::outcome::{Outcome, Woken};
use crate::real;

/// Signals there are: SIGRTMAX on every Linux but MIPS.
const SIGNALS_MAX: c_int = 64;

/// The waiting of one call, which has one time limit however often it waits: the one that was set when it began to.
pub(crate) struct Waiting {
    started: Instant,
    limit: Option<Limit>,
    /// It has waited for a byte before.
    is_again: bool,
    /// Tells of each arrival.
    arrivals: Option<OwnedFd>,
}

/// How long a call may wait. `None`: for ever.
#[derive(Clone, Copy)]
struct Limit(Option<Duration>);

impl Waiting {
    pub(crate) fn new() -> Waiting {
        Waiting { started: Instant::now(), limit: None, is_again: false, arrivals: None }
    }

    /// Waits for what an attempt asked for.
    ///
    /// # Errors
    /// As `recv(2)`, `send(2)`, `accept(2)`, `connect(2)`: EAGAIN, or what a connect says, when the time is up; EINTR when a
    /// signal is to end the wait, which it always does once something was moved.
    pub(crate) fn until_worth_trying(
        &mut self,
        fd: RawFd,
        outcome: Outcome,
    ) -> Result<Woken, Errno> {
        match outcome {
            Outcome::AwaitReadable { moved: 0 } => self.readable(fd),
            Outcome::AwaitReadable { .. } if descriptor::is_nonblocking(fd) => Err(Errno::AGAIN),
            Outcome::AwaitReadable { .. } | Outcome::AwaitOnce => {
                self.ready(fd, libc::POLLIN, Timeout::Recv, false)
            }
            Outcome::AwaitAcceptable => self.ready(fd, libc::POLLIN, Timeout::Recv, true),
            Outcome::AwaitWritable { may_restart, .. } => {
                self.ready(fd, libc::POLLOUT, Timeout::Send, may_restart)
            }
            Outcome::AwaitConnected(late) => {
                match self.ready(fd, libc::POLLOUT, Timeout::Send, true) {
                    Err(Errno::AGAIN) => Err(late),
                    waited => waited,
                }
            }
            Outcome::AwaitMore { .. } if descriptor::is_nonblocking(fd) => Err(Errno::AGAIN),
            Outcome::AwaitMore { .. } => self.more(fd),
            Outcome::Done(_) | Outcome::Fail(_) | Outcome::BrokenPipe | Outcome::Pass => {
                Ok(Woken::Ready)
            }
        }
    }

    /// What is left of the call's time. `None`: there is no limit.
    fn left(&mut self, fd: RawFd, which: Timeout) -> Result<Option<Duration>, Errno> {
        let limit = match self.limit {
            Some(Limit(limit)) => limit,
            None => sockopt::socket_timeout(descriptor::borrow(fd), which)?,
        };
        self.limit = Some(Limit(limit));
        Ok(limit.map(|limit| limit.saturating_sub(self.started.elapsed())))
    }

    /// Waits until a read would not block. What woke it before may have been another thread's.
    fn readable(&mut self, fd: RawFd) -> Result<Woken, Errno> {
        if std::mem::replace(&mut self.is_again, true)
            && !descriptor::is_nonblocking(fd)
            && self.left(fd, Timeout::Recv)?.is_some()
        {
            return self.ready(fd, libc::POLLIN, Timeout::Recv, false);
        }
        readable(fd)
    }

    fn ready(
        &mut self,
        fd: RawFd,
        events: i16,
        limit: Timeout,
        may_restart: bool,
    ) -> Result<Woken, Errno> {
        loop {
            let left = self.left(fd, limit)?;
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
            let error = errno::last();
            // signal(7): a call with a time-out set is never restarted.
            let may_restart = may_restart && left.is_none() && every_handler_restarts();
            if error != Errno::INTR || !may_restart {
                return Err(error);
            }
        }
    }

    /// Waits until something arrives at a placeholder that is readable already: its edges tell. The first time it only makes
    /// ready to wait, because something may have come before.
    fn more(&mut self, fd: RawFd) -> Result<Woken, Errno> {
        let left = self.left(fd, Timeout::Recv)?;
        let Some(set) = &self.arrivals else {
            let set = epoll::create(CreateFlags::CLOEXEC)?;
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&set, descriptor::borrow(fd), EventData::new_u64(0), flags)?;
            self.arrivals = Some(set);
            return Ok(Woken::Ready);
        };
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut events = Vec::with_capacity(1);
        match epoll::wait(set, spare_capacity(&mut events), left.as_ref())? {
            0 => Err(Errno::AGAIN),
            _ => Ok(Woken::Ready),
        }
    }
}

/// The same by the kernel alone, which knows the limit.
fn readable(fd: RawFd) -> Result<Woken, Errno> {
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

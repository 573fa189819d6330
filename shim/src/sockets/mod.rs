//! What each call does with a socket that is, or may come to be, on the card.
//!
//! ```text
//! Undecided ──bind──► Bound ──listen──► Listener ──accept──► Connection ◄──connect── Undecided
//!     │ verdict: kernel, or no card
//!     └──────────► the kernel's own, as if we were not there
//! ```
//!
//! No pointers here: the hook layer turns them into slices and addresses and back. Nothing here blocks but requests to the
//! card; whoever has to wait says so in an [`Outcome`]. A call that is the kernel's comes back as
//! `Pass`, and an operation on a placeholder never does unless the kernel's answer for the placeholder is the right one.

pub(crate) mod accept;
pub(crate) mod bind;
pub(crate) mod connect;
mod fallback;
pub(crate) mod listen;
pub(crate) mod names;
pub(crate) mod receive;
mod restoring;
pub(crate) mod send;
pub(crate) mod sockopt;
pub(crate) mod timeouts;

use std::net::SocketAddr;
use std::os::fd::RawFd;

use mqttshim_schema::How;
use mqttshim_session::{Session, State};
use rustix::io::Errno;

use crate::descriptor;
use crate::descriptors;
use crate::outcome::{Outcome, Target};
use crate::sessions;
use crate::table::{self, Flag, Kind};

/// The connection at `fd`, or how a call fails on what is there instead.
fn connection(fd: RawFd, otherwise: Outcome) -> Result<(Target, &'static Session), Outcome> {
    let entry = table::get(fd);
    if !entry.is_placeholder() {
        return Err(Outcome::Pass);
    }
    match entry.socket() {
        Some(socket) if entry.kind() == Kind::Connection => match sessions::of(socket) {
            Some(session) => Ok((Target { fd, socket }, session)),
            None => Err(Outcome::Fail(Errno::CONNRESET)),
        },
        _ => Err(otherwise),
    }
}

/// A failure that may mean that the descriptor is not what it was: then the call is the kernel's.
fn failed_or_stale(fd: RawFd, errno: Errno) -> Outcome {
    if table::is_same_file(fd) {
        return Outcome::Fail(errno);
    }
    descriptors::forget_stale(fd, table::get(fd));
    Outcome::Pass
}

/// The address the kernel gave its socket at `fd`, whose port is 0 while it is not bound.
pub(crate) fn kernel_address(fd: RawFd) -> Option<SocketAddr> {
    rustix::net::getsockname(descriptor::borrow(fd)).ok()?.try_into().ok()
}

/// The address of the other end of the kernel's connection at `fd`, once there is one.
pub(crate) fn kernel_peer(fd: RawFd) -> Option<SocketAddr> {
    rustix::net::getpeername(descriptor::borrow(fd)).ok()??.try_into().ok()
}

/// `shutdown(2)`.
pub(crate) fn shutdown(fd: RawFd, how: i32) -> Outcome {
    let how = match how {
        libc::SHUT_RD => How::Read,
        libc::SHUT_WR => How::Write,
        libc::SHUT_RDWR => How::Both,
        _ => return Outcome::Fail(Errno::INVAL),
    };
    match connection(fd, Outcome::Fail(Errno::NOTCONN)) {
        Ok((target, session)) => match session.shutdown(target.socket.slot, how) {
            Ok(()) => {
                let entry = table::get(fd);
                if entry.has(Flag::Pending) && session.state(target.socket.slot) == State::Connected
                {
                    // inet_shutdown(): the socket is connected, though no second connect asked.
                    descriptors::flag(fd, Flag::Pending, false);
                }
                Outcome::SUCCESS
            }
            Err(errno) => failed_or_stale(fd, errno),
        },
        Err(_) if table::get(fd).kind() == Kind::Listener => match how {
            // A listener has nothing to write.
            How::Write => Outcome::SUCCESS,
            How::Read | How::Both => listen::stop(fd),
        },
        Err(outcome) => outcome,
    }
}

//! `getsockopt(2)` and `setsockopt(2)` on the card's sockets.
//!
//! What describes the descriptor is answered here, time-outs belong to the placeholder (the kernel waits there), and all
//! else is asked of the card, whose real socket knows values and errors.

use std::os::fd::{AsRawFd, RawFd};

use mqttshim_schema::OPTION_VALUE_BYTES_MAX;
use mqttshim_session::Session;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::descriptor;
use crate::outcome::Outcome;
use crate::sessions;
use crate::sockets::{failed_or_stale, timeouts};
use crate::state;
use crate::table::{self, Entry, Flag, Kind, Socket};

/// Of `linux/tcp.h`: takes an address of the caller's.
const TCP_ZEROCOPY_RECEIVE: i32 = 35;

/// Options whose value holds an address of this process, which the card cannot follow.
fn holds_pointer(level: i32, name: i32) -> bool {
    const SOCKET: [i32; 3] =
        [libc::SO_ATTACH_REUSEPORT_CBPF, libc::SO_ATTACH_BPF, libc::SO_ATTACH_REUSEPORT_EBPF];
    (level == libc::SOL_SOCKET && SOCKET.contains(&name))
        || (level == libc::SOL_TCP && name == TCP_ZEROCOPY_RECEIVE)
}

/// Options that Linux sets on every connection, whatever the number: tcp(7), socket(7).
fn cannot_fail(level: i32, name: i32) -> bool {
    match level {
        libc::SOL_TCP => [libc::TCP_NODELAY, libc::TCP_CORK, libc::TCP_QUICKACK].contains(&name),
        libc::SOL_SOCKET => name == libc::SO_KEEPALIVE,
        _ => false,
    }
}

fn find(fd: RawFd) -> Result<(Entry, Socket, &'static Session), Outcome> {
    let entry = table::get(fd);
    if !entry.is_placeholder() {
        return Err(Outcome::Pass);
    }
    let socket = entry.socket().ok_or(Outcome::Fail(Errno::INVAL))?;
    let session = sessions::of(socket).ok_or(Outcome::Fail(Errno::CONNRESET))?;
    Ok((entry, socket, session))
}

/// Sets an option.
pub(crate) fn set(fd: RawFd, level: i32, name: i32, value: &[u8]) -> Outcome {
    if timeouts::is_one(level, name) {
        return timeouts::set(fd, name, value);
    }
    let (entry, socket, session) = match find(fd) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    let is_filter = (level, name) == (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    if is_filter || holds_pointer(level, name) {
        return Outcome::Fail(Errno::NOPROTOOPT);
    }
    if value.len() > OPTION_VALUE_BYTES_MAX {
        return Outcome::Fail(Errno::INVAL);
    }
    if let Some(&value) = value.first_chunk()
        && cannot_fail(level, name)
        && session.tell_option(socket.slot, level, name, value)
    {
        return Outcome::SUCCESS;
    }
    match session.set_option(socket.slot, level, name, value) {
        Ok(()) => {
            if entry.kind() == Kind::Listener
                && let Some(record) = state::lock().record(socket)
            {
                record.listen_options.note(level, name, value);
            }
            Outcome::SUCCESS
        }
        Err(Errno::CONNRESET) if is_over(fd) => {
            stand_in(fd, |it| descriptor::set_option(it, level, name, value).map(|()| 0))
        }
        Err(errno) => failed_or_stale(fd, errno),
    }
}

/// Gets an option into `out`. `Done` carries its length.
pub(crate) fn get(fd: RawFd, level: i32, name: i32, out: &mut [u8]) -> Outcome {
    if timeouts::is_one(level, name) {
        return Outcome::Pass;
    }
    let (entry, socket, session) = match find(fd) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    if let Some(value) = own_value(fd, entry, socket, level, name) {
        let bytes = value.to_ne_bytes();
        let length = bytes.len().min(out.len());
        out[..length].copy_from_slice(&bytes[..length]);
        return Outcome::moved(length);
    }
    if holds_pointer(level, name) {
        return Outcome::Fail(Errno::NOPROTOOPT);
    }
    let room = out.len().min(OPTION_VALUE_BYTES_MAX);
    match session.get_option(socket.slot, level, name, &mut out[..room]) {
        Ok(length) => Outcome::moved(length),
        Err(Errno::CONNRESET) if is_over(fd) => {
            stand_in(fd, |it| descriptor::get_option(it, level, name, out))
        }
        Err(errno) => failed_or_stale(fd, errno),
    }
}

/// Whether the descriptor is still a connection's, whose card has closed it.
fn is_over(fd: RawFd) -> bool {
    table::get(fd).kind() == Kind::Connection
        && table::is_same_file(fd)
        && descriptor::is_hung_up(fd)
}

/// A connection that is over is in state TCP_CLOSE, as a socket is that was just made: the kernel answers for it.
fn stand_in(fd: RawFd, ask: impl FnOnce(RawFd) -> Result<usize, Errno>) -> Outcome {
    let is_v6 = table::get(fd).has(Flag::V6);
    let family = if is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let fresh = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    fresh.and_then(|fresh| ask(fresh.as_raw_fd())).map_or_else(Outcome::Fail, Outcome::moved)
}

/// What is known without asking.
fn own_value(fd: RawFd, entry: Entry, socket: Socket, level: i32, name: i32) -> Option<i32> {
    if level != libc::SOL_SOCKET {
        return None;
    }
    match name {
        libc::SO_ERROR => {
            let session = sessions::of(socket)?;
            let taken = session.take_error(socket.slot, descriptor::borrow(fd));
            if taken.is_none() && entry.kind() == Kind::Connection {
                // What the placeholder may still show was told by a call that was faster than the closing of its wire.
                let _ = sockopt::socket_error(descriptor::borrow(fd));
            }
            Some(taken.map_or(0, |errno| errno.raw_os_error()))
        }
        libc::SO_TYPE => Some(libc::SOCK_STREAM),
        libc::SO_PROTOCOL => Some(libc::IPPROTO_TCP),
        libc::SO_DOMAIN if entry.has(Flag::V6) => Some(libc::AF_INET6),
        libc::SO_DOMAIN => Some(libc::AF_INET),
        libc::SO_ACCEPTCONN => Some(i32::from(entry.kind() == Kind::Listener)),
        _ => None,
    }
}

//! `accept(2)`: a connection is pulled from the card's queue and gets a placeholder of its own.
//!
//! Where the queue looks empty, the kernel is asked, on the listener's placeholder: nothing there means nothing queued, at the
//! cost of one system call, and a blocking accept waits there. The pair is made before the connection is taken, so
//! that a process without descriptors leaves it queued, as the kernel does.

use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};

use mqttshim_session::{Accept, Session};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::address::Raw;
use crate::descriptor;
use crate::descriptors;
use crate::outcome::{Outcome, Woken};
use crate::sessions;
use crate::sockets::restoring::{self, Restored};
use crate::sockets::timeouts;
use crate::spare;
use crate::table::{self, Entry, Flag, Kind, Socket};

/// Wake-ups drained at once when there is no card: more than any agent sends.
const WAKE_UPS_MAX: usize = 64;

/// The two ends of a new connection's placeholder.
pub(super) struct Pair {
    pub(super) placeholder: OwnedFd,
    pub(super) wire: OwnedFd,
}

impl Pair {
    /// Makes a pair with `fillers` bytes on the wire: one while the program may write, two while it may not.
    pub(super) fn new(flags: SocketFlags, fillers: usize) -> Result<Pair, Errno> {
        let (placeholder, wire) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The smallest buffer: two fillers make the placeholder unwritable.
        sockopt::set_socket_send_buffer_size(&placeholder, 0)?;
        for _ in 0..fillers {
            rustix::net::send(&placeholder, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        }
        Ok(Pair { placeholder, wire })
    }
}

/// One attempt. `peer` is where the client's address goes.
pub(crate) fn accept(fd: RawFd, flags: i32, woken: Woken, peer: &mut Option<Raw>) -> Outcome {
    let entry = table::get(fd);
    if !entry.is_placeholder() {
        return Outcome::Pass;
    }
    let Some(socket) = entry.socket().filter(|_| entry.kind() == Kind::Listener) else {
        return Outcome::Fail(Errno::INVAL);
    };
    if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
        return Outcome::Fail(Errno::INVAL);
    }
    let Some(session) = sessions::of(socket) else { return Outcome::Fail(Errno::INVAL) };
    if woken == Woken::First && session.readable_bytes(socket.slot) == 0 && is_quiet(fd) {
        return wait_for_more(fd);
    }
    let mut pair_flags = SocketFlags::empty();
    pair_flags.set(SocketFlags::CLOEXEC, flags & libc::SOCK_CLOEXEC != 0);
    pair_flags.set(SocketFlags::NONBLOCK, flags & libc::SOCK_NONBLOCK != 0);
    let pair = match spare::with_room(descriptor::borrow(fd), || Pair::new(pair_flags, 1)) {
        Ok(pair) if table::has_room_for(pair.placeholder.as_raw_fd()) => pair,
        Ok(_) => return Outcome::Fail(Errno::MFILE),
        Err(errno) => return Outcome::Fail(errno),
    };
    match session.accept(socket.slot, descriptor::borrow(fd)) {
        Accept::Connection(slot) => {
            let new = Socket { slot, ..socket };
            let accepted = hand_over(fd, entry, session, new, pair, peer);
            sessions::keep_spare();
            accepted
        }
        // Shut down through another descriptor.
        Accept::Empty if woken == Woken::HungUp => Outcome::Fail(Errno::INVAL),
        Accept::Lost if descriptor::is_hung_up(fd) => Outcome::Fail(Errno::INVAL),
        Accept::Empty => wait_for_more(fd),
        Accept::Lost => {
            drop(pair);
            recover(fd, entry).unwrap_or_else(|| after_recovery(fd, flags, peer))
        }
    }
}

/// The listener is served again. Its first connection may have been announced by the very byte that brought us here, which
/// another process took meanwhile: so the queue is looked at, whatever lies on the placeholder.
fn after_recovery(fd: RawFd, flags: i32, peer: &mut Option<Raw>) -> Outcome {
    let entry = table::get(fd);
    let has_session = |socket| sessions::of(socket).is_some_and(Session::is_alive);
    match entry.socket().is_some_and(has_session) {
        true => accept(fd, flags, Woken::Ready, peer),
        // Gone again already: whoever waits is woken by the next.
        false => wait_for_more(fd),
    }
}

/// Whether the agent has put nothing on the listener's placeholder, and so nothing in its queue.
fn is_quiet(fd: RawFd) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    let seen = rustix::net::recv(descriptor::borrow(fd), &mut [0_u8; 1][..], flags);
    matches!(seen, Err(Errno::AGAIN))
}

fn wait_for_more(fd: RawFd) -> Outcome {
    match descriptor::is_nonblocking(fd) {
        true => Outcome::Fail(Errno::AGAIN),
        false => Outcome::AwaitAcceptable,
    }
}

/// Gives the connection its descriptor and its wire to the agent.
fn hand_over(
    fd: RawFd,
    listener: Entry,
    session: &Session,
    socket: Socket,
    pair: Pair,
    peer: &mut Option<Raw>,
) -> Outcome {
    let is_v6 = listener.has(Flag::V6);
    *peer = session.peer(socket.slot).map(|address| Raw::new(address, is_v6));
    let Some(entry) = Entry::offloaded(Kind::Connection, socket) else {
        session.close(socket.slot);
        return Outcome::Fail(Errno::CONNABORTED);
    };
    if session.attach(socket.slot, pair.wire).is_err() {
        return Outcome::Fail(Errno::CONNABORTED);
    }
    if let Some(from) = listener.socket() {
        timeouts::inherit(fd, from.slot, session, socket.slot, pair.placeholder.as_fd());
    }
    let accepted = pair.placeholder.into_raw_fd();
    descriptors::set(accepted, entry.with_if(Flag::V6, is_v6));
    session.set_file(socket.slot, table::remember_file(accepted));
    Outcome::Done(accepted as isize)
}

/// The listener's session is gone. The next agent wakes every listener by its name, which may be why we are here. `None`: it is
/// served again.
fn recover(fd: RawFd, entry: Entry) -> Option<Outcome> {
    if !table::is_same_file(fd) {
        descriptors::forget_stale(fd, entry);
        return Some(Outcome::Pass);
    }
    match restoring::restore(fd, entry) {
        Restored::Served => return None,
        Restored::NoCard if table::get(fd) == entry => {}
        Restored::NoCard | Restored::Elsewhere => return Some(wait_for_more(fd)),
    }
    // No card: take the wake-ups away, or whoever waits for this descriptor would spin.
    for _ in 0..WAKE_UPS_MAX {
        let taken =
            rustix::net::recv(descriptor::borrow(fd), &mut [0_u8; 8][..], RecvFlags::DONTWAIT);
        if taken.is_err() {
            break;
        }
    }
    Some(wait_for_more(fd))
}

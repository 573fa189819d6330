//! `connect(2)`: outgoing connections that a rule sends to the card, and the memory of those that stay.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use mqttshim_session::State;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::descriptor;
use crate::descriptors;
use crate::environment::Fallback;
use crate::options::OptionList;
use crate::outcome::{Outcome, Woken};
use crate::placeholder;
use crate::rules::{Event, Verdict};
use crate::sessions;
use crate::sockets::accept::Pair;
use crate::sockets::{fallback, kernel_address};
use crate::state;
use crate::table::{self, Entry, Flag, Kind, Socket};
use crate::verdict;

/// One attempt. `address` is `None` when it is none of IPv4 and IPv6.
pub(crate) fn connect(fd: RawFd, address: Option<SocketAddr>, woken: Woken) -> Outcome {
    let entry = table::get(fd);
    match (entry.kind(), address) {
        // Another thread ended the connect that this one waits for.
        (kind, _) if woken != Woken::First && kind != Kind::Connection => {
            Outcome::Fail(Errno::CONNABORTED)
        }
        (Kind::Connection, _) => ask(fd, entry, woken),
        (Kind::Listener, _) => Outcome::Fail(Errno::ISCONN),
        // A bound socket is the card's already.
        (Kind::Bound, Some(address)) => begin(fd, entry, address),
        (Kind::Undecided, Some(address)) if !entry.has(Flag::Pending) => decide(fd, entry, address),
        _ => Outcome::Pass,
    }
}

fn decide(fd: RawFd, entry: Entry, address: SocketAddr) -> Outcome {
    let is_bound = kernel_address(fd).is_none_or(|own| own.port() != 0);
    if is_bound || (address.is_ipv6() && !entry.has(Flag::V6)) {
        return Outcome::Pass;
    }
    match verdict::of(Event::Connect, address) {
        Ok(Verdict::Offload) => begin(fd, entry, address),
        Ok(Verdict::Kernel) => Outcome::Pass,
        Err(verdict::Refused) => Outcome::Fail(Errno::NETDOWN),
    }
}

fn begin(fd: RawFd, entry: Entry, address: SocketAddr) -> Outcome {
    match start(fd, entry, address) {
        // The kernel tells later what became of it, non-blocking mode or not.
        Ok(()) if descriptor::is_nonblocking(fd) => Outcome::Fail(Errno::INPROGRESS),
        Ok(()) => Outcome::AwaitConnected(Errno::INPROGRESS),
        Err(Some(errno)) => Outcome::Fail(errno),
        Err(None) => without_card(entry, address, "the dpu-server is gone"),
    }
}

fn without_card(entry: Entry, address: SocketAddr, reason: &str) -> Outcome {
    let fallback = fallback::without_card(&format!("connecting to {address}"), reason);
    match fallback {
        Fallback::Kernel if entry.kind() == Kind::Undecided => Outcome::Pass,
        _ => Outcome::Fail(Errno::NETDOWN),
    }
}

/// Asks the card and puts the placeholder in. `Err(None)`: there is no card.
fn start(fd: RawFd, entry: Entry, address: SocketAddr) -> Result<(), Option<Errno>> {
    let program = verdict::program();
    let bound = entry.socket();
    let told = bound
        .and_then(|socket| state::lock().record(socket).map(|record| record.bind_options.clone()));
    let options = OptionList::changed(fd, entry.has(Flag::V6))
        .map_err(Some)?
        .since(&told.unwrap_or_default());
    let (number, session) = match bound {
        Some(socket) => (socket.session, sessions::of(socket).ok_or(None)?),
        None => sessions::ensure(&mut state::lock(), program).map_err(|_| None)?,
    };
    let pair = Pair::new(SocketFlags::CLOEXEC, 2).map_err(Some)?;
    let slot = session
        .connect(bound.map(|socket| socket.slot), address, &options.as_options(), pair.wire)
        .map_err(|errno| match errno {
            Errno::CONNRESET => None,
            errno => Some(errno),
        })?;
    if let Some(socket) = bound {
        state::lock().forget(socket);
    }
    let socket = Socket { session: number, slot };
    let new = Entry::offloaded(Kind::Connection, socket).ok_or(Some(Errno::NOBUFS))?;
    let new = new.with(Flag::Pending).with_if(Flag::V6, entry.has(Flag::V6));
    placeholder::install(fd, new, &pair.placeholder).map_err(Some)
}

/// What has become of a connect that was begun.
fn ask(fd: RawFd, entry: Entry, woken: Woken) -> Outcome {
    let Some(socket) = entry.socket() else { return Outcome::Fail(Errno::ISCONN) };
    let Some(session) = sessions::of(socket) else { return Outcome::Fail(Errno::CONNRESET) };
    if !entry.has(Flag::Pending) {
        return Outcome::Fail(Errno::ISCONN);
    }
    let error = session.take_error(socket.slot, descriptor::borrow(fd));
    match (error, session.state(socket.slot)) {
        // connect(2) succeeds once, then says EISCONN.
        (None, State::Connected) => {
            descriptors::flag(fd, Flag::Pending, false);
            Outcome::SUCCESS
        }
        (None, State::Connecting) if !descriptor::is_hung_up(fd) => match woken {
            Woken::First if descriptor::is_nonblocking(fd) => Outcome::Fail(Errno::ALREADY),
            Woken::First => Outcome::AwaitConnected(Errno::ALREADY),
            _ => Outcome::AwaitConnected(Errno::INPROGRESS),
        },
        _ => {
            let local = session.local(socket.slot);
            if let Err(errno) = placeholder::withdraw(fd) {
                return Outcome::Fail(errno);
            }
            if let Some(local) = local {
                // As Linux has it: the port stays the socket's, the address goes.
                let any: IpAddr = match entry.has(Flag::V6) {
                    true => Ipv6Addr::UNSPECIFIED.into(),
                    false => Ipv4Addr::UNSPECIFIED.into(),
                };
                state::lock().name(table::get(fd), SocketAddr::new(any, local.port()));
            }
            // When SO_ERROR took the error before, the kernel says this, once.
            Outcome::Fail(error.unwrap_or(Errno::CONNABORTED))
        }
    }
}

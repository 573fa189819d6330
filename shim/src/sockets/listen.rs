//! `listen(2)`: where a listener's descriptor gets its placeholder.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use mqttshim_schema::How;
use rustix::io::Errno;

use crate::descriptor;
use crate::descriptors;
use crate::environment::Fallback;
use crate::log::say;
use crate::options::OptionList;
use crate::outcome::Outcome;
use crate::placeholder;
use crate::rules::{Event, Verdict};
use crate::sessions;
use crate::sockets::bind::{self, NotPlaced};
use crate::sockets::{fallback, kernel_address, timeouts};
use crate::state::{self, Record};
use crate::table::{self, Entry, Flag, Kind};
use crate::verdict;

/// Decides.
pub(crate) fn listen(fd: RawFd, backlog: i32) -> Outcome {
    let entry = table::get(fd);
    match entry.kind() {
        Kind::Refused => Outcome::Fail(Errno::NETDOWN),
        Kind::Connection => Outcome::Fail(Errno::INVAL),
        Kind::Listener => listen_again(entry, backlog),
        Kind::Bound => start(fd, entry, backlog, true),
        Kind::Undecided => listen_unbound(fd, entry, backlog),
        Kind::Plain
        | Kind::KernelListener
        | Kind::KernelConnection
        | Kind::Private
        | Kind::Epoll => Outcome::Pass,
    }
}

/// A socket of the kernel's. If it is not bound, listening binds it to a port of the kernel's choice: here falls its verdict.
fn listen_unbound(fd: RawFd, entry: Entry, backlog: i32) -> Outcome {
    let any: IpAddr = match entry.has(Flag::V6) {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    let address = kernel_address(fd).unwrap_or(SocketAddr::new(any, 0));
    match verdict::of(Event::Listen, address) {
        Err(verdict::Refused) => return Outcome::Fail(Errno::NETDOWN),
        Ok(Verdict::Offload) if address.port() == 0 && !entry.has(Flag::Pending) => {}
        Ok(_) => return Outcome::Pass,
    }
    match bind::place(fd, address) {
        Ok(bound) => start(fd, bound, backlog, true),
        Err(NotPlaced::Refused(errno)) => Outcome::Fail(errno),
        Err(NotPlaced::NoCard(reason)) => {
            match fallback::without_card(&format!("listening on {address}"), &reason) {
                Fallback::Kernel => Outcome::Pass,
                Fallback::Fail => Outcome::Fail(Errno::NETDOWN),
            }
        }
    }
}

/// Listens on the card and puts the placeholder in.
fn start(fd: RawFd, entry: Entry, backlog: i32, may_retry: bool) -> Outcome {
    let Some(socket) = entry.socket() else { return Outcome::Fail(Errno::INVAL) };
    let told = state::lock().record(socket).map(|record| record.bind_options.clone());
    let options = match OptionList::changed(fd, entry.has(Flag::V6)) {
        Ok(options) => options.since(&told.unwrap_or_default()),
        Err(errno) => return Outcome::Fail(errno),
    };
    let listening = sessions::of(socket).ok_or(Errno::CONNRESET).and_then(|session| {
        let all = timeouts::announce(fd, session, socket.slot).and(&options);
        session.listen(socket.slot, backlog, None, &all.as_options())
    });
    let listening = match listening {
        Ok(listening) => listening,
        Err(Errno::CONNRESET) => return start_over(fd, entry, backlog, may_retry),
        Err(errno) => return Outcome::Fail(errno),
    };
    let Some(new) = Entry::offloaded(Kind::Listener, socket) else {
        return Outcome::Fail(Errno::NOBUFS);
    };
    let Some(file) = listening.placeholder else { return Outcome::Fail(Errno::PROTO) };
    let is_v6 = entry.has(Flag::V6);
    if let Some(record) = state::lock().record(socket) {
        record.listen_options = options;
        record.backlog = backlog;
        record.placeholder = listening.name;
        say!(Info, "{} is served by the card", record.address);
    }
    placeholder::install(fd, new.with_if(Flag::V6, is_v6), &file).into()
}

/// The card went between bind and listen: once more with the next, or without.
fn start_over(fd: RawFd, entry: Entry, backlog: i32, may_retry: bool) -> Outcome {
    let Some(record) = take_record(entry) else { return Outcome::Fail(Errno::NETDOWN) };
    // The descriptor is still the kernel's unbound socket, so it can be decided anew.
    let undecided = Entry::undecided().with_lasting(entry).without(Flag::Shared);
    descriptors::change(fd, undecided);
    let reason = match may_retry.then(|| bind::place(fd, record.address)) {
        Some(Ok(bound)) => return start(fd, bound, backlog, false),
        Some(Err(NotPlaced::Refused(errno))) => return Outcome::Fail(errno),
        Some(Err(NotPlaced::NoCard(reason))) => reason,
        None => "the dpu-server is gone".into(),
    };
    match fallback::without_card(&format!("listening on {}", record.address), &reason) {
        Fallback::Fail => Outcome::Fail(Errno::NETDOWN),
        Fallback::Kernel => match rustix::net::bind(descriptor::borrow(fd), &record.address) {
            Ok(()) => Outcome::Pass,
            Err(errno) => Outcome::Fail(errno),
        },
    }
}

fn take_record(entry: Entry) -> Option<Record> {
    let socket = entry.socket()?;
    let mut state = state::lock();
    let record = state.record(socket).cloned();
    state.forget(socket);
    record
}

/// A second listen changes the backlog.
fn listen_again(entry: Entry, backlog: i32) -> Outcome {
    let Some(socket) = entry.socket() else { return Outcome::Fail(Errno::INVAL) };
    if let Some(record) = state::lock().record(socket) {
        record.backlog = backlog;
    }
    // A card that is gone learns the backlog when the listener is made again.
    match sessions::of(socket).map(|session| session.listen(socket.slot, backlog, None, &[])) {
        None | Some(Ok(_) | Err(Errno::CONNRESET)) => Outcome::SUCCESS,
        Some(Err(errno)) => Outcome::Fail(errno),
    }
}

/// `shutdown` of a listener: it becomes a socket that is bound, if the program named the port, and no more. Whoever waits in
/// accept gets EINVAL.
pub(super) fn stop(fd: RawFd) -> Outcome {
    let entry = table::get(fd);
    let Some(socket) = entry.socket() else { return Outcome::Fail(Errno::NOTCONN) };
    let record = state::lock().record(socket).cloned();
    if let Some(session) = sessions::of(socket) {
        // Whatever copies of it other processes hold, and before anybody wakes who may want the port.
        let _ = session.shutdown(socket.slot, How::Both);
    }
    if let Err(errno) = placeholder::withdraw(fd) {
        return Outcome::Fail(errno);
    }
    if let Some(record) = record {
        record.bind_options.set_on(fd);
        record.listen_options.set_on(fd);
        if !record.is_port_named {
            // As Linux has it: the port is free again, and stays in the socket's name.
            state::lock().name(table::get(fd), record.address);
        } else if bind::place(fd, record.address).is_err() {
            say!(Warn, "{} was taken meanwhile", record.address);
        }
    }
    Outcome::SUCCESS
}

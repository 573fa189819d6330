//! `bind(2)`: where the verdict on a listener falls.
//!
//! An offloaded socket is bound on the card; the descriptor keeps the kernel's unbound socket, with all its options, until
//! `listen` or `connect` puts a placeholder there.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::descriptors;
use crate::environment::Fallback;
use crate::log::say;
use crate::options::OptionList;
use crate::outcome::Outcome;
use crate::rules::{Event, Verdict};
use crate::sessions;
use crate::sockets::{fallback, kernel_address};
use crate::state::{self, Record};
use crate::table::{self, Entry, Flag, Kind, Socket};
use crate::verdict;

/// Why a socket is not on the card.
pub(super) enum NotPlaced {
    /// There is none; why, for the operator.
    NoCard(String),
    /// The card, or this machine, says no.
    Refused(Errno),
}

/// Decides. `address` is `None` when it is none of IPv4 and IPv6.
pub(crate) fn bind(fd: RawFd, address: Option<SocketAddr>) -> Outcome {
    let entry = table::get(fd);
    match entry.kind() {
        Kind::Bound | Kind::Listener | Kind::Connection => {
            return Outcome::Fail(Errno::INVAL);
        }
        Kind::Undecided if !entry.has(Flag::Pending) => {}
        _ => return Outcome::Pass,
    }
    let Some(address) = address else { return Outcome::Pass };
    let is_bound = kernel_address(fd).is_none_or(|own| own.port() != 0);
    if is_bound || address.is_ipv6() != entry.has(Flag::V6) {
        return Outcome::Pass;
    }
    match verdict::of(Event::Listen, address) {
        Ok(Verdict::Kernel) => return Outcome::Pass,
        Ok(Verdict::Offload) => {}
        Err(verdict::Refused) => return refuse(fd, entry),
    }
    match place(fd, address) {
        Ok(_) => Outcome::SUCCESS,
        Err(NotPlaced::Refused(errno)) => Outcome::Fail(errno),
        Err(NotPlaced::NoCard(reason)) => {
            match fallback::without_card(&format!("listening on {address}"), &reason) {
                Fallback::Kernel => Outcome::Pass,
                Fallback::Fail => refuse(fd, entry),
            }
        }
    }
}

/// The bind itself works; the listen will not.
fn refuse(fd: RawFd, entry: Entry) -> Outcome {
    let refused = Entry::of(Kind::Refused).with_if(Flag::V6, entry.has(Flag::V6));
    descriptors::change(fd, refused);
    Outcome::Pass
}

/// Binds a socket on the card, for the undecided one at `fd` and its other descriptors.
pub(super) fn place(fd: RawFd, address: SocketAddr) -> Result<Entry, NotPlaced> {
    let old = table::get(fd);
    let program = verdict::program();
    let options = OptionList::changed(fd, old.has(Flag::V6)).map_err(NotPlaced::Refused)?;
    let (number, session) =
        sessions::ensure(&mut state::lock(), program).map_err(NotPlaced::NoCard)?;
    let (slot, bound) =
        session.bind(address, &options.as_options()).map_err(|errno| match errno {
            Errno::ADDRNOTAVAIL => {
                say!(Info, "{address} cannot be bound: the card has no such address");
                NotPlaced::Refused(errno)
            }
            Errno::CONNRESET => NotPlaced::NoCard("the dpu-server is gone".into()),
            errno => NotPlaced::Refused(errno),
        })?;
    let socket = Socket { session: number, slot };
    let Some(new) = Entry::offloaded(Kind::Bound, socket) else {
        session.close(slot);
        return Err(NotPlaced::Refused(Errno::NOBUFS));
    };
    say!(Info, "{bound} is bound on the card");
    state::lock().records.push(Record {
        socket,
        address: bound,
        is_port_named: address.port() != 0,
        bind_options: options,
        listen_options: OptionList::default(),
        backlog: 0,
        placeholder: String::new(),
    });
    let others: Vec<(RawFd, Entry)> = match old.has(Flag::Shared) {
        true => descriptors::aliases(old).filter(|&(other, _)| other != fd).collect(),
        false => Vec::new(),
    };
    descriptors::change(fd, new.with_lasting(old));
    for (other, entry) in others {
        descriptors::retain(new);
        descriptors::change(other, new.with_lasting(entry));
    }
    Ok(new.with_lasting(old))
}

//! socket, socketpair, bind, listen, accept, accept4, connect, shutdown.

use libc::{c_int, sockaddr, socklen_t};

use super::{drive, fail, hook, int, note};
use crate::address::{self, Raw};
use crate::descriptors;
use crate::fork;
use crate::outside;
use crate::real;
use crate::sockets;
use crate::table::{self, Entry, Flag};

/// What a new socket is to us.
fn new_entry(domain: c_int, kind: c_int, protocol: c_int) -> Entry {
    let is_tcp = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & 0xf == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if !is_tcp {
        return Entry::PLAIN;
    }
    Entry::undecided().with_if(Flag::V6, domain == libc::AF_INET6)
}

hook! {
    /// socket(2)
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int
        as Socket(Choice(names::FAMILY, domain), Kind(kind), Protocol(domain, protocol))
    {
        // SAFETY: the caller's arguments, unchanged.
        let fd = unsafe { real::socket(domain, kind, protocol) };
        if fd >= 0 {
            note(|| {
                let entry = new_entry(domain, kind, protocol);
                if !entry.is_plain() {
                    fork::prepare_page();
                }
                if !(entry.is_plain() && table::get(fd).is_plain()) && fork::is_own_table() {
                    descriptors::set(fd, entry);
                }
            });
        }
        fd
    }
}

hook! {
    /// socketpair(2)
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int
        as Socketpair(
            Choice(names::FAMILY, domain),
            Kind(kind),
            Size(protocol as u32 as usize),
            PairOut(pair.addr()),
        )
    {
        // SAFETY: the caller's arguments, unchanged.
        let outcome = unsafe { real::socketpair(domain, kind, protocol, pair) };
        if outcome == 0 && !pair.is_null() {
            // SAFETY: socketpair(2) obliges its caller to pass room for two descriptors, which it has just filled.
            let numbers = unsafe { pair.cast::<[c_int; 2]>().read() };
            note(|| numbers.into_iter().for_each(fresh));
        }
        outcome
    }
}

/// The kernel gave out this number for a file that is none of ours.
pub(super) fn fresh(fd: c_int) {
    if !table::get(fd).is_plain() && fork::is_own_table() {
        descriptors::set(fd, Entry::PLAIN);
    }
}

hook! {
    /// bind(2)
    fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int
        as Bind(Fd(fd), Address(address.addr(), length.cast_signed()))
    {
        if !table::get(fd).is_plain() && !address::is_unreadable(address, length) {
            // SAFETY: bind(2) obliges its caller to pass `length` readable bytes.
            let parsed = unsafe { address::read(address, length) };
            if let Some(value) = drive(fd, |_| sockets::bind::bind(fd, parsed)) {
                return int(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::bind(fd, address, length) }
    }
}

hook! {
    /// listen(2)
    fn listen(fd: c_int, backlog: c_int) -> c_int
        as Listen(Fd(fd), Int(backlog.into()))
    {
        if !table::get(fd).is_plain()
            && let Some(value) = drive(fd, |_| sockets::listen::listen(fd, backlog))
        {
            return int(value);
        }
        // SAFETY: the caller's arguments, unchanged.
        let outcome = unsafe { real::listen(fd, backlog) };
        if outcome == 0 {
            note(|| outside::listening(fd));
        }
        outcome
    }
}

/// `None`: the call is the kernel's.
///
/// # Safety
/// As for accept4.
unsafe fn accept_from_card(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    if !table::get(fd).is_placeholder() {
        return None;
    }
    let mut peer: Option<Raw> = None;
    let value = drive(fd, |woken| sockets::accept::accept(fd, flags, woken, &mut peer))?;
    let room = match address.is_null() {
        true => Ok(()),
        // SAFETY: as the caller promises.
        false => unsafe { address::check_room(address, length) },
    };
    if value >= 0
        && let Err(errno) = room
    {
        // As the kernel does: found out when the connection is there already, which is lost then.
        // SAFETY: the descriptor just made, which nobody else knows.
        unsafe { super::descriptors::close(int(value)) };
        return Some(int(fail(errno)));
    }
    if value >= 0
        && let Some(peer) = &peer
    {
        // SAFETY: as the caller promises.
        unsafe { address::write(address, length, peer) };
    }
    Some(int(value))
}

hook! {
    /// accept(2)
    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int
        as Accept(Fd(fd), AddressOut(address.addr(), length.addr()))
    {
        // SAFETY: the caller's arguments, unchanged.
        if let Some(value) = unsafe { accept_from_card(fd, address, length, 0) } {
            return value;
        }
        // SAFETY: the caller's arguments, unchanged.
        let accepted = unsafe { real::accept(fd, address, length) };
        note(|| fresh(accepted));
        accepted
    }
}

hook! {
    /// accept4(2)
    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int
        as Accept4(
            Fd(fd),
            AddressOut(address.addr(), length.addr()),
            Flags(names::KIND_FLAGS, flags.cast_unsigned()),
        )
    {
        // SAFETY: the caller's arguments, unchanged.
        if let Some(value) = unsafe { accept_from_card(fd, address, length, flags) } {
            return value;
        }
        // SAFETY: the caller's arguments, unchanged.
        let accepted = unsafe { real::accept4(fd, address, length, flags) };
        note(|| fresh(accepted));
        accepted
    }
}

hook! {
    /// connect(2)
    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int
        as Connect(Fd(fd), Address(address.addr(), length.cast_signed()))
    {
        let entry = table::get(fd);
        let mut to = None;
        if !entry.is_plain() && !address::is_unreadable(address, length) {
            // SAFETY: connect(2) obliges its caller to pass `length` readable bytes.
            let parsed = unsafe { address::read(address, length) };
            to = parsed;
            if let Some(value) = drive(fd, |woken| sockets::connect::connect(fd, parsed, woken)) {
                return int(value);
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        let outcome = unsafe { real::connect(fd, address, length) };
        if !entry.is_plain() {
            note(|| {
                if outcome == 0 || crate::errno::last() == rustix::io::Errno::INPROGRESS {
                    outside::connected(fd, to);
                }
            });
        }
        outcome
    }
}

hook! {
    /// shutdown(2)
    fn shutdown(fd: c_int, how: c_int) -> c_int
        as Shutdown(Fd(fd), Choice(names::SHUTDOWN, how))
    {
        if table::get(fd).is_placeholder()
            && let Some(value) = drive(fd, |_| sockets::shutdown(fd, how))
        {
            return int(value);
        }
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::shutdown(fd, how) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Kind;

    #[test]
    fn only_tcp_sockets_may_come_to_the_card() {
        let kind = |domain, kind, protocol| new_entry(domain, kind, protocol).kind();
        let nonblocking = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        assert_eq!(kind(libc::AF_INET, nonblocking, 0), Kind::Undecided);
        assert_eq!(kind(libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP), Kind::Undecided);
        assert_eq!(kind(libc::AF_INET, libc::SOCK_DGRAM, 0), Kind::Plain);
        assert_eq!(kind(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP), Kind::Plain);
        assert_eq!(kind(libc::AF_UNIX, libc::SOCK_STREAM, 0), Kind::Plain);
    }
}

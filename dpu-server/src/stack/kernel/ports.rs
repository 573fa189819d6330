//! Who may share a port.
//!
//! All brokers' sockets belong to one process here, so the kernel decides every collision between them, but one: it lets
//! sockets with SO_REUSEPORT share a port when their users are equal (socket(7)), and sees only the card's own user. That
//! one rule is kept here.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::sockopt;

use super::sockets::{Socket, Sockets, Stage};
use crate::stack::Key;

/// Refuses `address` to `socket` where only a false identity of users would let the kernel allow it.
pub(super) fn check(
    sockets: &Sockets,
    key: Key,
    socket: &Socket,
    address: SocketAddr,
) -> Result<(), Errno> {
    if address.port() == 0 || !sockopt::socket_reuseport(&socket.descriptor)? {
        return Ok(());
    }
    for (other_key, other) in sockets.named() {
        let (Stage::Bound(taken) | Stage::Listening(taken)) = other.stage else { continue };
        if other_key == key || other.uid == socket.uid || !overlap(socket, address, other, taken) {
            continue;
        }
        if !sockopt::socket_reuseport(&other.descriptor)? || may_reuse(socket, other)? {
            // The kernel's own rules decide.
            continue;
        }
        return Err(Errno::ADDRINUSE);
    }
    Ok(())
}

/// socket(7): both have SO_REUSEADDR and the other does not listen.
fn may_reuse(socket: &Socket, other: &Socket) -> Result<bool, Errno> {
    Ok(!matches!(other.stage, Stage::Listening(_))
        && sockopt::socket_reuseaddr(&socket.descriptor)?
        && sockopt::socket_reuseaddr(&other.descriptor)?)
}

/// Whether two sockets could receive the same connection.
fn overlap(a: &Socket, a_address: SocketAddr, b: &Socket, b_address: SocketAddr) -> bool {
    if a_address.port() != b_address.port() {
        return false;
    }
    match (a_address.ip(), b_address.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => a == b || a.is_unspecified() || b.is_unspecified(),
        (IpAddr::V6(a), IpAddr::V6(b)) => a == b || a.is_unspecified() || b.is_unspecified(),
        (IpAddr::V6(wide), IpAddr::V4(narrow)) => mixed(a, wide, narrow),
        (IpAddr::V4(narrow), IpAddr::V6(wide)) => mixed(b, wide, narrow),
    }
}

fn mixed(socket: &Socket, wide: std::net::Ipv6Addr, narrow: std::net::Ipv4Addr) -> bool {
    // ipv6(7): IPV6_V6ONLY keeps a socket out of IPv4.
    if sockopt::ipv6_v6only(&socket.descriptor).unwrap_or(false) {
        return false;
    }
    wide.is_unspecified()
        || wide
            .to_ipv4_mapped()
            .is_some_and(|wide| wide == narrow || wide.is_unspecified() || narrow.is_unspecified())
}

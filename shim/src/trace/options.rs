//! Socket options: `level, name`, and the value as its kind asks.

use super::address::lengths;
use super::errnos;
use super::line::{Line, put};
use super::memory;
use super::message;
use super::names::{self, Names};
use super::text::{choice, int_at, pointer, string};
use std::net::Ipv4Addr;

/// Of `asm-generic/socket.h` and later than the C library's.
const SO_TXREHASH: i32 = 74;

/// The level and the name.
pub(super) fn level_and_name(line: &mut Line, level: i32, name: i32, is_get: bool) {
    choice(line, names::LEVEL, u64::from(level.cast_unsigned()));
    line.push(", ");
    let number = u64::from(name.cast_unsigned());
    match of_level(level) {
        // The same number, asked or set.
        Some(_) if is_get && (level, name) == (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER) => {
            line.push("SO_GET_FILTER");
        }
        Some(names) => choice(line, names, number),
        None => put!(line, "{number}"),
    }
}

fn of_level(level: i32) -> Option<&'static Names> {
    Some(match level {
        libc::SOL_SOCKET => names::SOCKET_OPTION,
        libc::SOL_TCP => names::TCP_OPTION,
        libc::SOL_IP => names::IP_OPTION,
        libc::SOL_IPV6 => names::IPV6_OPTION,
        libc::SOL_UDP => names::UDP_OPTION,
        libc::SOL_NETLINK => names::NETLINK_OPTION,
        _ => return None,
    })
}

/// Whether an option of `SOL_SOCKET` is known to be an int.
fn is_int(name: i32) -> bool {
    const OTHERS: [i32; 32] = [
        3, 4, 13, 17, 20, 21, 22, 23, 24, 25, 26, 28, 31, 38, 39, 47, 48, 50, 51, 52, 54, 55, 57,
        58, 59, 61, 62, 66, 67, 71, 72, 74,
    ];
    (1..=75).contains(&name) && !OTHERS.contains(&name)
}

/// A value that is set.
pub(super) fn value_set(line: &mut Line, level: i32, name: i32, address: usize, length: i32) {
    match (level, name) {
        _ if address == 0 => line.push("NULL"),
        (libc::SOL_SOCKET, libc::SO_LINGER) if length < 8 => pointer(line, address),
        (libc::SOL_SOCKET, libc::SO_LINGER) => linger(line, address, 8),
        (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_REUSEPORT_CBPF) => {
            pointer(line, address);
        }
        (libc::SOL_SOCKET, _) if (is_int(name) || name == SO_TXREHASH) && length < 4 => {
            pointer(line, address);
        }
        (libc::SOL_SOCKET, _) if is_int(name) => int_at(line, address),
        (libc::SOL_NETLINK, _) if length < 4 => pointer(line, address),
        (libc::SOL_NETLINK, _) => int_at(line, address),
        (libc::SOL_IP, libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP) => {
            membership(line, address, length);
        }
        _ => plain(line, address, length),
    }
    put!(line, ", {length}");
}

/// A value that was asked for, and its length before and after.
pub(super) fn value_got(
    line: &mut Line,
    level: i32,
    name: i32,
    address: usize,
    [before, after]: [i32; 2],
) {
    match (level, name) {
        _ if before <= 0 || after <= 0 => pointer(line, address),
        _ if address == 0 => line.push("NULL"),
        (libc::SOL_SOCKET, libc::SO_LINGER) => linger(line, address, after),
        (libc::SOL_SOCKET, libc::SO_PEERCRED) if after >= 12 => message::credentials(line, address),
        (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER) => pointer(line, address),
        (libc::SOL_SOCKET, libc::SO_ERROR) if after >= 4 => error(line, address),
        (libc::SOL_SOCKET, _) if is_int(name) && after >= 4 => int_at(line, address),
        (libc::SOL_SOCKET, _) if (is_int(name) || name == libc::SO_ERROR) && after < 4 => {
            bytes_in_hex(line, address, after);
        }
        (libc::SOL_NETLINK, _) => int_at(line, address),
        _ => plain(line, address, after),
    }
    line.push(", ");
    lengths(line, before, after);
}

fn plain(line: &mut Line, address: usize, length: i32) {
    if length == 4 {
        int_at(line, address);
    } else {
        string(line, address, usize::try_from(length).unwrap_or(usize::MAX));
    }
}

/// Fields that are there only in part are left out.
fn linger(line: &mut Line, address: usize, length: i32) {
    let fields = match length {
        8.. => memory::load::<[i32; 2]>(address).map(|[on, time]| (on, Some(time))),
        4.. => memory::load::<i32>(address).map(|on| (on, None)),
        _ => None,
    };
    match fields {
        Some((on, Some(time))) => put!(line, "{{l_onoff={on}, l_linger={time}}}"),
        Some((on, None)) => put!(line, "{{l_onoff={on}}}"),
        None => bytes_in_hex(line, address, length),
    }
}

fn error(line: &mut Line, address: usize) {
    match memory::load::<i32>(address) {
        Some(0) => line.push("[0]"),
        Some(number) => match errnos::find(number) {
            Some((name, _)) => put!(line, "[{name}]"),
            None => put!(line, "[{number}]"),
        },
        None => pointer(line, address),
    }
}

/// What is too short to be the value.
fn bytes_in_hex(line: &mut Line, address: usize, length: i32) {
    let mut bytes = [0_u8; 4];
    let length = usize::try_from(length).unwrap_or(0).min(bytes.len());
    if !memory::read(address, &mut bytes[..length]) {
        return pointer(line, address);
    }
    line.push("\"");
    for byte in &bytes[..length] {
        put!(line, "\\x{byte:02x}");
    }
    line.push("\"");
}

fn membership(line: &mut Line, address: usize, length: i32) {
    let mut bytes = [0_u8; 8];
    if length < 8 || !memory::read(address, &mut bytes) {
        return pointer(line, address);
    }
    let [a, b, c, d, e, f, g, h] = bytes;
    let (group, interface) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
    line.push("{imr_multiaddr=inet_addr(");
    put!(line, "\"{group}\"), imr_interface=inet_addr(\"{interface}\")}}");
}

//! Socket addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::line::{Line, put};
use super::memory;
use super::names;
use super::text::{choice, pointer, quoted};

/// Longest address (`sockaddr_storage`).
const ADDRESS_BYTES_MAX: usize = 128;
const FAMILY_BYTES: usize = 2;
const SOCKADDR_IN_BYTES: usize = 16;
/// Without its scope.
const SOCKADDR_IN6_BYTES_MIN: usize = 24;
const SOCKADDR_UN_BYTES: usize = 110;
const SOCKADDR_NL_BYTES: usize = 12;

/// The address of `length` bytes at `address`.
pub(super) fn socket_address(line: &mut Line, address: usize, length: i32) {
    let mut bytes = [0_u8; ADDRESS_BYTES_MAX];
    let length = usize::try_from(length).unwrap_or(0).min(ADDRESS_BYTES_MAX);
    if length < FAMILY_BYTES || address == 0 || !memory::read(address, &mut bytes[..length]) {
        return pointer(line, address);
    }
    known(line, &bytes, length);
}

/// Bytes that were read. Those after `length` are zero.
fn known(line: &mut Line, bytes: &[u8; ADDRESS_BYTES_MAX], length: usize) {
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    line.push("{sa_family=");
    choice(line, names::FAMILY, u64::from(family));
    if length > FAMILY_BYTES {
        line.push(", ");
        match i32::from(family) {
            libc::AF_INET if length >= SOCKADDR_IN_BYTES => v4(line, bytes),
            libc::AF_INET6 if length >= SOCKADDR_IN6_BYTES_MIN => v6(line, bytes, length),
            libc::AF_UNIX => local(line, bytes, length),
            libc::AF_NETLINK if length >= SOCKADDR_NL_BYTES => netlink(line, bytes),
            _ => {
                line.push("sa_data=");
                quoted(line, &bytes[FAMILY_BYTES..length]);
            }
        }
    }
    line.push("}");
}

fn port(bytes: &[u8; ADDRESS_BYTES_MAX]) -> u16 {
    u16::from_be_bytes([bytes[2], bytes[3]])
}

fn word(bytes: &[u8; ADDRESS_BYTES_MAX], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

fn v4(line: &mut Line, bytes: &[u8; ADDRESS_BYTES_MAX]) {
    let ip = Ipv4Addr::from(word(bytes, 4));
    put!(line, "sin_port=htons({}), sin_addr=inet_addr(\"{ip}\")", port(bytes));
}

fn v6(line: &mut Line, bytes: &[u8; ADDRESS_BYTES_MAX], length: usize) {
    let flow = u32::from_be_bytes(word(bytes, 4));
    put!(line, "sin6_port=htons({}), sin6_flowinfo=htonl({flow}), ", port(bytes));
    let mut ip = [0_u8; 16];
    ip.copy_from_slice(&bytes[8..24]);
    line.push("inet_pton(AF_INET6, \"");
    v6_text(line, Ipv6Addr::from(ip));
    line.push("\", &sin6_addr)");
    if length > SOCKADDR_IN6_BYTES_MIN {
        put!(line, ", sin6_scope_id={}", u32::from_ne_bytes(word(bytes, 24)));
    }
}

/// As `inet_ntop(3)`, which also shows an IPv4 address in the last four bytes after twelve zeros.
fn v6_text(line: &mut Line, ip: Ipv6Addr) {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
            put!(line, "::{}", Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
        }
        _ => put!(line, "{ip}"),
    }
}

fn local(line: &mut Line, bytes: &[u8; ADDRESS_BYTES_MAX], length: usize) {
    let path = &bytes[FAMILY_BYTES..length.min(SOCKADDR_UN_BYTES)];
    line.push("sun_path=");
    match path {
        [0, name @ ..] => {
            line.push("@");
            quoted(line, name);
        }
        _ => quoted(line, path.split(|&byte| byte == 0).next().unwrap_or(path)),
    }
}

fn netlink(line: &mut Line, bytes: &[u8; ADDRESS_BYTES_MAX]) {
    let (pid, groups) = (word(bytes, 4), word(bytes, 8));
    let (pid, groups) = (u32::from_ne_bytes(pid), u32::from_ne_bytes(groups));
    put!(line, "nl_pid={pid}, nl_groups={groups:08x}");
}

/// A length that a call may change: `[in => out]`, or one number where it did not.
pub(super) fn lengths(line: &mut Line, before: i32, after: i32) {
    if before == after {
        put!(line, "[{after}]");
    } else {
        put!(line, "[{before} => {after}]");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_shown(expected: &str, bytes: &[u8]) {
        let mut line = Box::new(Line::new());
        socket_address(&mut line, bytes.as_ptr().addr(), bytes.len() as i32);
        assert_eq!(String::from_utf8_lossy(line.as_bytes()), expected);
    }

    fn inet6(ip: &str, scope: u8) -> Vec<u8> {
        let ip: Ipv6Addr = ip.parse().unwrap();
        let mut bytes = vec![10, 0, 0x07, 0x5b, 0, 0, 0, 0];
        bytes.extend(ip.octets());
        bytes.extend([scope, 0, 0, 0]);
        bytes
    }

    // The expected texts were written by strace 6.1.
    #[test]
    fn addresses_are_shown_by_family() {
        assert_shown(
            r#"{sa_family=AF_INET, sin_port=htons(1883), sin_addr=inet_addr("127.0.0.1")}"#,
            &[2, 0, 0x07, 0x5b, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        assert_shown(
            "{sa_family=AF_INET6, sin6_port=htons(1883), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, \
             \"::ffff:127.0.0.1\", &sin6_addr), sin6_scope_id=0}",
            &inet6("::ffff:127.0.0.1", 0),
        );
        assert_shown(
            "{sa_family=AF_INET6, sin6_port=htons(1883), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, \
             \"::1.2.3.4\", &sin6_addr)}",
            &inet6("::1.2.3.4", 0)[..24],
        );
        assert_shown(r#"{sa_family=AF_UNIX, sun_path="/run/x"}"#, b"\x01\0/run/x\0\0");
        assert_shown(r#"{sa_family=AF_UNIX, sun_path=@"name"}"#, b"\x01\0\0name");
        assert_shown("{sa_family=AF_UNIX}", b"\x01\0");
        assert_shown(r#"{sa_family=AF_UNSPEC, sa_data="\0\0\177"}"#, b"\0\0\0\0\x7f");
        assert_shown(r#"{sa_family=AF_INET, sa_data="\1"}"#, b"\x02\0\x01");
    }

    #[test]
    fn what_is_too_short_or_unreadable_is_a_pointer() {
        let mut line = Box::new(Line::new());
        socket_address(&mut line, 0, 16);
        line.push(" ");
        socket_address(&mut line, 1, 16);
        line.push(" ");
        socket_address(&mut line, 2, 1);
        assert_eq!(line.as_bytes(), b"NULL 0x1 0x2");
    }

    #[test]
    fn lengths_show_both_sides_where_they_differ() {
        let mut line = Box::new(Line::new());
        lengths(&mut line, 128, 16);
        lengths(&mut line, 16, 16);
        assert_eq!(line.as_bytes(), b"[128 => 16][16]");
    }
}

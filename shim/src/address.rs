//! Socket addresses between C and Rust.
//!
//! Addresses go out as the kernel writes them: cut to the caller's length, with the full length reported (`accept(2)`,
//! `getsockname(2)`).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use rustix::io::Errno;

use crate::hooks;

/// `SIN6_LEN_RFC2133`: the shortest IPv6 address Linux takes, without scope id.
const SOCKADDR_IN6_BYTES_MIN: usize = 24;

/// Reads the address a program passes to bind or connect. `None` when it is neither IPv4 nor IPv6, too short or too
/// long: then the kernel knows the right error.
///
/// # Safety
/// `address` is null or points to `length` readable bytes.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    let is_taken =
        (size_of::<libc::sa_family_t>()..=size_of::<libc::sockaddr_storage>()).contains(&length);
    if hooks::is_nowhere(address) || !is_taken {
        return None;
    }
    // SAFETY: somewhere, and at least a family long by the check above; C callers may pass any alignment.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: long enough for a sockaddr_in, of which every bit pattern is valid.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if length >= SOCKADDR_IN6_BYTES_MIN => {
            let mut bytes = [0_u8; size_of::<sockaddr_in6>()];
            let taken = length.min(bytes.len());
            // SAFETY: `taken` bytes are readable at `address` and writable in `bytes`, which is a different object.
            unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(address.cast::<u8>(), taken) };
            // SAFETY: `bytes` is as large as a sockaddr_in6, of which every bit pattern is valid.
            let v6 = unsafe { bytes.as_ptr().cast::<sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Whether the kernel finds that it cannot read an address, before it asks what the socket is.
pub(crate) fn is_unreadable(address: *const sockaddr, length: socklen_t) -> bool {
    (1..=size_of::<libc::sockaddr_storage>()).contains(&(length as usize))
        && hooks::is_nowhere(address)
}

/// Whether the kernel would take an address that a connected stream then ignores.
pub(crate) fn check(address: *const sockaddr, length: socklen_t) -> Result<(), Errno> {
    match address.is_null() {
        false if length as usize > size_of::<libc::sockaddr_storage>() => Err(Errno::INVAL),
        false if length > 0 && hooks::is_nowhere(address) => Err(Errno::FAULT),
        _ => Ok(()),
    }
}

/// An address as the kernel would lay it out.
pub(crate) struct Raw {
    bytes: [u8; size_of::<sockaddr_in6>()],
    length: usize,
}

impl Raw {
    /// `is_v6`: the socket is AF_INET6, so that an IPv4 address shows as mapped.
    pub(crate) fn new(address: SocketAddr, is_v6: bool) -> Raw {
        let address = match address {
            SocketAddr::V4(v4) if is_v6 => {
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
            }
            address => address,
        };
        let mut raw = Raw { bytes: [0; size_of::<sockaddr_in6>()], length: 0 };
        match address {
            SocketAddr::V4(v4) => {
                raw.put(&(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
                raw.put(&v4.port().to_be_bytes());
                raw.put(&v4.ip().octets());
                // sin_zero
                raw.put(&[0; 8]);
            }
            SocketAddr::V6(v6) => {
                raw.put(&(libc::AF_INET6 as libc::sa_family_t).to_ne_bytes());
                raw.put(&v6.port().to_be_bytes());
                raw.put(&v6.flowinfo().to_ne_bytes());
                raw.put(&v6.ip().octets());
                raw.put(&v6.scope_id().to_ne_bytes());
            }
        }
        raw
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Whether the caller's room for an address is one the kernel would take.
///
/// # Safety
/// `length` points to a socklen_t, or leads nowhere.
pub(crate) unsafe fn check_room(
    address: *const sockaddr,
    length: *const socklen_t,
) -> Result<(), Errno> {
    if hooks::is_nowhere(length) {
        return Err(Errno::FAULT);
    }
    // SAFETY: somewhere, and a socklen_t as the caller promises.
    let room = unsafe { length.read_unaligned() };
    if room.cast_signed() < 0 {
        Err(Errno::INVAL)
    } else if room > 0 && !address.is_null() && hooks::is_nowhere(address) {
        Err(Errno::FAULT)
    } else {
        Ok(())
    }
}

/// Writes an address where the program wants it, if it does.
///
/// # Safety
/// `address` is null, or points to `*length` writable bytes and `length` to a socklen_t.
pub(crate) unsafe fn write(address: *mut sockaddr, length: *mut socklen_t, raw: &Raw) {
    if address.is_null() || length.is_null() {
        return;
    }
    // SAFETY: not null, and a socklen_t as the caller promises.
    let room = unsafe { length.read_unaligned() } as usize;
    let bytes = raw.as_bytes();
    let written = bytes.len().min(room);
    // SAFETY: `written` is at most the room the caller promises, and `raw` is ours, so the two do not overlap.
    unsafe { address.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), written) };
    // SAFETY: as for the read above.
    unsafe { length.write_unaligned(bytes.len() as socklen_t) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn round(address: &str, is_v6: bool) -> SocketAddr {
        let raw = Raw::new(address.parse().unwrap(), is_v6);
        // SAFETY: the bytes of a live array and their length.
        unsafe { read(raw.bytes.as_ptr().cast(), raw.length as socklen_t) }.unwrap()
    }

    #[test]
    fn addresses_survive_the_way_out_and_in() {
        for address in ["192.0.2.7:1883", "[2001:db8::7]:65535"] {
            let is_v6 = address.starts_with('[');
            assert_eq!(round(address, is_v6), address.parse().unwrap());
        }
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0x0100_0000, 3);
        let raw = Raw::new(scoped.into(), true);
        // SAFETY: the bytes of a live array and their length.
        let back = unsafe { read(raw.bytes.as_ptr().cast(), 28) };
        assert_eq!(back, Some(scoped.into()));
    }

    #[test]
    fn an_ipv4_client_of_a_dual_stack_socket_shows_as_mapped() {
        assert_eq!(round("192.0.2.7:1883", true), "[::ffff:192.0.2.7]:1883".parse().unwrap());
    }

    #[test]
    fn a_short_buffer_gets_the_beginning_and_the_full_length() {
        let raw = Raw::new("192.0.2.7:1883".parse().unwrap(), false);
        let mut room = [0xee_u8; 16];
        let mut length: socklen_t = 5;
        // SAFETY: both point to live locals with the room they claim.
        unsafe { write(room.as_mut_ptr().cast(), &mut length, &raw) };
        assert_eq!(length, 16);
        assert_eq!(room[..5], raw.bytes[..5]);
        assert_eq!(room[5..], [0xee; 11]);
    }

    #[test]
    fn addresses_of_other_families_or_too_short_are_left_to_the_kernel() {
        let raw = Raw::new("[::1]:1".parse().unwrap(), true);
        for length in [0, 1, 2, 23] {
            // SAFETY: the length is at most that of the live array.
            assert_eq!(unsafe { read(raw.bytes.as_ptr().cast(), length) }, None);
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(std::ptr::null(), 28) }, None);
    }
}

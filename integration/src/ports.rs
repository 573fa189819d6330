//! Ports nobody uses.
//!
//! They lie below the range the kernel gives to outgoing connections, so no client takes one by chance, and each process
//! begins its search elsewhere, so tests side by side rarely look at the same one.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A TCP port that is free on all addresses of both families.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free() -> u16 {
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + start.wrapping_add(step) % COUNT;
        let port = u16::try_from(port).expect("below 65536");
        if is_free(port) {
            return port;
        }
    }
    panic!("no port is free");
}

/// Whether a socket could be bound to `port` on every address, though it did not ask to reuse it: no connection of it is in
/// TIME_WAIT either.
#[must_use]
pub fn is_free(port: u16) -> bool {
    // A machine without IPv6 has only the other check.
    let v6 = (Ipv6Addr::UNSPECIFIED, port).into();
    let v4 = (Ipv4Addr::UNSPECIFIED, port).into();
    bind(AddressFamily::INET6, v6) != Err(Errno::ADDRINUSE)
        && bind(AddressFamily::INET, v4) == Ok(())
}

fn bind(family: AddressFamily, address: SocketAddr) -> Result<(), Errno> {
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &address)
}

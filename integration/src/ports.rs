//! Ports nobody uses.
//!
//! They lie below the range the kernel gives to outgoing connections, so no client takes one by chance, and each process
//! begins its search elsewhere, so tests side by side rarely look at the same one.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// Whether a listener could be bound to `port` on every address.
#[must_use]
pub fn is_free(port: u16) -> bool {
    let v6 = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    // A machine without IPv6 has only the other check.
    let has_v6 = !matches!(&v6, Err(error) if error.kind() != std::io::ErrorKind::AddrInUse);
    drop(v6.ok());
    let v4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    v4.is_ok() && (has_v6 || v4.is_ok())
}

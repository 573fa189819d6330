//! Ports nobody uses.
//!
//! They lie below the range the kernel gives to outgoing connections, so no client takes one by chance. Tests run side by side, in
//! several trees at once: what one of them was given is marked by a socket of an abstract name, and no other looks at it, which
//! would take it for a moment.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// Marks one process holds at a time. More ports than that no test uses at once.
const MARKS_MAX: usize = 64;

static NEXT: AtomicU32 = AtomicU32::new(0);
static MARKS: Mutex<VecDeque<OwnedFd>> = Mutex::new(VecDeque::new());

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
        if let Ok(mark) = mark(port)
            && is_free(port)
        {
            let mut marks = MARKS.lock().unwrap_or_else(PoisonError::into_inner);
            marks.push_back(mark);
            if marks.len() > MARKS_MAX {
                marks.pop_front();
            }
            return port;
        }
    }
    panic!("no port is free");
}

/// Whether a socket could be bound to `port` on every address, though it did not ask to reuse it: no connection of it is in
/// TIME_WAIT either.
fn is_free(port: u16) -> bool {
    // A machine without IPv6 has only the other check.
    let v6 = (Ipv6Addr::UNSPECIFIED, port).into();
    let v4 = (Ipv4Addr::UNSPECIFIED, port).into();
    bind(AddressFamily::INET6, v6) != Err(Errno::ADDRINUSE)
        && bind(AddressFamily::INET, v4) == Ok(())
}

/// Takes a port among tests, as long as the mark is held.
fn mark(port: u16) -> Result<OwnedFd, Errno> {
    let name = format!("mqttshim-test-port-{port}");
    let flags = SocketFlags::CLOEXEC;
    let mark = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    rustix::net::bind(&mark, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(mark)
}

fn bind(family: AddressFamily, address: SocketAddr) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &address)
}

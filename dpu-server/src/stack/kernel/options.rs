//! Socket options that travel, and the two calls that carry them to the real socket.
//!
//! The card may hold more rights than the program, and some options carry addresses or descriptors that mean something else
//! in this process (SO_ATTACH_FILTER, TCP_ZEROCOPY_RECEIVE). So the options that travel are listed; every other one is
//! `ENOPROTOOPT`, as for a kernel built without it. Sources: socket(7), tcp(7), ip(7), ipv6(7), `include/uapi/linux/tcp.h`.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

/// Where the kernel names the congestion controls that need no privilege (tcp(7)).
const CONGESTION_CONTROLS: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// socket(7): a higher priority needs CAP_NET_ADMIN.
const PRIORITY_MAX: i32 = 6;

/// Whether an option is TCP_NODELAY.
pub(super) fn is_no_delay(level: i32, name: i32) -> bool {
    (level, name) == (libc::IPPROTO_TCP, libc::TCP_NODELAY)
}

/// `getsockopt(2)`.
pub(super) fn get(
    descriptor: &OwnedFd,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> Result<usize, Errno> {
    // A level that TCP does not have is the kernel's to refuse: which error depends on the family.
    if list_of(level).is_some() && !travels(level, name) {
        return Err(Errno::NOPROTOOPT);
    }
    let mut bytes = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: getsockopt(2) writes at most `bytes` bytes at the pointer, and `bytes` is the slice's length; the options
    // that make the kernel write elsewhere do not pass `travels`.
    let failed = unsafe {
        libc::getsockopt(
            descriptor.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if failed == 0 { Ok((bytes as usize).min(value.len())) } else { Err(last_error()) }
}

/// `setsockopt(2)`.
pub(super) fn set(descriptor: &OwnedFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    if !travels(level, name) {
        return Err(Errno::NOPROTOOPT);
    }
    check_privilege(level, name, value)?;
    let bytes = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: setsockopt(2) reads at most `bytes` bytes at the pointer, and `bytes` is the slice's length; the options
    // that make the kernel read elsewhere do not pass `travels`.
    let failed = unsafe {
        libc::setsockopt(descriptor.as_raw_fd(), level, name, value.as_ptr().cast(), bytes)
    };
    if failed == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Values that the kernel grants to privileged programs only, and would grant to this process.
fn check_privilege(level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_PRIORITY) => {
            let Some(priority) = value.first_chunk() else { return Ok(()) };
            let priority = i32::from_ne_bytes(*priority);
            if (0..=PRIORITY_MAX).contains(&priority) { Ok(()) } else { Err(Errno::PERM) }
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            let allowed = std::fs::read_to_string(CONGESTION_CONTROLS).unwrap_or_default();
            let known = allowed.split_whitespace().any(|name| name.as_bytes() == &value[..end]);
            if known { Ok(()) } else { Err(Errno::PERM) }
        }
        _ => Ok(()),
    }
}

/// Whether an option is on one of the lists.
fn travels(level: i32, name: i32) -> bool {
    list_of(level).is_some_and(|list| list.contains(&name))
}

/// The options of one level that travel.
fn list_of(level: i32) -> Option<&'static [i32]> {
    match level {
        libc::SOL_SOCKET => Some(SOCKET),
        libc::IPPROTO_TCP => Some(TCP),
        libc::IPPROTO_IP => Some(IP),
        libc::IPPROTO_IPV6 => Some(IPV6),
        _ => None,
    }
}

/// Of socket(7).
const SOCKET: &[i32] = &[
    libc::SO_ACCEPTCONN,
    libc::SO_BROADCAST,
    libc::SO_COOKIE,
    libc::SO_DOMAIN,
    libc::SO_DONTROUTE,
    libc::SO_ERROR,
    libc::SO_INCOMING_CPU,
    libc::SO_KEEPALIVE,
    libc::SO_LINGER,
    libc::SO_MAX_PACING_RATE,
    libc::SO_MEMINFO,
    libc::SO_OOBINLINE,
    libc::SO_PRIORITY,
    libc::SO_PROTOCOL,
    libc::SO_RCVBUF,
    libc::SO_RCVLOWAT,
    libc::SO_RCVTIMEO,
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_SNDBUF,
    libc::SO_SNDLOWAT,
    libc::SO_SNDTIMEO,
    libc::SO_TIMESTAMP,
    libc::SO_TYPE,
];
/// Of tcp(7).
const TCP: &[i32] = &[
    libc::TCP_CC_INFO,
    libc::TCP_CONGESTION,
    libc::TCP_CORK,
    libc::TCP_DEFER_ACCEPT,
    libc::TCP_FASTOPEN,
    libc::TCP_INFO,
    libc::TCP_INQ,
    libc::TCP_KEEPCNT,
    libc::TCP_KEEPIDLE,
    libc::TCP_KEEPINTVL,
    libc::TCP_LINGER2,
    libc::TCP_MAXSEG,
    libc::TCP_NODELAY,
    libc::TCP_NOTSENT_LOWAT,
    libc::TCP_QUICKACK,
    libc::TCP_SYNCNT,
    libc::TCP_USER_TIMEOUT,
    libc::TCP_WINDOW_CLAMP,
];
/// Of ip(7).
const IP: &[i32] = &[
    libc::IP_BIND_ADDRESS_NO_PORT,
    libc::IP_FREEBIND,
    libc::IP_MINTTL,
    libc::IP_MTU,
    libc::IP_MTU_DISCOVER,
    libc::IP_RECVTOS,
    libc::IP_TOS,
    libc::IP_TTL,
];
/// Of ipv6(7).
const IPV6: &[i32] = &[
    libc::IPV6_MTU,
    libc::IPV6_MTU_DISCOVER,
    libc::IPV6_RECVTCLASS,
    libc::IPV6_TCLASS,
    libc::IPV6_UNICAST_HOPS,
    libc::IPV6_V6ONLY,
];

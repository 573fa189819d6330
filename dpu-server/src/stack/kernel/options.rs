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
    if !travels(level, name) {
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

/// The list.
fn travels(level: i32, name: i32) -> bool {
    use libc as c;
    match level {
        c::SOL_SOCKET => matches!(
            name,
            c::SO_ACCEPTCONN
                | c::SO_BROADCAST
                | c::SO_COOKIE
                | c::SO_DOMAIN
                | c::SO_DONTROUTE
                | c::SO_ERROR
                | c::SO_INCOMING_CPU
                | c::SO_KEEPALIVE
                | c::SO_LINGER
                | c::SO_MAX_PACING_RATE
                | c::SO_MEMINFO
                | c::SO_OOBINLINE
                | c::SO_PRIORITY
                | c::SO_PROTOCOL
                | c::SO_RCVBUF
                | c::SO_RCVLOWAT
                | c::SO_RCVTIMEO
                | c::SO_REUSEADDR
                | c::SO_REUSEPORT
                | c::SO_SNDBUF
                | c::SO_SNDLOWAT
                | c::SO_SNDTIMEO
                | c::SO_TIMESTAMP
                | c::SO_TYPE
        ),
        c::IPPROTO_TCP => matches!(
            name,
            c::TCP_CC_INFO
                | c::TCP_CONGESTION
                | c::TCP_CORK
                | c::TCP_DEFER_ACCEPT
                | c::TCP_FASTOPEN
                | c::TCP_INFO
                | c::TCP_INQ
                | c::TCP_KEEPCNT
                | c::TCP_KEEPIDLE
                | c::TCP_KEEPINTVL
                | c::TCP_LINGER2
                | c::TCP_MAXSEG
                | c::TCP_NODELAY
                | c::TCP_NOTSENT_LOWAT
                | c::TCP_QUICKACK
                | c::TCP_SYNCNT
                | c::TCP_USER_TIMEOUT
                | c::TCP_WINDOW_CLAMP
        ),
        c::IPPROTO_IP => matches!(
            name,
            c::IP_BIND_ADDRESS_NO_PORT
                | c::IP_FREEBIND
                | c::IP_MINTTL
                | c::IP_MTU
                | c::IP_MTU_DISCOVER
                | c::IP_RECVTOS
                | c::IP_TOS
                | c::IP_TTL
        ),
        c::IPPROTO_IPV6 => matches!(
            name,
            c::IPV6_MTU
                | c::IPV6_MTU_DISCOVER
                | c::IPV6_RECVTCLASS
                | c::IPV6_TCLASS
                | c::IPV6_UNICAST_HOPS
                | c::IPV6_V6ONLY
        ),
        _ => false,
    }
}

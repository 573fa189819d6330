//! Socket options that travel, and the two calls that carry them to the real socket.
//!
//! The card may hold more rights than the program, and some options carry addresses or descriptors that mean something else
//! in this process (SO_ATTACH_FILTER, TCP_ZEROCOPY_RECEIVE). So the options that may be set are listed, and those that must
//! not even be asked for; every other one is `ENOPROTOOPT`, as for a kernel built without it. Sources: socket(7), tcp(7),
//! ip(7), ipv6(7), `include/uapi/linux/tcp.h`, `include/uapi/asm-generic/socket.h`.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

/// Where the kernel names the congestion controls it has, and those that need no privilege (tcp(7)).
const CONGESTION_CONTROLS: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const CONGESTION_CONTROLS_ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// socket(7): a higher priority needs CAP_NET_ADMIN.
const PRIORITY_MAX: i32 = 6;

/// Whether an option is TCP_NODELAY.
pub(super) fn is_no_delay(level: i32, name: i32) -> bool {
    (level, name) == (libc::IPPROTO_TCP, libc::TCP_NODELAY)
}

/// `getsockopt(2)`.
pub(in crate::stack) fn get(
    descriptor: &OwnedFd,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> Result<usize, Errno> {
    // A level that TCP does not have is the kernel's to refuse: which error depends on the family.
    if !is_foreign_level(descriptor, level) && is_kept(level, name) {
        return Err(Errno::NOPROTOOPT);
    }
    if (level, name) == (libc::SOL_SOCKET, SO_PEERPIDFD) {
        // A descriptor it would be; a TCP socket has no such peer.
        return Err(Errno::NODATA);
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
pub(in crate::stack) fn set(
    descriptor: &OwnedFd,
    level: i32,
    name: i32,
    value: &[u8],
) -> Result<(), Errno> {
    if !is_foreign_level(descriptor, level) {
        if !travels(level, name) {
            return Err(Errno::NOPROTOOPT);
        }
        check_privilege(descriptor, level, name, value)?;
    }
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

/// Whether the kernel refuses every option of this level by itself: IPv6's on an IPv4 socket.
fn is_foreign_level(descriptor: &OwnedFd, level: i32) -> bool {
    level == libc::IPPROTO_IPV6
        && sockopt::socket_domain(descriptor).is_ok_and(|domain| domain == AddressFamily::INET)
}

/// Values that the kernel grants to privileged programs only, and would grant to this process; and those whose effect does
/// not reach the program.
fn check_privilege(descriptor: &OwnedFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let number = value.first_chunk().map(|chunk| i32::from_ne_bytes(*chunk));
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_PRIORITY) => match number {
            Some(priority) if !(0..=PRIORITY_MAX).contains(&priority) => Err(Errno::PERM),
            _ => Ok(()),
        },
        // Bound to a device once, it takes CAP_NET_RAW to move.
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE | SO_BINDTOIFINDEX) => {
            let mut device = [0; libc::IFNAMSIZ];
            match get(descriptor, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &mut device) {
                Ok(0) => Ok(()),
                _ => Err(Errno::PERM),
            }
        }
        // More than sysctl net.core.busy_read takes CAP_NET_ADMIN.
        (libc::SOL_SOCKET, libc::SO_BUSY_POLL) if number.is_some_and(|time| time > 0) => {
            Err(Errno::PERM)
        }
        // Nobody would tell the program when its buffers are free again.
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) if number.is_some_and(|on| on == 1) => {
            Err(Errno::NOPROTOOPT)
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => check_congestion_control(value),
        _ => Ok(()),
    }
}

fn check_congestion_control(value: &[u8]) -> Result<(), Errno> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let is_in = |path| {
        let names = std::fs::read_to_string(path).unwrap_or_default();
        names.split_whitespace().any(|name| name.as_bytes() == &value[..end])
    };
    match value.is_empty() {
        true => Err(Errno::INVAL),
        false if !is_in(CONGESTION_CONTROLS) => Err(Errno::NOENT),
        false if !is_in(CONGESTION_CONTROLS_ALLOWED) => Err(Errno::PERM),
        false => Ok(()),
    }
}

/// Whether an option may be set from afar.
fn travels(level: i32, name: i32) -> bool {
    list_of(level).is_some_and(|list| list.contains(&name))
}

/// Whether an option may not even be asked for: its answer is an address or a netfilter table of this machine.
fn is_kept(level: i32, name: i32) -> bool {
    match level {
        libc::IPPROTO_TCP => name == TCP_ZEROCOPY_RECEIVE,
        libc::IPPROTO_IP => name >= NETFILTER_MIN,
        libc::IPPROTO_IPV6 => NETFILTER_V6.contains(&name),
        _ => false,
    }
}

/// Of `asm-generic/socket.h`.
const SO_BINDTOIFINDEX: i32 = 62;
const SO_PEERPIDFD: i32 = 77;
const SO_SELECT_ERR_QUEUE: i32 = 45;
const SO_TXREHASH: i32 = 74;
/// Of `linux/tcp.h`.
const TCP_ZEROCOPY_RECEIVE: i32 = 35;
const TCP_TX_DELAY: i32 = 37;
/// Of `linux/netfilter_ipv4/ip_tables.h` and `ip6_tables.h`: the tables, and connection tracking's SO_ORIGINAL_DST.
const NETFILTER_MIN: i32 = 64;
const NETFILTER_V6: [i32; 5] = [64, 65, 68, 69, 80];

/// The options of one level that may be set.
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
    libc::SO_BINDTODEVICE,
    SO_BINDTOIFINDEX,
    libc::SO_BROADCAST,
    libc::SO_BUSY_POLL,
    libc::SO_COOKIE,
    libc::SO_DOMAIN,
    libc::SO_DONTROUTE,
    libc::SO_ERROR,
    libc::SO_INCOMING_CPU,
    libc::SO_KEEPALIVE,
    libc::SO_LINGER,
    libc::SO_MAX_PACING_RATE,
    libc::SO_MEMINFO,
    libc::SO_NO_CHECK,
    libc::SO_OOBINLINE,
    libc::SO_PASSCRED,
    libc::SO_PASSSEC,
    libc::SO_PEERCRED,
    libc::SO_PEERSEC,
    libc::SO_PRIORITY,
    libc::SO_PROTOCOL,
    libc::SO_RCVBUF,
    libc::SO_RCVLOWAT,
    libc::SO_RCVTIMEO,
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_RXQ_OVFL,
    SO_SELECT_ERR_QUEUE,
    libc::SO_SNDBUF,
    libc::SO_SNDLOWAT,
    libc::SO_SNDTIMEO,
    libc::SO_TIMESTAMP,
    libc::SO_TIMESTAMPNS,
    SO_TXREHASH,
    libc::SO_TYPE,
    libc::SO_ZEROCOPY,
];
/// Of tcp(7).
const TCP: &[i32] = &[
    libc::TCP_CC_INFO,
    libc::TCP_CONGESTION,
    libc::TCP_CORK,
    libc::TCP_DEFER_ACCEPT,
    libc::TCP_FASTOPEN,
    libc::TCP_FASTOPEN_CONNECT,
    libc::TCP_FASTOPEN_NO_COOKIE,
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
    libc::TCP_SAVE_SYN,
    libc::TCP_SYNCNT,
    libc::TCP_THIN_DUPACK,
    libc::TCP_THIN_LINEAR_TIMEOUTS,
    TCP_TX_DELAY,
    libc::TCP_USER_TIMEOUT,
    libc::TCP_WINDOW_CLAMP,
];
/// Of ip(7).
const IP: &[i32] = &[
    libc::IP_BIND_ADDRESS_NO_PORT,
    libc::IP_FREEBIND,
    libc::IP_HDRINCL,
    libc::IP_MINTTL,
    libc::IP_MTU,
    libc::IP_MTU_DISCOVER,
    libc::IP_MULTICAST_ALL,
    libc::IP_MULTICAST_LOOP,
    libc::IP_MULTICAST_TTL,
    libc::IP_PKTINFO,
    libc::IP_RECVERR,
    libc::IP_RECVOPTS,
    libc::IP_RECVORIGDSTADDR,
    libc::IP_RECVTOS,
    libc::IP_RECVTTL,
    libc::IP_RETOPTS,
    libc::IP_TOS,
    libc::IP_TTL,
];
/// Of ipv6(7).
const IPV6: &[i32] = &[
    libc::IPV6_DONTFRAG,
    libc::IPV6_FREEBIND,
    libc::IPV6_MTU,
    libc::IPV6_MTU_DISCOVER,
    libc::IPV6_MULTICAST_HOPS,
    libc::IPV6_MULTICAST_LOOP,
    libc::IPV6_RECVERR,
    libc::IPV6_RECVHOPLIMIT,
    libc::IPV6_RECVPKTINFO,
    libc::IPV6_RECVTCLASS,
    libc::IPV6_TCLASS,
    libc::IPV6_UNICAST_HOPS,
    libc::IPV6_V6ONLY,
];

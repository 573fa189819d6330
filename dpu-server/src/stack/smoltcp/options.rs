//! Socket options of a socket that the kernel does not have.
//!
//! The kernel is asked all the same: an option is set on a socket of its own made for the occasion, which checks and rounds the
//! value, and read back; what a program sees is what it would have seen there. Few options mean something to this stack
//! ([`Options::effects`]); the others are kept and told.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::stack::kernel::options as kernel;

/// Longest value kept; those that travel are shorter.
const VALUE_BYTES_MAX: usize = 256;
/// How often a SYN is sent again, if the program does not say: Linux' tcp_syn_retries.
const SYN_RETRIES: i32 = 6;
/// In `struct tcp_info` (tcp(7)), the connection's state comes first.
const TCP_INFO_STATE_AT: usize = 0;

/// In `include/uapi`: asm-generic/socket.h, linux/tcp.h.
const SO_TIMESTAMP_NEW: i32 = 63;
const SO_TIMESTAMPNS_NEW: i32 = 64;
const TCP_FASTOPEN_NO_COOKIE: i32 = 34;

/// How far a socket is, which some options mind.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    /// It has no name.
    New,
    Bound,
    Listening,
    Connected,
}

/// What the options of a socket mean to the stack.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Effects {
    /// `SO_LINGER` of no time at all: closing resets.
    pub(super) is_abortive: bool,
    /// `SO_RCVBUF` and `SO_SNDBUF`, as the kernel tells them, if the program set them.
    pub(super) buffers: (Option<usize>, Option<usize>),
    /// `SO_REUSEPORT`.
    pub(super) may_share_port: bool,
    /// `SO_REUSEADDR`.
    pub(super) may_reuse: bool,
    /// `IPV6_V6ONLY`.
    pub(super) is_v6_only: bool,
    /// For how long a connect waits for its answer, by `TCP_SYNCNT`.
    pub(super) connect_patience: Duration,
    /// `SO_KEEPALIVE` and its times.
    pub(super) keep_alive: Option<KeepAlive>,
    /// `TCP_USER_TIMEOUT`: for how long acknowledgements may be missing.
    pub(super) user_timeout: Option<Duration>,
    /// `IP_TTL`, or `IPV6_UNICAST_HOPS` of a socket of IPv6.
    pub(super) hop_limit: Option<u8>,
}

/// When a silent connection is asked whether it is still there (tcp(7)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct KeepAlive {
    /// After so much silence.
    pub(super) idle: Duration,
    /// Again after so much more.
    pub(super) interval: Duration,
    /// So often, before the connection is over.
    pub(super) count: u32,
}

impl KeepAlive {
    /// After how much silence the connection is over.
    pub(super) fn patience(&self) -> Duration {
        self.idle + self.interval * self.count
    }
}

/// The options a program set on one socket, or on the listener it came from. Connections share their listener's until they
/// change one.
#[derive(Clone, Debug)]
pub(super) struct Options {
    family: AddressFamily,
    own: Arc<Vec<Kept>>,
}

/// Level and name, and the value.
type Kept = ((i32, i32), Vec<u8>);

impl Options {
    /// As a new socket has them.
    pub(super) fn new(address: SocketAddr) -> Options {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        Options { family, own: Arc::default() }
    }

    /// Those a connection has from its listener.
    pub(super) fn of_a_connection(&self) -> Options {
        let is_alone = |((level, name), _): &Kept| is_the_listeners_alone(*level, *name);
        let mut options = self.clone();
        if options.own.iter().any(is_alone) {
            Arc::make_mut(&mut options.own).retain(|kept| !is_alone(kept));
        }
        options
    }

    fn kernel_socket(&self) -> Result<OwnedFd, Errno> {
        let tcp = Some(ipproto::TCP);
        rustix::net::socket_with(self.family, SocketType::STREAM, SocketFlags::CLOEXEC, tcp)
    }

    /// `setsockopt(2)` of a socket in this phase.
    pub(super) fn set(
        &mut self,
        phase: Phase,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        let socket = self.kernel_socket()?;
        if let Some(before) = self.kept(level, name) {
            // What it was may count: a linger that is switched off keeps its time.
            let _ = kernel::set(&socket, level, name, before);
        }
        kernel::set(&socket, level, name, value)?;
        if phase > last_phase(level, name, value) {
            return Err(Errno::INVAL);
        }
        let mut kept = vec![0; VALUE_BYTES_MAX];
        let bytes = kernel::get(&socket, level, name, &mut kept)?;
        kept.truncate(bytes);
        let is_superseded = |(own_level, own_name): (i32, i32)| {
            own_level == level
                && (own_name == name || is_timestamp(level, own_name) && is_timestamp(level, name))
        };
        let own = Arc::make_mut(&mut self.own);
        own.retain(|(own, _)| !is_superseded(*own));
        own.push(((level, name), kept));
        Ok(())
    }

    /// `getsockopt(2)`, but for what a connection alone knows.
    pub(super) fn get(&self, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
        if let Some(kept) = self.kept(level, name) {
            let mut bytes = kept.len().min(value.len());
            if level == libc::IPPROTO_IP && bytes < 4 && kept.len() == 4 && kept[1..] == [0; 3] {
                // ip(7): a small number fits a byte, where there is no room for more.
                bytes = bytes.min(1);
            }
            value[..bytes].copy_from_slice(&kept[..bytes]);
            return Ok(bytes);
        }
        kernel::get(&self.kernel_socket()?, level, name, value)
    }

    fn kept(&self, level: i32, name: i32) -> Option<&[u8]> {
        self.own.iter().find(|(key, _)| *key == (level, name)).map(|(_, value)| &value[..])
    }

    /// A number, as it was set, or as a new socket has it.
    fn number(&self, level: i32, name: i32) -> i32 {
        let mut value = [0; 4];
        match self.get(level, name, &mut value) {
            Ok(4) => i32::from_ne_bytes(value),
            _ => 0,
        }
    }

    /// A second for the first SYN, and twice as long for each after it (tcp(7), tcp_syn_retries); never longer than by default.
    fn connect_patience(&self) -> Duration {
        let kept = self.kept(libc::IPPROTO_TCP, libc::TCP_SYNCNT).is_some();
        let retries =
            if kept { self.number(libc::IPPROTO_TCP, libc::TCP_SYNCNT) } else { SYN_RETRIES };
        Duration::from_secs((2 << retries.clamp(0, SYN_RETRIES)) - 1)
    }

    /// What they mean.
    pub(super) fn effects(&self) -> Effects {
        let own = |name| self.kept(libc::SOL_SOCKET, name).is_some();
        let flag = |level, name| self.kept(level, name).is_some() && self.number(level, name) != 0;
        let size =
            |name| own(name).then(|| self.number(libc::SOL_SOCKET, name).unsigned_abs() as usize);
        Effects {
            is_abortive: self.kept(libc::SOL_SOCKET, libc::SO_LINGER).is_some_and(is_no_time),
            buffers: (size(libc::SO_RCVBUF), size(libc::SO_SNDBUF)),
            may_share_port: flag(libc::SOL_SOCKET, libc::SO_REUSEPORT),
            may_reuse: flag(libc::SOL_SOCKET, libc::SO_REUSEADDR),
            is_v6_only: flag(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
            connect_patience: self.connect_patience(),
            keep_alive: flag(libc::SOL_SOCKET, libc::SO_KEEPALIVE).then(|| self.keep_alive()),
            user_timeout: self.user_timeout(),
            hop_limit: self.hop_limit(),
        }
    }

    fn user_timeout(&self) -> Option<Duration> {
        self.kept(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT)?;
        let milliseconds = self.number(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
        // 0: as long as usual.
        (milliseconds > 0).then(|| Duration::from_millis(milliseconds.unsigned_abs().into()))
    }

    fn hop_limit(&self) -> Option<u8> {
        let (level, name) = match self.family {
            AddressFamily::INET => (libc::IPPROTO_IP, libc::IP_TTL),
            _ => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        };
        self.kept(level, name)?;
        u8::try_from(self.number(level, name)).ok().filter(|hops| *hops > 0)
    }

    fn keep_alive(&self) -> KeepAlive {
        let number = |name| self.number(libc::IPPROTO_TCP, name).unsigned_abs();
        let seconds = |name| Duration::from_secs(number(name).into());
        KeepAlive {
            idle: seconds(libc::TCP_KEEPIDLE),
            interval: seconds(libc::TCP_KEEPINTVL),
            count: number(libc::TCP_KEEPCNT),
        }
    }
}

/// The last phase in which an option is taken, as Linux has it in `do_tcp_setsockopt` and `do_ipv6_setsockopt`.
fn last_phase(level: i32, name: i32, value: &[u8]) -> Phase {
    match (level, name) {
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => Phase::New,
        (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) if value.starts_with(&[0; 4]) => Phase::Bound,
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) => Phase::Bound,
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN | TCP_FASTOPEN_NO_COOKIE) => Phase::Listening,
        _ => Phase::Connected,
    }
}

/// Whether an option is one of those of which a socket has the last that was set (socket(7)).
fn is_timestamp(level: i32, name: i32) -> bool {
    let all = [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW];
    level == libc::SOL_SOCKET && all.contains(&name)
}

/// Whether a connection does without an option that its listener has (`inet_csk_clone_lock`, `sk_clone_lock`).
fn is_the_listeners_alone(level: i32, name: i32) -> bool {
    matches!(
        (level, name),
        (libc::SOL_SOCKET, libc::SO_PRIORITY)
            | (libc::IPPROTO_TCP, libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT)
    )
}

/// Whether a `struct linger` says: on, and no time.
fn is_no_time(value: &[u8]) -> bool {
    let word =
        |at: usize| value.get(at..at + 4).is_some_and(|word| word.iter().any(|byte| *byte != 0));
    word(0) && !word(4)
}

/// Puts a connection's state into a `struct tcp_info`.
pub(super) fn tell_state(info: &mut [u8], state: u8) {
    if let Some(byte) = info.get_mut(TCP_INFO_STATE_AT) {
        *byte = state;
    }
}

//! Socket options of a socket that the kernel does not have.
//!
//! The kernel is asked all the same: an option is set on a socket of its own made for the occasion, which checks and rounds the
//! value, and read back; what a program sees is what it would have seen there. Few options mean something to this stack
//! ([`Options::effects`]); the others are kept and told.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::stack::kernel::options as kernel;

/// Longest value kept; those that travel are shorter.
const VALUE_BYTES_MAX: usize = 256;
/// In `struct tcp_info` (tcp(7)), the connection's state comes first.
const TCP_INFO_STATE_AT: usize = 0;

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
}

/// The options a program set on one socket, or on the listener it came from.
#[derive(Clone, Debug)]
pub(super) struct Options {
    family: AddressFamily,
    own: Vec<((i32, i32), Vec<u8>)>,
}

impl Options {
    /// As a new socket has them.
    pub(super) fn new(address: SocketAddr) -> Options {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        Options { family, own: Vec::new() }
    }

    fn kernel_socket(&self) -> Result<OwnedFd, Errno> {
        let tcp = Some(ipproto::TCP);
        rustix::net::socket_with(self.family, SocketType::STREAM, SocketFlags::CLOEXEC, tcp)
    }

    /// `setsockopt(2)`.
    pub(super) fn set(&mut self, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let socket = self.kernel_socket()?;
        kernel::set(&socket, level, name, value)?;
        let mut kept = vec![0; VALUE_BYTES_MAX];
        let bytes = kernel::get(&socket, level, name, &mut kept)?;
        kept.truncate(bytes);
        self.own.retain(|(key, _)| *key != (level, name));
        self.own.push(((level, name), kept));
        Ok(())
    }

    /// `getsockopt(2)`, but for what a connection alone knows.
    pub(super) fn get(&self, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
        if let Some(kept) = self.kept(level, name) {
            let bytes = kept.len().min(value.len());
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
        }
    }
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

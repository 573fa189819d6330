//! Socket options that a program set before its socket went to the card.
//!
//! Until then the descriptor is the kernel's own socket, so whatever the program sets is checked and kept by the kernel, and
//! read back here: an option travels if it differs from a fresh socket's.

use std::os::fd::{AsRawFd, RawFd};

use mqttshim_schema::{OPTIONS_MAX, SocketOption};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::descriptor;

/// Of `asm-generic/socket.h`.
const SO_SELECT_ERR_QUEUE: i32 = 45;

/// Longest value read back, in bytes: an interface name, a congestion control's name.
const VALUE_BYTES_MAX: usize = 16;

/// Options of every TCP socket, with their sizes.
const COMMON: [(i32, i32, usize); 37] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, 4),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT, 4),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 4),
    (libc::SOL_SOCKET, libc::SO_LINGER, 8),
    (libc::SOL_SOCKET, libc::SO_RCVBUF, 4),
    (libc::SOL_SOCKET, libc::SO_SNDBUF, 4),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 4),
    (libc::SOL_SOCKET, libc::SO_BROADCAST, 4),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP, 4),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 4),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE, 4),
    (libc::SOL_SOCKET, libc::SO_NO_CHECK, 4),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 4),
    (libc::SOL_SOCKET, SO_SELECT_ERR_QUEUE, 4),
    (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, 4),
    (libc::SOL_SOCKET, libc::SO_PRIORITY, 4),
    (libc::SOL_SOCKET, libc::SO_MARK, 4),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE, VALUE_BYTES_MAX),
    (libc::SOL_TCP, libc::TCP_NODELAY, 4),
    (libc::SOL_TCP, libc::TCP_KEEPIDLE, 4),
    (libc::SOL_TCP, libc::TCP_KEEPINTVL, 4),
    (libc::SOL_TCP, libc::TCP_KEEPCNT, 4),
    (libc::SOL_TCP, libc::TCP_USER_TIMEOUT, 4),
    (libc::SOL_TCP, libc::TCP_DEFER_ACCEPT, 4),
    (libc::SOL_TCP, libc::TCP_LINGER2, 4),
    (libc::SOL_TCP, libc::TCP_MAXSEG, 4),
    (libc::SOL_TCP, libc::TCP_WINDOW_CLAMP, 4),
    (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, 4),
    (libc::SOL_TCP, libc::TCP_INQ, 4),
    (libc::SOL_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, 4),
    (libc::SOL_TCP, libc::TCP_SAVE_SYN, 4),
    (libc::SOL_TCP, libc::TCP_FASTOPEN_NO_COOKIE, 4),
    (libc::SOL_TCP, libc::TCP_SYNCNT, 4),
    (libc::SOL_TCP, libc::TCP_FASTOPEN, 4),
    (libc::SOL_TCP, libc::TCP_CORK, 4),
    (libc::SOL_TCP, libc::TCP_QUICKACK, 4),
    (libc::SOL_TCP, libc::TCP_CONGESTION, VALUE_BYTES_MAX),
];
const V4: [(i32, i32, usize); 12] = [
    (libc::SOL_IP, libc::IP_TOS, 4),
    (libc::SOL_IP, libc::IP_TTL, 4),
    (libc::SOL_IP, libc::IP_MINTTL, 4),
    (libc::SOL_IP, libc::IP_MTU_DISCOVER, 4),
    (libc::SOL_IP, libc::IP_RECVTOS, 4),
    (libc::SOL_IP, libc::IP_RECVTTL, 4),
    (libc::SOL_IP, libc::IP_RECVERR, 4),
    (libc::SOL_IP, libc::IP_PKTINFO, 4),
    (libc::SOL_IP, libc::IP_MULTICAST_TTL, 4),
    (libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 4),
    (libc::SOL_IP, libc::IP_FREEBIND, 4),
    (libc::SOL_IP, libc::IP_TRANSPARENT, 4),
];
const V6: [(i32, i32, usize); 12] = [
    (libc::SOL_IPV6, libc::IPV6_V6ONLY, 4),
    (libc::SOL_IPV6, libc::IPV6_TCLASS, 4),
    (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS, 4),
    (libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, 4),
    (libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 4),
    (libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 4),
    (libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT, 4),
    (libc::SOL_IPV6, libc::IPV6_RECVERR, 4),
    (libc::SOL_IPV6, libc::IPV6_MULTICAST_HOPS, 4),
    (libc::SOL_IPV6, libc::IPV6_DONTFRAG, 4),
    (libc::SOL_IPV6, libc::IPV6_FREEBIND, 4),
    (libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 4),
];
/// Options in a list that grows by what is set later: two more are the time-outs.
const NOTED_MAX: usize = OPTIONS_MAX - 2;
const _: () = assert!(COMMON.len() + V6.len() <= NOTED_MAX);

/// One option.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Saved {
    level: i32,
    name: i32,
    value: [u8; VALUE_BYTES_MAX],
    length: usize,
}

/// Options in the order they are to be set.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct OptionList(Vec<Saved>);

impl OptionList {
    /// What the program changed on the kernel's socket `fd`.
    ///
    /// # Errors
    /// When there is no descriptor for a fresh socket to compare with.
    pub(crate) fn changed(fd: RawFd, is_v6: bool) -> Result<OptionList, Errno> {
        let family = if is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let fresh =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let own: &[(i32, i32, usize)] = if is_v6 { &V6 } else { &V4 };
        let mut list = OptionList::default();
        for &(level, name, size) in COMMON.iter().chain(own) {
            let Some(mut saved) = Saved::read(fd, level, name, size) else { continue };
            let is_default = Saved::read(fresh.as_raw_fd(), level, name, size) == Some(saved);
            // The default of V6ONLY is a setting of the machine, and the card is another machine.
            let is_wanted = !is_default || (level, name) == (libc::SOL_IPV6, libc::IPV6_V6ONLY);
            if is_wanted && saved.make_settable() {
                list.0.push(saved);
            }
        }
        Ok(list)
    }

    /// The values that these options have at `fd`.
    pub(crate) fn of(fd: RawFd, options: &[(i32, i32, usize)]) -> OptionList {
        let values = options.iter().map(|&(level, name, size)| Saved::read(fd, level, name, size));
        OptionList(values.flatten().collect())
    }

    /// These without those whose value, of one number or two, says no more than `usual`.
    pub(crate) fn that_are_set(mut self, usual: u8) -> OptionList {
        self.0
            .retain(|saved| saved.value[0] != usual || saved.value[1..].iter().any(|&it| it != 0));
        self
    }

    /// These, then `others`.
    pub(crate) fn and(mut self, others: &OptionList) -> OptionList {
        self.0.extend_from_slice(&others.0);
        self
    }

    /// Remembers that an option was set. A value that is too long is not remembered, nor is one more than messages carry.
    pub(crate) fn note(&mut self, level: i32, name: i32, value: &[u8]) {
        self.0.retain(|saved| (saved.level, saved.name) != (level, name));
        let length = value.len();
        if length > VALUE_BYTES_MAX || self.0.len() == NOTED_MAX {
            return;
        }
        let mut saved = Saved { level, name, value: [0; VALUE_BYTES_MAX], length };
        saved.value[..length].copy_from_slice(value);
        self.0.push(saved);
    }

    /// These without those that `earlier` has with the same value.
    pub(crate) fn since(mut self, earlier: &OptionList) -> OptionList {
        self.0.retain(|saved| !earlier.0.contains(saved));
        self
    }

    /// Sets them on a fresh socket of the kernel. What it refuses now it took before.
    pub(crate) fn set_on(&self, fd: RawFd) {
        for saved in &self.0 {
            let value = &saved.value[..saved.length];
            let _ = descriptor::set_option(fd, saved.level, saved.name, value);
        }
    }

    /// As messages carry them.
    pub(crate) fn as_options(&self) -> Vec<SocketOption<'_>> {
        self.0
            .iter()
            .map(|saved| SocketOption {
                level: saved.level,
                name: saved.name,
                value: &saved.value[..saved.length],
            })
            .collect()
    }
}

impl Saved {
    fn read(fd: RawFd, level: i32, name: i32, size: usize) -> Option<Saved> {
        let mut value = [0; VALUE_BYTES_MAX];
        // An option this kernel does not know was not set either.
        let length = descriptor::get_option(fd, level, name, &mut value[..size]).ok()?;
        Some(Saved { level, name, value, length })
    }

    /// Turns what `getsockopt` said into what `setsockopt` takes. `false` when nothing is to be set.
    fn make_settable(&mut self) -> bool {
        if self.level == libc::SOL_SOCKET && [libc::SO_RCVBUF, libc::SO_SNDBUF].contains(&self.name)
        {
            // socket(7): the kernel doubles the value on the way in.
            let [a, b, c, d, ..] = self.value;
            let half = i32::from_ne_bytes([a, b, c, d]) / 2;
            self.value[..4].copy_from_slice(&half.to_ne_bytes());
        }
        self.length > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt;

    fn socket(family: AddressFamily) -> std::os::fd::OwnedFd {
        rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_fresh_socket_has_nothing_to_tell() {
        let fd = socket(AddressFamily::INET);
        let list = OptionList::changed(fd.as_raw_fd(), false).unwrap();
        assert_eq!(list, OptionList::default());
    }

    #[test]
    fn what_was_set_is_told_once_and_as_it_was_set() {
        let fd = socket(AddressFamily::INET);
        sockopt::set_socket_reuseaddr(&fd, true).unwrap();
        sockopt::set_tcp_nodelay(&fd, true).unwrap();
        sockopt::set_socket_recv_buffer_size(&fd, 30_000).unwrap();
        let list = OptionList::changed(fd.as_raw_fd(), false).unwrap();
        let told: Vec<(i32, i32, i32)> = list
            .as_options()
            .iter()
            .map(|o| (o.level, o.name, i32::from_ne_bytes(o.value.try_into().unwrap())))
            .collect();
        assert_eq!(
            told,
            [
                (libc::SOL_SOCKET, libc::SO_REUSEADDR, 1),
                (libc::SOL_SOCKET, libc::SO_RCVBUF, 30_000),
                (libc::SOL_TCP, libc::TCP_NODELAY, 1)
            ]
        );
    }

    #[test]
    fn what_was_told_before_is_not_told_again() {
        let fd = socket(AddressFamily::INET6);
        let earlier = OptionList::changed(fd.as_raw_fd(), true).unwrap();
        sockopt::set_tcp_nodelay(&fd, true).unwrap();
        let later = OptionList::changed(fd.as_raw_fd(), true).unwrap().since(&earlier);
        let names: Vec<i32> = later.as_options().iter().map(|option| option.name).collect();
        assert_eq!(names, [libc::TCP_NODELAY]);
    }

    #[test]
    fn an_option_is_noted_once_and_the_list_stays_one_a_message_carries() {
        let mut list = OptionList::default();
        list.note(libc::SOL_TCP, libc::TCP_NODELAY, &[1, 0, 0, 0]);
        list.note(libc::SOL_TCP, libc::TCP_NODELAY, &[0; 4]);
        let values: Vec<&[u8]> = list.as_options().iter().map(|option| option.value).collect();
        assert_eq!(values, [[0; 4]]);
        list.note(libc::SOL_TCP, libc::TCP_NODELAY, &[0; VALUE_BYTES_MAX + 1]);
        assert_eq!(list, OptionList::default());
        (0..200).for_each(|name| list.note(libc::SOL_TCP, name, &[1]));
        assert_eq!(list.as_options().len(), NOTED_MAX);
    }

    #[test]
    fn only_what_differs_from_the_usual_is_set() {
        let fd = socket(AddressFamily::INET);
        let which = [(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 4)];
        let list = || OptionList::of(fd.as_raw_fd(), &which).that_are_set(1);
        assert_eq!(list(), OptionList::default());
        for low_water in [2_i32, 257] {
            let value = low_water.to_ne_bytes();
            descriptor::set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, &value)
                .unwrap();
            assert_eq!(list().as_options()[0].value, value);
        }
    }

    #[test]
    fn v6only_is_always_told() {
        let fd = socket(AddressFamily::INET6);
        let list = OptionList::changed(fd.as_raw_fd(), true).unwrap();
        let options = list.as_options();
        assert_eq!(options.len(), 1);
        assert_eq!((options[0].level, options[0].name), (libc::SOL_IPV6, libc::IPV6_V6ONLY));
    }
}

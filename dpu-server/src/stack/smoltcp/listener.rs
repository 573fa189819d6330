//! Names that are bound, and who is let in.
//!
//! A SYN for a listener makes a connection that is half open; when its handshake is over it waits to be accepted. Both numbers
//! are bounded. At the bound of half-open ones the oldest makes room for the next, once a millisecond: a flood of SYNs from nowhere
//! costs no more memory than that, and next to no time, and whoever comes after it is let in at once. A SYN that finds the queue full is not answered, so that the client
//! comes again (as Linux has it).

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Handshakes of one listener under way at a time.
pub(super) const HALF_OPEN_MAX: usize = 4096;
/// Between two SYNs that are taken in beyond these. One that is not comes again after a second.
const MAKING_ROOM: Duration = Duration::from_millis(1);

/// A bound name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Name {
    pub(super) address: SocketAddr,
    /// Whose it is, for SO_REUSEPORT.
    pub(super) uid: u32,
    pub(super) may_share_port: bool,
    pub(super) may_reuse: bool,
    /// IPV6_V6ONLY.
    pub(super) is_v6_only: bool,
    pub(super) is_listening: bool,
}

impl Name {
    /// Of a socket that connects without having been bound.
    pub(super) fn unbound(address: SocketAddr, uid: u32) -> Name {
        Name {
            address,
            uid,
            may_share_port: false,
            may_reuse: false,
            is_v6_only: false,
            is_listening: false,
        }
    }

    /// Whether connections to `local` are this name's.
    pub(super) fn covers(&self, local: SocketAddr) -> bool {
        local.port() == self.address.port()
            && match (self.address.ip(), local.ip()) {
                (IpAddr::V4(own), IpAddr::V4(to)) => own.is_unspecified() || own == to,
                (IpAddr::V6(own), IpAddr::V6(to)) => own.is_unspecified() || own == to,
                (IpAddr::V6(own), IpAddr::V4(to)) => {
                    !self.is_v6_only && (own.is_unspecified() || own == to.to_ipv6_mapped())
                }
                (IpAddr::V4(_), IpAddr::V6(_)) => false,
            }
    }

    /// Whether the other cannot be bound, or listen, beside this one, which is there (`bind(2)`, EADDRINUSE).
    pub(super) fn collides(&self, other: &Name) -> bool {
        let overlaps = self.address.port() == other.address.port()
            && (self.covers_any_of(other) || other.covers_any_of(self));
        let is_shared = self.may_share_port && other.may_share_port && self.uid == other.uid;
        let is_reused = self.may_reuse && other.may_reuse && !self.is_listening;
        overlaps && !is_shared && !is_reused
    }

    fn covers_any_of(&self, other: &Name) -> bool {
        let is_wild = self.address.ip().is_unspecified();
        let both_kinds = self.address.is_ipv6() && !self.is_v6_only;
        if is_wild && (both_kinds || self.address.is_ipv4() == other.address.is_ipv4()) {
            return true;
        }
        self.covers(other.address)
    }

    /// An end of a connection as its holder sees it: a socket of IPv6 sees clients of IPv4 as mapped.
    pub(super) fn seen(&self, end: SocketAddr) -> SocketAddr {
        match end.ip() {
            IpAddr::V4(ip) if self.address.is_ipv6() => {
                SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), end.port())
            }
            _ => end,
        }
    }
}

/// Somebody who listens.
#[derive(Debug)]
pub(super) struct Listener {
    backlog: usize,
    /// Connections whose handshake is over.
    pub(super) queue: VecDeque<u32>,
    /// Connections whose handshake may be under way, oldest first; some are over by now.
    half_open: VecDeque<(u32, u64)>,
    pub(super) half_open_count: usize,
    /// From when on the oldest may make room.
    may_make_room_at: Duration,
}

impl Listener {
    pub(super) fn new(backlog: i32) -> Listener {
        let (queue, half_open) = (VecDeque::new(), VecDeque::new());
        let mut listener = Listener {
            backlog: 0,
            queue,
            half_open,
            half_open_count: 0,
            may_make_room_at: Duration::ZERO,
        };
        listener.set_backlog(backlog);
        listener
    }

    /// `listen(2)`, the first time or again: less than nothing counts as the most there is (net.core.somaxconn).
    pub(super) fn set_backlog(&mut self, backlog: i32) {
        self.backlog = usize::try_from(backlog).unwrap_or(HALF_OPEN_MAX).min(HALF_OPEN_MAX);
    }

    /// Whether a SYN may be answered. As on Linux, one more than the backlog waits.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() <= self.backlog
    }

    /// A handshake began. `serial` tells it from others that had its number before.
    pub(super) fn begin(&mut self, id: u32, serial: u64) {
        self.half_open.push_back((id, serial));
        self.half_open_count += 1;
    }

    /// Whether the oldest may make room for a SYN.
    pub(super) fn may_make_room(&mut self, now: Duration) -> bool {
        let is_time = now >= self.may_make_room_at;
        if is_time {
            self.may_make_room_at = now + MAKING_ROOM;
        }
        is_time
    }

    /// The oldest that may have to make room.
    pub(super) fn oldest(&mut self) -> Option<(u32, u64)> {
        self.half_open.pop_front()
    }

    /// Whether the list holds mostly what is over.
    pub(super) fn is_worth_tidying(&self) -> bool {
        self.half_open.len() > 2 * self.half_open_count + 64
    }

    /// Forgets those that are over.
    pub(super) fn tidy(&mut self, is_half_open: impl Fn(u32, u64) -> bool) {
        self.half_open.retain(|(id, serial)| is_half_open(*id, *serial));
    }
}

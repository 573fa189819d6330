//! The open sockets, by key.
//!
//! An event can arrive for a socket that was closed since and whose key names another one: every epoll entry carries the
//! socket's generation beside its key, and a stale one is dropped ([`Sockets::tagged`]).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::options;
use crate::stack::{Ends, Key};

/// Generations wrap here: the bit above marks a watch.
const GENERATION_MASK: u32 = u32::MAX >> 1;

/// What a socket is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// New.
    Fresh,
    /// Bound to this address.
    Bound(SocketAddr),
    /// Listening on this address.
    Listening(SocketAddr),
    /// A connect is under way.
    Connecting,
    /// Connected, or its connect failed.
    Connected,
}

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) descriptor: OwnedFd,
    pub(super) stage: Stage,
    /// The program's user.
    pub(super) uid: u32,
    /// What the program set TCP_NODELAY to; the real one is always on.
    no_delay: bool,
    generation: u32,
}

impl Socket {
    pub(super) fn new(uid: u32, address: SocketAddr) -> Result<Socket, Errno> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let tcp = Some(ipproto::TCP);
        let descriptor = rustix::net::socket_with(family, SocketType::STREAM, flags, tcp)?;
        // Accepted sockets inherit it.
        sockopt::set_tcp_nodelay(&descriptor, true)?;
        Ok(Socket { descriptor, stage: Stage::Fresh, uid, no_delay: false, generation: 0 })
    }

    /// A connection of this listener.
    pub(super) fn accepted(&self, descriptor: OwnedFd) -> Socket {
        let (uid, no_delay) = (self.uid, self.no_delay);
        Socket { descriptor, stage: Stage::Connected, uid, no_delay, generation: 0 }
    }

    /// The 64 bits its epoll entry carries.
    pub(super) fn tag(&self, key: Key) -> u64 {
        u64::from(self.generation) << 32 | u64::from(key.0)
    }

    pub(super) fn local(&self) -> Result<SocketAddr, Errno> {
        let local = rustix::net::getsockname(&self.descriptor)?;
        SocketAddr::try_from(local).map_err(|_| Errno::AFNOSUPPORT)
    }

    /// `None` while the connect is under way.
    pub(super) fn connect_result(&self) -> Option<Result<Ends, Errno>> {
        match sockopt::socket_error(&self.descriptor) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => return Some(Err(error)),
        }
        match rustix::net::getpeername(&self.descriptor) {
            Ok(Some(peer)) => {
                let peer = SocketAddr::try_from(peer).map_err(|_| Errno::AFNOSUPPORT);
                Some(peer.and_then(|peer| Ok(Ends { local: self.local()?, peer })))
            }
            Ok(None) | Err(Errno::NOTCONN) => None,
            Err(error) => Some(Err(error)),
        }
    }

    pub(super) fn option(&self, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
        let bytes = options::get(&self.descriptor, level, name, value)?;
        if options::is_no_delay(level, name) {
            let asked = i32::from(self.no_delay).to_ne_bytes();
            value[..bytes].copy_from_slice(&asked[..bytes]);
        }
        Ok(bytes)
    }

    pub(super) fn set_option(&mut self, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        options::set(&self.descriptor, level, name, value)?;
        if options::is_no_delay(level, name) {
            self.no_delay = sockopt::tcp_nodelay(&self.descriptor)?;
            sockopt::set_tcp_nodelay(&self.descriptor, true)?;
        }
        Ok(())
    }
}

/// The unspecified address of a socket's family, port 0.
pub(super) fn unspecified_like(socket: &Socket) -> SocketAddr {
    match socket.stage {
        Stage::Listening(SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}

/// All sockets.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    slots: Vec<Option<Socket>>,
    /// Keys of sockets that a program bound: few, unlike connections.
    named: Vec<Key>,
    generation: u32,
}

impl Sockets {
    pub(super) fn get(&self, key: Key) -> Option<&Socket> {
        self.slots.get(key.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Socket> {
        self.slots.get_mut(key.index())?.as_mut()
    }

    /// Calls a socket `key`, which must be free.
    pub(super) fn insert(&mut self, key: Key, mut socket: Socket) {
        if self.slots.len() <= key.index() {
            self.slots.resize_with(key.index() + 1, || None);
        }
        self.generation = self.generation.wrapping_add(1) & GENERATION_MASK;
        socket.generation = self.generation;
        if matches!(socket.stage, Stage::Bound(_)) {
            self.named.push(key);
        }
        let before = self.slots[key.index()].replace(socket);
        debug_assert!(before.is_none(), "{key:?} was open");
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Socket> {
        self.named.retain(|named| *named != key);
        self.slots.get_mut(key.index())?.take()
    }

    /// The key of an event's 64 bits, if the socket it was registered for is still there.
    pub(super) fn tagged(&self, tag: u64) -> Option<Key> {
        let key = Key((tag & u64::from(u32::MAX)) as u32);
        (self.get(key)?.tag(key) == tag).then_some(key)
    }

    /// Every socket that a program bound.
    pub(super) fn named(&self) -> impl Iterator<Item = (Key, &Socket)> {
        self.named.iter().filter_map(|key| Some((*key, self.get(*key)?)))
    }
}

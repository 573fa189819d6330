//! What the keys name: bound names, listeners, connections; and which port is whose.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;

use super::budget::BufferBytes;
use super::connection::Buffers;
use super::listener::{Listener, Name};
use super::options::{Effects, Options, Phase};
use crate::stack::Key;
use mqttshim_port::prefetch::soon;

/// The ports given out for port 0: Linux' ip_local_port_range.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;

/// What a key names.
#[derive(Debug)]
pub(super) enum Role {
    /// A name, perhaps with a listener.
    Named(Option<Box<Listener>>),
    /// A connection, by its number.
    Connected(u32),
    /// A connect that failed.
    Gone,
}

impl Role {
    pub(super) fn phase(&self) -> Phase {
        match self {
            Role::Named(None) | Role::Gone => Phase::Bound,
            Role::Named(Some(_)) => Phase::Listening,
            Role::Connected(_) => Phase::Connected,
        }
    }
}

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) name: Name,
    pub(super) options: Options,
    /// What the options mean.
    pub(super) effects: Effects,
    pub(super) role: Role,
    buffers: Buffers,
}

/// No connection.
const NONE: u32 = u32::MAX;

/// All sockets, by key.
pub(super) struct Sockets {
    open: Vec<Option<Socket>>,
    /// The connection of each key, or [`NONE`]: all that a delivery needs to know, close together.
    connections: Vec<u32>,
    /// Named sockets, by port.
    ports: HashMap<u16, Vec<Key>>,
    /// Where the search for a free port begins; moves on.
    port_next: u16,
    turn: usize,
    serial: u64,
    /// A connection's buffers, unless the program asked for others (SO_RCVBUF, SO_SNDBUF).
    pub(super) usual: Buffers,
}

impl Sockets {
    pub(super) fn new(seed: u64) -> Sockets {
        let span = u64::from(EPHEMERAL.end() - EPHEMERAL.start() + 1);
        let port_next = EPHEMERAL.start() + (seed.rotate_left(32) % span) as u16;
        Sockets {
            open: Vec::new(),
            connections: Vec::new(),
            ports: HashMap::new(),
            port_next,
            turn: 0,
            serial: 0,
            usual: BufferBytes::default().each(),
        }
    }

    /// A number that no connection had before.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Asks for what a key names.
    pub(super) fn expect(&self, key: Key) {
        if let Some(place) = self.open.get(key.index()) {
            soon(place);
        }
    }

    pub(super) fn get(&self, key: Key) -> Result<&Socket, Errno> {
        self.open.get(key.index()).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Result<&mut Socket, Errno> {
        self.open.get_mut(key.index()).and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    /// The connection a key names.
    pub(super) fn connection(&self, key: Key) -> Option<u32> {
        self.connections.get(key.index()).copied().filter(|id| *id != NONE)
    }

    /// Names a new socket.
    pub(super) fn insert(&mut self, key: Key, name: Name, options: Options, role: Role) {
        if matches!(role, Role::Named(_)) {
            self.ports.entry(name.address.port()).or_default().push(key);
        }
        let effects = options.effects();
        let bound = |asked: Option<usize>, usual| {
            asked.map_or(usual, |bytes| {
                bytes.clamp(*BufferBytes::EACH.start(), *BufferBytes::EACH.end())
            })
        };
        let buffers = Buffers {
            receive_bytes: bound(effects.buffers.0, self.usual.receive_bytes),
            send_bytes: bound(effects.buffers.1, self.usual.send_bytes),
        };
        if self.open.len() <= key.index() {
            self.open.resize_with(key.index() + 1, || None);
            self.connections.resize(key.index() + 1, NONE);
        }
        self.connections[key.index()] = match role {
            Role::Connected(id) => id,
            Role::Named(_) | Role::Gone => NONE,
        };
        self.open[key.index()] = Some(Socket { name, options, effects, role, buffers });
    }

    /// Forgets a socket, and its name.
    pub(super) fn remove(&mut self, key: Key) -> Option<Socket> {
        let socket = self.open.get_mut(key.index())?.take()?;
        self.connections[key.index()] = NONE;
        self.unname(key, socket.name.address.port());
        Some(socket)
    }

    /// A socket that was bound keeps its port while it connects, and after that failed.
    pub(super) fn keep_port(&mut self, key: Key) {
        if let Ok(socket) = self.get(key) {
            self.ports.entry(socket.name.address.port()).or_default().push(key);
        }
    }

    fn unname(&mut self, key: Key, port: u16) {
        if let Some(keys) = self.ports.get_mut(&port) {
            keys.retain(|other| *other != key);
            if keys.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// The name with a free port in the place of 0, if nobody's collides with it.
    ///
    /// # Errors
    /// EADDRINUSE.
    pub(super) fn claim(&mut self, key: Key, name: Name) -> Result<Name, Errno> {
        if name.address.port() != 0 {
            return if self.is_free(key, &name) { Ok(name) } else { Err(Errno::ADDRINUSE) };
        }
        for _ in EPHEMERAL {
            let mut candidate = name;
            candidate.address.set_port(self.next_port());
            if !self.ports.contains_key(&candidate.address.port()) {
                return Ok(candidate);
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// The next port of those given out for 0.
    pub(super) fn next_port(&mut self) -> u16 {
        let port = self.port_next;
        self.port_next = if port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
        port
    }

    fn is_free(&self, key: Key, name: &Name) -> bool {
        let others = self.ports.get(&name.address.port()).into_iter().flatten();
        others
            .filter(|other| **other != key)
            .filter_map(|other| self.get(*other).ok())
            .all(|other| !other.name.collides(name))
    }

    /// Who listens for connections to `local`: an address before any, and in turn among equals (SO_REUSEPORT).
    pub(super) fn listener(&mut self, local: SocketAddr) -> Option<Key> {
        self.turn = self.turn.wrapping_add(1);
        let keys = self.ports.get(&local.port())?;
        let listens = |key: &Key| match self.get(*key) {
            Ok(it) if matches!(it.role, Role::Named(Some(_))) && it.name.covers(local) => {
                Some((*key, it.name.address.ip().is_unspecified()))
            }
            _ => None,
        };
        let of_kind = |is_any: bool| {
            keys.iter().filter_map(listens).filter(move |it| it.1 == is_any).map(|it| it.0)
        };
        let is_any = of_kind(false).next().is_none();
        let count = of_kind(is_any).count();
        if count == 0 { None } else { of_kind(is_any).nth(self.turn % count) }
    }

    /// A listener, and the buffers of its connections.
    pub(super) fn listening(&mut self, key: Key) -> Option<(&mut Listener, Buffers)> {
        let socket = self.get_mut(key).ok()?;
        match &mut socket.role {
            Role::Named(Some(listener)) => Some((listener, socket.buffers)),
            _ => None,
        }
    }

    /// The buffers of a socket that connects.
    pub(super) fn buffers(&self, key: Key) -> Buffers {
        self.get(key).map_or(self.usual, |socket| socket.buffers)
    }

    /// A handshake of this listener ended, well or not.
    pub(super) fn half_open_over(&mut self, key: Key) {
        if let Some((listener, _)) = self.listening(key) {
            listener.half_open_count = listener.half_open_count.saturating_sub(1);
        }
    }

    /// The connection a key names is gone.
    pub(super) fn lost(&mut self, key: Key) {
        if let Ok(socket) = self.get_mut(key) {
            socket.role = Role::Gone;
            self.connections[key.index()] = NONE;
        }
    }
}

/// The unspecified address of the same kind, port 0.
pub(super) fn unspecified_like(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

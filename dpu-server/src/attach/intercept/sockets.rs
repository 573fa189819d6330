//! The sockets of a channel by both their names: the number they have on the channel, and the card's key.
//!
//! The agent gives out odd numbers, the card even ones. A number is free again only after Close has gone both ways, so a
//! number outlives its key where the card let go first: such a socket has no key, and all that is awaited is its Close.
//!
//! Numbers of the card's own are dense and index a table; numbers a host chose are looked up in a map with a keyed hash.

use std::collections::HashMap;

use mqttshim_schema::{SessionId, SocketId};
use slab::Slab;

use crate::stack::Key;

/// What a socket is, as far as the messages allowed for it go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Bound, listening, or its connect failed: what it may do next is the stack's to say.
    Named,
    /// A Connect is not answered by Connected yet.
    Connecting,
    /// A connection.
    Stream,
}

/// What is known of one socket of the channel.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) session: SessionId,
    /// None: nothing but Close matters any more.
    pub(super) key: Option<Key>,
    pub(super) state: State,
    /// Bytes the host allows the card to send.
    pub(super) credit: u32,
    /// Bytes received and not yet allowed again. At most the card's window.
    pub(super) used: u32,
    /// Bytes that left the card and are not yet announced by Credit. At most `used`.
    pub(super) grant: u32,
    /// Listed among those whose Credit waits for the channel.
    pub(super) grant_listed: bool,
    /// The broker ended its half: no more Data may come.
    pub(super) ended: bool,
}

impl Socket {
    pub(super) fn new(session: SessionId, key: Key, state: State, credit: u32) -> Socket {
        Socket {
            session,
            key: Some(key),
            state,
            credit,
            used: 0,
            grant: 0,
            grant_listed: false,
            ended: false,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// The socket of the number `2 × (index + 1)`.
    even: Slab<Socket>,
    odd: HashMap<SocketId, Socket>,
    /// The number of each key.
    ids: Vec<Option<SocketId>>,
}

/// Whether the agent may give out this number.
pub(super) fn is_odd(socket: SocketId) -> bool {
    socket.0 % 2 == 1
}

fn even_index(socket: SocketId) -> Option<usize> {
    (socket.0 / 2).checked_sub(1).map(|index| index as usize)
}

impl Sockets {
    pub(super) fn get_mut(&mut self, socket: SocketId) -> Option<&mut Socket> {
        if is_odd(socket) {
            self.odd.get_mut(&socket)
        } else {
            self.even.get_mut(even_index(socket)?)
        }
    }

    pub(super) fn contains(&self, socket: SocketId) -> bool {
        if is_odd(socket) {
            self.odd.contains_key(&socket)
        } else {
            even_index(socket).is_some_and(|index| self.even.contains(index))
        }
    }

    pub(super) fn id(&self, key: Key) -> Option<SocketId> {
        *self.ids.get(key.index())?
    }

    pub(super) fn by_key(&mut self, key: Key) -> Option<(SocketId, &mut Socket)> {
        let socket = self.id(key)?;
        Some((socket, self.get_mut(socket)?))
    }

    /// Adds a socket under a number of the agent's.
    pub(super) fn insert_odd(&mut self, socket: SocketId, known: Socket) {
        debug_assert!(is_odd(socket), "{socket:?} is the card's");
        self.name(known.key, socket);
        self.odd.insert(socket, known);
    }

    /// Adds a socket under a number of the card's own.
    pub(super) fn insert_even(&mut self, known: Socket) -> SocketId {
        let entry = self.even.vacant_entry();
        let number = u32::try_from(2 * (entry.key() + 1)).expect("fewer sockets than descriptors");
        let (socket, key) = (SocketId(number), known.key);
        entry.insert(known);
        self.name(key, socket);
        socket
    }

    fn name(&mut self, key: Option<Key>, socket: SocketId) {
        let Some(key) = key else { return };
        if self.ids.len() <= key.index() {
            self.ids.resize(key.index() + 1, None);
        }
        self.ids[key.index()] = Some(socket);
    }

    /// Lets the number live on without a key.
    pub(super) fn forget_key(&mut self, socket: SocketId) {
        let key = self.get_mut(socket).and_then(|known| known.key.take());
        if let Some(named) = key.and_then(|key| self.ids.get_mut(key.index())) {
            *named = None;
        }
    }

    /// Frees the number.
    pub(super) fn remove(&mut self, socket: SocketId) {
        self.forget_key(socket);
        if is_odd(socket) {
            self.odd.remove(&socket);
        } else if let Some(index) = even_index(socket) {
            self.even.try_remove(index);
        }
    }

    /// The numbers of a session.
    pub(super) fn of(&self, session: SessionId) -> Vec<SocketId> {
        let even = self.even.iter().filter(|(_, known)| known.session == session);
        // Indices stay below what `insert_even` checked.
        let even = even.map(|(index, _)| SocketId(2 * (index as u32 + 1)));
        let odd = self.odd.iter().filter(|(_, known)| known.session == session);
        even.chain(odd.map(|(socket, _)| *socket)).collect()
    }

    pub(super) fn clear(&mut self) {
        *self = Sockets::default();
    }
}

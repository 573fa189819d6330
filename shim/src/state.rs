//! What the process remembers beside the table: the sockets it has on the card, and what it has outside.
//!
//! Only control calls come here (bind, listen, a session opened or lost), under one lock that `fork` respects.

use std::net::SocketAddr;

use crate::lock::{ForkLock, Held};
use crate::options::OptionList;
use crate::table::Socket;

/// A bound or listening socket, with all it takes to make it again on the next card.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) socket: Socket,
    /// As the card bound it: with the port it picked.
    pub(crate) address: SocketAddr,
    pub(crate) bind_options: OptionList,
    pub(crate) listen_options: OptionList,
    pub(crate) backlog: i32,
    /// The placeholder's file name, once it listens.
    pub(crate) placeholder: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) records: Vec<Record>,
    pub(crate) outside: Outside,
    /// Whether mistakes in the environment were looked for, and the panic hook set.
    pub(crate) is_prepared: bool,
}

/// Descriptors with a listener or a connection of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outside {
    pub(crate) listeners: u32,
    pub(crate) connections: u32,
}

static STATE: ForkLock<State> = ForkLock::new(State {
    records: Vec::new(),
    outside: Outside { listeners: 0, connections: 0 },
    is_prepared: false,
});

impl State {
    /// What is remembered of a socket.
    pub(crate) fn record(&mut self, socket: Socket) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.socket == socket)
    }

    /// The socket is gone from this process.
    pub(crate) fn forget(&mut self, socket: Socket) {
        self.records.retain(|record| record.socket != socket);
    }
}

/// Waits for the state.
pub(crate) fn lock() -> Held<'static, State> {
    STATE.lock()
}

/// The state, if no thread has it.
pub(crate) fn try_lock() -> Option<Held<'static, State>> {
    STATE.try_lock()
}

/// Before a fork.
pub(crate) fn acquire_for_fork() {
    STATE.acquire();
}

/// After a fork, in parent and child.
pub(crate) fn release_after_fork() {
    STATE.release();
}

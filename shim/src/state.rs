//! What the process remembers beside the table: the sockets it has on the card, and what it has outside.
//!
//! Only control calls come here (bind, listen, a session opened or lost), under one lock that `fork` respects.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::lock::{ForkLock, Held};
use crate::options::OptionList;
use crate::plugins::Noted;
use crate::table::{Entry, Socket};

/// Names of sockets whose connect failed that are remembered. Only a program that asks for one sees the limit.
const NAMES_MAX: usize = 64;

/// A bound or listening socket, with all it takes to make it again on the next card.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) socket: Socket,
    /// As the card bound it: with the port it picked.
    pub(crate) address: SocketAddr,
    /// The program named the port: the socket keeps it when it stops listening.
    pub(crate) is_port_named: bool,
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
    /// Shared objects the program has loaded, or was about to, and that may be plugins.
    pub(crate) plugins: Vec<Noted>,
    /// What undecided sockets are called since a connect of theirs failed. The latest few.
    pub(crate) names: VecDeque<(Entry, SocketAddr)>,
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
    plugins: Vec::new(),
    names: VecDeque::new(),
    is_prepared: false,
});

impl State {
    /// What is remembered of a socket.
    pub(crate) fn record(&mut self, socket: Socket) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.socket == socket)
    }

    /// The undecided socket of this entry keeps a name that was the card's.
    pub(crate) fn name(&mut self, entry: Entry, address: SocketAddr) {
        if self.names.len() == NAMES_MAX {
            self.names.pop_front();
        }
        self.names.push_back((entry, address));
    }

    /// The name an undecided socket kept.
    pub(crate) fn named(&self, entry: Entry) -> Option<SocketAddr> {
        let found = self.names.iter().find(|(named, _)| named.is_same_socket(entry));
        found.map(|&(_, address)| address)
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

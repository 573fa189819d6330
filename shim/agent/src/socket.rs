//! One socket of a program, and how much may be under way on it.
//!
//! Credit is counted here, both ways, and not in the shared memory: a program that writes its own limits gains nothing.

use std::os::fd::OwnedFd;

use mqttshim_schema::SocketId;
use mqttshim_session::{RX_BYTES, SlotId, State};

use crate::watch::Watched;

/// One socket of a program.
pub(crate) struct Socket {
    pub(crate) slot: SlotId,
    pub(crate) id: SocketId,
    pub(crate) role: Role,
    /// The port it was bound to by its program.
    pub(crate) port: u16,
    /// Looks at which its program had taken it off its listener's queue and not handed over the wire.
    pub(crate) looks_without_wire: u32,
    /// Bytes the card may have sent, from the connection's start.
    pub(crate) granted: u64,
    /// Bytes it has sent.
    pub(crate) delivered: u64,
    /// What `delivered` was at the last look for idle rings, and when pages were last given back.
    pub(crate) delivered_at_look: u64,
    pub(crate) delivered_at_return: u64,
    /// Bytes the program may still send.
    pub(crate) tx_left: u64,
    /// Bytes that belong on a wire that has not arrived yet.
    pub(crate) tokens_owed: usize,
    /// Fillers that belong off it.
    pub(crate) fillers_owed: usize,
    /// Hangs up with the placeholder, once the wire's write side has ended.
    pub(crate) lifeline: Option<OwnedFd>,
    /// It is a connection that was made: bytes may flow.
    pub(crate) is_stream: bool,
    /// The client sent everything it will, or the program reads no more.
    pub(crate) is_read_over: bool,
    /// The program sent everything it will.
    pub(crate) is_write_over: bool,
    /// The client is gone: nothing more is said about this number but what is asked of its options, and Close.
    pub(crate) is_gone: bool,
    /// The card was told Close: nothing more is said about this number.
    pub(crate) is_closed: bool,
}

/// What the socket is, with what belongs to it.
pub(crate) enum Role {
    /// Bound, not yet more.
    Bound,
    /// A listener, by its placeholder's name.
    Listener(String),
    /// A connection not yet accepted.
    Offered {
        /// Whose queue it is in.
        listener: SlotId,
        /// Where its record lies there, counted as the queue's positions are.
        at: u64,
    },
    /// A connection, made or being made, whose wire the agent holds.
    Wired(Watched),
    /// A connection whose wire was closed; what hangs up with its last descriptor. Without one, because the agent had no
    /// descriptor left, its slot is free again when the session ends.
    Over(Option<Watched>),
}

impl Role {
    /// What the role shows to the program.
    pub(crate) fn state(&self) -> State {
        match self {
            Role::Bound => State::Bound,
            Role::Listener(_) => State::Listening,
            Role::Offered { .. } | Role::Wired(_) | Role::Over(_) => State::Connected,
        }
    }
}

impl Socket {
    /// Its Connect is out. The wire came with it.
    pub(crate) fn is_connecting(&self) -> bool {
        !self.is_stream && matches!(self.role, Role::Wired(_))
    }

    pub(crate) fn is_offered(&self) -> bool {
        matches!(self.role, Role::Offered { .. })
    }

    pub(crate) fn new(slot: SlotId, id: SocketId, role: Role, tx_window: u32) -> Socket {
        Socket {
            slot,
            id,
            is_stream: matches!(role, Role::Offered { .. }),
            role,
            port: 0,
            looks_without_wire: 0,
            granted: RX_BYTES as u64,
            delivered: 0,
            delivered_at_look: 0,
            delivered_at_return: 0,
            tx_left: u64::from(tx_window),
            tokens_owed: 0,
            fillers_owed: 0,
            lifeline: None,
            is_read_over: false,
            is_write_over: false,
            is_gone: false,
            is_closed: false,
        }
    }
}

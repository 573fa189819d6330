//! The shared-memory session between a program's processes and their agent.
//!
//! ```text
//!  program (preloaded library)                         agent
//!    write ──► send ring: one for all sockets ──────►  Entry, in one order
//!    read  ◄── receive ring: one a socket ◄──────────  deliver
//!    epoll, poll ◄── placeholder ═ wire ◄────────────  one byte a state change
//!    bind, listen, connect ──► control socket ──────►  Cap'n Proto, answered on a socket of its own
//! ```
//!
//! `layout` says what lies where in the memory, `entry` is the send ring, `token` the two protocols that keep readiness true,
//! `lock` a lock that survives its holder; `program` is one side, `host` the other. Whatever the memory holds, the agent
//! stays alive: lengths and positions are copied out before they are checked and used, and a contradiction is a named
//! violation. Data costs no allocation and no round trip.
//!
//! `unsafe` is confined to `memory` (the mapping) and `ring` (copies).

#![deny(unsafe_code)]

mod sync;
mod token;

#[cfg(not(loom))]
mod entry;
#[cfg(not(loom))]
pub mod frame;
#[cfg(not(loom))]
pub mod host;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod lock;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "maps the session's memory")]
mod memory;
#[cfg(not(loom))]
mod program;
#[cfg(not(loom))]
mod ready;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "copies bytes into and out of the mapping")]
mod ring;

#[cfg(not(loom))]
pub use entry::{Entry, Kind, PAYLOAD_BYTES_MAX, RingViolation};
#[cfg(not(loom))]
pub use layout::{Inheritance, LAYOUT_MAX, LAYOUT_MIN, RX_BYTES, SOCKETS_MAX, State, TX_BYTES};
#[cfg(not(loom))]
pub use lock::forget_thread_id;
#[cfg(not(loom))]
pub use memory::MemoryError;
#[cfg(not(loom))]
pub use program::{
    Accept, CLAIM, Found, Listening, NEW_SOCKET, OpenError, Read, Session, SlotId, Write,
    requests_of_thread,
};

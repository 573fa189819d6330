//! The MQTT core of the card: reads the streams between clients and one broker, and distributes what it may.
//!
//! ```text
//!              handle_client(conn, bytes)                    to_broker(conn)
//! clients ────────────────────────────────► framer ─ rules ─────────────────► broker
//!                                              │ a PUBLISH the card takes
//!                                              ▼
//!         ◄──────────────────────────────── outboxes ◄─────── framer ◄─────── broker
//!              outbox(conn)                                    handle_broker(conn, bytes)
//! ```
//!
//! Every byte passes both ways unchanged and in order, with four exceptions, all at packet boundaries: a PUBLISH the card
//! distributes itself is not passed to the broker; PINGREQs are added towards the broker; their PINGRESPs are taken out;
//! copies of distributed PUBLISHes are added towards subscribers. What cannot be read is passed untouched.
//!
//! The grammar: `handle_*` takes an input; [`Core::poll_dirty`] names connections with something new to send;
//! [`Core::next_deadline`] says when to call [`Core::handle_timeout`]. One [`Core`] serves one broker. No I/O, no
//! clock, no randomness, no threads; every bound is in [`Limits`].
//!
//! Where to read: `decision` is the rule who distributes; `session` and `trie` know who subscribed; `observe` learns from
//! the broker who may receive what; `ping`, `slow` and `arrivals` order what goes through the broker against what does not; `core` ties them together.

mod aliases;
mod arrivals;
mod config;
mod connection;
mod core;
mod counters;
mod decision;
mod direct;
pub mod framer;
mod habits;
mod identifiers;
mod inflight;
mod mutation;
mod observe;
mod outbox;
mod packet;
mod ping;
mod routes;
mod session;
mod slow;
mod topic;
mod trie;

pub use config::{CoreConfig, Limits, Mode, Trust};
pub use core::{Core, Forgotten, SessionState, SessionView, Status};
pub use counters::{Counters, DropReason};
pub use decision::{ByReason, Reason};
pub use direct::Direct;
pub use outbox::{ByteQueue, Outbox};
pub use packet::{FixedHeader, Malformed, PacketType};

/// A client's connection. Given by the driver: dense small numbers, free again after [`Core::handle_close`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnId(pub u32);

#[cfg(test)]
mod tests;

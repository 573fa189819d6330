//! The messages between a host and a card.
//!
//! ```text
//! Message ──encode──► bytes of one channel message ──decode──► Message, or DecodeError
//! Hello, Hello ──negotiate──► Agreed, or NegotiateError
//! ```
//!
//! The wire form is Cap'n Proto (`mqttshim.capnp`); its generated code is committed, so a build needs no compiler for it.
//! Parse once: whatever [`decode()`] returns is well formed and within the limits below, and [`encode()`] writes nothing that
//! [`decode()`] would refuse. No I/O, no clock.
//!
//! Cost: Data, Credit and Blocked neither allocate nor copy more than the stream's bytes, once, when they are encoded;
//! decoding borrows them. `tests/allocations.rs` counts. Every other message may allocate.

#![deny(unsafe_code)]

mod decode;
mod encode;
mod limits;
mod message;
#[allow(
    clippy::all,
    clippy::too_many_lines,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "generated: it follows the generator's style, and what it exports is named by nothing outside this crate"
)]
#[rustfmt::skip]
mod mqttshim_capnp;
mod negotiate;
mod rules;

pub use decode::*;
pub use encode::*;
pub use limits::*;
pub use message::*;
pub use negotiate::*;
pub use rules::Violation;

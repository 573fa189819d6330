//! The host end of the Comm Channel.
//!
//! ```text
//!  programs                     agent                                     card
//!    session: rings, control ──► entries, requests ──► Message ──┐
//!                                                            CommChannel
//!    placeholder ═ wire      ◄── bytes, tokens     ◄── Message ──┘
//! ```
//!
//! One [`Agent`] serves every program of a host. It lives inside dpu-server when the card is this host, or in a process of its
//! own (`mqttshim-agent`) that relays to a card elsewhere: same code, same messages. It keeps each program's order, holds the
//! wires, and hands out nothing that the kernel would not have given the program itself.
//!
//! It has no thread: its owner calls [`Agent::turn`] and [`Agent::handle_events`]. Whatever a program writes into the shared
//! memory or sends on the control socket, the worst it can do is end its own session.

mod agent;
mod card;
mod claiming;
mod controls;
mod entries;
mod joining;
mod lease;
mod lifeline;
mod line;
mod listener;
pub mod logs;
mod peer;
mod programs;
mod rendezvous;
mod requests;
mod socket;
mod token;
mod watch;

pub use agent::{Agent, AgentConfig};
pub use rendezvous::OpenError;

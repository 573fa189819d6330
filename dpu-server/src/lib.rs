//! The card: TCP stack, MQTT core and distribution.
//!
//! ```text
//!  broker's host                         this crate                                        clients
//!  ┌───────────┐   channel   ┌──────────┬─────────────────────┬─────────┐   sockets   ┌──────────────┐
//!  │ agent     │◄───────────►│ attach   │ card ──► mqtt::Core │ stack   │◄───────────►│ pub, sub     │
//!  └───────────┘             └──────────┴─────────────────────┴─────────┘             └──────────────┘
//! ```
//!
//! [`attach`] is the brokers' side, [`stack`] the clients', [`mqtt`] decides who distributes a PUBLISH, and [`card`] moves
//! bytes between the three in one pass. [`server`] is the thread that runs the passes; [`metrics`], [`control`] and the agent's `logs`
//! have threads of their own and never hold it up. [`cli`] is the program around it: [`config`], [`doctor`].
//!
//! Unsafe code: `stack::kernel` (raw socket options and io_uring) only.

#![deny(unsafe_code)]

pub mod attach;
pub mod card;
pub mod cli;
pub mod config;
pub mod control;
pub mod descriptors;
pub mod doctor;
pub mod metrics;
pub mod mqtt;
pub mod run;
pub mod server;
pub mod stack;

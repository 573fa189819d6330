//! Real brokers, real clients, real failures: what the integration tests are made of.
//!
//! ```text
//! test ── Card    dpu-server run          ┐
//!      ── Broker  mosquitto, plain or     ├─ each a Process: own log file, ended by its pid, log shown on failure
//!                 with the library        │
//!      ── Client  MQTT by hand, bytes and all; Crowd: many of them in one loop
//!      ── Metrics, $SYS, /proc            what the three say about themselves
//! ```
//!
//! Tests run side by side: each has its own [`Folder`], its own ports, its own card. Waits poll with a deadline
//! ([`wait::until`]); none is a guess. A program that is missing skips the test loudly ([`needs!`]), or fails it under `CI=true`
//! or `MQTTSHIM_TEST_STRICT=1`.
//!
//! What runs is what `make build` made: `target/release`. Nothing here is built into any shipped program.

#![deny(unsafe_code)]

pub mod agent;
pub mod broker;
pub mod capture;
pub mod card;
pub mod compiler;
pub mod crowd;
pub mod differential;
pub mod echo;
pub mod folder;
pub mod lossy;
pub mod metrics;
pub mod mqtt;
pub mod namespace;
pub mod needs;
pub mod network;
pub mod overload;
pub mod parity;
pub mod paths;
pub mod ports;
pub mod process;
pub mod procfs;
pub mod random;
pub mod server;
pub mod soak;
pub mod trace;
pub mod wait;

pub use agent::Agent;
pub use broker::{Broker, BrokerSetup};
pub use card::Card;
pub use folder::Folder;
pub use mqtt::{Client, Login, Message, Packet, Version};
pub use process::Process;
pub use server::Server;

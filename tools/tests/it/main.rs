//! The command as its users run it: real processes, a real mosquitto, namespaces of the test's own.

#![allow(clippy::unwrap_used, reason = "a helper that fails must fail its test")]

mod bench;
mod command;
mod obstacles;
mod support;

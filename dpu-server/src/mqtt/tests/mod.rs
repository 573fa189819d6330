//! The core as a specification: what the card takes, what it leaves to the broker, and that nobody can tell.

mod acknowledged;
mod arrivals;
mod barriers;
mod decisions;
mod directly;
mod epochs;
mod exchanges;
mod late;
mod observe;
mod options;
mod packets;
mod permissions;
mod policy;
mod rules;
mod scene;
mod sessions;
mod simulation;
mod streams;
mod watching;

//! The differential oracle: one random scenario, played against the broker alone and against the broker on the card; what
//! each client received must be the same.
//!
//! ```text
//! seed ─► generate ─► Scenario ─┬─► play ─► broker alone     ─► Conversations ─┐
//!                               └─► play ─► broker on a card ─► Conversations ─┴─► compare ─► differences ─► shrink
//! ```
//!
//! The broker is the specification: nothing here knows what MQTT should do, except where MQTT leaves something open, which is
//! in `compare`. Everything follows from the seed but the timing. Bounds: a few dozen steps, a few hundred KiB between two
//! barriers, once in twenty scenarios a flood of 6 MB.

mod compare;
mod encode;
mod generate;
mod peer;
mod play;
mod record;
mod rig;
mod rng;
mod scenario;
mod shrink;

pub use compare::compare;
pub use generate::generate;
pub use play::{Conversation, client_id, play};
pub use record::{Event, Received};
pub use rig::{Outcome, Rig, SCENARIOS_PER_RIG};
pub use rng::Rng;
pub use scenario::{Action, Cut, Group, Mark, Post, Scenario, Step, WILLS_FROM};
pub use shrink::shrink;

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

mod brand;
mod compare;
mod coverage;
mod dynamic;
mod encode;
mod filter;
mod generate;
mod model;
mod oracle;
mod peer;
mod play;
mod policy;
mod record;
mod rig;
pub(crate) mod rng;
mod scenario;
mod shrink;
mod side;
mod terms;
mod trap;

pub use brand::Brand;
pub use compare::compare;
pub use coverage::Coverage;
pub use generate::generate;
pub use model::{Walk, walk};
pub use oracle::{Oracle, Summary};
pub use play::{Conversation, client_id};
pub use policy::{Policy, Rule, Verb};
pub use record::{Event, Received};
pub use rig::{Outcome, Rig};
pub use rng::Rng;
pub use scenario::{
    Action, Change, Cut, ECHOES_FROM, Group, Mark, Post, Scenario, Step, WILLS_FROM,
};
pub use shrink::shrink;
pub use terms::{SCENARIOS_PER_RIG, Terms, Trust};
pub use trap::{TRAPS, Trap};

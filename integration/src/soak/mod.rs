//! Faults in bulk: processes killed and stopped, memory overwritten, all at random moments under load, from one seed.
//!
//! ```text
//! seed ──► schedule ──► stage: card, agent, broker, a hostile program, clients that never rest
//!                         │ fault ──► repair ──► probe until it is served ──► ledger
//!                         └ end ──► what was left behind
//! ```
//!
//! A run is cut into stages of [`FAULTS_PER_STAGE`] faults, each with its own seed and everything new, so that a failure is
//! played again in seconds and not after an hour. Which faults come, and when, is the seed's; what the processes make of
//! it is the machine's.

mod garbage;
mod ledger;
mod load;
mod probe;
mod schedule;
mod stage;

pub use ledger::Ledger;
pub use schedule::{FAULTS_PER_STAGE, Fault, Schedule};
pub use stage::play;

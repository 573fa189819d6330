//! The real agent between real programs and a scripted card.
//!
//! ```text
//! program: Session, placeholders ──► Agent ──► in-process channel ──► Card, which does as it is told and finds fault
//! ```
//!
//! `world` runs agent and card in a thread, `stage` moves them by hand, `program` does what the preloaded library does.

mod attack;
mod card;
mod claiming;
mod endings;
mod hostile;
mod joining;
mod limits;
mod listeners;
mod policy;
mod program;
mod readiness;
mod stage;
mod streams;
mod world;

//! A wire that loses, repeats, delays and reorders, between the kernel's TCP/IP and a card's on AF_XDP: from a seed, in user space, because
//! what Linux has for it (sch_netem) is not in every kernel.
//!
//! ```text
//! client ─ kernel ─ mq0 ═ mw0 ─ AF_XDP ─ [Wire: Faults, seed] ─ AF_XDP ─ mw1 ═ mq1 ─ AF_XDP ─ card
//! ```
//!
//! | | |
//! |---|---|
//! | [`faults`] | what becomes of frame n; pure |
//! | [`checksum`] | what a network interface would have added; pure |
//! | [`wire`] | the frames |

pub mod checksum;
pub mod faults;
pub mod wire;

pub use self::faults::{Faults, Way};
pub use self::wire::Wire;

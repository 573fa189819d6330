//! Random socket programs: each runs on the kernel's sockets and on the card's, and both traces must be the same text.
//!
//! ```text
//! seed ─► generate ─► Program ─┬─ interpreter, natively ─────────────► trace ┐
//!                              └─ interpreter, preloaded, with a card ► trace ┴─ a difference ─► shrink ─► a replay command
//! ```
//!
//! The kernel is the specification. A program is lines of text, which the interpreter (`random/*.c`) explains and runs: any
//! sequence of steps is a program, so a failing one is made smaller by leaving steps out. Everything follows from the seed but
//! the timing, which the interpreter keeps out of the traces. Bounds: 60 steps, 8 descriptors, 2 epoll sets, 4 clients, one child.

mod generate;
mod program;
mod run;
mod shrink;

pub use generate::generate;
pub use program::Program;
pub use run::{Mode, Played, Rig};
pub use shrink::shrink;

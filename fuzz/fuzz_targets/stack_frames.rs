//! Clients that send the card's TCP/IP anything: segments in any order with any numbers, flags and options, spoilt frames, noise, ARP,
//! neighbour discovery, pings, and tales of routers; and a program that reads, writes, delivers to all at once, shuts and closes when
//! it likes. The stack never panics, and
//!
//! - every frame it sends is whole, with right lengths and checksums, from its own addresses, no longer than the link carries;
//! - what the program reads is what a client sent, in order, from its first byte on; what clients are sent is what the program wrote;
//! - it comes to rest by itself, and when the program has let go of everything, nothing is left.
//!
//! A case is some frames on a clock of its own.

#![no_main]

#[path = "stack_frames/checks.rs"]
mod checks;
#[path = "stack_frames/choices.rs"]
mod choices;
#[path = "stack_frames/frames.rs"]
mod frames;
#[path = "stack_frames/stage.rs"]
mod stage;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut choices = choices::Choices::new(input);
    let mut stage = stage::Stage::new(&mut choices);
    while !choices.are_over() {
        stage.play(&mut choices);
    }
    stage.end();
});

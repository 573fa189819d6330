//! A program that writes what it likes over its session's memory and control socket: the agent never panics, comes to rest,
//! tells the card nothing that the card may not be told, and serves another program as if nothing had happened.
//!
//! The input is the tape of `shim/agent/tests/seam/attack.rs`, which the tests of that crate play too, at random.
//! `cargo +nightly fuzz run session_ring -- -max_len=1024 -max_total_time=60`

#![no_main]
#![allow(dead_code, reason = "the seam's tests use more of these modules than this does")]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;

#[path = "../../shim/agent/tests/seam/attack.rs"]
mod attack;
#[path = "../../shim/agent/tests/seam/card.rs"]
mod card;
#[path = "../../shim/agent/tests/seam/program.rs"]
mod program;
#[path = "../../shim/agent/tests/seam/stage.rs"]
mod stage;

/// One agent for all inputs: what one session left behind would hurt those after it.
struct World {
    good: attack::Good,
    stage: stage::Stage,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let mut stage = stage::Stage::new(&folder.path().join("session.sock"), 64, stage::QUEUE);
        let good = attack::Good::new(&mut stage);
        World { good, stage, _folder: folder }
    }
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fuzz_target!(|tape: &[u8]| {
    WORLD.with_borrow_mut(|world| {
        let World { good, stage, .. } = world.get_or_insert_with(World::new);
        attack::play(tape, stage, good);
    });
});

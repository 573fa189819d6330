//! Programs that obey nothing, from random tapes; and what such a program might aim at, by name.
//!
//! A failing tape is kept in `proptest-regressions` and tried first from then on.

use proptest::prelude::*;

use crate::attack::{Good, play};
use crate::stage::{QUEUE, Stage};

fn stage() -> (tempfile::TempDir, Stage) {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = Stage::new(&folder.path().join("session.sock"), 64, QUEUE);
    (folder, stage)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_tape_hurts_the_agent_or_another_program(
        tapes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..6)
    ) {
        let (_folder, mut stage) = stage();
        let good = Good::new(&mut stage);
        for tape in tapes {
            play(&tape, &mut stage, &good);
        }
    }
}

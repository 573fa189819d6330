//! Random socket programs behave the same on the kernel's sockets and on the card's. See `mqttshim_integration::random`.
//!
//! `MQTTSHIM_PROGRAM_SEED=n` runs the program of one seed, `MQTTSHIM_PROGRAMS=n` those of so many seeds from there on (from 1 if
//! none is said), `MQTTSHIM_PROGRAM_FILE=path` the one in a file. Without any: as many as fit the time.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::time::{Duration, Instant};

use mqttshim_integration::needs;
use mqttshim_integration::random::{Mode, Program, Rig, generate, shrink};

/// For all programs on the card, unless their number is said.
const TIME: Duration = Duration::from_secs(12);
/// Programs that share a process.
const PROGRAMS_PER_PROCESS: u64 = 40;
/// Processes that share a card.
const PROCESSES_PER_CARD: u64 = 50;
/// For making a failing program smaller.
const SHRINK_TIME: Duration = Duration::from_secs(60);
/// A smaller program fails if it does in one of so many attempts: some failures depend on timing.
const ATTEMPTS: usize = 3;

#[test]
fn random_programs_end_the_same_on_the_card() {
    run(Mode::Card, TIME);
}

#[test]
fn random_programs_end_the_same_on_the_card_when_every_wait_is_the_kernel_s() {
    run(Mode::Wire, TIME);
}

#[test]
fn random_programs_end_the_same_on_the_kernel_twice() {
    run(Mode::Kernel, TIME / 4);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

fn run(mode: Mode, time: Duration) {
    needs!("cc");
    if let Some(path) = std::env::var_os("MQTTSHIM_PROGRAM_FILE") {
        let program = Program::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        return check(mode, &Rig::start(mode), &[program]);
    }
    let said = number("MQTTSHIM_PROGRAM_SEED");
    let count = number("MQTTSHIM_PROGRAMS").or(said.map(|_| 1));
    let first = said.unwrap_or(1);
    let (mut played, mut processes) = (0, 0);
    let mut rig = Rig::start(mode);
    // Only now: the interpreter may have had to be compiled.
    let start = Instant::now();
    while count.map_or(start.elapsed() < time, |count| played < count) {
        let share =
            count.map_or(PROGRAMS_PER_PROCESS, |count| (count - played).min(PROGRAMS_PER_PROCESS));
        let programs: Vec<Program> =
            (first + played..first + played + share).map(generate).collect();
        if processes == PROCESSES_PER_CARD {
            (rig, processes) = (Rig::start(mode), 0);
        }
        check(mode, &rig, &programs);
        played += share;
        processes += 1;
        if played % 1000 < share {
            eprintln!(
                "random, {mode:?}: {played} programs, {:.0} s",
                start.elapsed().as_secs_f64()
            );
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    eprintln!(
        "random, {mode:?}: seeds {first} to {}, {seconds:.1} s, no difference",
        first + played - 1
    );
}

/// Runs programs in one process; a difference is told as briefly as it can be made, with how to see it again.
#[track_caller]
fn check(mode: Mode, rig: &Rig, programs: &[Program]) {
    let played = rig.play(programs);
    let Some(index) = played.iter().position(|it| !it.difference().is_empty()) else { return };
    let (program, seen) = (&programs[index], &played[index]);
    let fails = |rig: &Rig, program: &Program| {
        (0..ATTEMPTS).any(|_| !rig.play(std::slice::from_ref(program))[0].difference().is_empty())
    };
    let rig = Rig::start(mode);
    let (small, seeds) = if fails(&rig, program) {
        let small = shrink(program, SHRINK_TIME, |smaller| fails(&rig, smaller));
        (small, format!("MQTTSHIM_PROGRAM_SEED={}", program.seed))
    } else {
        // Alone on a new card it did not: it takes what ran before, or luck.
        let (first, count) = (programs[0].seed, index + 1);
        (program.clone(), format!("MQTTSHIM_PROGRAM_SEED={first} MQTTSHIM_PROGRAMS={count}"))
    };
    let last = rig.play(std::slice::from_ref(&small)).remove(0);
    let last = if last.difference().is_empty() { seen } else { &last };
    panic!(
        "the kernel (-) and the card (+) differ:\n{}\nas first run:\n{}\n{small}\non the kernel:\n{}\n\
         {seeds} cargo nextest run -p mqttshim-integration --test random\n\
         or, with the program above in a file: MQTTSHIM_PROGRAM_FILE=path",
        last.difference(),
        seen.difference(),
        last.native,
    );
}

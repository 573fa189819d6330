//! Faults in bulk. See `mqttshim_integration::soak`.
//!
//! `MQTTSHIM_FAULTS=n` plays so many faults, `MQTTSHIM_FAULT_SEED=n` begins with that seed; a failing stage says the two with
//! which it alone is played again.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::time::{Duration, Instant};

use mqttshim_integration::needs;
use mqttshim_integration::soak::{FAULTS_PER_STAGE, Ledger, Schedule, play};

/// What `make test` plays.
const FAULTS: usize = 30;
/// Within which service is back.
const RECOVERY_MAX: Duration = Duration::from_secs(2);

/// Says how to play a stage again, if it fails.
struct Replay<'a>(&'a Schedule);

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Schedule { seed, faults, .. } = self.0;
            let count = faults.len();
            eprintln!(
                "play it again: MQTTSHIM_FAULT_SEED={seed} MQTTSHIM_FAULTS={count} cargo nextest run -p mqttshim-integration soak"
            );
        }
    }
}

#[test]
fn soak_service_comes_back_after_every_fault_and_nothing_is_left_behind() {
    needs!("mosquitto", "mosquitto_sub", "cc");
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let mut left =
        number("MQTTSHIM_FAULTS").map_or(FAULTS, |count| usize::try_from(count).unwrap());
    let mut seed = number("MQTTSHIM_FAULT_SEED").unwrap_or(1);
    let start = Instant::now();
    let mut ledger = Ledger::default();
    while left > 0 {
        let count = left.min(FAULTS_PER_STAGE);
        let schedule = Schedule::of(seed, count);
        let replay = Replay(&schedule);
        let stage = play(&schedule);
        eprintln!(
            "seed {seed}: {count} faults, {:.0} s in all\n{stage}",
            start.elapsed().as_secs_f64()
        );
        assert!(
            stage.slowest() <= RECOVERY_MAX,
            "seed {seed}: {:?} without service",
            stage.slowest()
        );
        drop(replay);
        ledger.add(stage);
        left -= count;
        seed += 1;
    }
    eprintln!("{} faults in {:.0} s\n{ledger}", ledger.faults(), start.elapsed().as_secs_f64());
}

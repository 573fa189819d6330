//! In which order targets are measured, and when to stop early.
//!
//! Targets take turns in short slices, so that whatever disturbs the machine hits all of them; the order turns round
//! every time, so that nobody always runs after the same neighbour: `A B C`, `C B A`, `A B C`, …

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// One slice of the plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slice {
    /// Which target.
    pub(crate) target: usize,
    /// Which round; warm-up slices come in rounds of their own and are not counted.
    pub(crate) round: usize,
    /// How long.
    pub(crate) length: Duration,
    /// Warm-up: its figures are dropped.
    pub(crate) warmup: bool,
}

/// The whole plan for one measurement: each target runs `duration` in slices of about `slice`.
pub(crate) fn plan(
    targets: usize,
    warmup: Duration,
    duration: Duration,
    slice: Duration,
) -> Vec<Slice> {
    let mut slices = Vec::new();
    for target in 0..targets {
        if !warmup.is_zero() {
            slices.push(Slice { target, round: 0, length: warmup, warmup: true });
        }
    }
    let rounds = (duration.as_secs_f64() / slice.as_secs_f64()).round().clamp(1.0, 10_000.0);
    let length = duration.div_f64(rounds);
    let mut round = 0;
    while (round as f64) < rounds {
        for turn in 0..targets {
            let target = if round % 2 == 0 { turn } else { targets - 1 - turn };
            slices.push(Slice { target, round, length, warmup: false });
        }
        round += 1;
    }
    slices
}

/// Set when the user wants to stop: SIGINT or SIGTERM.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Catches SIGINT and SIGTERM from now on.
    pub(crate) fn on_signals() -> Result<Stop> {
        let stop = Stop::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0)).context("signal handler")?;
        }
        Ok(stop)
    }

    /// Fails once a signal came.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("stopped by a signal");
        }
        Ok(())
    }

    /// Asks to stop, as a signal does.
    pub(crate) fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether to stop.
    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_turns_round_every_time() {
        let plan = plan(3, Duration::ZERO, Duration::from_secs(4), Duration::from_secs(1));
        let order: Vec<_> = plan.iter().map(|slice| slice.target).collect();
        assert_eq!(order, [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]);
    }

    #[test]
    fn every_target_gets_exactly_the_duration_and_its_own_warmup() {
        let duration = Duration::from_millis(2600);
        let plan = plan(2, Duration::from_secs(1), duration, Duration::from_secs(1));
        for target in 0..2 {
            let counted = plan.iter().filter(|slice| slice.target == target && !slice.warmup);
            let total: Duration = counted.map(|slice| slice.length).sum();
            assert!(total.abs_diff(duration) < Duration::from_micros(1), "{total:?}");
            assert_eq!(plan.iter().filter(|s| s.target == target && s.warmup).count(), 1);
        }
    }

    #[test]
    fn a_duration_below_a_slice_is_one_slice() {
        let plan = plan(1, Duration::ZERO, Duration::from_millis(100), Duration::from_secs(1));
        assert_eq!(plan.len(), 1);
        assert_eq!(plan[0].length, Duration::from_millis(100));
    }
}

//! Many seeds: several rigs side by side, each for a stretch of seeds; what differs is examined, made small and told.
//!
//! ```text
//! seeds ─► stretch of a rig ─► worker: play, compare ─► the same: counted
//!                                                    └► differs ─► from itself, both alone? ─► left open by the broker: counted
//!                                                                                          └► no: shrink, command to see it again
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::coverage::{Coverage, Reasons, reasons};
use super::model::walk;
use super::rig::{Outcome, Rig};
use super::scenario::Scenario;
use super::terms::{SCENARIOS_PER_RIG, Terms};
use super::{generate, shrink};
use crate::paths;

/// For making a failing scenario smaller.
const SHRINK_TIME: Duration = Duration::from_secs(60);
/// A smaller scenario fails if it does in one of so many attempts: some failures depend on timing.
const ATTEMPTS: usize = 2;
/// Attempts of a broker alone to differ from itself. One that delivers when it likes gets more.
const ATTEMPTS_ALONE: usize = 3;
const ATTEMPTS_ALONE_LATE: usize = 8;
/// Between two lines about how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Oracle {
    /// The broker and the card's trust.
    pub terms: Terms,
    /// First seed.
    pub first: u64,
    /// How many seeds; `None`: as many as fit `time`.
    pub count: Option<u64>,
    /// For all of them, if their number is not said.
    pub time: Duration,
    /// Rigs side by side.
    pub workers: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Summary {
    /// Scenarios played.
    pub played: u64,
    /// Where and how long.
    pub headline: String,
    /// What they walked into.
    pub coverage: Coverage,
    /// Copies the cards dropped.
    pub dropped: f64,
    /// The seed that took longest, and how long.
    pub slowest: (Duration, u64),
    /// Seeds of which the broker alone differs from itself, and where.
    pub open: Vec<(u64, String)>,
}

/// One run of it.
struct Run {
    oracle: Oracle,
    start: Instant,
    next: AtomicU64,
    is_over: AtomicBool,
    summary: Mutex<Summary>,
    failure: Mutex<Option<String>>,
}

impl Oracle {
    /// Plays all seeds.
    ///
    /// # Errors
    /// With the report of a scenario in which the runs differ, and with its command.
    ///
    /// # Panics
    /// If a program does not come up, or sends what is no MQTT.
    pub fn run(self) -> Result<Summary, String> {
        let run = Run {
            oracle: self,
            start: Instant::now(),
            next: AtomicU64::new(self.first),
            is_over: AtomicBool::new(false),
            summary: Mutex::default(),
            failure: Mutex::default(),
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.workers).map(|_| scope.spawn(|| run.work())).collect();
            run.tell_progress(|| workers.iter().all(|worker| worker.is_finished()));
        });
        if let Some(report) = run.failure.into_inner().expect("no worker panicked") {
            return Err(report);
        }
        let mut summary = run.summary.into_inner().expect("no worker panicked");
        let Terms { brand, trust } = self.terms;
        summary.headline = format!(
            "{brand}, trust {trust}: {} seeds from {}, {:.0} s, the slowest seed {} with {:.1} s",
            summary.played,
            self.first,
            run.start.elapsed().as_secs_f64(),
            summary.slowest.1,
            summary.slowest.0.as_secs_f64(),
        );
        self.keep(&summary);
        Ok(summary)
    }

    /// Leaves the table in `target/oracle`.
    fn keep(&self, summary: &Summary) {
        let Terms { brand, trust } = self.terms;
        let folder: PathBuf = paths::target().join("oracle");
        std::fs::create_dir_all(&folder).expect("cargo's folder takes folders");
        let mut text = format!("# {}\n\n{}", summary.headline, summary.coverage);
        for (seed, differences) in &summary.open {
            let _ = write!(text, "\nSeed {seed}: the broker differs from itself:\n{differences}\n");
        }
        let path = folder.join(format!("{brand}-{trust}.md"));
        std::fs::write(path, text).expect("cargo's folder takes files");
    }

    fn command(&self, seeds: &str) -> String {
        let Terms { brand, trust } = self.terms;
        format!(
            "MQTTSHIM_BROKER={brand} MQTTSHIM_TRUST={trust} {seeds} \
             cargo nextest run -p mqttshim-integration --test differential oracle"
        )
    }
}

impl Run {
    fn work(&self) {
        while let Some((from, to)) = self.take() {
            let mut rig = Rig::start(self.oracle.terms, from);
            let mut before = Reasons::new();
            for seed in from..to {
                if self.is_over() {
                    break;
                }
                if let Err(report) = self.play(&mut rig, seed, from, &mut before) {
                    self.failure.lock().expect("no worker panicked").get_or_insert(report);
                    self.is_over.store(true, Ordering::Relaxed);
                }
            }
            let dropped = rig.dropped();
            self.summary.lock().expect("no worker panicked").dropped += dropped;
        }
    }

    /// The next stretch of seeds that may share a rig.
    fn take(&self) -> Option<(u64, u64)> {
        let end = self.oracle.count.map(|count| self.oracle.first + count);
        let stretch = |from: u64| {
            let to = (from / SCENARIOS_PER_RIG + 1) * SCENARIOS_PER_RIG;
            let to = end.map_or(to, |end| to.min(end));
            (from < to && !self.is_over()).then_some(to)
        };
        let order = Ordering::Relaxed;
        let from = self.next.fetch_update(order, order, stretch).ok()?;
        Some((from, stretch(from)?))
    }

    fn is_over(&self) -> bool {
        let is_late = self.oracle.count.is_none() && self.start.elapsed() >= self.oracle.time;
        is_late || self.is_over.load(Ordering::Relaxed)
    }

    fn play(
        &self,
        rig: &mut Rig,
        seed: u64,
        from: u64,
        before: &mut Reasons,
    ) -> Result<(), String> {
        let terms = self.oracle.terms;
        let scenario = generate(seed, terms);
        let start = Instant::now();
        let outcome = rig.play(&scenario);
        let took = start.elapsed();
        let command = self.oracle.command(&format!("MQTTSHIM_SEED={seed}"));
        let outcome =
            outcome.map_err(|error| format!("seed {seed}: no clean end: {error}\n{command}"))?;
        let is_same = outcome.differences.is_empty() && !outcome.is_silent();
        let open = match is_same {
            true => None,
            false => Some(self.examine(&scenario, &outcome, from)?),
        };
        let mut summary = self.summary.lock().expect("no worker panicked");
        summary.played += 1;
        summary.slowest = summary.slowest.max((took, seed));
        summary.open.extend(open.map(|differences| (seed, differences)));
        drop(summary);
        let now = reasons(&rig.metrics());
        let decided = now
            .iter()
            // A card that was started again counts from nothing.
            .map(|(reason, count)| {
                let known = before.get(reason).copied().unwrap_or_default();
                (reason.clone(), if *count < known { *count } else { count - known })
            })
            .collect();
        *before = now;
        let walk = walk(&scenario, terms);
        self.summary.lock().expect("no worker panicked").coverage.add(&walk, &decided);
        Ok(())
    }

    /// Whose difference it is: the broker's, which differs from itself too, or ours, which is told.
    fn examine(&self, scenario: &Scenario, outcome: &Outcome, from: u64) -> Result<String, String> {
        let terms = self.oracle.terms;
        if outcome.is_silent() {
            // Whatever the other one did, this is nothing to compare it with.
            return Ok(format!("alone, it did not answer:\n{}", outcome.differences.join("\n")));
        }
        let mut alone = Rig::start_alone(terms, scenario.seed);
        let attempts =
            if terms.brand.is_mosquitto() { ATTEMPTS_ALONE } else { ATTEMPTS_ALONE_LATE };
        for _ in 0..attempts {
            if let Ok(outcome) = alone.play(scenario)
                && !outcome.differences.is_empty()
            {
                return Ok(outcome.differences.join("\n"));
            }
        }
        // In something else a smaller scenario may differ by what the broker leaves open.
        let known: BTreeSet<&str> = outcome.differences.iter().map(|it| subject(it)).collect();
        let is_known = |outcome: &Outcome| {
            outcome.differences.iter().any(|difference| known.contains(subject(difference)))
        };
        let fails = |rig: &mut Rig, scenario: &Scenario| {
            let mut differs = || rig.play(scenario).is_ok_and(|outcome| is_known(&outcome));
            (0..ATTEMPTS).any(|_| differs())
        };
        let mut rig = Rig::start(terms, scenario.seed);
        let (small, seeds) = if fails(&mut rig, scenario) {
            let small = shrink(scenario, SHRINK_TIME, |smaller| fails(&mut rig, smaller));
            (small, format!("MQTTSHIM_SEED={}", scenario.seed))
        } else {
            // Alone on new brokers it did not: it takes what was played before, or luck.
            let count = scenario.seed - from + 1;
            (scenario.clone(), format!("MQTTSHIM_SEED={from} MQTTSHIM_SEEDS={count}"))
        };
        let last = rig.play(&small).ok().filter(is_known);
        Err(format!(
            "the runs differ:\n{}\n\nas first played:\n{}\n\n{small}\n{}\n{}",
            last.as_ref().unwrap_or(outcome).differences.join("\n"),
            outcome.differences.join("\n"),
            last.as_ref().unwrap_or(outcome).involved(),
            self.oracle.command(&seeds),
        ))
    }

    fn tell_progress(&self, is_done: impl Fn() -> bool) {
        let mut told = self.start;
        while !is_done() {
            std::thread::sleep(Duration::from_millis(50));
            if told.elapsed() < PROGRESS {
                continue;
            }
            told = Instant::now();
            let summary = self.summary.lock().expect("no worker panicked");
            let of = self.oracle.count.map_or(String::new(), |count| format!(" of {count}"));
            eprintln!(
                "oracle: {}{of} seeds, {:.0} s, the card distributed {:.0} % of the eligible",
                summary.played,
                self.start.elapsed().as_secs_f64(),
                100.0 * summary.coverage.share(),
            );
        }
    }
}

/// What a difference is about: a client, and what of it. Connections are fewer in a smaller scenario, and so are numbered otherwise.
fn subject(difference: &str) -> &str {
    let start = difference.find("(client ").unwrap_or(0);
    let about = &difference[start..];
    about.split_once(": ").map_or(about, |(about, _)| about)
}

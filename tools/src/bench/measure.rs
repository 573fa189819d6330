//! What both measurements share: the targets' costs, slice by slice, and the sorted latencies.

use anyhow::{Context, Result};
use serde::Serialize;

use super::cpu::{self, Cost, Subject};
use super::target::Target;

/// A target with everything needed to measure it.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    /// Name, address, processes.
    pub(crate) target: Target,
    /// Whose CPU time is its cost, with the name the report gives it.
    pub(crate) subjects: Vec<(String, Subject)>,
}

impl Contestant {
    /// A target whose processes exist.
    pub(crate) fn new(target: Target) -> Result<Contestant> {
        let mut subjects = Vec::new();
        for &pid in &target.pids {
            let name = cpu::name(pid)
                .with_context(|| format!("{}: there is no process {pid}", target.name))?;
            subjects.push((name, Subject::Process(pid)));
        }
        Ok(Contestant { target, subjects })
    }

    /// A target that is a thread of this program.
    pub(crate) fn of_thread(target: Target, thread: u32) -> Contestant {
        Contestant { target, subjects: vec![("thread".to_owned(), Subject::OwnThread(thread))] }
    }

    /// What its subjects have cost so far.
    pub(crate) fn costs(&self) -> Result<Vec<Cost>> {
        let read = |(name, subject): &(String, Subject)| {
            cpu::read(*subject).with_context(|| format!("{}: {name} is gone", self.target.name))
        };
        self.subjects.iter().map(read).collect()
    }
}

/// What one process spent during the counted slices.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Spent {
    /// Process name.
    pub(crate) process: String,
    /// Sum over the slices.
    #[serde(flatten)]
    pub(crate) cost: Cost,
}

/// Adds up costs between the start and the end of slices.
#[derive(Debug)]
pub(crate) struct Meter {
    before: Vec<Cost>,
    total: Vec<Cost>,
}

impl Meter {
    /// Nothing spent.
    pub(crate) fn new(contestant: &Contestant) -> Meter {
        let zero = vec![Cost::default(); contestant.subjects.len()];
        Meter { before: zero.clone(), total: zero }
    }

    /// A slice starts.
    pub(crate) fn start(&mut self, contestant: &Contestant) -> Result<()> {
        self.before = contestant.costs()?;
        Ok(())
    }

    /// A slice ends; its cost counts if `counted`.
    pub(crate) fn stop(&mut self, contestant: &Contestant, counted: bool) -> Result<()> {
        for (index, now) in contestant.costs()?.into_iter().enumerate() {
            if counted {
                self.total[index].add(now.since(self.before[index]));
            }
        }
        Ok(())
    }

    /// The sums.
    pub(crate) fn spent(&self, contestant: &Contestant) -> Vec<Spent> {
        let names = contestant.subjects.iter().map(|(name, _)| name.clone());
        names.zip(&self.total).map(|(process, &cost)| Spent { process, cost }).collect()
    }
}

/// A distribution of latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Number of samples.
    pub(crate) count: usize,
    /// Smallest.
    pub(crate) min_ns: u64,
    /// Half are at most this.
    pub(crate) p50_ns: u64,
    /// 90 % are at most this.
    pub(crate) p90_ns: u64,
    /// 99 % are at most this.
    pub(crate) p99_ns: u64,
    /// Largest.
    pub(crate) max_ns: u64,
}

/// Summarises `samples`, exactly: nearest rank, no buckets.
pub(crate) fn summarise(samples: &mut [u64]) -> Summary {
    samples.sort_unstable();
    let Some((&max_ns, &min_ns)) = samples.last().zip(samples.first()) else {
        return Summary::default();
    };
    let rank = |percent: usize| samples[(samples.len() * percent).div_ceil(100).max(1) - 1];
    Summary {
        count: samples.len(),
        min_ns,
        p50_ns: rank(50),
        p90_ns: rank(90),
        p99_ns: rank(99),
        max_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut samples: Vec<u64> = (1..=200).rev().collect();
        let summary = summarise(&mut samples);
        assert_eq!((summary.min_ns, summary.max_ns, summary.count), (1, 200, 200));
        assert_eq!((summary.p50_ns, summary.p90_ns, summary.p99_ns), (100, 180, 198));
    }

    #[test]
    fn one_sample_is_every_percentile_and_none_is_zero() {
        let one = summarise(&mut [7]);
        assert_eq!((one.min_ns, one.p50_ns, one.p99_ns, one.max_ns), (7, 7, 7, 7));
        assert_eq!(summarise(&mut []), Summary::default());
    }
}

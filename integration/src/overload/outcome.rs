//! What came of a flood.

use std::time::{Duration, Instant};

use crate::procfs;

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// What one reader got.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// Messages.
    pub received: u64,
    /// Messages before the first one that is missing.
    pub whole: u64,
    /// From PUBLISH to arrival, of what arrived during the flood.
    pub delays: Vec<Duration>,
}

/// The memory of processes.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Process, what it had at first, and the most it had since.
    processes: Vec<(u32, u64, u64)>,
    next: Instant,
}

impl Watch {
    /// Of these processes.
    #[must_use]
    pub fn on(pids: &[u32]) -> Watch {
        let processes = pids.iter().map(|&pid| (pid, 0, 0)).collect();
        Watch { processes, next: Instant::now() }
    }

    /// What they have now is what they need anyway.
    pub(super) fn begin(&mut self) {
        for (pid, first, peak) in &mut self.processes {
            *first = procfs::resident_bytes(*pid);
            *peak = *first;
        }
    }

    pub(super) fn look(&mut self) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + LOOK;
            for (pid, _, peak) in &mut self.processes {
                *peak = (*peak).max(procfs::resident_bytes(*pid));
            }
        }
    }

    pub(super) fn peaks(&self) -> Vec<u64> {
        self.processes.iter().map(|(_, first, peak)| peak - first).collect()
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Messages published.
    pub published: u64,
    /// How long the flood took.
    pub length: Duration,
    /// By how many bytes each watched process grew at most.
    pub grown_bytes: Vec<u64>,
    /// Readers that keep up.
    pub quick: Vec<Share>,
    /// Readers that do not.
    pub slow: Vec<Share>,
}

impl Outcome {
    pub(super) fn new(published: u64, length: Duration, grown_bytes: Vec<u64>) -> Outcome {
        Outcome { published, length, grown_bytes, quick: Vec::new(), slow: Vec::new() }
    }

    /// Messages the slow readers did not get.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.slow.iter().map(|share| self.published - share.received).sum()
    }

    /// Messages before the first one that a slow reader misses, of the one that misses first.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.slow.iter().map(|share| share.whole).min().unwrap_or(0)
    }

    /// The delay that one in a hundred messages of the quick readers exceeds.
    #[must_use]
    pub fn p99(&self) -> Duration {
        let mut delays: Vec<Duration> =
            self.quick.iter().flat_map(|share| share.delays.iter().copied()).collect();
        delays.sort_unstable();
        delays.get(delays.len() * 99 / 100).copied().unwrap_or_default()
    }
}

//! What a run saw: how long service was away after each kind of fault, and what else is counted.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    recoveries: BTreeMap<&'static str, Vec<Duration>>,
    /// Broker processes that died of their own ruined session.
    pub brokers_ruined: usize,
    /// Stretches in which the broker's CPU time was looked at, and the longest of it.
    pub idle_looks: usize,
    /// The most CPU time of the broker in one of them, above what it takes at rest.
    pub idle_excess_max: Duration,
    /// Messages that arrived at subscribers.
    pub messages: u64,
    /// Clients that came and went.
    pub visits: u64,
    /// What stayed behind at the ends of stages, in words.
    pub rests: Vec<String>,
}

impl Ledger {
    /// Service was back this long after the repair of a fault.
    pub fn recovered(&mut self, kind: &'static str, time: Duration) {
        self.recoveries.entry(kind).or_default().push(time);
    }

    /// Faults so far.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.recoveries.values().map(Vec::len).sum()
    }

    /// The longest recovery.
    #[must_use]
    pub fn slowest(&self) -> Duration {
        self.recoveries.values().flatten().max().copied().unwrap_or_default()
    }

    /// Takes in what another stage saw.
    pub fn add(&mut self, other: Ledger) {
        for (kind, times) in other.recoveries {
            self.recoveries.entry(kind).or_default().extend(times);
        }
        self.brokers_ruined += other.brokers_ruined;
        self.idle_looks += other.idle_looks;
        self.idle_excess_max = self.idle_excess_max.max(other.idle_excess_max);
        self.messages += other.messages;
        self.visits += other.visits;
        self.rests.extend(other.rests);
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<24}{:>6}{:>10}{:>10}{:>10}   ms", "fault", "times", "p50", "p99", "max")?;
        let mut all = Vec::new();
        for (kind, times) in &self.recoveries {
            row(f, kind, times)?;
            all.extend_from_slice(times);
        }
        row(f, "all", &all)?;
        writeln!(
            f,
            "{} messages and {} visits meanwhile; the broker's CPU looked at {} times at rest, at most {:?} above its idle figure; {} brokers died of their own ruined session",
            self.messages, self.visits, self.idle_looks, self.idle_excess_max, self.brokers_ruined
        )?;
        self.rests.iter().try_for_each(|rest| writeln!(f, "{rest}"))
    }
}

fn row(f: &mut fmt::Formatter<'_>, kind: &str, times: &[Duration]) -> fmt::Result {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |share: usize| {
        let place = (sorted.len() * share).div_ceil(100).saturating_sub(1);
        sorted.get(place).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    writeln!(f, "{kind:<24}{:>6}{:>10.1}{:>10.1}{:>10.1}", sorted.len(), at(50), at(99), at(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_ranks() {
        let mut ledger = Ledger::default();
        for number in 1..=100 {
            ledger.recovered("x", Duration::from_millis(number));
        }
        assert_eq!(ledger.slowest(), Duration::from_millis(100));
        let text = ledger.to_string();
        for word in ["50.0", "99.0", "100.0"] {
            assert!(text.contains(word), "{text}");
        }
    }
}

//! What many scenarios walked into together, and who distributed their PUBLISHes; as a table.

use std::collections::BTreeMap;
use std::fmt;

use super::model::Walk;
use super::trap::Trap;
use crate::metrics::Metrics;

/// PUBLISHes that the card took have this reason.
const BY_CARD: &str = "all_rules_hold";

/// PUBLISHes by the reason of the card's decision.
pub(super) type Reasons = BTreeMap<String, f64>;

/// Reads them off a card.
#[must_use]
pub(super) fn reasons(metrics: &Metrics) -> Reasons {
    let mut reasons = Reasons::new();
    for line in metrics.text_of("mqttshim_publish_total{").lines() {
        let reason = line.split_once("reason=\"").and_then(|(_, rest)| rest.split_once('"'));
        let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
        if let (Some((reason, _)), Some(value)) = (reason, value) {
            *reasons.entry(reason.to_owned()).or_default() += value;
        }
    }
    reasons
}

/// One line of the table.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    scenarios: usize,
    /// PUBLISHes that walked into it, by the model.
    publishes: usize,
    /// Of all PUBLISHes in these scenarios.
    by_card: f64,
    by_broker: f64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    scenarios: usize,
    publishes: usize,
    eligible: usize,
    /// Of the eligible, as many as the card distributed: of one scenario's never more than there were.
    taken: f64,
    reasons: Reasons,
    rows: BTreeMap<Trap, Row>,
}

impl Coverage {
    /// Adds one scenario and what the card decided in it.
    pub(super) fn add(&mut self, walk: &Walk, decided: &Reasons) {
        self.scenarios += 1;
        self.publishes += walk.publishes;
        self.eligible += walk.eligible;
        let card = decided.get(BY_CARD).copied().unwrap_or_default();
        let broker = decided.values().sum::<f64>() - card;
        self.taken += card.min(count(walk.eligible));
        for (reason, count) in decided {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
        for (&trap, publishes) in &walk.traps {
            let row = self.rows.entry(trap).or_default();
            row.scenarios += 1;
            row.publishes += publishes;
            row.by_card += card;
            row.by_broker += broker;
        }
    }

    /// PUBLISHes the card distributed.
    #[must_use]
    pub fn by_card(&self) -> f64 {
        self.reasons.get(BY_CARD).copied().unwrap_or_default()
    }

    /// What share of the PUBLISHes the model calls eligible the card distributed; 1 if there were none. What it distributed beyond
    /// them, in races that the model does not judge, does not make up for others.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.eligible == 0 { 1.0 } else { self.taken / count(self.eligible) }
    }

    /// Traps that no scenario reached though some should.
    #[must_use]
    pub fn missing(&self) -> Vec<Trap> {
        Trap::all()
            .filter(|trap| trap.elsewhere().is_empty() && !self.rows.contains_key(trap))
            .collect()
    }
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

/// Markdown.
impl fmt::Display for Coverage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{} scenarios, {} PUBLISHes, {} of them eligible; the card distributed {}, of the eligible {} ({:.0} %)\n",
            self.scenarios,
            self.publishes,
            self.eligible,
            self.by_card(),
            self.taken,
            100.0 * self.share(),
        )?;
        writeln!(
            out,
            "| trap | | scenarios | its PUBLISHes | by card in them | by broker in them | to the broker because of it |"
        )?;
        writeln!(out, "|---:|---|---:|---:|---:|---:|---|")?;
        for trap in Trap::all() {
            let Some(row) = self.rows.get(&trap) else {
                let why = match trap.elsewhere() {
                    "" => "**not reached**",
                    elsewhere => elsewhere,
                };
                writeln!(out, "| {} | {} | {why} | | | | |", trap.0, trap.name())?;
                continue;
            };
            let because: Vec<String> = trap
                .reasons()
                .iter()
                .filter_map(|&reason| Some(format!("{reason} {}", self.reasons.get(reason)?)))
                .collect();
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} |",
                trap.0,
                trap.name(),
                row.scenarios,
                row.publishes,
                row.by_card,
                row.by_broker,
                because.join(", "),
            )?;
        }
        writeln!(out, "\n| reason | PUBLISHes |\n|---|---:|")?;
        for (reason, count) in self.reasons.iter().filter(|(_, count)| **count > 0.0) {
            writeln!(out, "| {reason} | {count} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trap_counts_the_scenarios_that_reach_it() {
        let walk = |traps: &[usize]| Walk {
            publishes: 5,
            eligible: 4,
            traps: traps.iter().map(|&number| (Trap(number), 1)).collect(),
        };
        let decided = Reasons::from([(BY_CARD.to_owned(), 3.0), ("retained".to_owned(), 2.0)]);
        let mut coverage = Coverage::default();
        coverage.add(&walk(&[13]), &decided);
        coverage.add(&walk(&[13, 28]), &decided);
        assert!((coverage.share() - 0.75).abs() < 1e-9);
        coverage.add(&walk(&[]), &Reasons::from([(BY_CARD.to_owned(), 5.0)]));
        assert!((coverage.share() - 10.0 / 12.0).abs() < 1e-9, "more than the model expects");
        let text = coverage.to_string();
        assert!(text.contains("| 13 | retained messages | 2 | 2 | 6 | 4 | retained 4 |"), "{text}");
        assert!(!coverage.missing().contains(&Trap(28)) && coverage.missing().contains(&Trap(1)));
    }
}

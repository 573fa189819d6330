//! What the card has counted and holds now, in one value for whoever serves metrics.

use super::endings::add;
use super::{Blind, Card, Counters};
use crate::attach::Attach;
use crate::mqtt::{ByReason, Counters as CoreCounters};
use crate::stack::{Memory, Sends, Stack};
use mqttshim_port::Lost;

/// See the module.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Survey {
    /// All cores together, those of past sessions included.
    pub core: CoreCounters,
    /// What the card itself counted.
    pub card: Counters,
    /// How outboxes were sent.
    pub sends: Sends,
    /// The memory of clients' connections.
    pub memory: Memory,
    /// Frames for which there was no room.
    pub lost: Lost,
    /// Brokers now.
    pub sessions_open: u64,
    /// Brokers that are gone and whose clients still take what is left.
    pub sessions_ended: u64,
    /// Brokers whose every PUBLISH goes to themselves now, by [`Reason`](crate::mqtt::Reason).
    pub slow: ByReason,
    /// What they have that cannot be seen into, by name.
    pub blind: Vec<Blind>,
}

impl<A: Attach, S: Stack> Card<A, S> {
    /// Counts.
    pub fn survey(&self) -> Survey {
        let mut survey =
            Survey { core: self.past.clone(), card: self.counters, ..Survey::default() };
        survey.sends = self.stack.sends();
        survey.memory = self.stack.memory();
        survey.lost = self.stack.lost();
        for (_, session) in &self.sessions {
            let counters = session.core.counters();
            add(&mut survey.core, counters);
            survey.core.connections += counters.connections;
            survey.core.sessions += counters.sessions;
            survey.core.subscriptions += counters.subscriptions;
            survey.core.routes += counters.routes;
            survey.core.learned += counters.learned;
            if session.is_ended {
                survey.sessions_ended += 1;
                continue;
            }
            survey.sessions_open += 1;
            survey.blind.extend(self.blind_spots(session));
            if let Some(reason) = session.core.status().slow_reason {
                survey.slow[reason as usize] += 1;
            }
        }
        survey.blind.sort_unstable();
        survey
    }
}

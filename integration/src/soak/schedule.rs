//! What goes wrong, and when: from the seed alone.

use std::fmt;
use std::time::Duration;

use crate::differential::Rng;

/// Faults one stage sees before everything is made new.
pub const FAULTS_PER_STAGE: usize = 40;

/// A process that is hurt.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Victim {
    /// dpu-server.
    Card,
    /// mqttshim-agent; where the agent lives in dpu-server, that.
    Agent,
    /// mosquitto.
    Broker,
    /// One of the subscribers.
    Client,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// `kill -9`, and a new one this much later.
    Kill(Victim, Duration),
    /// Two of them at once, the second this much after the first.
    KillBoth(Victim, Victim, Duration),
    /// SIGSTOP, and SIGCONT this much later.
    Stop(Victim, Duration),
    /// Another program's session is filled with garbage, by the seed that comes with it.
    Hostile(u64),
    /// The broker's own session is; then the agent dies, which is the only way out of it.
    Ruined(u64),
}

impl Fault {
    /// The row of the table it is counted in.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Fault::Kill(Victim::Card, _) => "card killed",
            Fault::Kill(Victim::Agent, _) => "agent killed",
            Fault::Kill(Victim::Broker, _) => "broker killed",
            Fault::Kill(Victim::Client, _) => "client killed",
            Fault::KillBoth(..) => "two killed at once",
            Fault::Stop(Victim::Card, _) => "card stopped",
            Fault::Stop(Victim::Agent, _) => "agent stopped",
            Fault::Stop(Victim::Broker, _) => "broker stopped",
            Fault::Stop(Victim::Client, _) => "client stopped",
            Fault::Hostile(_) => "another session ruined",
            Fault::Ruined(_) => "own session ruined",
        }
    }

    /// Whether the broker may die of it.
    #[must_use]
    pub fn may_end_broker(self) -> bool {
        match self {
            Fault::Kill(victim, _) => victim == Victim::Broker,
            Fault::KillBoth(first, second, _) => [first, second].contains(&Victim::Broker),
            // It reads what the garbage says a client sent.
            Fault::Ruined(_) => true,
            Fault::Stop(..) | Fault::Hostile(_) => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The faults of one stage.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Its seed.
    pub seed: u64,
    /// Whether the agent is a process of its own.
    pub is_split: bool,
    /// What goes wrong, each after this much of undisturbed load.
    pub faults: Vec<(Duration, Fault)>,
}

impl Schedule {
    /// Of one seed. Shorter ones are the beginnings of longer ones.
    #[must_use]
    pub fn of(seed: u64, count: usize) -> Schedule {
        let mut rng = Rng::new(seed);
        let is_split = rng.percent(50);
        let faults = (0..count).map(|_| (milliseconds(&mut rng, 0, 80), fault(&mut rng)));
        let faults = faults.collect();
        Schedule { seed, is_split, faults }
    }
}

fn fault(rng: &mut Rng) -> Fault {
    const VICTIMS: [Victim; 4] = [Victim::Card, Victim::Agent, Victim::Broker, Victim::Client];
    match rng.weighted(&[40, 8, 30, 14, 8]) {
        0 => {
            let victim = VICTIMS[rng.weighted(&[35, 30, 20, 15])];
            Fault::Kill(victim, gap(rng))
        }
        1 => {
            const PAIRS: [(Victim, Victim); 4] = [
                (Victim::Card, Victim::Agent),
                (Victim::Agent, Victim::Card),
                (Victim::Card, Victim::Broker),
                (Victim::Broker, Victim::Agent),
            ];
            let (first, second) = *rng.pick(&PAIRS);
            Fault::KillBoth(first, second, milliseconds(rng, 0, 30))
        }
        2 => {
            let victim = VICTIMS[rng.weighted(&[30, 25, 25, 20])];
            // Now and then longer than the lease: the other side gives up.
            let is_long = rng.percent(3);
            let length = if is_long { milliseconds(rng, 5500, 7000) } else { gap(rng) };
            Fault::Stop(victim, length)
        }
        3 => Fault::Hostile(rng.draw()),
        _ => Fault::Ruined(rng.draw()),
    }
}

/// How long a process is missing: mostly a moment, now and then long enough to look at who waits for it.
fn gap(rng: &mut Rng) -> Duration {
    match rng.percent(20) {
        true => milliseconds(rng, 400, 700),
        false => milliseconds(rng, 0, 120),
    }
}

fn milliseconds(rng: &mut Rng, low: usize, high: usize) -> Duration {
    Duration::from_millis(rng.between(low, high) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_faults_and_fewer_are_the_first_of_more() {
        let long = Schedule::of(7, 100);
        assert_eq!(long.faults, Schedule::of(7, 100).faults);
        assert_eq!(long.faults[..10], Schedule::of(7, 10).faults);
        assert_ne!(long.faults, Schedule::of(8, 100).faults);
    }

    #[test]
    fn every_kind_of_fault_comes_up() {
        let faults = Schedule::of(1, 1000).faults;
        let mut kinds: Vec<_> = faults.iter().map(|(_, fault)| fault.kind()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), 11, "{kinds:?}");
    }
}

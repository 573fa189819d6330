//! Heartbeats, and the lease after whose silence the host counts as gone.
//!
//! A card that was itself held up (stopped, or starved of its core) must not blame the host: a check that comes late by more
//! than a heartbeat gives a new lease.

use std::time::{Duration, Instant};

use mqttshim_schema::{HEARTBEAT_SECONDS, LEASE_SECONDS};

const HEARTBEAT: Duration = Duration::from_secs(HEARTBEAT_SECONDS);
const LEASE: Duration = Duration::from_secs(LEASE_SECONDS);

/// See the module.
#[derive(Debug)]
pub(super) struct Liveness {
    heard: Instant,
    checked: Instant,
    beat_next: Instant,
    sequence: u64,
}

/// What time asks for.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Due {
    Nothing,
    /// Send this heartbeat.
    Beat(u64),
    /// The host is gone.
    Silence,
}

impl Liveness {
    pub(super) fn new(now: Instant) -> Liveness {
        Liveness { heard: now, checked: now, beat_next: now + HEARTBEAT, sequence: 0 }
    }

    /// A message came.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// To be asked after everything that had come was taken.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if now.duration_since(self.checked) > 2 * HEARTBEAT {
            self.heard = now;
        }
        self.checked = now;
        if now.duration_since(self.heard) >= LEASE {
            return Due::Silence;
        }
        if now < self.beat_next {
            return Due::Nothing;
        }
        self.beat_next = now + HEARTBEAT;
        self.sequence += 1;
        Due::Beat(self.sequence)
    }

    pub(super) fn next_deadline(&self) -> Instant {
        self.beat_next.min(self.heard + LEASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_due_every_second_and_silence_after_five() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        assert_eq!(liveness.due(start + HEARTBEAT / 2), Due::Nothing);
        for second in 1..5u64 {
            assert_eq!(liveness.due(start + HEARTBEAT * second as u32), Due::Beat(second));
        }
        assert_eq!(liveness.due(start + LEASE), Due::Silence);
    }

    #[test]
    fn a_message_renews_the_lease() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        for second in 1..20 {
            let now = start + HEARTBEAT * second;
            if second % 4 == 0 {
                liveness.heard(now);
            }
            assert_ne!(liveness.due(now), Due::Silence);
        }
    }

    #[test]
    fn a_card_that_was_stopped_does_not_blame_the_host() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start);
        assert_ne!(liveness.due(start + 100 * LEASE), Due::Silence);
    }
}

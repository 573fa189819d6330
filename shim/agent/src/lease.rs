//! Whether the card is there: Hello at the start, a heartbeat a second, and the silence after which it counts as gone.

use std::time::{Duration, Instant};

use mqttshim_channel::CommChannel;
use mqttshim_schema::{HEARTBEAT_SECONDS, Hello, LEASE_SECONDS, Message, VERSION_MAX, VERSION_MIN};
use mqttshim_session::RX_BYTES;

use crate::line::Line;

/// The agent's side of the lease.
pub(crate) struct Lease {
    is_greeted: bool,
    heard: Option<Instant>,
    said: Option<Instant>,
    turned: Instant,
    sequence: u64,
}

impl Lease {
    pub(crate) fn new(now: Instant) -> Lease {
        Lease { is_greeted: false, heard: None, said: None, turned: now, sequence: 0 }
    }

    /// The agent's Hello on `channel`.
    pub(crate) fn hello(max_message_bytes: usize) -> Hello<'static> {
        Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            max_message_bytes: u32::try_from(max_message_bytes).unwrap_or(u32::MAX),
            window_bytes: RX_BYTES as u32,
            layout_min: 0,
            layout_max: 0,
            program: concat!("mqttshim-agent ", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Says Hello once. Says whether it did.
    pub(crate) fn greet(
        &mut self,
        channel: &mut dyn CommChannel,
        line: &mut Line,
        has_card: bool,
    ) -> bool {
        if self.is_greeted || has_card {
            return false;
        }
        self.is_greeted = true;
        let hello = Message::Hello(Lease::hello(channel.max_message_bytes()));
        // A Hello fits every channel's smallest limit.
        line.emit(channel, &hello).is_ok()
    }

    /// A turn begins. Silence while this process itself did not run (stopped, suspended) is not the card's.
    pub(crate) fn turned(&mut self, now: Instant) {
        let slept = now.duration_since(self.turned);
        if slept > Duration::from_secs(2 * HEARTBEAT_SECONDS) {
            self.heard = self.heard.map(|heard| heard + slept);
        }
        self.turned = now;
    }

    /// The card said something.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Sends a heartbeat when one is due.
    pub(crate) fn beat(&mut self, channel: &mut dyn CommChannel, line: &mut Line, now: Instant) {
        let is_due = self
            .said
            .is_none_or(|said| now.duration_since(said) >= Duration::from_secs(HEARTBEAT_SECONDS));
        if !is_due {
            return;
        }
        self.said = Some(now);
        // A card that takes nothing now is told of life by what waits already.
        if line.is_empty() {
            self.sequence += 1;
            let heartbeat = Message::Heartbeat { sequence: self.sequence };
            // A Heartbeat fits every channel's smallest limit.
            let _ = line.emit(channel, &heartbeat);
        }
    }

    /// Whether a card that was there has been silent for too long.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.heard
            .is_some_and(|heard| now.duration_since(heard) > Duration::from_secs(LEASE_SECONDS))
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let heard = self.heard?;
        let said = self.said.unwrap_or(heard);
        let beat = said + Duration::from_secs(HEARTBEAT_SECONDS);
        Some(beat.min(heard + Duration::from_secs(LEASE_SECONDS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_counts_as_gone_just_after_the_lease() {
        let start = Instant::now();
        let mut lease = Lease::new(start);
        assert!(!lease.is_over(start + Duration::from_secs(3600)), "it has not been there yet");
        lease.heard(start);
        let limit = start + Duration::from_secs(LEASE_SECONDS);
        assert!(!lease.is_over(limit));
        assert!(lease.is_over(limit + Duration::from_millis(1)));
    }

    #[test]
    fn a_pause_of_the_agent_itself_is_not_the_cards_silence() {
        let start = Instant::now();
        let mut lease = Lease::new(start);
        lease.heard(start);
        let later = start + Duration::from_secs(3600);
        lease.turned(later);
        assert!(!lease.is_over(later));
        assert!(lease.is_over(later + Duration::from_secs(LEASE_SECONDS + 1)));
    }
}

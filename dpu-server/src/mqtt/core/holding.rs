//! A publisher that waits for a window to close.
//!
//! ```text
//! PUBLISH (probe) ─► broker        PUBLISH behind it ─► held ─┬─ the answer came: decided anew, mostly the card's
//!                                                             └─ HOLD_MAX passed: to the broker
//! ```
//!
//! Behind a PUBLISH that went to the broker the next one may not be the card's before the broker has written its copies. Sent to the
//! broker as well, it would only put off that moment: a publisher faster than the broker answers would never be the card's. So what
//! the client sends is kept, in order and untouched, for a moment.
//!
//! Bounded in time, and in bytes a connection: beyond either everything goes on as if nothing had been held.

use std::time::{Duration, Instant};

use super::super::ConnId;
use super::super::connection::Held;
use super::super::observe::Observer;
use super::Core;

/// How long a PUBLISH waits.
pub(super) const HOLD_MAX: Duration = Duration::from_millis(20);
/// Bytes of one client that wait.
const HELD_BYTES_MAX: usize = 256 * 1024;

impl Core {
    /// Whether a PUBLISH that may not be the card's yet is to wait for a window of its publisher to close.
    pub(super) fn may_hold(&self, conn: ConnId) -> bool {
        let Some(connection) = self.connections.get(conn) else { return false };
        let window = self.observer.as_ref().and_then(|observer| observer.last_window(conn));
        window.is_some_and(|seq| seq > connection.hold_spent) && connection.can_be_pinged()
    }

    /// Keeps what a client sent, from a PUBLISH on.
    pub(super) fn hold(&mut self, conn: ConnId, publish: &[u8], behind: &[u8], now: Instant) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let until = now + HOLD_MAX;
        connection.held = Some(Held { bytes: [publish, behind].concat(), until });
        self.holds.push_back((until, conn));
        self.counters.publishes_held += 1;
    }

    /// What of a client waits.
    #[cfg(test)]
    pub(in super::super) fn held(&self, conn: ConnId) -> &[u8] {
        let held = self.connections.get(conn).and_then(|it| it.held.as_ref());
        held.map_or(&[], |held| &held.bytes)
    }

    /// Keeps more of what a client sends; whether something is kept.
    pub(super) fn hold_more(&mut self, conn: ConnId, bytes: &[u8], now: Instant) -> bool {
        let Some(held) = self.connections.get_mut(conn).and_then(|it| it.held.as_mut()) else {
            return false;
        };
        held.bytes.extend_from_slice(bytes);
        if held.bytes.len() > HELD_BYTES_MAX {
            self.release(conn, now);
        }
        true
    }

    /// Goes on with what was held, and waits no more for the windows that are open.
    pub(super) fn release(&mut self, conn: ConnId, now: Instant) {
        let spent = self.observer.as_ref().and_then(|observer| observer.last_window(conn));
        let Some(connection) = self.connections.get_mut(conn) else { return };
        connection.hold_spent = connection.hold_spent.max(spent.unwrap_or(0));
        if let Some(held) = connection.held.take() {
            self.read_client(conn, &held.bytes, now);
        }
    }

    /// A window may have closed: goes on with what was held, if none is open any more.
    pub(super) fn release_if_concluded(&mut self, conn: ConnId, now: Instant) {
        let is_open =
            self.observer.as_ref().is_some_and(|it| Observer::last_window(it, conn).is_some());
        if !is_open && self.connections.get(conn).is_some_and(|it| it.held.is_some()) {
            self.release(conn, now);
        }
    }

    /// Goes on with what has waited long enough.
    pub(super) fn release_overdue(&mut self, now: Instant) {
        while let Some((at, conn)) = self.holds.pop_front_if(|&mut (at, _)| at <= now) {
            let held = self.connections.get(conn).and_then(|it| it.held.as_ref());
            if held.is_some_and(|held| held.until == at) {
                self.release(conn, now);
            }
        }
    }
}

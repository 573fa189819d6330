//! What goes to a broker whose answers prove nothing, and what of it has come out (`observe::late`).
//!
//! ```text
//! PUBLISH ─► everybody who is to get it is known ─► account ─► copies … the last one ─► learned, or just settled
//! unread bytes of an opaque connection ─► counted: what they could say is not longer
//! ```

use std::time::Instant;

use super::super::ConnId;
use super::super::connection::Phase;
use super::super::decision::Reason;
use super::super::observe::{Observer, Purpose, Says, Window};
use super::super::packet::Publish;
use super::Core;

impl Core {
    /// Whether trust is by what is observed of a broker whose answers prove nothing.
    pub(super) fn is_observing_late(&self) -> bool {
        self.observer.as_ref().is_some_and(Observer::is_late)
    }

    /// A PUBLISH goes to the broker for this reason: keeps an account of it, if it is known who gets what of it. Whether it does.
    pub(super) fn account(
        &mut self,
        conn: ConnId,
        publish: &Publish<'_>,
        reason: Reason,
        now: Instant,
    ) -> bool {
        let has_known_audience = reason > Reason::MaximumPacketSize && publish.packet_id.is_none();
        if !self.is_observing_late() || !has_known_audience {
            return false;
        }
        let window = self.window(conn, publish, Purpose::Account);
        if let (Some(observer), Some(window)) = (&mut self.observer, window) {
            observer.enter(window, now);
            self.counters.shadow_unproven += observer.take_unproven();
            return true;
        }
        false
    }

    /// The last copy of a window has come, and been passed on.
    pub(super) fn conclude_whole(&mut self, whole: Option<(Window, Instant)>, now: Instant) {
        let Some((window, opened)) = whole else { return };
        self.learn(&window, opened, now);
        self.release_if_concluded(window.publisher, now);
    }

    /// What may come of a PUBREL of which nobody knows what it releases. Of a message that was sent while the card was there it is
    /// known already that it may come at any time.
    pub(super) fn says_unknown_release(&self, conn: ConnId) -> Says {
        let session = self.connections.get(conn).and_then(|connection| connection.session);
        let is_older = session.is_some_and(|session| self.sessions.get(session).is_opaque());
        match self.is_observing_late() && !is_older {
            true => Says::Nothing,
            false => Says::Anything,
        }
    }

    /// Passes on what a client sent and nobody read.
    pub(super) fn forward_unread(&mut self, conn: ConnId, bytes: &[u8], is_mid_packet: bool) {
        let bytes_max = self.config.limits.inspect_bytes_max;
        if let (Some(observer), Some(connection)) =
            (&mut self.observer, self.connections.get_mut(conn))
        {
            connection.unread_bytes = connection.unread_bytes.saturating_add(bytes.len());
            match connection.unread_bytes {
                unread if unread <= bytes_max => observer.note_unread(unread),
                // As long as any message of which something could be learned.
                _ => observer.lose(),
            }
        }
        self.forward_to_broker(conn, bytes, is_mid_packet);
    }

    /// A connection ends that was opaque, and had come to this phase.
    pub(super) fn judge_unread(&mut self, conn: ConnId, phase: Phase) {
        let was_answered = self.connections.get(conn).is_some_and(|it| it.was_answered);
        // What does not begin with a CONNECT may be another language, that says much in few bytes; but not to a broker that is silent.
        if let Some(observer) = self.observer.as_mut()
            && phase == Phase::AwaitConnect
            && was_answered
        {
            observer.lose();
        }
    }
}

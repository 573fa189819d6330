//! The sessions as an operator sees them, and what an operator may have forgotten.
//!
//! A session that is offline keeps its topics with the broker, because the broker may keep their messages for it. Only the broker
//! knows for how long: it may have expired there by a rule of its own (mosquitto's `persistent_client_expiration`), or been removed
//! by hand. An operator who knows better says so here. Said wrongly it costs that session messages, until its client comes back:
//! a CONNACK with "session present" of a session the card has forgotten is one of an unknown session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::session::{Life, Session};
use super::Core;

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionState {
    /// Its client is connected.
    Connected,
    /// It waits for its client.
    Offline,
    /// Its client's first CONNECT has not been answered.
    Connecting,
}

/// A session as an operator sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionView {
    /// `None`: the client left it empty.
    pub client_id: Option<Arc<str>>,
    /// Where it is in its life.
    pub state: SessionState,
    /// The card knows what it subscribed to.
    pub is_known: bool,
    /// It outlives its connection.
    pub is_persistent: bool,
    /// Filters.
    pub subscriptions: usize,
    /// When the card forgets it; `None`: not by itself.
    pub expires_in: Option<Duration>,
}

/// What became of the wish to forget a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Forgotten {
    /// It is forgotten.
    Done,
    /// There was none.
    Unknown,
    /// Its client is connected.
    Connected,
    /// A CONNECT of it is under way, or its last connection is not over for the broker.
    Unsettled,
}

impl Core {
    /// Sessions from this place on, at most as many as `max`, and the next place, if there is one.
    pub fn list_sessions(
        &self,
        from: usize,
        max: usize,
        now: Instant,
    ) -> (Vec<SessionView>, Option<usize>) {
        let (ids, next) = self.sessions.page(from, max);
        let view = |&id| self.sessions.get(id).view(now);
        (ids.iter().map(view).collect(), next)
    }

    /// Forgets the session of this client, if it is offline.
    pub fn forget_session(&mut self, client_id: &str) -> Forgotten {
        let Some(id) = self.sessions.find(client_id) else { return Forgotten::Unknown };
        let outcome = self.sessions.get(id).forgettable();
        if outcome == Forgotten::Done {
            self.sessions.end(id, false);
            self.note_gauges();
        }
        outcome
    }

    /// Forgets the sessions from this place on that are offline, of at most `max`; how many, and the next place, if there is one.
    /// Behind the last, those the card had no room for and those from before it are forgotten as well.
    pub fn forget_sessions(&mut self, from: usize, max: usize) -> (usize, Option<usize>) {
        let (ids, next) = self.sessions.page(from, max);
        let mut count = 0;
        for id in ids {
            if self.sessions.get(id).forgettable() == Forgotten::Done {
                self.sessions.end(id, false);
                count += 1;
            }
        }
        if next.is_none() {
            count += std::mem::take(&mut self.lost_sessions);
            self.has_older_sessions = false;
        }
        self.note_gauges();
        (count, next)
    }

    /// Forgets who gets the messages of each topic, and who may: both are found and learned anew. Says of how many topics.
    pub fn flush_routes(&mut self) -> usize {
        let learned = self.observer.as_ref().map_or(0, |it| it.known_count());
        let count = self.routes.len().max(learned);
        self.routes.forget();
        if let Some(observer) = &mut self.observer {
            observer.forget_everything();
        }
        self.note_gauges();
        count
    }
}

impl Session {
    fn view(&self, now: Instant) -> SessionView {
        let (state, is_persistent) = match self.life {
            Life::Connected(subscriber) => (SessionState::Connected, subscriber.is_persistent),
            Life::Offline => (SessionState::Offline, true),
            Life::Absent => (SessionState::Connecting, false),
        };
        SessionView {
            client_id: self.client_id().cloned(),
            state,
            is_known: !self.is_opaque(),
            is_persistent,
            subscriptions: self.subscription_count(),
            expires_in: self.expires_at().map(|at| at.saturating_duration_since(now)),
        }
    }

    /// Whether it can be forgotten.
    fn forgettable(&self) -> Forgotten {
        match self.life {
            _ if self.is_claimed() => Forgotten::Unsettled,
            Life::Connected(_) => Forgotten::Connected,
            Life::Absent => Forgotten::Unknown,
            // Answers to what it asked for may still come.
            Life::Offline if self.owner().is_some() => Forgotten::Unsettled,
            Life::Offline => Forgotten::Done,
        }
    }
}

//! What the card has learned of one publisher's messages on one topic: who is served, who is left out, and how large they may be.
//!
//! ```text
//! window ──learn──► verdict of each subscriber ──► every target of the route has one? ──► the card may distribute
//!   served once: is to be served                        └─ no, a new one: one more window tells
//!   missed MISSES_PROVING times in a row: is to be left out
//! ```
//!
//! Of a publisher's connection, not its name; of QoS 0, the only one that is learned. A subscriber that leaves costs nothing, one that
//! comes costs windows until it has a verdict.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::super::ConnId;
use super::super::routes::Route;
use super::window::{Outcome, Size, Subscriber, Window};

/// Windows in a row in which a subscriber must have been missed before it is left out.
pub(crate) const MISSES_PROVING: u32 = 3;
/// Windows in a row that may fail to teach enough before the card waits between them.
const FAILURES_FREE: u32 = 8;
/// The first wait, and the longest.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The longest after a failure that others may have caused, so that a publisher who copies another's messages, and is denied,
/// does not keep that one slow for longer once it ends.
const RETRY_DISTURBED_MAX: Duration = Duration::from_secs(1);

/// What is known of one subscriber.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    since: u64,
    /// Windows in a row in which it was missed.
    misses: u32,
}

impl Verdict {
    fn is_final(&self) -> bool {
        self.misses == 0 || self.misses >= MISSES_PROVING
    }
}

/// Who gets the message, if all that is known.
#[derive(Debug)]
struct Permit {
    /// The state of the route it was made for.
    route: u64,
    /// Targets of the route that get nothing, sorted.
    left_out: Box<[ConnId]>,
    /// Nobody would get anything: for the broker to refuse.
    is_empty: bool,
}

/// What is known of a message that is to be distributed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Audience {
    /// Not enough.
    Unknown,
    /// Nobody gets it.
    Nobody,
    /// Who gets it, and who is left out.
    Known,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    verdicts: HashMap<ConnId, Verdict>,
    permit: Option<Permit>,
    size_max: Size,
    /// When the last window that taught everything was opened.
    proven_at: Option<Instant>,
    /// Windows in a row that did not, by themselves.
    failures: u32,
    /// Windows in a row that did not because of something else on its way.
    disturbances: u32,
    /// No window is opened before.
    retry_at: Option<Instant>,
}

impl Knowledge {
    /// Who gets a message of this size now. What was proven counts for `ttl`, `None`: until an event.
    pub(crate) fn audience(
        &mut self,
        publisher: ConnId,
        route: &Route,
        size: Size,
        now: Instant,
        ttl: Option<Duration>,
    ) -> Audience {
        let is_fresh = self
            .proven_at
            .is_some_and(|at| ttl.is_none_or(|ttl| now.saturating_duration_since(at) < ttl));
        if !is_fresh || !size.fits(self.size_max) {
            return Audience::Unknown;
        }
        if self.permit.as_ref().is_none_or(|permit| permit.route != route.changed_at()) {
            self.permit = self.permit_for(publisher, route);
        }
        match &self.permit {
            None => Audience::Unknown,
            Some(permit) if permit.is_empty => Audience::Nobody,
            Some(_) => Audience::Known,
        }
    }

    /// Targets that get nothing, sorted. To be asked after [`Self::audience`] has said who is known.
    pub(crate) fn left_out(&self) -> &[ConnId] {
        self.permit.as_ref().map_or(&[], |permit| &permit.left_out)
    }

    /// Whether a window may be opened now.
    pub(crate) fn may_try(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|at| now >= at)
    }

    /// Subscribers it holds something of.
    pub(crate) fn len(&self) -> usize {
        self.verdicts.len()
    }

    fn permit_for(&mut self, publisher: ConnId, route: &Route) -> Option<Permit> {
        let subscribers = route.subscribers(publisher);
        let mut left_out = Vec::new();
        for &(conn, since) in &subscribers {
            let verdict = self.verdicts.get(&conn);
            let verdict = verdict.filter(|it| it.since == since && it.is_final())?;
            if verdict.misses > 0 {
                left_out.push(conn);
            }
        }
        if self.verdicts.len() > 2 * subscribers.len() + 16 {
            let mut known = std::mem::take(&mut self.verdicts);
            let kept = |(conn, _)| Some((conn, known.remove(&conn)?));
            self.verdicts = subscribers.iter().copied().filter_map(kept).collect();
        }
        let is_empty = left_out.len() == subscribers.len();
        Some(Permit { route: route.changed_at(), left_out: left_out.into(), is_empty })
    }

    /// Learns from a window that was opened at `opened` and is closed; whether it taught everything there is to know.
    pub(crate) fn learn(
        &mut self,
        window: &Window,
        route: &Route,
        opened: Instant,
        now: Instant,
    ) -> bool {
        let mut is_disturbed = window.is_void();
        let mut is_whole = !is_disturbed && route.obstacle().is_none();
        if is_whole {
            for subscriber in route.subscribers(window.publisher) {
                let outcome = window.outcome(subscriber);
                is_disturbed |= outcome == Some(Outcome::Unclear);
                is_whole &= self.judge(subscriber, outcome);
            }
        }
        if is_whole {
            self.size_max = self.size_max.max(window.size);
            self.proven_at = Some(opened);
            self.permit = self.permit_for(window.publisher, route);
            is_whole = self.permit.as_ref().is_some_and(|permit| !permit.is_empty);
        }
        if is_whole {
            (self.failures, self.disturbances) = (0, 0);
            self.retry_at = None;
        } else if is_disturbed {
            self.note_disturbance(now);
        } else {
            self.note_failure(now);
        }
        is_whole
    }

    /// Takes an outcome over; whether the verdict is final.
    fn judge(&mut self, (conn, since): Subscriber, outcome: Option<Outcome>) -> bool {
        let known = self.verdicts.get(&conn).filter(|it| it.since == since);
        let misses = match outcome {
            Some(Outcome::Served) => 0,
            Some(Outcome::Missed) => known.map_or(0, |it| it.misses).saturating_add(1),
            Some(Outcome::Unclear) | None => return false,
        };
        let verdict = Verdict { since, misses };
        self.verdicts.insert(conn, verdict);
        verdict.is_final()
    }

    /// A window did not teach enough, by itself.
    pub(crate) fn note_failure(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.wait(self.failures, RETRY_MAX, now);
    }

    /// A window could not be opened, or taught nothing, because of something else on its way.
    pub(crate) fn note_disturbance(&mut self, now: Instant) {
        self.disturbances = self.disturbances.saturating_add(1);
        self.wait(self.disturbances, RETRY_DISTURBED_MAX, now);
    }

    /// Puts the next window off, the longer the more in a row have failed.
    fn wait(&mut self, in_a_row: u32, max: Duration, now: Instant) {
        if let Some(late @ 1..) = in_a_row.checked_sub(FAILURES_FREE) {
            let wait = RETRY_MIN.saturating_mul(1 << late.min(16)) / 2;
            self.retry_at = Some(now + wait.min(max));
        }
    }
}

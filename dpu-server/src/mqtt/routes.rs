//! Who gets the messages of a topic, found once and remembered.
//!
//! ```text
//! topic ──► remembered and nothing changed since? ──► Route
//!                   └─ no ─► trie ─► each subscription: an obstacle, or a target ─► Route
//! ```
//!
//! A route that cannot be taken is remembered too, with the reason. Bounded in topics and in targets; when full, all is
//! forgotten. A topic that is published again and again costs one hash lookup.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::ConnId;
use super::decision::Reason;
use super::session::{Life, Sessions};
use super::trie::SubscriptionId;

/// Targets of all remembered routes together.
const TARGETS_MAX: usize = 4_000_000;

/// One subscriber of a topic.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Target {
    pub(crate) conn: ConnId,
    pub(crate) is_v5: bool,
}

/// The subscribers of one topic.
#[derive(Debug, Default)]
pub(crate) struct Route {
    /// State of the sessions this was found in.
    generation: u64,
    /// State of the sessions in which the targets last became others.
    changed_at: u64,
    obstacle: Option<Reason>,
    /// Empty if there is an obstacle.
    targets: Vec<Target>,
    /// Subscribers the broker may hold messages for.
    backlogged: Vec<ConnId>,
    v5_packet_bytes_max: Option<u32>,
}

impl Route {
    /// Why the card must not take it, if so.
    pub(crate) fn obstacle(&self) -> Option<Reason> {
        self.obstacle
    }

    /// A number that is another one whenever the targets are others.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    pub(crate) fn backlogged(&self) -> &[ConnId] {
        &self.backlogged
    }

    /// The smallest Maximum Packet Size of its version 5 subscribers, `None` if none of them has set one.
    pub(crate) fn v5_packet_bytes_max(&self) -> Option<u32> {
        self.v5_packet_bytes_max
    }
}

/// The remembered routes of one broker.
#[derive(Debug)]
pub(crate) struct Routes {
    by_topic: HashMap<Box<str>, usize>,
    routes: Vec<Route>,
    routes_max: usize,
    /// Targets in `routes`.
    targets: usize,
    /// Number of the last walk; see [`super::session::Session::mark`].
    walk: u64,
    matches: Vec<SubscriptionId>,
}

impl Routes {
    pub(crate) fn new(routes_max: usize) -> Self {
        Self {
            by_topic: HashMap::new(),
            routes: Vec::new(),
            routes_max: routes_max.max(1),
            targets: 0,
            walk: 0,
            matches: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// The route of a topic as things stand.
    pub(crate) fn find(&mut self, topic: &str, sessions: &mut Sessions) -> &Route {
        let index = match self.by_topic.get(topic) {
            Some(&index) if self.routes[index].generation == sessions.generation() => index,
            Some(&index) => {
                self.walk(index, topic, sessions);
                index
            }
            None => {
                if self.routes.len() >= self.routes_max || self.targets > TARGETS_MAX {
                    self.by_topic.clear();
                    self.routes.clear();
                    self.targets = 0;
                }
                let index = self.routes.len();
                self.routes.push(Route::default());
                self.by_topic.insert(topic.into(), index);
                self.walk(index, topic, sessions);
                index
            }
        };
        &self.routes[index]
    }

    fn walk(&mut self, index: usize, topic: &str, sessions: &mut Sessions) {
        self.walk += 1;
        self.matches.clear();
        sessions.find_matches(topic, &mut self.matches);
        let route = &mut self.routes[index];
        self.targets -= route.targets.len();
        let before = fingerprint(&route.targets);
        route.targets.clear();
        route.backlogged.clear();
        route.generation = sessions.generation();
        route.v5_packet_bytes_max = None;
        route.obstacle = self.matches.is_empty().then_some(Reason::NoMatch);
        for &id in &self.matches {
            if let Some(reason) = add(route, id, self.walk, sessions) {
                route.obstacle = Some(route.obstacle.map_or(reason, |known| known.min(reason)));
            }
        }
        if route.obstacle.is_some() {
            route.targets = Vec::new();
        }
        if fingerprint(&route.targets) != before {
            route.changed_at = route.generation;
        }
        self.targets += route.targets.len();
    }
}

/// The same for the same targets in the same order.
fn fingerprint(targets: &[Target]) -> u64 {
    let mut hasher = DefaultHasher::new();
    targets.hash(&mut hasher);
    hasher.finish()
}

/// Adds one matching subscription to a route; what stands against it, if something does.
fn add(
    route: &mut Route,
    id: SubscriptionId,
    walk: u64,
    sessions: &mut Sessions,
) -> Option<Reason> {
    let subscription = sessions.subscription(id);
    let (is_pending, is_shared) = (subscription.is_pending(), subscription.is_shared);
    let (grant, session_id) = (subscription.grant, subscription.session);
    let session = sessions.get_mut(session_id);
    let is_second = std::mem::replace(&mut session.mark, walk) == walk;
    let Some(grant) = grant.filter(|_| !is_pending) else {
        return Some(Reason::SubscribePending);
    };
    let subscriber = match session.life {
        _ if session.is_claimed() => return Some(Reason::SessionUnsettled),
        Life::Connected(subscriber) => subscriber,
        Life::Offline | Life::Absent => return Some(Reason::SubscriberOffline),
    };
    if subscriber.is_backlogged {
        route.backlogged.push(subscriber.conn);
    }
    if subscriber.is_v5 && subscriber.packet_bytes_max < u32::MAX {
        let known = route.v5_packet_bytes_max.unwrap_or(u32::MAX);
        route.v5_packet_bytes_max = Some(known.min(subscriber.packet_bytes_max));
    }
    route.targets.push(Target { conn: subscriber.conn, is_v5: subscriber.is_v5 });
    match grant {
        _ if is_shared => Some(Reason::SharedSubscription),
        _ if grant.options.no_local => Some(Reason::NoLocal),
        _ if grant.options.has_identifier => Some(Reason::SubscriptionIdentifier),
        _ if grant.is_unproven => Some(Reason::UnprovenGrant),
        _ if is_second => Some(Reason::OverlappingSubscriptions),
        _ if subscriber.is_backlogged => Some(Reason::SubscriberBacklogged),
        _ => None,
    }
}

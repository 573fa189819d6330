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
use super::config::Limits;
use super::connection::Connections;
use super::decision::Reason;
use super::habits::Habits;
use super::mutation::{Rule, is_off};
use super::packet::{Publish, Variant};
use super::session::{Life, Sessions, Subscriber};
use super::trie::SubscriptionId;

/// Targets of all remembered routes together.
const TARGETS_MAX: usize = 4_000_000;
/// Ways one message is encoded, of which the Subscription Identifiers make many.
const VARIANTS_MAX: usize = 64;
/// mosquitto, up to 2.1.2, does not count the first byte of a packet when it compares it with a client's Maximum Packet Size: what is
/// one byte too large it sends, which it may mend one day.
const MOSQUITTO_SIZE_TOLERANCE: usize = 1;
/// No packet is larger, in bytes: its fixed header, and the largest Remaining Length (MQTT 5 §2.1.4).
const PACKET_BYTES_MAX: u32 = 5 + 268_435_455;

/// One copy that goes to one subscriber of a topic.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Target {
    pub(crate) conn: ConnId,
    /// Place in [`Route::variants`].
    pub(crate) variant: u16,
    /// Gets a message with QoS 1 as such, not with QoS 0.
    pub(crate) takes_qos1: bool,
    /// Not for the publisher's own connection.
    pub(crate) no_local: bool,
    /// Largest packet the subscriber accepts, in bytes.
    pub(crate) packet_bytes_max: u32,
    /// See [`Sessions::since`].
    pub(crate) since: u64,
}

/// The subscribers of one topic.
#[derive(Debug, Default)]
pub(crate) struct Route {
    /// State of the sessions this was found in.
    generation: u64,
    /// State of the sessions in which the targets last became others.
    changed_at: u64,
    obstacle: Option<Reason>,
    /// The same of a message with QoS 1 alone.
    qos1_obstacle: Option<Reason>,
    /// Empty if there is an obstacle. Several of one connection are in the order its client gets them.
    targets: Vec<Target>,
    /// The different ways `targets` get a message. At most [`VARIANTS_MAX`].
    variants: Vec<Variant>,
    /// Subscribers the broker may hold messages for.
    backlogged: Vec<ConnId>,
    /// The smallest of the targets'.
    packet_bytes_max: u32,
    /// The broker drops what is too large for a subscriber, for this one alone.
    drops_large_copies: bool,
}

impl Route {
    /// Why the card must not take it, whatever its QoS, if so.
    pub(crate) fn obstacle(&self) -> Option<Reason> {
        self.obstacle
    }

    /// Why the card must not take a message with this QoS, if so.
    pub(crate) fn obstacle_for(&self, qos: u8) -> Option<Reason> {
        self.obstacle.or(self.qos1_obstacle.filter(|_| qos > 0))
    }

    /// A number that is another one whenever the targets are others.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// The targets of a message of this publisher: all but its own that have No Local.
    pub(crate) fn targets_for(&self, publisher: ConnId) -> impl Iterator<Item = &Target> {
        let is_spared =
            move |target: &Target| target.is_spared(publisher) && !is_off(Rule::NoLocal);
        self.targets.iter().filter(move |target| !is_spared(target))
    }

    /// Its subscribers, each connection once, with a number that is another one whenever its subscriptions are.
    pub(crate) fn subscribers(&self, publisher: ConnId) -> Vec<(ConnId, u64)> {
        let of_target = |target: &Target| (target.conn, target.since);
        let mut all: Vec<_> = self.targets_for(publisher).map(of_target).collect();
        all.sort_unstable();
        let mut each: Vec<(ConnId, u64)> = Vec::with_capacity(all.len());
        for (conn, since) in all {
            match each.last_mut() {
                Some((last, number)) if *last == conn => {
                    let mut hasher = DefaultHasher::new();
                    (*number, since).hash(&mut hasher);
                    *number = hasher.finish();
                }
                _ => each.push((conn, since)),
            }
        }
        each
    }

    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    pub(crate) fn variants(&self) -> &[Variant] {
        &self.variants
    }

    pub(crate) fn backlogged(&self) -> &[ConnId] {
        &self.backlogged
    }

    /// Whether the broker may have messages in its queues that have to come before one with QoS 1.
    pub(crate) fn has_queued(&self, connections: &Connections) -> bool {
        self.targets.iter().any(|target| target.is_queued(connections))
    }

    /// Whether anything is left when the publisher is spared its own messages.
    pub(crate) fn reaches_others(&self, publisher: ConnId) -> bool {
        self.targets.iter().any(|target| !target.is_spared(publisher))
    }

    /// Whether a copy would be dropped for its bytes, of which the broker knows no bound.
    pub(crate) fn has_full_subscriber(
        &self,
        publish: &Publish<'_>,
        connections: &Connections,
        limits: &Limits,
        total_bytes: usize,
    ) -> bool {
        let qos = u8::from(publish.packet_id.is_some());
        let bytes = self.variants.iter().map(|&variant| publish.encoded_bytes(variant, qos)).max();
        let bytes = bytes.unwrap_or(0);
        // Nobody has more waiting than all have together.
        let bytes_max = limits.outbox_bytes_max.min(limits.outbox_total_bytes_max);
        total_bytes + bytes * self.targets.len() > bytes_max
            && self.targets.iter().any(|target| {
                let connection = connections.get(target.conn);
                connection.is_some_and(|it| !it.has_room(bytes, target.qos(publish), limits))
            })
    }

    /// Whether a copy is of a size of which nobody knows whether the broker would send it.
    pub(crate) fn has_doubtful_size(&self, publish: &Publish<'_>) -> bool {
        let qos = u8::from(publish.packet_id.is_some());
        let bytes = |variant, qos| publish.encoded_bytes(variant, qos);
        let largest = self.variants.iter().map(|&variant| bytes(variant, qos)).max().unwrap_or(0);
        largest > self.packet_bytes_max as usize
            && self.targets.iter().any(|target| {
                let qos = target.qos(publish);
                let bytes = bytes(self.variants[usize::from(target.variant)], qos);
                let too_large = bytes.saturating_sub(target.packet_bytes_max as usize);
                too_large > 0 && !(self.drops_large_copies && too_large > MOSQUITTO_SIZE_TOLERANCE)
            })
    }
}

impl Target {
    /// The QoS of its copy: the lower one of the message's and the subscription's (MQTT 5 §3.8.4).
    pub(crate) fn qos(&self, publish: &Publish<'_>) -> u8 {
        u8::from(self.takes_qos1 && publish.packet_id.is_some())
    }

    /// Whether the broker may have messages for it in its queue.
    pub(crate) fn is_queued(&self, connections: &Connections) -> bool {
        self.takes_qos1 && connections.get(self.conn).is_some_and(|it| it.inflight.may_be_queued())
    }

    /// Whether its subscriber wants nothing of this publisher's.
    pub(crate) fn is_spared(&self, publisher: ConnId) -> bool {
        self.no_local && self.conn == publisher
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
    habits: Habits,
}

impl Routes {
    pub(crate) fn new(routes_max: usize, habits: Habits) -> Self {
        Self {
            by_topic: HashMap::new(),
            routes: Vec::new(),
            routes_max: routes_max.max(1),
            targets: 0,
            walk: 0,
            matches: Vec::new(),
            habits,
        }
    }

    /// The broker is another one than was thought: all is found anew.
    pub(crate) fn set_habits(&mut self, habits: Habits) {
        self.habits = habits;
        self.forget();
    }

    /// All is found anew.
    pub(crate) fn forget(&mut self) {
        self.by_topic.clear();
        self.routes.clear();
        self.targets = 0;
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
                    self.forget();
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
        let before = fingerprint(route);
        route.targets.clear();
        route.backlogged.clear();
        route.generation = sessions.generation();
        route.variants.clear();
        route.packet_bytes_max = u32::MAX;
        route.drops_large_copies = self.habits.follows_options;
        route.obstacle = None;
        route.qos1_obstacle = None;
        for &id in &self.matches {
            if let Some(reason) = add(route, id, self.walk, sessions, self.habits) {
                route.obstacle = Some(route.obstacle.map_or(reason, |known| known.min(reason)));
            }
        }
        if route.targets.is_empty() && route.obstacle.is_none() {
            route.obstacle = Some(Reason::NoMatch);
        }
        if route.obstacle.is_some() {
            route.targets = Vec::new();
            route.variants = Vec::new();
        }
        if fingerprint(route) != before {
            route.changed_at = route.generation;
        }
        self.targets += route.targets.len();
    }
}

/// The same for the same targets and variants in the same order.
fn fingerprint(route: &Route) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&route.targets, &route.variants).hash(&mut hasher);
    hasher.finish()
}

/// Adds one matching subscription to a route; what stands against it, if something does.
fn add(
    route: &mut Route,
    id: SubscriptionId,
    walk: u64,
    sessions: &mut Sessions,
    habits: Habits,
) -> Option<Reason> {
    let subscription = sessions.subscription(id);
    let (is_pending, is_shared) = (subscription.is_pending(), subscription.is_shared);
    let (grant, session_id) = (subscription.grant, subscription.session);
    let since = sessions.since(id);
    let session = sessions.get_mut(session_id);
    let is_second = std::mem::replace(&mut session.mark, walk) == walk;
    let Some(grant) = grant.filter(|_| !is_pending) else {
        return Some(Reason::SubscribePending);
    };
    let subscriber = match session.life {
        _ if session.is_claimed() => return Some(Reason::SessionUnsettled),
        Life::Connected(subscriber) => subscriber,
        // Of a shared subscription the others get it.
        Life::Offline if habits.drops_offline_qos0 && !is_shared => {
            if grant.options.qos > 0 {
                route.add_qos1_obstacle(Reason::SubscriberOffline);
            }
            return None;
        }
        Life::Offline | Life::Absent => return Some(Reason::SubscriberOffline),
    };
    if subscriber.is_backlogged {
        route.backlogged.push(subscriber.conn);
    }
    let identifier = grant.options.identifier.filter(|_| !is_off(Rule::SubscriptionIdentifier));
    let Some(variant) =
        route.variant(if subscriber.is_v5 { Variant::V5 { identifier } } else { Variant::V3 })
    else {
        return Some(Reason::SubscriptionIdentifier);
    };
    let Subscriber { conn, packet_bytes_max, .. } = subscriber;
    route.packet_bytes_max = route.packet_bytes_max.min(packet_bytes_max);
    let no_local = grant.options.no_local;
    let takes_qos1 = grant.options.qos > 0;
    if takes_qos1 && subscriber.is_persistent {
        route.add_qos1_obstacle(Reason::PersistentSession);
    }
    if takes_qos1 && subscriber.is_unread {
        route.add_qos1_obstacle(Reason::IdentifiersUnknown);
    }
    // mosquitto counts what was too large as in flight for ever, and stops when that fills what the client takes at a time. How much
    // was, nobody knows here: what it retained and what it delivered from wills counts too.
    if takes_qos1 && packet_bytes_max < PACKET_BYTES_MAX {
        route.add_qos1_obstacle(Reason::MaximumPacketSize);
    }
    route.targets.push(Target { conn, variant, takes_qos1, no_local, packet_bytes_max, since });
    let is_known = habits.follows_options;
    match grant {
        _ if is_shared => Some(Reason::SharedSubscription),
        _ if grant.is_no_local_unclear || (no_local && !is_known) => Some(Reason::NoLocal),
        _ if identifier.is_some() && !is_known => Some(Reason::SubscriptionIdentifier),
        _ if grant.is_unproven => Some(Reason::UnprovenGrant),
        _ if is_second && !(subscriber.is_v5 && is_known) => Some(Reason::OverlappingSubscriptions),
        _ if subscriber.is_backlogged => Some(Reason::SubscriberBacklogged),
        _ => None,
    }
}

impl Route {
    fn add_qos1_obstacle(&mut self, reason: Reason) {
        self.qos1_obstacle = Some(self.qos1_obstacle.map_or(reason, |known| known.min(reason)));
    }

    /// The place of a variant; `None`: there are too many.
    fn variant(&mut self, variant: Variant) -> Option<u16> {
        let known = self.variants.iter().position(|&known| known == variant);
        if known.is_none() && self.variants.len() >= VARIANTS_MAX {
            return None;
        }
        let place = known.unwrap_or_else(|| {
            self.variants.push(variant);
            self.variants.len() - 1
        });
        u16::try_from(place).ok()
    }
}

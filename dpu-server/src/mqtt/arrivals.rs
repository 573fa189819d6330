//! Whether what the broker was given has arrived, where only the copies themselves can tell.
//!
//! A broker that works in one thread answers a PINGREQ after it has written everything before. Most others hand a PUBLISH to
//! another thread, task or process and answer at once, so the answer proves nothing about copies that are still on their
//! way. There the card watches for the copies: a publisher's next PUBLISH on a topic may be the card's once every subscriber
//! has been sent the last one that went through the broker, which keeps the order of one publisher, topic and QoS
//! [MQTT-4.6.0-6].
//!
//! ```text
//! slow PUBLISH ──note──► window of its publisher and topic: [x y z]      subscriber a has x, y · b has x
//! copy from the broker ──see──► b has y … everybody has z: the topic is settled, until note or forget
//! ```
//!
//! Copies are known by a hash of topic and payload. A copy counts for the earliest PUBLISH it can be, so what is not told apart
//! by its bytes is never proven early; of bytes that two publishers have on their way it counts for neither. Where a copy never comes (an access list, a full queue), the publisher stays with the
//! broker. Bounded in windows, in PUBLISHes and in subscribers; beyond the bounds nothing is proven.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::ConnId;
use super::routes::Route;

/// Topics of one publisher that are remembered as settled.
const SETTLED_MAX: usize = 1_024;
/// Publishers and topics that are watched at one time.
const WINDOWS_MAX: usize = 4_096;
/// PUBLISHes of one publisher on one topic that may be on their way.
const SENT_MAX: usize = 1_024;
/// Messages outside windows that are remembered, twice so many at most: a copy of an older one that is still on its way so many
/// later ones have overtaken.
const APART_MAX: usize = 32_768;
/// Subscribers in all windows.
const TARGETS_MAX: usize = 1_000_000;

/// The hash of a topic.
type Topic = u64;

/// PUBLISHes of one publisher on one topic that are on their way.
#[derive(Debug, Default)]
struct Window {
    /// Number of the first in `sent`.
    first: u64,
    /// Hashes of their payloads.
    sent: VecDeque<u64>,
    /// For each subscriber the number of the next it waits for.
    targets: HashMap<ConnId, u64>,
    /// Subscribers that wait for something.
    behind: usize,
    /// The state of the route that `targets` was made of; `None`: it has an obstacle, so nobody knows who gets copies.
    route: Option<u64>,
    /// There were too many.
    is_lost: bool,
}

impl Window {
    fn end(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    fn push(&mut self, payload: u64, route: &Route) {
        if self.is_lost {
            return;
        }
        let state = route.obstacle().is_none().then(|| route.changed_at());
        if state.is_some() && state != self.route {
            let first = self.first;
            let known = std::mem::take(&mut self.targets);
            let next = |conn| known.get(&conn).copied().unwrap_or(first);
            self.targets = route.targets().iter().map(|it| (it.conn, next(it.conn))).collect();
        }
        self.route = state;
        self.sent.push_back(payload);
        self.behind = self.targets.len();
        if self.sent.len() > SENT_MAX {
            self.trim();
        }
    }

    /// Forgets what everybody has.
    fn trim(&mut self) {
        let had_by_all = self.targets.values().min().map_or(0, |next| next - self.first);
        self.sent.drain(..had_by_all as usize);
        self.first += had_by_all;
        if self.sent.len() > SENT_MAX {
            *self = Window { is_lost: true, ..Window::default() };
        }
    }

    /// Whether a copy for a subscriber may be one of these.
    fn awaits(&self, subscriber: ConnId, payload: u64) -> bool {
        let Some(next) = self.targets.get(&subscriber) else { return false };
        self.sent.iter().skip((next - self.first) as usize).any(|&sent| sent == payload)
    }

    /// A copy reached a subscriber.
    fn take(&mut self, subscriber: ConnId, payload: u64) {
        let (first, end) = (self.first, self.end());
        let Some(next) = self.targets.get_mut(&subscriber) else { return };
        let from = (*next - first) as usize;
        if let Some(steps) = self.sent.iter().skip(from).position(|&sent| sent == payload) {
            *next += steps as u64 + 1;
            self.behind -= usize::from(*next == end);
        }
    }
}

/// What is on its way through one broker.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    windows: HashMap<(ConnId, Topic), Window>,
    /// Whose windows a copy on a topic may be in.
    publishers: HashMap<Topic, Vec<ConnId>>,
    /// Which topics each publisher has a window on.
    topics: HashMap<ConnId, Vec<Topic>>,
    /// Topics on which nothing of a publisher is on its way, with the state of the route that was proven for.
    settled: HashMap<ConnId, HashMap<Topic, u64>>,
    /// Subscribers in `windows`.
    targets: usize,
    /// Messages that may be on their way and are in no window, by topic and payload: the latest, and those before.
    apart: [HashSet<(Topic, u64)>; 2],
}

impl Arrivals {
    /// Whether copies have to be shown to [`Self::see`].
    pub(crate) fn is_watching(&self) -> bool {
        !self.windows.is_empty()
    }

    /// A PUBLISH with QoS 0 goes to the broker.
    pub(crate) fn note(&mut self, publisher: ConnId, topic: &str, payload: &[u8], route: &Route) {
        let topic = hash(topic.as_bytes());
        if let Some(settled) = self.settled.get_mut(&publisher) {
            settled.remove(&topic);
        }
        let count = self.windows.len();
        let window = match self.windows.entry((publisher, topic)) {
            Entry::Occupied(entry) => entry.into_mut(),
            // Without a window nothing is ever proven; the next PUBLISH tries again.
            Entry::Vacant(_) if count >= WINDOWS_MAX || self.targets >= TARGETS_MAX => return,
            Entry::Vacant(entry) => {
                self.publishers.entry(topic).or_default().push(publisher);
                self.topics.entry(publisher).or_default().push(topic);
                entry.insert(Window::default())
            }
        };
        let before = window.targets.len();
        window.push(hash(payload), route);
        self.targets = self.targets - before + window.targets.len();
    }

    /// Something with this topic and payload goes to the broker, or may by itself (a will), of which nobody watches the copies.
    pub(crate) fn note_apart(&mut self, topic: &str, payload: &[u8]) {
        self.remember(hash(topic.as_bytes()), hash(payload));
    }

    fn remember(&mut self, topic: Topic, payload: u64) {
        if self.apart[0].len() >= APART_MAX {
            self.apart.swap(0, 1);
            self.apart[0].clear();
        }
        self.apart[0].insert((topic, payload));
    }

    /// The broker sent a subscriber a PUBLISH with QoS 0.
    pub(crate) fn see(&mut self, subscriber: ConnId, topic: &str, payload: &[u8]) {
        let (topic, payload) = (hash(topic.as_bytes()), hash(payload));
        let Some(publishers) = self.publishers.get(&topic) else { return };
        // Of equal messages nobody can tell which this is: it counts for none, and what one publisher says next, and nobody else
        // does, shows that its own has arrived.
        if self.apart.iter().any(|apart| apart.contains(&(topic, payload))) {
            return;
        }
        let mut owners = publishers.iter().copied().filter(|&publisher| {
            self.windows.get(&(publisher, topic)).is_some_and(|it| it.awaits(subscriber, payload))
        });
        let (Some(publisher), None) = (owners.next(), owners.next()) else { return };
        if let Some(window) = self.windows.get_mut(&(publisher, topic)) {
            window.take(subscriber, payload);
        }
        if let Some(window) = self.windows.get(&(publisher, topic))
            && let (Some(route), 0) = (window.route, window.behind)
        {
            let settled = self.settled.entry(publisher).or_default();
            if settled.len() >= SETTLED_MAX {
                settled.clear();
            }
            settled.insert(topic, route);
            self.close(publisher, topic);
        }
    }

    /// Whether nothing of this publisher is on its way to these subscribers.
    pub(crate) fn is_settled(&self, publisher: ConnId, topic: &str, route: &Route) -> bool {
        let settled = self.settled.get(&publisher);
        settled.and_then(|it| it.get(&hash(topic.as_bytes()))) == Some(&route.changed_at())
    }

    /// The publisher is gone, or something of it goes to the broker of which nobody knows the topic: what was or will be seen of
    /// earlier PUBLISHes proves nothing about that. A later one will, whose copies come behind it.
    pub(crate) fn forget(&mut self, publisher: ConnId) {
        self.settled.remove(&publisher);
        for topic in self.topics.remove(&publisher).unwrap_or_default() {
            for payload in self.close(publisher, topic) {
                self.remember(topic, payload);
            }
        }
    }

    /// Returns what was on its way.
    fn close(&mut self, publisher: ConnId, topic: Topic) -> VecDeque<u64> {
        if let Entry::Occupied(mut topics) = self.topics.entry(publisher) {
            topics.get_mut().retain(|&other| other != topic);
            if topics.get().is_empty() {
                topics.remove();
            }
        }
        let window = self.windows.remove(&(publisher, topic)).unwrap_or_default();
        self.targets -= window.targets.len();
        if let Entry::Occupied(mut publishers) = self.publishers.entry(topic) {
            publishers.get_mut().retain(|&other| other != publisher);
            if publishers.get().is_empty() {
                publishers.remove();
            }
        }
        window.sent
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

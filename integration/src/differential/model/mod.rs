//! What a scenario walks into, and which of its PUBLISHes a card could take: a naive picture of who is there and who wants what.
//!
//! ```text
//! Scenario ─► seats: one a client, its session and subscriptions ─► each PUBLISH: its traps, and whether it is eligible
//! ```
//!
//! Only counts rest on it, no comparison: it knows nothing of timing, and leaves out what it is not sure of. *Eligible* is a PUBLISH
//! that nothing keeps from the card: the rules of the card are written down here a second time, by what MQTT says and not by how
//! the card is made.

mod post;
mod seat;

use std::collections::{BTreeMap, BTreeSet};

use super::policy::Policy;
use super::scenario::{Action, Change, Group, Scenario, Step};
use super::terms::{Terms, Trust, Variant};
use super::trap::Trap;
use crate::mqtt::Version;
use seat::Seat;

/// PUBLISHes of one publisher on one topic that go to the broker before the card can know the way, by observation: the first, and one
/// that is watched.
const PROBES: usize = 2;

/// What a scenario comes to.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// PUBLISHes.
    pub publishes: usize,
    /// Those a card could take.
    pub eligible: usize,
    /// Each trap it walks into, and with how many PUBLISHes.
    pub traps: BTreeMap<Trap, usize>,
}

/// Walks through a scenario.
#[must_use]
pub fn walk(scenario: &Scenario, terms: Terms) -> Walk {
    let variant = Variant::of(scenario.seed, terms.trust);
    let mut model = Model {
        terms,
        keeps_qos_0: variant == Variant::QueuesQos0,
        seats: (0..scenario.clients).map(|_| Seat::default()).collect(),
        policy: Policy::default(),
        routes: BTreeMap::new(),
        walk: Walk::default(),
    };
    if variant.has_mount_point() && terms.brand.is_mosquitto() {
        model.reach(21);
    }
    for group in &scenario.groups {
        model.group(group);
    }
    model.walk
}

/// The subscribers of a topic as they were when a publisher last published on it, and how many messages it had by then.
type Observed = (Vec<(usize, usize)>, usize);

struct Model {
    terms: Terms,
    seats: Vec<Seat>,
    policy: Policy,
    /// Whether offline sessions get messages with QoS 0.
    keeps_qos_0: bool,
    /// By publisher and topic.
    routes: BTreeMap<(usize, String), Observed>,
    walk: Walk,
}

impl Model {
    fn reach(&mut self, number: usize) {
        self.walk.traps.entry(Trap(number)).or_default();
    }

    fn reach_with_post(&mut self, number: usize) {
        *self.walk.traps.entry(Trap(number)).or_default() += 1;
    }

    fn group(&mut self, group: &Group) {
        match &group.change {
            Some(Change::Policy(policy)) => {
                self.policy = policy.clone();
                self.routes.clear();
            }
            Some(Change::Restart) => {
                self.reach(33);
                self.seats.iter_mut().for_each(Seat::restart);
                self.routes.clear();
            }
            None => {}
        }
        // The picture before a race holds for its messages as well as any.
        let is_publish = |step: &&Step| matches!(step.action, Action::Publish(_));
        let is_change = |step: &&Step| !matches!(step.action, Action::Publish(_) | Action::Ping);
        let changes: Vec<&Step> = group.steps.iter().filter(is_change).collect();
        for step in group.steps.iter().filter(is_publish) {
            self.step(step, group, &changes);
        }
        for step in changes {
            self.step(step, group, &[]);
        }
        for seat in &mut self.seats {
            seat.is_slow &= !std::mem::take(&mut seat.is_asked);
        }
    }

    fn step(&mut self, step: &Step, group: &Group, changes: &[&Step]) {
        let client = step.client;
        let is_online = self.seats[client].is_online;
        if let Action::Connect { login, early, .. } = &step.action {
            if is_online {
                self.reach(17);
            }
            if self.seats[client].connect(login) {
                self.reach(5);
            }
            for action in early {
                self.reach(3);
                self.act(client, action, &[], true);
            }
            return;
        }
        let is_resume = matches!(step.action, Action::Resume);
        if !is_online || (self.seats[client].is_stalled && !is_resume) {
            return;
        }
        if step.is_long() {
            self.reach(18);
        }
        if group.is_race() && matches!(step.action, Action::Subscribe { .. }) {
            self.reach(16);
        }
        self.act(client, &step.action, changes, false);
    }

    fn act(&mut self, client: usize, action: &Action, changes: &[&Step], is_early: bool) {
        match action {
            Action::Publish(posts) => {
                let topics: BTreeSet<&str> =
                    posts.iter().map(|post| post.message.topic.as_str()).collect();
                if topics.len() > 1 {
                    self.reach(34);
                }
                for post in posts {
                    self.post(client, post, changes, is_early);
                    self.remember(client, &post.message.topic);
                }
            }
            Action::Malformed(_) => {
                self.reach(30);
                self.leave(client);
            }
            Action::Drop | Action::Reset => self.leave(client),
            Action::Disconnect { expiry_s, .. } => {
                let seat = &mut self.seats[client];
                seat.has_will = false;
                seat.is_persistent &= *expiry_s != Some(0);
                self.leave(client);
            }
            other => self.seats[client].change(other),
        }
    }

    fn leave(&mut self, client: usize) {
        if self.seats[client].has_will {
            self.reach(25);
        }
        self.seats[client].leave();
    }

    /// The subscribers of `topic`, by client and connection.
    fn route(&self, topic: &str) -> Vec<(usize, usize)> {
        let seats = self.seats.iter().enumerate();
        let wants = |seat: &Seat| seat.matching(topic).next().is_some();
        seats
            .filter(|(_, seat)| wants(seat))
            .map(|(client, seat)| (client, seat.connection))
            .collect()
    }

    /// By observation: one more message of `client` on this topic.
    fn remember(&mut self, client: usize, topic: &str) {
        let route = self.route(topic);
        let known = self.routes.entry((client, topic.to_owned())).or_default();
        if known.0 != route {
            *known = (route, 0);
        }
        known.1 += 1;
    }

    fn is_observed(&self, client: usize, topic: &str) -> bool {
        let known = self.routes.get(&(client, topic.to_owned()));
        self.terms.trust == Trust::Suback
            || known.is_some_and(|(route, seen)| *seen >= PROBES && *route == self.route(topic))
    }

    /// Whether the card has lost sight of something, whatever the topic.
    fn is_blind(&self) -> bool {
        self.seats.iter().any(|seat| seat.is_opaque)
    }
}

/// Whether a version has properties.
fn is_v5(version: Option<Version>) -> bool {
    version == Some(Version::V5)
}

#[cfg(test)]
mod tests;

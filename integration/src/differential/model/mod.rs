//! What a scenario walks into, and which of its PUBLISHes a card could take: a naive picture of who is there and who wants what.
//!
//! ```text
//! Scenario ─► seats: one a client, its session and subscriptions ─► each PUBLISH: its traps, and whether it is eligible
//! ```
//!
//! Only counts rest on it, no comparison: it knows nothing of timing, and leaves out what it is not sure of. *Eligible* is a PUBLISH
//! that nothing keeps from the card: the rules of the card are written down here a second time, by what MQTT says and not by how
//! the card is made.

mod knowledge;
mod order;
mod post;
mod seat;

use std::collections::{BTreeMap, BTreeSet};

use super::dynamic::is_kicked;
use super::policy::Policy;
use super::scenario::{Action, Change, Group, Scenario, Step};
use super::terms::{Terms, Variant};
use super::trap::Trap;
use crate::mqtt::Version;
use knowledge::Knowledge;
use order::Order;
use seat::Seat;

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
        variant,
        seats: (0..scenario.clients).map(|_| Seat::default()).collect(),
        policy: Policy::default(),
        known: BTreeMap::new(),
        orders: BTreeMap::new(),
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

struct Model {
    terms: Terms,
    seats: Vec<Seat>,
    policy: Policy,
    variant: Variant,
    /// By publisher, its connection, and topic.
    known: BTreeMap<(usize, usize, String), Knowledge>,
    /// By publisher and its connection.
    orders: BTreeMap<(usize, usize), Order>,
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
                if self.variant == Variant::Dynamic {
                    let is_kicked = |seat: &&mut Seat| is_kicked(seat.user, &self.policy, policy);
                    self.seats.iter_mut().filter(is_kicked).for_each(Seat::leave);
                }
                self.policy = policy.clone();
                self.known.values_mut().for_each(Knowledge::forget);
            }
            Some(Change::Restart) => {
                self.reach(33);
                self.seats.iter_mut().for_each(Seat::restart);
                self.known.clear();
            }
            Some(Change::Pause(_)) | None => {}
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
        self.orders.values_mut().for_each(Order::settle);
        self.seats.iter_mut().for_each(Seat::settle);
    }

    fn step(&mut self, step: &Step, group: &Group, changes: &[&Step]) {
        let client = step.client;
        let is_online = self.seats[client].is_online;
        if let Action::Connect { login, user, early, .. } = &step.action {
            if is_online {
                self.reach(17);
            }
            if self.seats[client].connect(login, *user) {
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

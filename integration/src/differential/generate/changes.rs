//! What happens around the broker: its rules change, the card ends and comes back, time passes for a keep-alive.

use super::super::dynamic::is_kicked;
use super::super::policy::{Policy, Rule, Verb};
use super::super::scenario::{Action, Change, Cut, Group, Post, Step};
use super::posts::MARK_BYTES;
use super::{Generator, Guest, WILD};
use crate::mqtt::{Login, Message, Version};

/// Messages at a time to one who takes few, and how often.
const CROWD: usize = 6;
const CROWD_GROUPS: usize = 4;
/// Messages of two clients that say the same.
const ECHOES: usize = 6;
/// What each has of payload.
const ECHO_BYTES: usize = 40;
/// Rules of one client.
const RULES_MAX: usize = 4;
/// Keep-alive of a client that publishes for long, in seconds: the shortest there is.
const KEEP_ALIVE_S: u16 = 1;
/// Between its messages, in milliseconds.
const LONG_PAUSE_MS: u64 = 350;
/// A Session Expiry and a Will Delay that run out, in seconds, and for how long all wait for that: mosquitto looks every second.
const SHORT_S: u32 = 1;
const LAPSE_MS: u64 = 4000;
/// For so many messages. mosquitto 2.0 looks every five seconds whether somebody was silent for 1.5 times its keep-alive.
const LONG_POSTS: usize = 21;

impl Generator {
    /// Adds a change, perhaps; whether it did.
    pub(super) fn change(&mut self) -> bool {
        if self.flavour.has_restart && self.rng.percent(8) {
            self.flavour.has_restart = false;
            self.restart();
            return true;
        }
        if self.flavour.is_long && self.rng.percent(8) {
            self.flavour.is_long = false;
            return self.publish_for_long();
        }
        if self.flavour.has_crowd && self.rng.percent(15) {
            self.flavour.has_crowd = false;
            return self.crowd();
        }
        if self.flavour.has_echo && self.rng.percent(15) {
            self.flavour.has_echo = false;
            return self.echo();
        }
        if self.flavour.has_lapse && self.rng.percent(15) {
            self.flavour.has_lapse = false;
            self.lapse();
            return true;
        }
        if self.rng.percent(self.flavour.policies) {
            let policy = self.policy();
            self.push_policy(policy);
            return true;
        }
        false
    }

    /// Other rules. Whoever loses its connection by that mostly comes again.
    fn push_policy(&mut self, policy: Policy) {
        let before = std::mem::replace(&mut self.policy, policy.clone());
        if !self.flavour.is_dynamic {
            self.push_change(Change::Policy(policy));
            return;
        }
        for client in 0..self.clients.len() {
            // Its end is to be seen.
            if self.clients[client].is_stalled {
                let action = self.resume(client);
                self.settled(client, action);
            }
        }
        self.push_change(Change::Policy(policy));
        for client in 0..self.clients.len() {
            let guest = &mut self.clients[client];
            let is_kicked = guest.is_online && is_kicked(guest.user, &before, &self.policy);
            if is_kicked {
                let filters = std::mem::take(&mut guest.filters);
                *guest = Guest { filters, ..Guest::default() };
            }
            if is_kicked && self.rng.percent(85) {
                let action = self.connect(client, true);
                self.settled(client, action);
                let action = self.subscribe(client);
                self.settled(client, action);
            }
        }
    }

    /// Somebody goes, and stays away for longer than its session lasts and its will is held back.
    fn lapse(&mut self) {
        let client = self.rng.below(self.clients.len());
        let topic = *self.rng.pick(&self.topics);
        let mut action = self.connect(client, true);
        if let Action::Connect { login, .. } = &mut action {
            login.version = Version::V5;
            login.is_clean = false;
            login.properties = [&[0x11][..], &SHORT_S.to_be_bytes()].concat();
            let will = Message { properties: Vec::new(), ..self.will(client, false) };
            let delay = [&[0x18][..], &SHORT_S.to_be_bytes()].concat();
            login.will = Some(Message { properties: delay, ..will });
        }
        let guest = &mut self.clients[client];
        (guest.version, guest.has_will) = (Some(Version::V5), true);
        let subscribe =
            Action::Subscribe { filters: vec![(topic.to_owned(), 1)], identifier: None };
        for action in [action, subscribe] {
            self.settled(client, action);
        }
        let action = self.leave(client, Action::Drop);
        self.settled(client, action);
        self.push_change(Change::Pause(LAPSE_MS));
        self.clients[client].has_will = false;
        self.clients[client].filters.clear();
        if self.rng.percent(50) {
            let mut login = Login::new("").version(Version::V5);
            login.is_clean = false;
            self.clients[client].is_online = true;
            self.clients[client].user = client;
            let early = Vec::new();
            let action = Action::Connect { login, is_anonymous: false, user: client, early };
            self.settled(client, action);
        }
    }

    fn push_change(&mut self, change: Change) {
        let number = self.group;
        self.groups.push(Group { number, change: Some(change), steps: Vec::new() });
        self.group += 1;
    }

    /// Everybody loses the connection, and most come again.
    fn restart(&mut self) {
        self.push_change(Change::Restart);
        let before = self.clients.clone();
        for guest in &mut self.clients {
            *guest = Guest { filters: std::mem::take(&mut guest.filters), ..Guest::default() };
        }
        for (client, guest) in before.into_iter().enumerate() {
            if guest.is_online && self.rng.percent(85) {
                let action = self.connect(client, true);
                self.settled(client, action);
                if self.rng.percent(70) {
                    let action = self.subscribe(client);
                    self.settled(client, action);
                }
            }
        }
    }

    /// Somebody publishes what the card may take, again and again, and the broker must not think it silent.
    fn publish_for_long(&mut self) -> bool {
        // One that is there is taken over.
        let away = (0..self.clients.len()).rev().find(|&client| !self.clients[client].is_stalled);
        let (Some(client), Some(topic)) = (away, self.wanted()) else { return false };
        let mut action = self.connect(client, true);
        if let Action::Connect { login, .. } = &mut action {
            login.keep_alive_s = KEEP_ALIVE_S;
        }
        self.settled(client, action);
        let mut posts: Vec<_> = (0..LONG_POSTS).map(|_| self.post(client, topic)).collect();
        for post in &mut posts {
            topic.clone_into(&mut post.message.topic);
            post.message.qos = 0;
            post.message.is_retained = false;
            post.payload_bytes = post.payload_bytes.clamp(MARK_BYTES, 200);
            (post.alias, post.is_repeated) = (None, false);
        }
        let action = Action::Publish(posts);
        self.push(vec![Step { client, action, cut: Cut::Spread(LONG_PAUSE_MS) }]);
        true
    }

    /// Two say the same at the same time, again and again, and only one of them may; then the other one tries alone.
    fn echo(&mut self) -> bool {
        let Some(topic) = self.wanted() else { return false };
        let mut free: Vec<usize> =
            (0..self.clients.len()).filter(|&client| self.clients[client].can_act()).collect();
        let (Some(honest), Some(other)) = (self.take(&mut free), self.take(&mut free)) else {
            return false;
        };
        let (honest_user, other_user) = (self.clients[honest].user, self.clients[other].user);
        if honest_user == other_user {
            return false;
        }
        let all = |client| Rule { client, verb: Verb::ReadWrite, filter: "#".to_owned() };
        let mut rules: Vec<Rule> = (0..self.clients.len()).map(all).collect();
        rules[other_user].verb = Verb::Read;
        self.push_policy(Policy { rules: Some(rules) });
        for _ in 0..ECHOES {
            let mut steps = Vec::new();
            for client in [honest, other] {
                let action = Action::Publish(vec![self.echo_post(client, topic)]);
                steps.push(self.step(client, action));
            }
            if self.rng.percent(50) {
                steps.reverse();
            }
            self.push(steps);
        }
        for _ in 0..ECHOES {
            let action = Action::Publish(vec![self.echo_post(other, topic)]);
            self.settled(other, action);
        }
        true
    }

    fn echo_post(&mut self, client: usize, topic: &'static str) -> Post {
        let post = self.post(client, topic);
        let message =
            Message { qos: 0, is_retained: false, properties: Vec::new(), ..post.message };
        let payload_bytes = ECHO_BYTES;
        Post { message, payload_bytes, alias: None, is_repeated: false, is_echo: true, ..post }
    }

    /// Somebody who takes few messages at a time gets many with QoS 1, while it keeps its acknowledgements and after it has sent them.
    fn crowd(&mut self) -> bool {
        let topic = *self.rng.pick(&self.topics);
        let mut free: Vec<usize> =
            (0..self.clients.len()).filter(|&client| self.clients[client].can_act()).collect();
        let (Some(reader), Some(writer)) = (self.take(&mut free), self.take(&mut free)) else {
            return false;
        };
        let maximum = u8::try_from(self.rng.between(1, 8)).expect("small");
        let mut login = Login::new("").version(Version::V5);
        login.properties = vec![0x21, 0, maximum];
        let guest = &mut self.clients[reader];
        (guest.version, guest.has_will, guest.is_holding) = (Some(Version::V5), false, false);
        guest.filters = vec![topic.to_owned()];
        guest.user = reader;
        let connect =
            Action::Connect { login, is_anonymous: false, user: reader, early: Vec::new() };
        let subscribe =
            Action::Subscribe { filters: vec![(topic.to_owned(), 1)], identifier: None };
        for action in [connect, subscribe, Action::HoldAcks] {
            self.settled(reader, action);
        }
        for group in 0..CROWD_GROUPS {
            if group == CROWD_GROUPS / 2 {
                self.settled(reader, Action::ReleaseAcks);
            }
            let posts = (0..CROWD).map(|_| self.crowd_post(writer, topic)).collect();
            self.settled(writer, Action::Publish(posts));
        }
        true
    }

    fn crowd_post(&mut self, client: usize, topic: &'static str) -> Post {
        let post = self.post(client, topic);
        let message = Message { qos: 1, is_retained: false, ..post.message };
        let payload_bytes = post.payload_bytes.clamp(MARK_BYTES, 200);
        Post { message, payload_bytes, alias: None, is_repeated: false, ..post }
    }

    fn policy(&mut self) -> Policy {
        if self.rng.percent(25) {
            return Policy::default();
        }
        if self.rng.percent(15) {
            return Policy { rules: Some(Vec::new()) };
        }
        let mut rules = Vec::new();
        for client in 0..self.clients.len() {
            // Most may do most, or nothing would be said.
            if self.rng.percent(60) {
                rules.push(Rule { client, verb: Verb::ReadWrite, filter: "#".to_owned() });
            }
            for _ in 0..self.rng.below(RULES_MAX) {
                let verb = *self.rng.pick(&[Verb::Read, Verb::Write, Verb::ReadWrite, Verb::Deny]);
                let is_wild = self.rng.percent(40);
                let filter = *self.rng.pick(if is_wild { &WILD[..] } else { &self.topics[..] });
                rules.push(Rule { client, verb, filter: filter.to_owned() });
            }
        }
        Policy { rules: Some(rules) }
    }
}

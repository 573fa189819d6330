//! Groups without barriers: publishers and, among their messages, clients that change something.
//!
//! What is left out would make the outcome as open as the order: retained messages and wills in a race, publishers whose own
//! connection ends in it, and shared subscriptions, where who gets a message depends on every message before.

use super::super::scenario::{Action, Post};
use super::Generator;
use super::posts::{ALIAS_MAX, MARK_BYTES};

/// Messages of one publisher.
const POSTS_MAX: usize = 12;

impl Generator {
    /// Adds a race; `false` if there is nobody for it.
    pub(super) fn race(&mut self) -> bool {
        if self.flavour.shared > 0 {
            return false;
        }
        let mut idle: Vec<usize> = (0..self.clients.len())
            .filter(|&client| self.clients[client].can_act() && !self.clients[client].is_holding)
            .collect();
        let mut away: Vec<usize> =
            (0..self.clients.len()).filter(|&client| !self.clients[client].is_online).collect();
        let mut steps = Vec::new();
        let publishers = self.rng.between(1, 3);
        for _ in 0..publishers {
            let Some(client) = self.take(&mut idle) else { break };
            let posts = self.race_posts(client);
            if !posts.is_empty() {
                steps.push(self.step(client, Action::Publish(posts)));
            }
        }
        let changers = self.rng.between(0, 2);
        for _ in 0..changers {
            if self.rng.percent(30)
                && let Some(client) = self.take(&mut away)
            {
                let action = self.connect_quietly(client);
                let step = self.step(client, action);
                let at = self.rng.below(steps.len() + 1);
                steps.insert(at, step);
                continue;
            }
            let Some(client) = self.take(&mut idle) else { break };
            let is_connection = self.rng.percent(40) && !self.clients[client].has_will;
            let action = match (is_connection, self.rng.below(4)) {
                (false, 0) => self.unsubscribe(client),
                (false, _) => self.subscribe(client),
                (true, 0) => self.leave(client, Action::Drop),
                (true, 1) => self.disconnect(client),
                (true, 2) => self.leave(client, Action::Reset),
                (true, _) => self.connect_quietly(client),
            };
            let step = self.step(client, action);
            let at = self.rng.below(steps.len() + 1);
            steps.insert(at, step);
        }
        let is_race = steps.len() > 1;
        if !steps.is_empty() {
            self.push(steps);
        }
        is_race
    }

    /// Without a will.
    fn connect_quietly(&mut self, client: usize) -> Action {
        let will = std::mem::take(&mut self.flavour.will);
        let action = self.connect(client, true);
        self.flavour.will = will;
        action
    }

    pub(super) fn take(&mut self, idle: &mut Vec<usize>) -> Option<usize> {
        (!idle.is_empty()).then(|| idle.swap_remove(self.rng.below(idle.len())))
    }

    /// Messages with a mark, each once, not retained.
    fn race_posts(&mut self, client: usize) -> Vec<Post> {
        let retained = std::mem::take(&mut self.flavour.retained);
        let mut posts = self.posts(client, POSTS_MAX);
        self.flavour.retained = retained;
        for post in &mut posts {
            post.payload_bytes = post.payload_bytes.max(MARK_BYTES);
            post.is_repeated = false;
            // One that is not known or not allowed would end the connection.
            post.alias = post.alias.map(|(alias, _)| (alias.min(ALIAS_MAX), true));
        }
        posts
    }
}

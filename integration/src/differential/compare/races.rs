//! What races leave open, and what holds for it all the same.

use std::collections::{BTreeMap, BTreeSet};

use super::super::filter::matches;
use super::super::play::Conversation;
use super::super::record::{Event, Received, properties};
use super::super::scenario::{Action, Mark, Post, Scenario};

/// What one client changes in a race.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// Its connection, so everything.
    is_connection: bool,
    subscribed: Vec<String>,
    unsubscribed: Vec<String>,
}

pub(super) struct Races<'a> {
    scenario: &'a Scenario,
    /// By group and client.
    changes: BTreeMap<(usize, usize), Change>,
}

impl<'a> Races<'a> {
    pub(super) fn new(scenario: &'a Scenario, runs: [&[Conversation]; 2]) -> Races<'a> {
        let mut changes: BTreeMap<(usize, usize), Change> = BTreeMap::new();
        for group in scenario.groups.iter().filter(|group| group.is_race()) {
            for step in &group.steps {
                let change = changes.entry((group.number, step.client)).or_default();
                match &step.action {
                    Action::Publish(_) => {}
                    Action::Subscribe { filters, .. } => {
                        change.subscribed.extend(filters.iter().map(|(filter, _)| filter.clone()));
                    }
                    Action::Unsubscribe(filters) => {
                        change.unsubscribed.extend(filters.iter().cloned());
                    }
                    _ => change.is_connection = true,
                }
            }
        }
        // Whoever loses its connection in a race, by whatever it did, may have got more or less before.
        for conversation in runs.into_iter().flatten() {
            if let Some(group) = conversation.closed_in
                && scenario.groups.iter().any(|it| it.number == group && it.is_race())
            {
                changes.entry((group, conversation.client)).or_default().is_connection = true;
            }
        }
        Races { scenario, changes }
    }

    /// The change of `client` that makes this message loose for it.
    pub(super) fn change(&self, mark: Mark, topic: &str, client: usize) -> Option<&Change> {
        let change = self.changes.get(&(mark.group, client))?;
        let mut filters = change.subscribed.iter().chain(&change.unsubscribed);
        (change.is_connection || filters.any(|filter| matches(filter, topic))).then_some(change)
    }

    /// Whether a client ever changes something in a race.
    pub(super) fn is_changing(&self, client: usize) -> bool {
        let is_change = |change: &Change| {
            change.is_connection || !change.subscribed.is_empty() || !change.unsubscribed.is_empty()
        };
        self.changes.iter().any(|((_, who), change)| *who == client && is_change(change))
    }

    pub(super) fn is_loose(&self, received: &Received, client: usize) -> bool {
        received.mark.is_some_and(|mark| self.change(mark, &received.topic, client).is_some())
    }

    /// Whether a message raced with a SUBSCRIBE of `client` for it, and nothing else.
    pub(super) fn is_subscribing(&self, received: &Received, client: usize) -> bool {
        let change = received.mark.and_then(|mark| self.change(mark, &received.topic, client));
        change.is_some_and(|change| !change.is_connection && change.unsubscribed.is_empty())
    }

    pub(super) fn is_race(&self, number: usize) -> bool {
        self.scenario.groups.iter().any(|group| group.number == number && group.is_race())
    }

    /// What must hold for loose messages in every run.
    pub(super) fn check(&self, run: &str, conversations: &[Conversation]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut seen = BTreeSet::new();
        for (index, conversation) in conversations.iter().enumerate() {
            let client = conversation.client;
            let mut streams: BTreeMap<(usize, usize, u8, String), Vec<&Received>> = BTreeMap::new();
            for event in &conversation.events {
                if let Event::Publish(it) = event
                    && let Some(mark) = it.mark
                    && self.is_loose(it, client)
                {
                    let stream = (mark.group, mark.client, mark.qos, it.topic.clone());
                    streams.entry(stream).or_default().push(it);
                }
            }
            for ((group, publisher, qos, topic), received) in streams {
                let posts = self.posts(group, publisher, qos, &topic);
                let complaint = self.check_stream(client, &posts, &received, &mut seen);
                wrong.extend(complaint.map(|complaint| {
                    let numbers: Vec<_> =
                        received.iter().filter_map(|it| Some(it.mark?.number)).collect();
                    format!(
                        "{run}, connection {index} (client {client}), race {group}, QoS {qos} of client \
                         {publisher} on {topic:?}: {complaint}; received {numbers:?} of {posts:?}"
                    )
                }));
            }
        }
        wrong
    }

    /// What is wrong with the loose messages one connection received of one stream of `posts`. `seen` has those of the client's
    /// earlier connections with QoS 0.
    fn check_stream(
        &self,
        client: usize,
        posts: &[usize],
        received: &[&Received],
        seen: &mut BTreeSet<(usize, usize)>,
    ) -> Option<&'static str> {
        let first = received.first()?;
        let change = self.change(first.mark?, &first.topic, client)?;
        // Sent again after a resume: anywhere, and as often as it takes.
        let fresh: Vec<&&Received> = received.iter().filter(|it| !it.is_duplicate).collect();
        let numbers: Vec<usize> = fresh.iter().filter_map(|it| Some(it.mark?.number)).collect();
        let copies_max = self.filters_of(client, &first.topic).max(1);
        let distinct: BTreeSet<usize> = numbers.iter().copied().collect();
        let is_multiple =
            |number: &usize| numbers.iter().filter(|it| *it == number).count() > copies_max;
        if distinct.iter().any(is_multiple) {
            return Some("more copies than subscriptions");
        }
        let places: Vec<usize> = distinct
            .iter()
            .filter_map(|number| posts.iter().position(|post| post == number))
            .collect();
        if places.len() != distinct.len() {
            return Some("a message nobody published there");
        }
        if self.has_packet_limit(client) {
            // What is too large for it is left out.
            return None;
        }
        if places.windows(2).any(|pair| pair[1] != pair[0] + 1) {
            return Some("a gap");
        }
        let only_subscribes = !change.is_connection && change.unsubscribed.is_empty();
        if only_subscribes && places.last().is_some_and(|&last| last + 1 != posts.len()) {
            return Some("the end is missing behind a SUBSCRIBE");
        }
        let only_unsubscribes = !change.is_connection && change.subscribed.is_empty();
        if only_unsubscribes && places.first().is_some_and(|&place| place != 0) {
            return Some("the start is missing before an UNSUBSCRIBE");
        }
        let mut once = fresh.iter().filter(|it| it.qos == 0).filter_map(|it| it.mark);
        if copies_max == 1 && once.any(|mark| !seen.insert((client, mark.number))) {
            return Some("QoS 0 received by two connections of one client");
        }
        None
    }

    /// Numbers of the messages of one stream, in order.
    fn posts(&self, group: usize, publisher: usize, qos: u8, topic: &str) -> Vec<usize> {
        let is_in = |post: &&Post| {
            post.group == group && post.message.qos == qos && post.message.topic == topic
        };
        let groups = self.scenario.groups.iter().filter(|it| it.number == group);
        groups
            .flat_map(|group| &group.steps)
            .filter(|step| step.client == publisher)
            .filter_map(|step| match &step.action {
                Action::Publish(posts) => Some(posts),
                _ => None,
            })
            .flatten()
            .filter(is_in)
            .map(|post| post.number)
            .collect()
    }

    /// Whether a client ever sets a Maximum Packet Size.
    fn has_packet_limit(&self, client: usize) -> bool {
        let steps = self.scenario.groups.iter().flat_map(|group| &group.steps);
        steps.filter(|step| step.client == client).any(|step| match &step.action {
            Action::Connect { login, .. } => {
                properties(&login.properties).iter().any(|text| text.starts_with("27="))
            }
            _ => false,
        })
    }

    /// How many different filters that match a client ever has.
    fn filters_of(&self, client: usize, topic: &str) -> usize {
        self.subscriptions_of(client, topic).into_iter().collect::<BTreeSet<_>>().len()
    }

    /// Every subscribing of a client to what matches.
    pub(super) fn subscriptions_of(&self, client: usize, topic: &str) -> Vec<&'a str> {
        fn collect<'a>(action: &'a Action, filters: &mut Vec<&'a str>) {
            match action {
                Action::Subscribe { filters: some, .. } => {
                    filters.extend(some.iter().map(|(filter, _)| filter.as_str()));
                }
                Action::Connect { early, .. } => {
                    early.iter().for_each(|action| collect(action, filters));
                }
                _ => {}
            }
        }
        let mut filters = Vec::new();
        let steps = self.scenario.groups.iter().flat_map(|group| &group.steps);
        steps
            .filter(|step| step.client == client)
            .for_each(|step| collect(&step.action, &mut filters));
        filters.retain(|filter| matches(filter, topic));
        filters
    }
}

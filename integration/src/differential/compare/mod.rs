//! Whether two runs of a scenario came to the same, as far as MQTT says what they must come to.
//!
//! Every PUBLISH is compared with all it carries, in order among those of one publisher, topic and QoS
//! (MQTT 3.1.1 §4.6); every other packet with its codes and properties, in order among those of its kind.
//!
//! A race leaves open where one client's change falls among another's messages. Such messages are *loose* for the client that
//! changes: each run alone must then show a stretch of them without gaps, in order, none twice that QoS 0 forbids.
//!
//! A broker that ends a connection leaves behind what it had no room to write, and how much that is depends on the sockets'
//! buffers: large messages of that moment, and acknowledgements and the DISCONNECT behind them, may be missing in either run.

use std::collections::{BTreeMap, BTreeSet};

use super::play::Conversation;
use super::record::{Event, Received, properties};
use super::scenario::{Action, Mark, Post, Scenario};

/// Reason Code "no matching subscribers", MQTT 5 §3.4.2.1: in a race it is open whether there are some.
const NO_MATCHING_SUBSCRIBERS: u8 = 0x10;

/// What a socket may have no room for at once, in bytes.
const MUCH_BYTES: usize = 50_000;

/// Says where the runs differ, and where one breaks what holds for races.
#[must_use]
pub fn compare(
    scenario: &Scenario,
    plain: &[Conversation],
    on_card: &[Conversation],
) -> Vec<String> {
    let races = Races::new(scenario, [plain, on_card]);
    let mut differences = Vec::new();
    if plain.len() != on_card.len() {
        let (plain, on_card) = (plain.len(), on_card.len());
        differences.push(format!("connections: {plain} alone, {on_card} on the card"));
    }
    for (index, (plain, on_card)) in plain.iter().zip(on_card).enumerate() {
        let name = format!("connection {index} (client {})", plain.client);
        let cut = races.cut(plain, on_card);
        let (expected, got) = (races.settled(plain, cut), races.settled(on_card, cut));
        let kinds: BTreeSet<&String> = expected.keys().chain(got.keys()).collect();
        for kind in kinds {
            differences.extend(contrast(&name, kind, &expected, &got));
        }
    }
    for (run, conversations) in [("alone", plain), ("on the card", on_card)] {
        differences.extend(races.check(run, conversations));
    }
    differences
}

type Sequences = BTreeMap<String, Vec<String>>;

fn contrast(name: &str, kind: &str, expected: &Sequences, got: &Sequences) -> Option<String> {
    let none = Vec::new();
    let expected = expected.get(kind).unwrap_or(&none);
    let got = got.get(kind).unwrap_or(&none);
    if expected == got {
        return None;
    }
    let same = expected.iter().zip(got).take_while(|(left, right)| left == right).count();
    let at = |list: &[String]| list.get(same).cloned().unwrap_or_else(|| "nothing more".to_owned());
    Some(format!(
        "{name}, {kind}: {} alone, {} on the card; number {same} is\n    alone        {}\n    on the card  {}",
        expected.len(),
        got.len(),
        at(expected),
        at(got),
    ))
}

/// What one client changes in a race.
#[derive(Debug, Default)]
struct Change {
    /// Its connection, so everything.
    is_connection: bool,
    subscribed: Vec<String>,
    unsubscribed: Vec<String>,
}

struct Races<'a> {
    scenario: &'a Scenario,
    /// By group and client.
    changes: BTreeMap<(usize, usize), Change>,
    /// Clients whose connection takes part in a race.
    unsteady: BTreeSet<usize>,
}

impl<'a> Races<'a> {
    fn new(scenario: &'a Scenario, runs: [&[Conversation]; 2]) -> Races<'a> {
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
        let unsteady = changes
            .iter()
            .filter(|(_, change)| change.is_connection)
            .map(|((_, client), _)| *client)
            .collect();
        Races { scenario, changes, unsteady }
    }

    /// The change of `client` that makes this message loose for it.
    fn change(&self, mark: Mark, topic: &str, client: usize) -> Option<&Change> {
        let change = self.changes.get(&(mark.group, client))?;
        let mut filters = change.subscribed.iter().chain(&change.unsubscribed);
        (change.is_connection || filters.any(|filter| matches(filter, topic))).then_some(change)
    }

    /// What has to be the same in both runs, by kind.
    fn settled(&self, conversation: &Conversation, cut: Option<usize>) -> Sequences {
        let client = conversation.client;
        let mut sequences = Sequences::new();
        for event in &conversation.events {
            let (kind, text) = match event {
                Event::Publish(it) if self.is_loose(it, client) => continue,
                Event::Publish(it)
                    if cut.is_some()
                        && (it.is_retained || it.mark.map(|mark| mark.group) == cut) =>
                {
                    continue;
                }
                Event::Cut(..) | Event::Disconnect(_) if cut.is_some() => continue,
                Event::Ack { group, .. } if cut.is_some() && *group == cut => continue,
                Event::Publish(it) => (stream_of(it), event.to_string()),
                Event::Ack { kind, group, rest } => {
                    let is_race = group.is_some_and(|number| self.is_race(number));
                    let is_open = is_race && rest.first() == Some(&NO_MATCHING_SUBSCRIBERS);
                    let rest = if is_open { &[][..] } else { rest };
                    (format!("packets of type {kind}"), format!("{rest:02x?}"))
                }
                // Those of loose messages cannot be told from others.
                Event::Pubrel(_) if self.unsteady.contains(&client) => continue,
                Event::Pubrel(rest) => ("PUBREL".to_owned(), format!("{rest:02x?}")),
                Event::Granted { kind, .. } => {
                    (format!("packets of type {kind}"), event.to_string())
                }
                other => ("connection".to_owned(), other.to_string()),
            };
            sequences.entry(kind).or_default().push(text);
        }
        sequences
    }

    /// The group in which a connection ended before the broker had written all, if it did: one run shows a piece of a packet, or
    /// one has a DISCONNECT that the other lacks, and more than a socket may have room for was on its way.
    fn cut(&self, plain: &Conversation, on_card: &Conversation) -> Option<usize> {
        let number = plain.closed_in.or(on_card.closed_in)?;
        let has = |run: &Conversation, is: fn(&Event) -> bool| run.events.iter().any(is);
        let is_piece = |event: &Event| matches!(event, Event::Cut(..));
        let is_last = |event: &Event| matches!(event, Event::Disconnect(_));
        if has(plain, is_piece) || has(on_card, is_piece) {
            return Some(number);
        }
        let groups = self.scenario.groups.iter().filter(|group| group.number == number);
        let bytes: usize = groups
            .flat_map(|group| &group.steps)
            .map(|step| match &step.action {
                Action::Publish(posts) => posts.iter().map(|post| post.payload_bytes).sum(),
                _ => 0,
            })
            .sum();
        (has(plain, is_last) != has(on_card, is_last) && bytes >= MUCH_BYTES).then_some(number)
    }

    fn is_loose(&self, received: &Received, client: usize) -> bool {
        received.mark.is_some_and(|mark| self.change(mark, &received.topic, client).is_some())
    }

    fn is_race(&self, number: usize) -> bool {
        self.scenario.groups.iter().any(|group| group.number == number && group.is_race())
    }

    /// What must hold for loose messages in every run.
    fn check(&self, run: &str, conversations: &[Conversation]) -> Vec<String> {
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
        for qos in 0..=2 {
            let of_qos = fresh.iter().filter(|it| it.qos == qos);
            let in_order: Vec<usize> = of_qos.filter_map(|it| Some(it.mark?.number)).collect();
            if !in_order.is_sorted() {
                return Some("out of order");
            }
        }
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
        fn collect<'a>(action: &'a Action, filters: &mut BTreeSet<&'a str>) {
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
        let mut filters = BTreeSet::new();
        let steps = self.scenario.groups.iter().flat_map(|group| &group.steps);
        steps
            .filter(|step| step.client == client)
            .for_each(|step| collect(&step.action, &mut filters));
        filters.into_iter().filter(|filter| matches(filter, topic)).count()
    }
}

/// Messages that stay in order.
fn stream_of(received: &Received) -> String {
    let Received { topic, qos, .. } = received;
    match received.mark {
        Some(mark) => format!(
            "PUBLISHes of client {} with QoS {} on {topic:?}, delivered with QoS {qos}",
            mark.client, mark.qos
        ),
        None => format!("empty PUBLISHes on {topic:?} with QoS {qos}"),
    }
}

/// MQTT 3.1.1 §4.7. A shared filter matches by its own filter.
fn matches(filter: &str, topic: &str) -> bool {
    let filter = match filter.strip_prefix("$share/") {
        Some(rest) => rest.split_once('/').map_or(rest, |(_, filter)| filter),
        None => filter,
    };
    if topic.starts_with('$') && !filter.starts_with('$') {
        return false;
    }
    let mut levels = topic.split('/');
    for level in filter.split('/') {
        match (level, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (level, Some(other)) if level == other => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests;

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
//!
//! ```text
//! two runs ─┬─► settled: equal, here            each run ─┬─► loose: a stretch without gaps, in `races`
//!           └─► loose: left out                           └─► all: no message overtakes another, in `order`
//! ```

mod order;
mod races;

use std::collections::{BTreeMap, BTreeSet};

use super::play::Conversation;
use super::record::{Event, Received};
use super::scenario::{Action, Scenario};
use races::Races;

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
        let cut = cut(scenario, plain, on_card);
        let (expected, got) = (settled(&races, plain, cut), settled(&races, on_card, cut));
        let kinds: BTreeSet<&String> = expected.keys().chain(got.keys()).collect();
        for kind in kinds {
            differences.extend(contrast(&name, kind, &expected, &got));
        }
    }
    for (run, conversations) in [("alone", plain), ("on the card", on_card)] {
        differences.extend(races.check(run, conversations));
        differences.extend(order::check(&races, run, conversations));
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

/// What has to be the same in both runs, by kind.
fn settled(races: &Races<'_>, conversation: &Conversation, cut: Option<usize>) -> Sequences {
    let client = conversation.client;
    let mut sequences = Sequences::new();
    for event in &conversation.events {
        let (kind, text) = match event {
            Event::Publish(it) if races.is_loose(it, client) => continue,
            Event::Publish(it)
                if cut.is_some() && (it.is_retained || it.mark.map(|mark| mark.group) == cut) =>
            {
                continue;
            }
            Event::Cut(..) | Event::Disconnect(_) if cut.is_some() => continue,
            Event::Ack { group, .. } if cut.is_some() && *group == cut => continue,
            Event::Publish(it) => (stream_of(it), event.to_string()),
            Event::Ack { kind, group, rest } => {
                let is_race = group.is_some_and(|number| races.is_race(number));
                let is_open = is_race && rest.first() == Some(&NO_MATCHING_SUBSCRIBERS);
                let rest = if is_open { &[][..] } else { rest };
                (format!("packets of type {kind}"), format!("{rest:02x?}"))
            }
            // Those of loose messages cannot be told from others.
            Event::Pubrel(_) if races.is_changing(client) => continue,
            Event::Pubrel(rest) => ("PUBREL".to_owned(), format!("{rest:02x?}")),
            Event::Granted { kind, .. } => (format!("packets of type {kind}"), event.to_string()),
            other => ("connection".to_owned(), other.to_string()),
        };
        sequences.entry(kind).or_default().push(text);
    }
    sequences
}

/// The group in which a connection ended before the broker had written all, if it did: one run shows a piece of a packet, or
/// one has a DISCONNECT that the other lacks, and more than a socket may have room for was on its way.
fn cut(scenario: &Scenario, plain: &Conversation, on_card: &Conversation) -> Option<usize> {
    let number = plain.closed_in.or(on_card.closed_in)?;
    let has = |run: &Conversation, is: fn(&Event) -> bool| run.events.iter().any(is);
    let is_piece = |event: &Event| matches!(event, Event::Cut(..));
    let is_last = |event: &Event| matches!(event, Event::Disconnect(_));
    if has(plain, is_piece) || has(on_card, is_piece) {
        return Some(number);
    }
    let groups = scenario.groups.iter().filter(|group| group.number == number);
    let bytes: usize = groups
        .flat_map(|group| &group.steps)
        .map(|step| match &step.action {
            Action::Publish(posts) => posts.iter().map(|post| post.payload_bytes).sum(),
            _ => 0,
        })
        .sum();
    (has(plain, is_last) != has(on_card, is_last) && bytes >= MUCH_BYTES).then_some(number)
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

#[cfg(test)]
mod tests;

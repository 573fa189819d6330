//! What holds in every run whatever the timing: no message overtakes another of its publisher, topic and QoS
//! (MQTT 3.1.1 §4.6), and a retained message does not come behind newer ones.
//!
//! Messages sent again after a resume (DUP) are not counted. A publisher's numbers grow.

use std::collections::BTreeMap;

use super::super::play::Conversation;
use super::super::record::{Event, Received};
use super::races::Races;
use super::stream_of;

/// Says what overtook what.
pub(super) fn check(races: &Races<'_>, run: &str, conversations: &[Conversation]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, conversation) in conversations.iter().enumerate() {
        let received = conversation.events.iter().filter_map(|event| match event {
            Event::Publish(it) if !it.is_duplicate => Some(it),
            _ => None,
        });
        let received: Vec<&Received> = received.collect();
        let complaints = overtaken(&received).into_iter().chain(late_retained(
            races,
            conversation.client,
            &received,
        ));
        wrong.extend(complaints.map(|complaint| {
            format!("{run}, connection {index} (client {}): {complaint}", conversation.client)
        }));
    }
    wrong
}

fn overtaken(received: &[&Received]) -> Vec<String> {
    let mut streams: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for it in received.iter().filter(|it| !it.is_retained) {
        if let Some(mark) = it.mark {
            streams.entry(stream_of(it)).or_default().push(mark.number);
        }
    }
    streams.retain(|_, numbers| !numbers.is_sorted());
    let tell = |(stream, numbers)| format!("{stream}: out of order: {numbers:?}");
    streams.into_iter().map(tell).collect()
}

/// Retained messages behind newer ones that raced with the only SUBSCRIBE they can be for.
fn late_retained(races: &Races<'_>, client: usize, received: &[&Received]) -> Option<String> {
    let is_late = |(place, it): (usize, &&Received)| {
        // An empty one is never kept.
        it.is_retained
            && it.mark.is_some()
            && races.subscriptions_of(client, &it.topic).len() == 1
            && received[..place].iter().any(|before| {
                !before.is_retained
                    && before.topic == it.topic
                    // With Retain As Published a newer message has the flag too.
                    && before.mark.map(|mark| mark.group) > it.mark.map(|mark| mark.group)
                    && races.is_subscribing(before, client)
            })
    };
    let place = received.iter().enumerate().position(is_late)?;
    Some(format!("a retained message on {:?} comes behind newer ones", received[place].topic))
}

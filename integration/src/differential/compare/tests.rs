use super::super::scenario::{Cut, Group, Post, Step};
use super::*;
use crate::mqtt::Message;

const TOPIC: &str = "a/b";

fn post(group: usize, number: usize) -> Post {
    Post { number, group, message: Message::new(TOPIC, ""), payload_bytes: 40, ..Post::default() }
}

fn step(client: usize, action: Action) -> Step {
    Step { client, action, cut: Cut::Joined }
}

/// Client 0 publishes four messages, while client 1 does `change`, if anything.
fn scenario(change: Option<Action>) -> Scenario {
    let posts = Action::Publish((0..4).map(|number| post(3, number)).collect());
    let mut steps = vec![step(0, posts)];
    steps.extend(change.map(|change| step(1, change)));
    Scenario { seed: 0, clients: 2, groups: vec![Group { number: 3, change: None, steps }] }
}

fn subscribe() -> Option<Action> {
    Some(Action::Subscribe { filters: vec![("a/#".to_owned(), 0)], identifier: None })
}

/// What client 1 received.
fn received(numbers: &[usize]) -> Vec<Conversation> {
    let events = numbers.iter().map(|&number| {
        let payload = post(3, number).payload(0);
        Event::from(&Message::new(TOPIC, payload))
    });
    vec![Conversation { client: 1, events: events.collect(), closed_in: None }]
}

#[test]
fn a_settled_subscription_misses_nothing_and_keeps_order() {
    let settled = scenario(None);
    let all = received(&[0, 1, 2, 3]);
    assert!(compare(&settled, &all, &all).is_empty());
    for wrong in [&[0, 1, 2][..], &[0, 2, 1, 3], &[0, 1, 1, 2, 3]] {
        assert!(!compare(&settled, &all, &received(wrong)).is_empty(), "{wrong:?}");
    }
}

#[test]
fn a_subscription_in_a_race_may_begin_anywhere_but_has_no_gap() {
    let race = scenario(subscribe());
    for right in [&[][..], &[3], &[1, 2, 3], &[0, 1, 2, 3]] {
        let differences = compare(&race, &received(&[2, 3]), &received(right));
        assert!(differences.is_empty(), "{differences:?}");
    }
    for wrong in [&[1, 2][..], &[1, 3], &[2, 1, 3], &[2, 2, 3]] {
        assert!(!compare(&race, &received(&[2, 3]), &received(wrong)).is_empty(), "{wrong:?}");
    }
}

#[test]
fn the_end_of_a_subscription_in_a_race_may_be_anywhere_but_its_start_is_there() {
    let race = scenario(Some(Action::Unsubscribe(vec!["a/b".to_owned()])));
    assert!(compare(&race, &received(&[]), &received(&[0, 1])).is_empty());
    assert_eq!(compare(&race, &received(&[]), &received(&[1, 2])).len(), 1);
}

#[test]
fn a_retained_message_may_not_come_behind_what_raced_with_its_subscribe() {
    let race = scenario(subscribe());
    let with_retained = |at: usize| {
        let mut run = received(&[1, 2, 3]);
        let retained = Message::new(TOPIC, post(1, 77).payload(0)).retained();
        run[0].events.insert(at, Event::from(&retained));
        run
    };
    assert!(compare(&race, &with_retained(0), &with_retained(0)).is_empty());
    assert_eq!(compare(&race, &with_retained(0), &with_retained(1)).len(), 1);
}

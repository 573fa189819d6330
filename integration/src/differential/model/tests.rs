use super::super::brand::Brand;
use super::super::scenario::{Cut, Post};
use super::super::terms::Trust;
use super::*;
use crate::mqtt::{Login, Message};

fn step(client: usize, action: Action) -> Group {
    let steps = vec![Step { client, action, cut: Cut::Joined }];
    Group { number: 0, change: None, steps }
}

fn connect(client: usize, login: Login) -> Group {
    step(client, Action::Connect { login, is_anonymous: false, user: client, early: Vec::new() })
}

fn subscribe(client: usize, filters: &[(&str, u8)]) -> Group {
    let filters = filters.iter().map(|&(filter, options)| (filter.to_owned(), options)).collect();
    step(client, Action::Subscribe { filters, identifier: None })
}

fn publish(client: usize, message: Message) -> Group {
    let post = Post { message, payload_bytes: 40, ..Post::default() };
    step(client, Action::Publish(vec![post]))
}

fn walk_of(trust: Trust, groups: Vec<Group>) -> Walk {
    let scenario = Scenario { seed: 0, clients: 3, groups };
    walk(&scenario, Terms { trust, ..Terms::default() })
}

fn eligible_on(brand: Brand, groups: &[Group]) -> usize {
    let scenario = Scenario { seed: 0, clients: 3, groups: groups.to_vec() };
    walk(&scenario, Terms { brand, trust: Trust::Suback }).eligible
}

/// Client 0 is there, client 1 has these subscriptions.
fn audience(filters: &[(&str, u8)]) -> Vec<Group> {
    vec![connect(0, Login::new("")), connect(1, Login::new("")), subscribe(1, filters)]
}

#[test]
fn a_plain_publish_is_eligible_and_walks_into_nothing() {
    let groups = [audience(&[("a", 0)]), vec![publish(0, Message::new("a", ""))]].concat();
    let walk = walk_of(Trust::Suback, groups);
    assert_eq!((walk.publishes, walk.eligible), (1, 1));
    assert!(walk.traps.is_empty(), "{:?}", walk.traps);
}

#[test]
fn what_the_card_must_not_take_is_not_eligible_and_says_why() {
    let cases = [
        (vec![("a", 0)], Message::new("a", "").retained(), 13),
        (vec![("a", 0)], Message::new("b", ""), 26),
        (vec![("a", 0), ("#", 0)], Message::new("a", ""), 8),
        (vec![("$share/g/a", 0)], Message::new("a", ""), 10),
        (vec![("a", 1)], Message::new("a", "").qos(2), 7),
    ];
    for (filters, message, number) in cases {
        let groups = [audience(&filters), vec![publish(0, message)]].concat();
        let walk = walk_of(Trust::Suback, groups);
        assert_eq!(walk.eligible, 0, "trap {number}");
        assert_eq!(walk.traps.get(&Trap(number)), Some(&1), "{:?}", walk.traps);
    }
}

#[test]
fn behind_a_slow_publish_one_waits_for_the_barrier() {
    let slow = publish(0, Message::new("a", "").retained());
    let fast = || publish(0, Message::new("a", ""));
    let groups = [audience(&[("a", 0)]), vec![slow, fast(), fast()]].concat();
    let walk = walk_of(Trust::Suback, groups);
    assert_eq!((walk.publishes, walk.eligible), (3, 1));
    assert_eq!(walk.traps.get(&Trap(15)), Some(&1));
}

#[test]
fn behind_a_slow_publish_other_topics_wait_where_answers_tell_and_each_for_itself_where_copies_do()
{
    let slow = publish(0, Message::new("a", "").qos(2));
    let fast = |topic: &str| publish(0, Message::new(topic, ""));
    let mut groups = audience(&[("a", 0), ("b", 0)]);
    groups.extend([slow, fast("b"), fast("b"), fast("a")]);
    assert_eq!(eligible_on(Brand::Mosquitto, &groups), 2, "all but the one that asks");
    assert_eq!(
        eligible_on(Brand::Ejabberd, &groups),
        1,
        "the copy on one topic says nothing of another"
    );
    groups.push(fast("a"));
    assert_eq!(eligible_on(Brand::Ejabberd, &groups), 2);
    // Nobody gets it.
    let groups = [audience(&[("a", 0)]), vec![fast("b"), fast("a")]].concat();
    assert_eq!(eligible_on(Brand::Mosquitto, &groups), 1);
}

#[test]
fn a_subscription_of_version_3_1_is_good_once_a_copy_has_come_of_it() {
    let fast = || publish(0, Message::new("a", ""));
    let old = Login::new("").version(Version::V31);
    let mut groups = vec![connect(0, Login::new("")), connect(1, old), subscribe(1, &[("a", 0)])];
    // The second one asks whether the first has arrived.
    groups.extend([fast(), fast()]);
    assert_eq!(eligible_on(Brand::Mosquitto, &groups), 0);
    groups.push(fast());
    assert_eq!(eligible_on(Brand::Mosquitto, &groups), 1);
    groups.extend([subscribe(1, &[("a", 0)]), fast()]);
    assert_eq!(eligible_on(Brand::Mosquitto, &groups), 1, "asked for anew");
}

#[test]
fn an_alias_is_no_obstacle_once_the_broker_knows_it() {
    let aliased = || {
        let message = Message::new("a", "");
        let alias = Some((1, true));
        let post = Post { message, payload_bytes: 40, alias, ..Post::default() };
        step(0, Action::Publish(vec![post]))
    };
    let mut groups = vec![connect(0, Login::new("").version(Version::V5))];
    groups.extend([connect(1, Login::new("")), subscribe(1, &[("a", 0)])]);
    groups.extend([aliased(), aliased()]);
    assert_eq!(eligible_on(Brand::Mosquitto, &groups), 0, "the second one asks");
    groups.push(aliased());
    assert_eq!(eligible_on(Brand::Mosquitto, &groups), 1);
}

#[test]
fn by_observation_a_new_subscriber_is_probed_again() {
    let fast = || publish(0, Message::new("a", ""));
    let mut groups = audience(&[("a", 0)]);
    groups.extend([fast(), fast(), fast(), fast()]);
    assert_eq!(walk_of(Trust::Observed, groups.clone()).eligible, 2);
    groups.extend([connect(2, Login::new("")), subscribe(2, &[("a", 0)]), fast()]);
    assert_eq!(walk_of(Trust::Observed, groups.clone()).eligible, 2);
    groups.push(fast());
    assert_eq!(walk_of(Trust::Observed, groups).eligible, 3);
}

#[test]
fn after_a_restart_a_session_that_goes_on_blinds_the_card() {
    let persistent = || connect(2, Login::new("").persistent());
    let fast = || publish(0, Message::new("a", ""));
    let restart = Group { number: 0, change: Some(Change::Restart), steps: Vec::new() };
    let mut groups = vec![persistent()];
    groups.extend(audience(&[("a", 0)]));
    groups.extend([fast(), restart]);
    groups.extend(audience(&[("a", 0)]));
    groups.push(fast());
    assert_eq!(walk_of(Trust::Suback, groups.clone()).eligible, 2);
    groups.extend([persistent(), fast()]);
    assert_eq!(walk_of(Trust::Suback, groups).eligible, 2);
}

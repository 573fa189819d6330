//! Copies that go past the outboxes: which ones, how many, and what becomes of those that are refused.

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{ConnId, DropReason, Limits};

impl Scene {
    /// A client sends, as a driver hears it whose stack sends at once: how many copies are to go past the outboxes.
    fn client_at_once(&mut self, conn: ConnId, bytes: impl AsRef<[u8]>) -> usize {
        self.core.handle_client_directly(conn, bytes.as_ref(), self.now);
        self.core.direct().iter().count()
    }

    /// The stack takes all that is to go past the outboxes: who got what.
    fn all_leave(&mut self) -> Vec<(ConnId, Vec<u8>)> {
        let left = self.core.direct().iter().map(|(to, _, bytes)| (to, bytes.to_vec())).collect();
        self.core.settle_direct(&[], self.now);
        left
    }

    /// The stack takes nothing.
    fn all_are_refused(&mut self) {
        let refused: Vec<u32> = (0..self.core.direct().iter().count() as u32).collect();
        self.core.settle_direct(&refused, self.now);
    }
}

#[test]
fn what_is_refused_waits_before_what_the_same_read_put_into_the_outbox() {
    let mut scene = Scene::new();
    let subscriber = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    let read = [publish("t", "1"), publish("t", "2"), publish("t", &"3".repeat(65_530))];
    let listed = scene.client_at_once(publisher, read.concat());
    assert_eq!(listed, 1, "those behind the first leave together");
    scene.all_are_refused();
    assert_eq!(scene.client_gets(subscriber), read.concat());
    assert_eq!(scene.core.counters().deliveries_card, 3);
}

#[test]
fn one_read_lists_one_fan_out_and_leaves_the_rest_to_the_outboxes() {
    let mut scene = Scene::new();
    let subscribers: Vec<ConnId> =
        (0..50).map(|number| scene.subscriber(&format!("s{number}"), "t")).collect();
    let publisher = scene.connect(v311("p"));
    let messages: Vec<Vec<u8>> = (0..900).map(|at| publish("t", &format!("{at:03}"))).collect();
    let listed = scene.client_at_once(publisher, messages.concat());
    assert_eq!(listed, subscribers.len());
    let mut got = vec![Vec::new(); scene.core.counters().connections as usize];
    for (to, bytes) in scene.all_leave() {
        got[to.0 as usize].extend(bytes);
    }
    for subscriber in subscribers {
        let waited = scene.client_gets(subscriber);
        got[subscriber.0 as usize].extend(waited);
        assert!(got[subscriber.0 as usize] == messages.concat(), "{subscriber:?}");
    }
    assert_eq!(scene.core.counters().outbox_dropped.iter().sum::<u64>(), 0);
}

#[test]
fn what_is_refused_is_never_dropped_for_its_bytes() {
    let mut scene = Scene::with_limits(Limits { outbox_bytes_max: 400, ..Limits::default() });
    let subscriber = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    let message = publish("t", &"x".repeat(150));
    scene.client_at_once(publisher, message.repeat(5));
    scene.all_are_refused();
    assert_eq!(scene.core.counters().outbox_dropped.iter().sum::<u64>(), 0);
    let taken = scene.client_gets(subscriber);
    assert_eq!([taken, scene.broker_gets(publisher)].concat(), message.repeat(5));
}

#[test]
fn what_is_refused_takes_nobodys_place() {
    let mut scene = Scene::with_limits(Limits { outbox_messages_max: 3, ..Limits::default() });
    let subscriber = scene.subscriber("s", "t");
    let publisher = scene.connect(v311("p"));
    let messages = ["1", "2", "3", "4", "5"].map(|payload| publish("t", payload));
    scene.client_at_once(publisher, messages.concat());
    scene.all_are_refused();
    assert_eq!(scene.core.counters().dropped(DropReason::Messages), 1);
    assert_eq!(scene.client_gets(subscriber), messages[..4].concat());
}

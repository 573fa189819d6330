//! Changes of policy and plugins on their way to the core.

use super::*;

impl Scene {
    fn changes(&self) -> u64 {
        self.card.survey().core.policy_changes
    }

    /// Tells the card of an epoch of the broker's.
    fn policy(&mut self, epoch: u64) {
        self.card.attach.policy(SESSION, epoch);
        self.run();
    }

    fn is_watched(&self) -> bool {
        let (_, session) = self.card.sessions.iter().next_back().unwrap();
        session.core.status().is_policy_watched
    }
}

#[test]
fn each_epoch_that_is_told_is_one_change_and_the_promise_is_none() {
    let mut scene = Scene::new();
    scene.policy(0);
    assert_eq!(scene.changes(), 0);
    scene.policy(1);
    scene.policy(5);
    assert_eq!(scene.changes(), 2, "several changes at once are as good as one");
}

#[test]
fn an_epoch_seen_in_memory_is_known_before_the_client_is_heard_and_told_no_second_time() {
    let mut scene = Scene::with(Trust::Suback, 1 << 20);
    let (publisher, _) = scene.mqtt_client(b'p');
    scene.epochs = Epochs(3);
    assert_eq!(scene.changes(), 0, "nobody was heard since");
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.changes(), 1);
    for late in 1..=3 {
        scene.policy(late);
    }
    scene.send(publisher, PUBLISH_A);
    assert_eq!(scene.changes(), 1);
    scene.policy(4);
    assert_eq!(scene.changes(), 2);
}

#[test]
fn only_a_broker_whose_policy_lies_in_files_is_watched() {
    for (program, is_watched) in [("mosquitto", true), ("node", false)] {
        let mut scene = Scene::new();
        let session = SessionId(7);
        scene.card.attach.open_as(session, program);
        scene.run();
        assert!(!scene.is_watched());
        scene.card.attach.policy(session, 0);
        scene.run();
        assert_eq!(scene.is_watched(), is_watched, "{program}");
    }
}

#[test]
fn an_unknown_plugin_sends_every_publish_to_the_broker() {
    let mut scene = Scene::new();
    let plugins = |scene: &Scene| scene.card.survey().slow[Reason::Plugin as usize];
    scene.card.attach.library(SESSION, "/usr/lib/mosquitto_dynamic_security.so");
    scene.run();
    assert_eq!(plugins(&scene), 0);
    scene.card.attach.library(SESSION, "/usr/lib/audit.so");
    scene.run();
    assert_eq!(plugins(&scene), 1);
    let (reason, name) = (Reason::Plugin, "/usr/lib/audit.so".to_owned());
    assert_eq!(scene.card.survey().blind, [Blind { reason, name }]);
}

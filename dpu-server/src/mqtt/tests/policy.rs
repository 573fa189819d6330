//! What the card is told of who may do what: changes, and plugins.

use super::packets::*;
use super::scene::Scene;
use crate::mqtt::{CoreConfig, Reason, Trust};

const PLUGIN: &str = "/usr/lib/x86_64-linux-gnu/mosquitto_audit.so";

#[test]
fn an_unknown_plugin_makes_everything_slow_where_trust_is_by_observation() {
    let mut scene = Scene::with_config(CoreConfig::default());
    scene.core.handle_plugin(PLUGIN);
    assert_eq!(scene.core.status().slow_reason, Some(Reason::Plugin));
    let publisher = scene.connect(v311("p"));
    scene.broker_takes(publisher, Reason::Plugin, publish("t", "1"));
    let mut scene =
        Scene::with_config(CoreConfig { trust: Trust::Suback, ..CoreConfig::default() });
    scene.core.handle_plugin(PLUGIN);
    assert_eq!(scene.core.status().slow_reason, None);
}

#[test]
fn a_plugin_that_is_known_or_that_the_operator_trusts_changes_nothing() {
    for trusted in ["mosquitto_audit.so", PLUGIN] {
        let trusted_plugins = [trusted.to_owned()].into();
        let mut scene = Scene::with_config(CoreConfig { trusted_plugins, ..CoreConfig::default() });
        let before = scene.core.status();
        scene.core.handle_plugin(PLUGIN);
        scene.core.handle_plugin("/usr/lib/mosquitto_dynamic_security.so");
        assert_eq!(scene.core.status(), before);
    }
}

#[test]
fn every_change_of_policy_is_counted_and_a_plugin_is_one() {
    let mut scene = Scene::new();
    scene.core.handle_policy_change();
    scene.core.handle_policy_change();
    scene.core.handle_plugin(PLUGIN);
    assert_eq!(scene.core.counters().policy_changes, 3);
    assert!(!scene.core.status().is_policy_watched);
    scene.core.handle_policy_watched();
    assert!(scene.core.status().is_policy_watched);
}

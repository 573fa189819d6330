//! What a broker permits changes when it reads a file or loads a plugin: the card knows before a client can.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use mqttshim_integration::{
    Broker, BrokerSetup, Card, Client, Folder, Message, needs, paths, wait,
};

/// Times that the broker may have changed what it permits.
fn changes(card: &Card) -> f64 {
    card.metrics().sum("mqttshim_policy_changes_total", &[])
}

/// A broker with an access list, which lets everybody read `open/#` only.
fn with_access_list(folder: &Folder, card: &Card) -> Broker {
    let acl = folder.write("acl", "topic read open/#\ntopic write #\n");
    let config = format!("acl_file {}", acl.display());
    let session = Some(card.session());
    let setup = BrokerSetup { session, config: &config, ..BrokerSetup::default() };
    Broker::start(folder, &setup)
}

#[test]
fn a_reloaded_access_list_is_known_before_the_broker_answers_again() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let mut broker = with_access_list(&folder, &card);
    let mut client = Client::new(broker.port(), "reader");
    for round in 1..=20 {
        let before = changes(&card);
        folder.write("acl", &format!("topic read open{round}/#\ntopic write #\n"));
        broker.reload();
        // Its last word before it opens the files: the next answer comes after.
        wait::until("the broker reloads", || {
            (broker.process.log().matches("Reloading config.").count() == round).then_some(())
        });
        client.ping().unwrap();
        // Published within 20 ms.
        card.await_metrics("the change", |it| {
            it.sum("mqttshim_policy_changes_total", &[]) > before
        });
    }
}

#[test]
fn clients_that_come_and_go_change_nothing() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let broker = with_access_list(&folder, &card);
    let before = changes(&card);
    for number in 0..50 {
        let mut client = Client::new(broker.port(), &format!("client{number}"));
        client.subscribe("open/x", 0);
        client.publish(&Message::new("open/x", "hello"));
        assert_eq!(client.message().payload, b"hello");
        client.disconnect();
    }
    card.await_metrics("every connection", |it| it.sum("mqttshim_connections_total", &[]) >= 50.0);
    assert!((changes(&card) - before).abs() < f64::EPSILON, "{}", card.metrics().text());
}

/// A broker with a plugin loaded: dynamic-security, by any name, open to everybody.
fn with_plugin(folder: &Folder, card: &Card, name: &str) -> Broker {
    const OPEN: &str = r#"{"defaultACLAccess": {
        "publishClientSend": true, "publishClientReceive": true, "subscribe": true, "unsubscribe": true
    }}"#;
    let plugin = folder.join(name);
    std::fs::copy(PLUGIN, &plugin).unwrap();
    let rules = folder.write("dynamic-security.json", OPEN);
    let config = format!("plugin {}\nplugin_opt_config_file {}", plugin.display(), rules.display());
    let session = Some(card.session());
    let setup = BrokerSetup { session, config: &config, ..BrokerSetup::default() };
    Broker::start(folder, &setup)
}

/// Debian's place for it.
const PLUGIN: &str = "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so";

/// Whether a plugin keeps the card from distributing for this broker.
#[track_caller]
fn is_held_back(more: &[&str], plugin: &str) -> bool {
    let folder = Folder::new();
    let card = Card::start_with(&folder, &[&["--trust", "observed"], more].concat());
    let broker = with_plugin(&folder, &card, plugin);
    let mut client = Client::new(broker.port(), "client");
    assert_eq!(client.subscribe("a", 0), 0, "the plugin lets everybody subscribe");
    // A plugin is a change of what is permitted, known or not.
    card.await_metrics("the plugin", |it| it.sum("mqttshim_policy_changes_total", &[]) >= 1.0);
    let held_back = card.metrics().sum("mqttshim_slow_sessions", &["reason=\"plugin\""]);
    held_back > 0.0
}

#[test]
fn an_unknown_plugin_holds_the_card_back_until_the_operator_trusts_it() {
    needs!("mosquitto");
    if needs::has_file(PLUGIN.as_ref()) {
        assert!(is_held_back(&[], "audit.so"));
        assert!(!is_held_back(
            &["--trust-plugin", "other.so", "--trust-plugin", "audit.so"],
            "audit.so"
        ));
        assert!(!is_held_back(&[], "mosquitto_dynamic_security.so"));
    }
}

/// What `mqttshim stat` says stands in the way.
fn obstacles(card: &Card) -> String {
    let mut stat = std::process::Command::new(paths::built("mqttshim"));
    stat.args(["stat", "--metrics", &format!("127.0.0.1:{}", card.metrics_port())]);
    let said = String::from_utf8(stat.output().unwrap().stdout).unwrap();
    said.lines().filter(|line| line.contains("not accelerated")).collect::<Vec<_>>().join("\n")
}

#[test]
fn stat_names_the_plugin_and_the_bridge_that_stand_in_the_way() {
    needs!("mosquitto");
    if !needs::has_file(PLUGIN.as_ref()) {
        return;
    }
    let folder = Folder::new();
    let card = Card::start_with(&folder, &["--trust", "observed"]);
    let broker = with_plugin(&folder, &card, "audit.so");
    let far = Broker::start(&folder, &BrokerSetup { name: Some("far"), ..BrokerSetup::default() });
    let bridge = format!("connection far\naddress 127.0.0.1:{}\ntopic # both", far.port());
    let session = Some(card.session());
    let setup =
        BrokerSetup { session, config: &bridge, name: Some("near"), ..BrokerSetup::default() };
    let _near = Broker::start(&folder, &setup);
    let bridge = format!("the broker has a connection to 127.0.0.1:{}", far.port());
    card.await_metrics("both", |it| it.sum("mqttshim_blind_spots", &[]) >= 2.0);
    let said = obstacles(&card);
    assert!(said.contains(&bridge), "{said}");
    assert!(said.contains("/audit.so is loaded"), "{said}");
    assert!(said.contains("--trust-plugin audit.so"), "{said}");
    drop(broker);
    card.await_metrics("one of them", |it| it.sum("mqttshim_blind_spots", &[]) < 2.0);
    let said = obstacles(&card);
    assert!(!said.contains("audit.so") && said.contains(&bridge), "{said}");
}

//! Every client, every feature, with the broker's sockets on the card; and the same against the broker alone.
//!
//! A foreign client is a script in `clients/` that prints a line of JSON a feature. The client by hand is here. What each
//! reports must be the same with and without the card.

#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use mqttshim_integration::{Broker, Card, Client, Folder, Login, Message, Version};
use mqttshim_integration::{Process, needs, paths, wait};

/// What a feature came to.
type Reports = BTreeMap<String, String>;
/// Tries a feature by hand, and says what came of it.
type Feature = fn(u16, Version) -> String;

const FEATURES: [&str; 9] =
    ["large", "persistent", "properties", "qos0", "qos1", "qos2", "retained", "wildcards", "will"];
/// For all features of one client.
const PATIENCE: Duration = Duration::from_secs(90);
const LARGE_BYTES: usize = 5_000_000;

/// Runs a client against the broker alone and against the broker on the card.
#[track_caller]
fn compare(version: Version, run: impl Fn(&Folder, u16) -> Reports) {
    let folder = Folder::new();
    let plain = Broker::plain(&folder);
    let expected = run(&folder, plain.port());
    drop(plain);
    let card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    let got = run(&folder, broker.port());
    assert_eq!(got, expected, "left: on the card; right: the broker alone");
    let known: Vec<&str> = got.keys().map(String::as_str).collect();
    assert_eq!(known, FEATURES);
    for (feature, report) in &got {
        assert!(report.starts_with("true "), "{feature}: {report}");
    }
    if version == Version::V31 {
        // A SUBACK of MQTT 3.1 cannot refuse, so it proves nothing to the card.
        let label = "reason=\"unproven_grant\"";
        let what = "PUBLISHes for clients of MQTT 3.1 go to the broker";
        card.await_metrics(what, |it| it.sum("mqttshim_publish_total", &[label]) >= 50.0);
    } else {
        let what = "the card distributes the PUBLISHes of QoS 0";
        card.await_metrics(what, |it| it.by_card() >= 50.0);
    }
    card.await_metrics("the others went to the broker", |it| it.by_broker() >= 40.0);
}

/// Runs a script to its end and collects its lines.
#[track_caller]
fn reports(folder: &Folder, name: &str, command: &mut Command) -> Reports {
    let mut process = Process::start(name, folder.path(), command);
    process.await_end_within(PATIENCE);
    let log = process.log();
    std::fs::remove_file(folder.join(&format!("{name}.log"))).unwrap();
    log.lines()
        .map(|line| {
            let value: serde_json::Value =
                serde_json::from_str(line).unwrap_or_else(|_| panic!("{name} wrote:\n{log}"));
            let (ok, detail) = (&value["ok"], value["detail"].as_str().unwrap_or_default());
            (value["feature"].as_str().unwrap_or_default().to_owned(), format!("{ok} {detail}"))
        })
        .collect()
}

fn mosquitto_clients(version: Version) {
    needs!("mosquitto", "mosquitto_pub", "mosquitto_sub", "bash");
    let level = match version {
        Version::V31 => "mqttv31",
        Version::V311 => "mqttv311",
        Version::V5 => "mqttv5",
    };
    compare(version, |folder, port| {
        let script = paths::own("clients/mosquitto_client.sh");
        let mut command = Command::new("bash");
        reports(folder, "mosquitto-clients", command.arg(script).arg(port.to_string()).arg(level))
    });
}

#[test]
fn mosquitto_clients_of_mqtt_31_see_no_difference() {
    mosquitto_clients(Version::V31);
}

#[test]
fn mosquitto_clients_of_mqtt_311_see_no_difference() {
    mosquitto_clients(Version::V311);
}

#[test]
fn mosquitto_clients_of_mqtt_5_see_no_difference() {
    mosquitto_clients(Version::V5);
}

/// The protocol level, as CONNECT has it.
fn level(version: Version) -> &'static str {
    match version {
        Version::V31 => "3",
        Version::V311 => "4",
        Version::V5 => "5",
    }
}

fn paho(version: Version) {
    needs!("mosquitto");
    let python = paths::workspace().join(".cache/python/bin/python");
    if !needs::has_file(&paths::workspace().join(".cache/python/.ready")) {
        return;
    }
    let level = level(version);
    compare(version, |folder, port| {
        let script = paths::own("clients/paho_client.py");
        let mut command = Command::new(&python);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        reports(folder, "paho", command.arg(script).arg(port.to_string()).arg(level))
    });
}

#[test]
fn paho_with_mqtt_31_sees_no_difference() {
    paho(Version::V31);
}

#[test]
fn paho_with_mqtt_311_sees_no_difference() {
    paho(Version::V311);
}

#[test]
fn paho_with_mqtt_5_sees_no_difference() {
    paho(Version::V5);
}

fn mqtt_js(version: Version) {
    needs!("mosquitto", "node");
    let modules = paths::workspace().join(".cache/node/node_modules");
    if !needs::has_file(&paths::workspace().join(".cache/node/.ready")) {
        return;
    }
    let level = level(version);
    compare(version, |folder, port| {
        let script = paths::own("clients/mqttjs_client.js");
        let mut command = Command::new("node");
        command.env("NODE_PATH", &modules);
        reports(folder, "mqttjs", command.arg(script).arg(port.to_string()).arg(level))
    });
}

#[test]
fn mqtt_js_with_mqtt_31_sees_no_difference() {
    mqtt_js(Version::V31);
}

#[test]
fn mqtt_js_with_mqtt_311_sees_no_difference() {
    mqtt_js(Version::V311);
}

#[test]
fn mqtt_js_with_mqtt_5_sees_no_difference() {
    mqtt_js(Version::V5);
}

/// A report without Packet Identifiers, which the sender chooses: the card other ones than the broker.
fn without_ids(report: &str) -> String {
    let mut parts = report.split("id: Some(");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once(')').unwrap();
        text += "id: any";
        text += rest;
    }
    text
}

fn by_hand(version: Version) {
    needs!("mosquitto");
    let features: [(&str, Feature); 9] = [
        ("qos0", |port, version| publishes(port, version, 0)),
        ("qos1", |port, version| publishes(port, version, 1)),
        ("qos2", |port, version| publishes(port, version, 2)),
        ("retained", retained),
        ("will", will),
        ("persistent", persistent),
        ("large", large),
        ("wildcards", wildcards),
        ("properties", properties),
    ];
    compare(version, |_, port| {
        features
            .iter()
            .map(|(name, run)| {
                ((*name).to_owned(), format!("true {}", without_ids(&run(port, version))))
            })
            .collect()
    });
}

#[test]
fn raw_sockets_with_mqtt_31_see_no_difference() {
    by_hand(Version::V31);
}

#[test]
fn raw_sockets_with_mqtt_311_see_no_difference() {
    by_hand(Version::V311);
}

#[test]
fn raw_sockets_with_mqtt_5_see_no_difference() {
    by_hand(Version::V5);
}

fn come(port: u16, version: Version, id: &str) -> Client {
    Client::connect(port, &Login::new(id).version(version)).0
}

fn publishes(port: u16, version: Version, qos: u8) -> String {
    let mut receiver = come(port, version, "receiver");
    let mut sender = come(port, version, "sender");
    assert_eq!(receiver.subscribe("raw/qos", qos), qos);
    // Until the broker has answered something behind it, a SUBSCRIBE keeps its topics from the card.
    receiver.ping().unwrap();
    for number in 0..100 {
        sender.publish(&Message::new("raw/qos", format!("message {number}")).qos(qos));
    }
    let mut ids = Vec::new();
    for number in 0..100 {
        let message = receiver.message();
        assert_eq!(message.payload, format!("message {number}").as_bytes());
        assert_eq!((message.qos, message.is_retained, message.is_duplicate), (qos, false, false));
        ids.extend(message.id);
    }
    assert!(!ids.contains(&0));
    ids.sort_unstable();
    ids.dedup();
    format!("100 in order, {} packet identifiers", ids.len())
}

fn retained(port: u16, version: Version) -> String {
    let mut sender = come(port, version, "sender");
    let mut receiver = come(port, version, "receiver");
    for qos in 0..=2 {
        sender.publish(&Message::new("raw/retained", format!("kept {qos}")).qos(qos).retained());
    }
    receiver.subscribe("raw/retained", 2);
    let kept = receiver.message();
    sender.publish(&Message::new("raw/retained", "").qos(1).retained());
    let cleared = receiver.message();
    format!("{kept:?} then {cleared:?}")
}

fn will(port: u16, version: Version) -> String {
    let mut receiver = come(port, version, "receiver");
    receiver.subscribe("raw/will", 1);
    let will = Message::new("raw/will", "gone").qos(1);
    Client::connect(port, &Login::new("dying").version(version).will(will)).0.vanish();
    let gone = receiver.message();
    let will = Message::new("raw/will", "never seen").qos(1);
    Client::connect(port, &Login::new("polite").version(version).will(will)).0.disconnect();
    let more = receiver.messages_so_far();
    format!("{gone:?}, then {more:?}")
}

fn persistent(port: u16, version: Version) -> String {
    let login = Login::new("keeper").version(version).persistent();
    let (mut keeper, was_present) = Client::connect(port, &login);
    keeper.subscribe("raw/persistent", 2);
    keeper.vanish();
    let mut sender = come(port, version, "sender");
    for number in 0..30 {
        sender.publish(&Message::new("raw/persistent", format!("{number}")).qos(1 + number % 2));
    }
    let (mut keeper, is_present) = Client::connect(port, &login);
    let queued: Vec<Message> = (0..30).map(|_| keeper.message()).collect();
    sender.publish(&Message::new("raw/persistent", "live"));
    let live = keeper.message();
    keeper.disconnect();
    let clean = Login { is_clean: true, properties: Vec::new(), ..login };
    Client::connect(port, &clean).0.disconnect();
    format!("present {was_present} then {is_present}: {queued:?} {live:?}")
}

/// Bytes nobody compresses, the same in every run.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend(state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

fn large(port: u16, version: Version) -> String {
    let mut receiver = come(port, version, "receiver");
    receiver.subscribe("raw/large", 2);
    let payload = noise(LARGE_BYTES);
    for qos in 0..=2 {
        let message = Message::new("raw/large", payload.clone()).qos(qos);
        let sender = std::thread::spawn(move || come(port, version, "sender").publish(&message));
        assert!(receiver.message().payload == payload, "QoS {qos}: other bytes arrived");
        sender.join().unwrap();
    }
    "5 MB unchanged".to_owned()
}

fn wildcards(port: u16, version: Version) -> String {
    let mut sender = come(port, version, "sender");
    let mut seen = Vec::new();
    for filter in ["raw/w/+/end", "raw/w/#", "raw/+", "#", "+/+/+"] {
        let mut receiver = come(port, version, "receiver");
        receiver.subscribe(filter, 0);
        for topic in ["raw/w/a/end", "raw/w/a/b/end", "raw/w", "raw", "raw//end", "/raw"] {
            sender.publish(&Message::new(topic, topic));
        }
        sender.ping().unwrap();
        let topics: Vec<String> =
            receiver.messages_so_far().into_iter().map(|message| message.topic).collect();
        seen.push(format!("{filter} {topics:?}"));
    }
    seen.join("; ")
}

fn properties(port: u16, version: Version) -> String {
    if version != Version::V5 {
        return "none in this version".to_owned();
    }
    let mut receiver = come(port, version, "receiver");
    let mut sender = come(port, version, "sender");
    // Subscription Identifier 7 on one filter, none on the other.
    receiver.subscribe_with("raw/identified", 1, &[0x0b, 7]);
    receiver.subscribe("raw/properties", 1);
    // Payload Format Indicator, Content Type, Response Topic, Correlation Data, two User Properties.
    let properties = [
        &[0x01, 1, 0x03, 0, 4][..],
        b"text",
        &[0x08, 0, 2],
        b"re",
        &[0x09, 0, 3, 0, 1, 255],
        &[0x26, 0, 1, b'a', 0, 1, b'1', 0x26, 0, 1, b'a', 0, 1, b'2'],
    ]
    .concat();
    let mut got = Vec::new();
    for topic in ["raw/identified", "raw/properties"] {
        for qos in 0..=1 {
            let message = Message { properties: properties.clone(), ..Message::new(topic, "x") };
            sender.publish(&message.qos(qos));
            got.push(receiver.message());
        }
    }
    format!("{got:?}")
}

#[test]
fn a_stream_that_is_not_mqtt_passes_untouched() {
    needs!("mosquitto");
    let folder = Folder::new();
    let card = Card::start(&folder);
    let broker = Broker::on_card(&folder, card.session());
    // A TLS ClientHello's beginning: mosquitto hangs up on it, and keeps serving others.
    let client = Client::begin(broker.port(), &Login::new("tls")).unwrap();
    client.stream().write_all(&[0x16, 3, 1, 0, 50, 1, 0, 0, 46, 3, 3]).unwrap();
    wait::until("the broker hangs up", || {
        client.stream().set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        matches!(std::io::Read::read(&mut client.stream(), &mut [0; 16]), Ok(0) | Err(_))
            .then_some(())
    });
    Client::new(broker.port(), "next").ping().unwrap();
}

//! The list of metrics, the board and the answers to scrapers.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::mqtt::ByReason;

/// A snapshot in which every number is different from 0.
fn busy() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let core = &mut snapshot.survey.core;
    core.publishes_card = 1;
    core.publishes_broker = ByReason([2; Reason::ALL.len()]);
    core.deliveries_card = 3;
    core.deliveries_broker = 4;
    core.outbox_dropped = [5; DropReason::ALL.len()];
    core.pings_injected = 6;
    core.turned_opaque = 7;
    core.policy_changes = 24;
    core.publishes_held = 25;
    core.windows_whole = 26;
    core.windows_failed = 27;
    core.shadow_same = 28;
    core.shadow_different = 29;
    core.shadow_unproven = 30;
    core.learned = 31;
    core.connections = 8;
    core.sessions = 9;
    core.subscriptions = 10;
    core.routes = 11;
    snapshot.survey.card.accept_pauses = 12;
    snapshot.survey.card.connections_begun = 23;
    snapshot.survey.card.lingers_given_up = 13;
    snapshot.survey.sends.batched = 14;
    snapshot.survey.sends.plain = 15;
    snapshot.survey.sends.framed = 35;
    snapshot.survey.memory.bytes = 32;
    snapshot.survey.memory.connections_refused = 33;
    snapshot.survey.memory.segments_dropped = 34;
    snapshot.survey.lost.arrived = 36;
    snapshot.survey.lost.leaving = 37;
    snapshot.survey.sessions_open = 16;
    snapshot.survey.sessions_ended = 17;
    snapshot.survey.slow = ByReason([18; Reason::ALL.len()]);
    snapshot.attach.violations = 19;
    snapshot.attach.channels_lost = 20;
    snapshot.attach.messages_in = 21;
    snapshot.attach.messages_out = 22;
    snapshot.spun = Duration::from_millis(1500);
    snapshot
}

fn scrape(address: std::net::SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn every_series_is_fed_by_something_that_counts() {
    readings(&busy(), |family, labels, value| {
        assert_ne!(value, 0, "{} {labels:?} is fed by nothing", family.name);
        assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
    });
}

#[test]
fn the_names_people_rely_on_are_there_with_their_values() {
    let board = Arc::new(Board::default());
    let mut publisher = Publisher::new(Arc::clone(&board));
    let registry = Registry::new(board);
    publisher.publish(Instant::now(), true, busy);
    let text = registry.text().unwrap();
    for line in [
        "mqttshim_publish_total{decision=\"card\",reason=\"all_rules_hold\"} 1",
        "mqttshim_publish_total{decision=\"broker\",reason=\"retained\"} 2",
        "mqttshim_deliveries_total{by=\"card\"} 3",
        "mqttshim_deliveries_total{by=\"broker\"} 4",
        "mqttshim_outbox_dropped_total{reason=\"messages\"} 5",
        "mqttshim_sends_total{way=\"io_uring\"} 14",
        "mqttshim_sends_total{way=\"frames\"} 35",
        "mqttshim_connections 8",
        "mqttshim_routes{state=\"cached\"} 11",
        "mqttshim_session_state{state=\"open\"} 16",
        "mqttshim_spin_seconds_total 1.5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
}

#[test]
fn a_snapshot_is_taken_when_something_changed_and_the_last_is_old_enough() {
    let start = Instant::now();
    let mut publisher = Publisher::new(Arc::default());
    let taken = |publisher: &mut Publisher, now, has_changed| {
        let mut taken = false;
        publisher.publish(now, has_changed, || {
            taken = true;
            Snapshot::default()
        });
        taken
    };
    assert!(taken(&mut publisher, start, true));
    assert_eq!(publisher.next_deadline(), None);
    assert!(!taken(&mut publisher, start + 2 * PUBLISH_INTERVAL, false));
    assert!(taken(&mut publisher, start + 2 * PUBLISH_INTERVAL, true));
    assert!(!taken(&mut publisher, start + 3 * PUBLISH_INTERVAL - Duration::from_millis(1), true));
    assert_eq!(publisher.next_deadline(), Some(start + 3 * PUBLISH_INTERVAL));
    assert!(taken(&mut publisher, start + 3 * PUBLISH_INTERVAL, false));
}

#[test]
fn a_scraper_gets_the_text_and_everybody_else_is_told_why_not() {
    let address = serve("127.0.0.1:0", Arc::default()).unwrap();
    let answer = scrape(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    assert!(body.contains("# TYPE mqttshim_publish_total counter"));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
        (&"x".repeat(8 * 1024), "400"),
    ] {
        let answer = scrape(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request} got {answer}");
    }
}

#[test]
fn an_address_in_use_is_refused_with_what_to_do() {
    let address = serve("127.0.0.1:0", Arc::default()).unwrap();
    let error = serve(&address.to_string(), Arc::default()).unwrap_err().to_string();
    assert!(error.contains("in use") && error.contains("--metrics"), "{error}");
}

#[test]
fn blind_spots_are_told_by_name_while_there_are_any() {
    let board = Arc::new(Board::default());
    let mut publisher = Publisher::new(Arc::clone(&board));
    let registry = Registry::new(board);
    let start = Instant::now();
    let plugin = Blind { reason: Reason::Plugin, name: "/srv/a \"b\".so".to_owned() };
    let mut snapshot = Snapshot::default();
    snapshot.survey.blind = vec![plugin.clone(), plugin];
    publisher.publish(start, true, || snapshot);
    let text = registry.text().unwrap();
    let line = "mqttshim_blind_spots{name=\"/srv/a \\\"b\\\".so\",reason=\"plugin\"} 2";
    assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    publisher.publish(start + PUBLISH_INTERVAL, true, Snapshot::default);
    assert!(!registry.text().unwrap().contains("/srv"));
}

//! A made-up run, rendered.

use std::time::Duration;

use super::*;

fn summary(p50_ns: u64) -> Summary {
    // As many as fit in a given time.
    Summary {
        count: usize::try_from(80_000_000 / p50_ns).unwrap(),
        min_ns: 1000,
        p50_ns,
        p90_ns: p50_ns,
        p99_ns: p50_ns,
        max_ns: p50_ns,
    }
}

pub(super) fn report(kind: Kind) -> Report {
    let mut report = Report::new(kind, "64 B · QoS 0".to_owned(), serde_json::json!({"qos": 0}));
    let contestants = [("plain", 8_000_000, 56_000), ("ours<b>", 2_000_000, 20_000)];
    for (target, ..) in contestants {
        report.targets.push(Described {
            name: target.to_owned(),
            address: "127.0.0.1:1883".to_owned(),
            commands: vec![format!("{target} -c conf")],
        });
    }
    for size in [1, 1000] {
        report.push(
            contestants.map(|(target, p50_ns, cpu_ns)| row(target, size, p50_ns, cpu_ns)).to_vec(),
        );
    }
    report
}

fn row(target: &str, size: usize, p50_ns: u64, cpu_ns: u64) -> Row {
    Row {
        target: target.to_owned(),
        size,
        operations: 10,
        per_second: Some(10_000_000_000.0 / p50_ns as f64),
        latency: summary(p50_ns),
        rounds: [90, 100, 100, 125, 500].map(|percent| summary(p50_ns * percent / 100)).to_vec(),
        processes: vec![Spent {
            process: "broker".to_owned(),
            cost: Cost { cpu_ns, voluntary: 15, ..Cost::default() },
        }],
        client: Cost::default(),
        late: 0,
        ratio: None,
        ratios: Vec::new(),
    }
}

#[test]
fn the_table_shows_the_ratio_to_the_first_target() {
    let text = report(Kind::Fanout).to_text();
    assert!(text.contains("1,000 subscribers"), "{text}");
    assert!(text.contains("against plain"), "{text}");
    let ours = text.lines().find(|line| line.contains("ours")).unwrap();
    assert!(ours.contains("2.00 ms") && ours.contains("4.00× (4.00–4.00)"), "{ours}");
    assert!(ours.contains("broker 2.00 µs"), "{ours}");
}

#[test]
fn an_echo_is_compared_by_throughput_and_shows_wake_ups() {
    let text = report(Kind::Echo).to_text();
    let ours = text.lines().find(|line| line.contains("ours")).unwrap();
    assert!(ours.contains("5,000") && ours.contains("4.00×"), "{ours}");
    assert!(ours.contains("broker 1.50 (+0.00 pushed off)"), "{ours}");
}

#[test]
fn the_page_is_self_contained_and_escapes_names() {
    let page = html::page(&report(Kind::Fanout));
    assert!(page.contains("<svg") && page.contains("ours&lt;b&gt;"));
    assert!(!page.contains("<b>") && !page.contains("<script") && !page.contains("http"));
}

#[test]
fn the_json_carries_every_number() {
    let json = serde_json::to_value(report(Kind::Fanout)).unwrap();
    assert_eq!(json["rows"][0]["latency"]["p50_ns"], 8_000_000);
    assert_eq!(json["rows"][0]["processes"][0]["cpu_ns"], 56_000);
    assert_eq!(json["settings"]["qos"], 0);
}

#[test]
fn dates_follow_the_calendar() {
    let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
    assert_eq!(at(0), "1970-01-01T00:00:00Z");
    assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
}

#[test]
fn numbers_are_readable() {
    assert_eq!(grouped(7), "7");
    assert_eq!(grouped(1_234_567), "1,234,567");
    assert_eq!(duration(1_500), "1.50 µs");
    assert_eq!(duration(150_000), "150 µs");
    assert_eq!(duration(8_010_000), "8.01 ms");
    assert_eq!(duration(250_000_000), "250 ms");
}

//! What the rules language promises.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

const MOSQUITTO: &str = "/usr/sbin/mosquitto";

#[track_caller]
fn rules(text: &str) -> Rules {
    Rules::parse(text, "rules").unwrap()
}

#[track_caller]
fn listen(rules: &Rules, address: &str) -> Verdict {
    rules.verdict(Event::Listen, address.parse().unwrap(), MOSQUITTO)
}

#[test]
fn nothing_is_offloaded_without_a_rule() {
    assert_eq!(listen(&Rules::default(), "0.0.0.0:1883"), Verdict::Kernel);
}

#[test]
fn the_first_match_wins() {
    let rules = rules("kernel listen 127.0.0.0/8:1883\noffload listen *:1883");
    assert_eq!(listen(&rules, "127.1.2.3:1883"), Verdict::Kernel);
    assert_eq!(listen(&rules, "192.0.2.1:1883"), Verdict::Offload);
    assert_eq!(listen(&rules, "[::]:1883"), Verdict::Offload);
    assert_eq!(listen(&rules, "192.0.2.1:1884"), Verdict::Kernel);
}

#[test]
fn listen_rules_say_nothing_about_connect() {
    let rules = rules("offload listen *:*");
    let address = "192.0.2.1:1883".parse().unwrap();
    assert_eq!(rules.verdict(Event::Connect, address, MOSQUITTO), Verdict::Kernel);
}

#[test]
fn a_mapped_address_matches_as_ipv4_and_a_native_one_does_not() {
    let rules = rules("offload listen 192.0.2.0/24:1883");
    assert_eq!(listen(&rules, "[::ffff:192.0.2.9]:1883"), Verdict::Offload);
    assert_eq!(listen(&rules, "[::192.0.2.9]:1883"), Verdict::Kernel);
}

#[test]
fn prefix_lengths_are_pinned_on_both_sides() {
    let rules =
        rules("offload listen 10.0.0.0/0:1\noffload listen 10.0.0.1/32:2\noffload listen [::]/0:3");
    assert_eq!(listen(&rules, "203.0.113.1:1"), Verdict::Offload);
    assert_eq!(listen(&rules, "10.0.0.1:2"), Verdict::Offload);
    assert_eq!(listen(&rules, "10.0.0.2:2"), Verdict::Kernel);
    assert_eq!(listen(&rules, "[2001:db8::1]:3"), Verdict::Offload);
    for bad in ["10.0.0.1/33:1", "[::1]/129:1", "10.0.0.1/:1", "10.0.0.1/-1:1"] {
        assert!(Rules::parse(&format!("offload listen {bad}"), "rules").is_err(), "{bad}");
    }
}

#[test]
fn a_program_is_matched_by_name_or_by_path() {
    let by_name = rules("offload listen *:1883 prog=mosq*");
    assert_eq!(listen(&by_name, "0.0.0.0:1883"), Verdict::Offload);
    let by_path = rules("offload listen *:1883 prog=/opt/*/mosquitto");
    assert_eq!(listen(&by_path, "0.0.0.0:1883"), Verdict::Kernel);
    let other = "/opt/2.1/mosquitto";
    let address = "0.0.0.0:1883".parse().unwrap();
    assert_eq!(by_path.verdict(Event::Listen, address, other), Verdict::Offload);
}

#[test]
fn globs_match_as_in_a_shell() {
    for (glob, text, expected) in [
        ("", "", true),
        ("*", "", true),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXbYbZ", false),
        ("?", "", false),
        ("a?c", "abc", true),
        ("**x", "x", true),
        ("abc", "abcd", false),
    ] {
        assert_eq!(glob_matches(glob.as_bytes(), text.as_bytes()), expected, "{glob} {text}");
    }
}

#[test]
fn ports_come_as_lists_and_ranges() {
    let rules = Rules::from_ports("1883, 8000-8002,", "MQTTSHIM_LISTEN").unwrap();
    for (port, verdict) in [
        (1883, Verdict::Offload),
        (7999, Verdict::Kernel),
        (8000, Verdict::Offload),
        (8002, Verdict::Offload),
        (8003, Verdict::Kernel),
    ] {
        assert_eq!(listen(&rules, &format!("[::1]:{port}")), verdict, "{port}");
    }
    assert_eq!(Rules::from_ports("", "MQTTSHIM_LISTEN"), Ok(Rules::default()));
}

#[test]
fn errors_name_place_finding_and_expectation() {
    for (text, message) in [
        ("\n# fine\nofload listen *:1", "rules:3: `ofload`: expected offload or kernel"),
        ("offload", "rules:1: `offload`: expected listen or connect after the verdict"),
        ("offload accept *:1", "rules:1: `accept`: expected listen or connect"),
        (
            "kernel listen *:1 pog=x",
            "rules:1: `pog=x`: expected prog=GLOB, or nothing, after the address",
        ),
        ("kernel listen *:1 prog=x y", "rules:1: `y`: expected the end of the line"),
        (
            "kernel listen *:65536",
            "rules:1: `65536`: expected a port from 0 to 65535, a range PORT-PORT, or *",
        ),
        (
            "kernel listen *:9-1",
            "rules:1: `9-1`: expected a port from 0 to 65535, a range PORT-PORT, or *",
        ),
    ] {
        assert_eq!(Rules::parse(text, "rules").unwrap_err().to_string(), message);
    }
    let error = Rules::parse("kernel listen ::1:1883", "rules").unwrap_err().to_string();
    assert!(error.starts_with("rules:1: `::1:1883`: expected ADDRESS[/LENGTH]:PORT"), "{error}");
}

#[test]
fn more_rules_than_the_limit_are_refused() {
    let text = "kernel listen *:1\n".repeat(RULES_MAX);
    assert!(Rules::parse(&text, "rules").is_ok());
    assert!(Rules::parse(&format!("{text}kernel listen *:1"), "rules").is_err());
}

/// The obvious way to match a glob.
fn naive(glob: &[u8], text: &[u8]) -> bool {
    match (glob.split_first(), text.split_first()) {
        (None, _) => text.is_empty(),
        (Some((b'*', rest)), _) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
        (Some((b'?', rest)), Some((_, text))) => naive(rest, text),
        (Some((symbol, rest)), Some((first, text))) => symbol == first && naive(rest, text),
        (Some(_), None) => false,
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,200}") {
        let _ = Rules::parse(&text, "rules");
        let _ = Rules::from_ports(&text, "variable");
    }

    #[test]
    fn globs_agree_with_the_naive_matcher(glob in "[ab*?]{0,8}", text in "[ab]{0,10}") {
        prop_assert_eq!(
            glob_matches(glob.as_bytes(), text.as_bytes()),
            naive(glob.as_bytes(), text.as_bytes())
        );
    }

    #[test]
    fn a_network_holds_exactly_the_addresses_with_its_prefix(
        network: u32, address: u32, length in 0_u8..=32,
    ) {
        let text = format!(
            "offload listen {}/{length}:5", std::net::Ipv4Addr::from_bits(network)
        );
        let subject = SocketAddr::from((std::net::Ipv4Addr::from_bits(address), 5));
        let same = (0..u32::from(length)).all(|bit| (network ^ address) >> (31 - bit) & 1 == 0);
        let verdict = rules(&text).verdict(Event::Listen, subject, MOSQUITTO);
        prop_assert_eq!(verdict == Verdict::Offload, same);
    }
}

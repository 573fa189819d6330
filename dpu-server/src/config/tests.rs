//! Files as people write them, right and wrong.

use super::*;
use crate::stack::smoltcp::BufferBytes;

fn parse(text: &str) -> Result<File, ConfigError> {
    File::parse(Path::new("card.toml"), text)
}

#[track_caller]
fn error(text: &str) -> String {
    match parse(text).and_then(File::check) {
        Err(error) => error.to_string(),
        Ok(config) => panic!("accepted: {config:?}"),
    }
}

#[test]
fn an_empty_file_is_the_default() {
    let config = parse("").unwrap().check().unwrap();
    assert_eq!(config.channel, ChannelChoice::Local);
    assert_eq!(config.core, CoreConfig { has_older_sessions: true, ..CoreConfig::default() });
    assert_eq!(config.core.trust, Trust::Observed);
}

#[test]
fn every_key_is_taken() {
    let file = parse(
        r#"
        session = "/run/x/session.sock"
        session_group = "mqtt"
        channel = "emulated:/run/x/card.sock"
        stack = "kernel"
        trust = "suback"
        queue_qos0_messages = false
        older_sessions = "none"
        trust_plugin = ["audit.so"]
        metrics = "127.0.0.1:9464"
        log = "debug"
        spin_us = 5
        [limits]
        sockets_max = 500
        sessions_per_uid_max = 3
        inspect_bytes_max = 2048
        outbox_bytes_max = 4096
        outbox_messages_max = 7
        outbox_total_bytes_max = 1048576
        subscriptions_max = 9
        topic_levels_max = 10
        mqtt_sessions_max = 11
        unanswered_max = 12
        inflight_messages_max = 14
        queued_messages_max = 15
        routes_max = 13
        "#,
    );
    let config = file.unwrap().check().unwrap();
    assert_eq!(config.channel, ChannelChoice::Emulated("/run/x/card.sock".into()));
    assert_eq!(config.core.trust, Trust::Suback);
    assert_eq!(config.core.keeps_offline_qos0, Some(false));
    assert!(!config.core.has_older_sessions);
    assert_eq!(*config.core.trusted_plugins, ["audit.so".to_owned()]);
    assert_eq!((config.spin_us, config.sockets_max), (5, Some(500)));
    let expected = Limits {
        inspect_bytes_max: 2048,
        outbox_bytes_max: 4096,
        outbox_messages_max: 7,
        outbox_total_bytes_max: 1 << 20,
        subscriptions_max: 9,
        topic_levels_max: 10,
        sessions_max: 11,
        unanswered_max: 12,
        inflight_messages_max: 14,
        queued_messages_max: 15,
        routes_max: 13,
    };
    assert_eq!(config.core.limits, expected);
}

#[test]
fn a_misspelt_key_is_refused_and_the_nearest_named() {
    assert_eq!(
        error("sesion = \"x\""),
        "card.toml: unknown key \"sesion\"; did you mean \"session\"?"
    );
    assert_eq!(
        error("[limits]\noutbox_byte_max = 1"),
        "card.toml: unknown key \"limits.outbox_byte_max\"; did you mean \"outbox_bytes_max\"?"
    );
    assert_eq!(error("zzz = 1"), "card.toml: unknown key \"zzz\"");
}

#[test]
fn the_lists_of_keys_are_those_of_the_types() {
    // Serde's own message lists what it knows.
    let known = toml::from_str::<File>("zzz = 1").unwrap_err().to_string();
    for key in KEYS {
        assert!(known.contains(&format!("`{key}`")), "{key} is not in {known}");
    }
    let known = toml::from_str::<FileLimits>("zzz = 1").unwrap_err().to_string();
    for key in LIMIT_KEYS {
        assert!(known.contains(&format!("`{key}`")), "{key} is not in {known}");
    }
    assert_eq!(known.matches('`').count() / 2, LIMIT_KEYS.len() + 1);
}

#[test]
fn a_wrong_value_is_refused_with_the_valid_ones() {
    assert!(error("channel = \"doca\"").contains("this build has no DOCA"));
    assert!(error("channel = \"emulated:\"").contains("emulated:PATH"));
    assert!(error("stack = \"lwip\"").contains("use kernel, or smoltcp"));
    assert!(error("port = \"eth0\"").contains("tap:INTERFACE"));
    assert!(error("trust = \"blind\"").contains("use observed, or suback"));
    assert!(error("decision = \"dry\"").contains("use live, or shadow"));
    assert!(error("older_sessions = \"maybe\"").contains("use possible, or none"));
    assert!(error("metrics = 5").contains("line 1"));
    for none in ["9184", ":9184", "localhost", "localhost:http"] {
        let text = error(&format!("metrics = \"{none}\""));
        assert!(text.contains(none) && text.contains("HOST:PORT"), "{text}");
    }
    assert!(error("log = \"loud\"").contains("try error, warn"));
    assert!(error("limits = 5").contains("a section [limits]"));
    assert!(error("vlan = 70000").ends_with("expected a whole number up to 65535"));
    assert!(error("[limits]\nsockets_max = -5").ends_with("expected a whole number"));
    assert!(error("nonsense").contains("card.toml"));
}

#[test]
fn bounds_hold_on_both_sides() {
    let check = |text: &str| parse(text).unwrap().check().is_ok();
    assert!(check("[limits]\ntopic_levels_max = 1"));
    assert!(!check("[limits]\ntopic_levels_max = 0"));
    assert!(check("spin_us = 1000000"));
    assert!(!check("spin_us = 1000001"));
    assert!(check("route_ttl = 1"));
    assert!(!check("route_ttl = 0"));
    assert_eq!(
        error("[limits]\ntopic_levels_max = 0"),
        "limits.topic_levels_max = 0 is not within 1 to 32768"
    );
}

#[test]
fn the_command_line_goes_before_the_file() {
    let line = File { trust: Some(TrustChoice::Suback), ..File::default() };
    let file = parse("trust = \"observed\"\nlog = \"warn\"\n[limits]\nroutes_max = 5").unwrap();
    let config = line.or(file).check().unwrap();
    assert_eq!(config.core.trust, Trust::Suback);
    assert_eq!((config.log.as_deref(), config.core.limits.routes_max), (Some("warn"), 5));
}

#[test]
fn a_missing_file_is_named() {
    let error = File::read(Path::new("/nonexistent/card.toml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nonexistent/card.toml"), "{error}");
}

#[test]
fn a_stack_of_our_own_needs_a_port_and_addresses_and_the_kernel_s_none() {
    let own = "stack = \"smoltcp\"\n";
    assert!(error(own).contains("tap:INTERFACE"));
    let on_port = format!("{own}port = \"tap:mq0\"\n");
    assert!(error(&on_port).contains("10.0.0.1/24"));
    for none in [
        "10.0.0.1",
        "224.0.0.1/4",
        "0.0.0.0/0",
        "::1/128",
        "host/24",
        "10.0.0.0/24",
        "10.0.0.255/24",
    ] {
        assert!(error(&format!("{on_port}address = [\"{none}\"]")).contains(none), "{none}");
    }
    let whole = format!("{on_port}address = [\"10.0.0.1/24\", \"fd00::1/64\"]\n");
    let Ok(Config { stack: StackConfig::Smoltcp { addresses, .. }, .. }) =
        parse(&whole).unwrap().check()
    else {
        panic!("{whole}");
    };
    assert_eq!(addresses.len(), 2);
    assert!(error(&format!("{on_port}address = [\"10.0.0.1\"]")).contains("as in 10.0.0.1/24"));
    assert!(error(&format!("{on_port}address = \"10.0.0.1/24\"")).contains("a list in brackets"));
    assert!(error(&whole.replace("fd00::1/64", "10.0.0.1/16")).contains("twice"));
    assert!(error(&format!("{whole}gateway = \"10.0.0.1\"")).contains("own address"));
    for point_to_point in ["10.0.0.0/31", "10.0.0.1/31", "10.0.0.0/32"] {
        let text = format!("{on_port}address = [\"{point_to_point}\"]");
        assert!(parse(&text).unwrap().check().is_ok(), "{point_to_point}");
    }
    assert!(error(&format!("{whole}gateway = \"10.0.1.1\"")).contains("10.0.1.1"));
    assert!(parse(&format!("{whole}gateway = \"10.0.0.254\"")).unwrap().check().is_ok());
    assert!(error("port = \"tap:mq0\"").contains("stack smoltcp"));
    assert!(error(&format!("{whole}vlan = 5")).contains("xdp:INTERFACE"));
    for (key, value, bounds) in [
        ("buffers_bytes_max", 65_535, "65536 to 1099511627776"),
        ("receive_buffer_bytes", 1_048_577, "2048 to 1048576"),
        ("send_buffer_bytes", 2047, "2048 to 1048576"),
    ] {
        let wrong = format!("{key} = {value}");
        let said = error(&format!("{whole}{wrong}"));
        assert_eq!(said, format!("{wrong} is not within {bounds}"));
        assert!(error(&wrong).contains("stack smoltcp"), "{key}");
    }
    let set = "buffers_bytes_max = 65536\nreceive_buffer_bytes = 1048576\nsend_buffer_bytes = 2048";
    let config = parse(&format!("{whole}{set}")).unwrap().check().unwrap();
    let StackConfig::Smoltcp { buffers, .. } = config.stack else { panic!("{set}") };
    let expected = BufferBytes { total_max: 65_536, receive: 1 << 20, send: 2048 };
    assert_eq!(buffers, expected);
    let on_interface = whole.replace("tap:mq0", "xdp:eth0");
    assert!(parse(&format!("{on_interface}vlan = 4094")).unwrap().check().is_ok());
    assert!(error(&format!("{on_interface}vlan = 4095")).contains("1 to 4094"));
}

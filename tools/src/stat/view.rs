//! What dpu-server's numbers mean, for a person.
//!
//! Totals since dpu-server started, and rates between two looks. The text of each reason says what would have to change
//! for the card to take such a PUBLISH.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::prometheus::Samples;

/// Two looks at the same server, or one.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// The later look.
    pub(crate) now: &'a Samples,
    /// The earlier one, and how long ago.
    pub(crate) before: Option<(&'a Samples, Duration)>,
}

const PUBLISH: &str = "mqttshim_publish_total";
const DELIVERIES: &str = "mqttshim_deliveries_total";
const DROPPED: &str = "mqttshim_outbox_dropped_total";
const WINDOWS: &str = "mqttshim_windows_total";
const SHADOW: &str = "mqttshim_shadow_total";
const SLOW: &str = "mqttshim_slow_sessions";
const BLIND: &str = "mqttshim_blind_spots";

/// What each reason means; others are shown by their label.
const REASONS: [(&str, &str); 42] = [
    ("all_rules_hold", "distributed by the card"),
    (
        "trust_not_established",
        "trust is \"observed\", and something was given to this broker, which is not mosquitto, that was not seen: nothing can be learned from it until it is started again; --trust suback, if it checks permissions at SUBSCRIBE and PUBLISH",
    ),
    ("not_connected", "the publisher has no accepted CONNACK yet"),
    ("reauthenticating", "the publisher is proving its identity anew"),
    (
        "qos_above_zero",
        "QoS 2; or QoS 1 with trust \"observed\", on a broker that is not mosquitto, or the first of a version 3 publisher",
    ),
    ("retained", "RETAIN is set: the broker has to keep it"),
    ("duplicate", "DUP is set"),
    ("publisher_blocked", "the publisher does not read its acknowledgements"),
    (
        "persistent_session",
        "QoS 1, and a matching session outlives its connection: the broker has to keep the message for it",
    ),
    (
        "identifiers_unknown",
        "QoS 1, and a subscriber was sent a message with QoS 1 or 2 too large to be read",
    ),
    ("too_large", "larger than what the card inspects"),
    ("topic_alias", "a Topic Alias the broker has to learn first, or the card does not know"),
    ("expires_at_once", "the Message Expiry Interval is 0"),
    ("dollar_topic", "the topic starts with $"),
    ("discouraged_characters", "the topic holds control characters"),
    ("topic_too_deep", "the topic has more levels than the card follows"),
    (
        "outside_listener",
        "the broker also listens on a port the card does not serve; add it to MQTTSHIM_LISTEN or close it",
    ),
    (
        "outside_connection",
        "the broker has an outgoing connection, such as a bridge, that the card does not see",
    ),
    ("plugin", "the broker has loaded a plugin that the card does not know"),
    (
        "opaque_connection",
        "a client speaks something the card cannot read (TLS, WebSocket, a bridge)",
    ),
    (
        "unknown_session",
        "the broker resumed a session whose subscriptions the card does not know, until that session ends; `mqttshim sessions` names it",
    ),
    (
        "older_sessions",
        "the broker may keep the message for sessions from before dpu-server; if it has none, start dpu-server with --older-sessions none, or say `mqttshim sessions forget --all`",
    ),
    ("subscribe_pending", "a matching SUBSCRIBE or UNSUBSCRIBE was under way"),
    ("session_unsettled", "a client was taking over a matching session"),
    (
        "subscriber_offline",
        "a matching persistent session is offline, and the broker may queue for it; `mqttshim sessions` names it and can have it forgotten; if the broker queues nothing with QoS 0, start dpu-server with --queue-qos0-messages false",
    ),
    ("shared_subscription", "a matching subscription is shared ($share)"),
    (
        "no_local",
        "a matching subscription has the No Local option, and what the broker makes of it is not known",
    ),
    (
        "subscription_identifier",
        "a matching subscription has a Subscription Identifier, on a broker that is not mosquitto",
    ),
    (
        "unproven_grant",
        "a matching subscription is of MQTT 3.1, whose SUBACK proves nothing, and nothing has come of it yet",
    ),
    ("overlapping_subscriptions", "a client has two matching filters, and may get one copy or two"),
    ("subscriber_backlogged", "the broker may still hold messages for a subscriber"),
    ("no_match", "nobody the card knows of subscribes to the topic"),
    (
        "maximum_packet_size",
        "a copy exceeds a subscriber's Maximum Packet Size, and brokers differ in what they do; or has QoS 1, and mosquitto may have stopped sending those to a client with such a limit",
    ),
    (
        "subscriber_full",
        "a subscriber does not read, and more bytes wait for it than the card holds",
    ),
    (
        "policy_unsettled",
        "who may do what was being changed: $CONTROL, AUTH, or a CONNECT of the publisher's name",
    ),
    ("unobserved", "the publisher's first message on the topic"),
    ("probe", "watched, to learn who gets the publisher's messages on the topic"),
    (
        "ambiguous",
        "an equal message, or one the card cannot read, was on its way: watching would have proven nothing",
    ),
    ("unproven", "watching has not shown who gets the messages; tried again later"),
    (
        "nobody_served",
        "the broker was seen to deliver the publisher's messages on the topic to nobody; looked at again later",
    ),
    ("shadow", "decision is \"shadow\": the card would have distributed it"),
    ("barrier_out", "an earlier PUBLISH of the same publisher is still with the broker"),
];

impl View<'_> {
    fn total(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.now.sum(name, labels).unwrap_or(0.0)
    }

    /// Per second since the earlier look.
    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let (before, span) = self.before?;
        let then = before.sum(name, labels).unwrap_or(0.0);
        // A counter that fell belongs to a server that started again.
        Some((self.total(name, labels) - then).max(0.0) / span.as_secs_f64())
    }

    /// Everything, as text.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        let connections = self.total("mqttshim_connections", &[]);
        let open = self.total("mqttshim_session_state", &[("state", "open")]);
        let _ = writeln!(text, "brokers      {open:.0}");
        let _ = write!(text, "connections  {connections:.0}");
        for (name, labels, noun) in [
            ("mqttshim_mqtt_sessions", &[][..], "MQTT sessions"),
            ("mqttshim_subscriptions", &[], "subscriptions"),
            ("mqttshim_routes", &[("state", "cached")], "routes"),
            ("mqttshim_routes", &[("state", "learned")], "publishers' topics learned"),
        ] {
            if let Some(value) = self.now.sum(name, labels) {
                let _ = write!(text, "  ·  {value:.0} {noun}");
            }
        }
        text.push_str("\n\nPUBLISHes\n");
        self.publishes(&mut text);
        text.push_str("\ndeliveries\n");
        for by in ["card", "broker"] {
            self.line(&mut text, &format!("by the {by}"), DELIVERIES, &[("by", by)], "");
        }
        for sample in self.now.of(DROPPED).filter(|sample| sample.value > 0.0) {
            let reason = sample.label("reason").unwrap_or("?");
            let what = format!("dropped: {reason}");
            let meaning = match reason {
                "maximum_packet_size" => "larger than the subscriber accepts",
                "queued_messages" => "a subscriber does not acknowledge",
                "expired" => "waited as long as the publisher allowed",
                _ => "a subscriber too slow",
            };
            self.line(&mut text, &what, DROPPED, &[("reason", reason)], meaning);
        }
        self.outcomes(&mut text, "watched", WINDOWS);
        self.outcomes(&mut text, "compared", SHADOW);
        self.judgement(&mut text);
        text
    }

    /// What came of PUBLISHes that the card looked at on their way through the broker.
    fn outcomes(&self, text: &mut String, heading: &str, name: &str) {
        if self.total(name, &[]) > 0.0 {
            let _ = writeln!(text, "\n{heading}");
            for sample in self.now.of(name) {
                let outcome = sample.label("outcome").unwrap_or("?");
                let meaning = match outcome {
                    "learned" => "who gets such messages is known",
                    "different" => "the card would have done something else; see dpu-server's log",
                    _ => "",
                };
                self.line(text, outcome, name, &[("outcome", outcome)], meaning);
            }
        }
    }

    fn publishes(&self, text: &mut String) {
        self.line(text, "by the card", PUBLISH, &[("decision", "card")], "");
        self.line(text, "by the broker", PUBLISH, &[("decision", "broker")], "");
        for (reason, _) in self.broker_reasons() {
            let labels = [("decision", "broker"), ("reason", reason.as_str())];
            self.line(text, &format!("  {reason}"), PUBLISH, &labels, meaning(&reason));
        }
    }

    /// Reasons that occurred, with their weight: recent ones by rate, else by total; heaviest first.
    fn broker_reasons(&self) -> Vec<(String, f64)> {
        let mut reasons: Vec<(String, f64)> = self
            .now
            .of(PUBLISH)
            .filter(|sample| sample.label("decision") == Some("broker") && sample.value > 0.0)
            .map(|sample| {
                let reason = sample.label("reason").unwrap_or("?").to_owned();
                let labels = [("decision", "broker"), ("reason", reason.as_str())];
                let weight = self.rate(PUBLISH, &labels).unwrap_or(sample.value);
                (reason, weight)
            })
            .collect();
        reasons.sort_by(|a, b| b.1.total_cmp(&a.1));
        reasons
    }

    fn line(&self, text: &mut String, what: &str, name: &str, labels: &[(&str, &str)], note: &str) {
        let total = self.total(name, labels);
        let rate = self.rate(name, labels).map_or_else(String::new, |rate| format!("{rate:.0}/s"));
        let line = format!("  {what:<28}{total:>14.0}{rate:>12}  {note}");
        let _ = writeln!(text, "{}", line.trim_end());
    }

    /// Why nothing is accelerated now, if so.
    fn judgement(&self, text: &mut String) {
        let slow: Vec<_> = self.now.of(SLOW).filter(|sample| sample.value > 0.0).collect();
        for sample in &slow {
            let reason = sample.label("reason").unwrap_or("?");
            let count = sample.value;
            let _ = writeln!(
                text,
                "\n{count:.0} broker(s) get every PUBLISH now: {reason}: {}",
                meaning(reason)
            );
        }
        for sample in self.now.of(BLIND) {
            let name = sample.label("name").unwrap_or("?");
            let why = obstacle(sample.label("reason").unwrap_or("?"), name);
            let _ = writeln!(text, "  not accelerated: {why}");
        }
        let card = self.rate(PUBLISH, &[("decision", "card")]);
        let broker = self.rate(PUBLISH, &[("decision", "broker")]);
        let card = card.unwrap_or_else(|| self.total(PUBLISH, &[("decision", "card")]));
        let broker = broker.unwrap_or_else(|| self.total(PUBLISH, &[("decision", "broker")]));
        if slow.is_empty() && card == 0.0 && broker > 0.0 {
            let reasons = self.broker_reasons();
            let reason = reasons.first().map_or("?", |(reason, _)| reason.as_str());
            let _ = writeln!(
                text,
                "\nnothing is accelerated now: mostly {reason}: {}",
                meaning(reason)
            );
        }
    }

    /// Everything, for programs.
    pub(crate) fn to_json(&self) -> Value {
        let series = self.now.0.iter().map(|sample| {
            let labels: Vec<(&str, &str)> =
                sample.labels.iter().map(|(l, v)| (l.as_str(), v.as_str())).collect();
            let mut value = json!({
                "name": sample.name,
                "labels": labels.iter().copied().collect::<std::collections::BTreeMap<_, _>>(),
                "value": sample.value,
            });
            if sample.name.ends_with("_total")
                && let Some(rate) = self.rate(&sample.name, &labels)
            {
                value["per_second"] = json!(rate);
            }
            value
        });
        json!({ "series": series.collect::<Vec<_>>() })
    }
}

/// What a blind spot of this name is, and what would have to change.
fn obstacle(reason: &str, name: &str) -> String {
    match reason {
        "plugin" => {
            let file = name.rsplit('/').next().unwrap_or(name);
            format!(
                "plugin {name} is loaded; if it neither changes nor denies messages, list it with dpu-server run --trust-plugin {file}"
            )
        }
        "outside_listener" => {
            format!("the broker listens at {name}, which the card does not serve")
        }
        "outside_connection" => format!("the broker has a connection to {name}, perhaps a bridge"),
        "opaque_connection" => format!("the client at {name} speaks what the card cannot read"),
        _ => format!("{reason}: {name}"),
    }
}

fn meaning(reason: &str) -> &'static str {
    REASONS.iter().find(|(label, _)| *label == reason).map_or("", |(_, meaning)| meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(card: u32, broker: u32, slow: u32) -> Samples {
        Samples::parse(&format!(
            "mqttshim_publish_total{{decision=\"card\",reason=\"all_rules_hold\"}} {card}\n\
             mqttshim_publish_total{{decision=\"broker\",reason=\"retained\"}} {broker}\n\
             mqttshim_publish_total{{decision=\"broker\",reason=\"no_match\"}} 0\n\
             mqttshim_deliveries_total{{by=\"card\"}} 900\n\
             mqttshim_connections 12\n\
             mqttshim_slow_sessions{{reason=\"outside_listener\"}} {slow}\n\
             mqttshim_outbox_dropped_total{{reason=\"bytes\"}} 3\n"
        ))
    }

    #[test]
    fn totals_rates_and_reasons_that_occurred_are_shown() {
        let (before, now) = (page(100, 50, 0), page(300, 60, 0));
        let view = View { now: &now, before: Some((&before, Duration::from_secs(2))) };
        let text = view.to_text();
        assert!(text.contains("connections  12"), "{text}");
        let line = |start: &str| {
            text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default()
        };
        assert!(line("by the card").contains("300") && line("by the card").contains("100/s"));
        assert!(line("retained").contains("60") && line("retained").contains("5/s"), "{text}");
        assert!(line("dropped: bytes").contains('3'));
        assert!(!text.contains("no_match"), "{text}");
        assert!(!text.contains("nothing is accelerated"), "{text}");
    }

    #[test]
    fn every_reason_of_dpu_server_is_explained() {
        for reason in dpu_server::mqtt::Reason::ALL {
            assert!(!meaning(reason.label()).is_empty(), "{}", reason.label());
        }
    }

    #[test]
    fn routes_are_counted_by_what_they_are_and_windows_by_what_came_of_them() {
        let page = |windows: u32| {
            Samples::parse(&format!(
                "mqttshim_routes{{state=\"cached\"}} 7\nmqttshim_routes{{state=\"learned\"}} 5\n\
                 mqttshim_windows_total{{outcome=\"learned\"}} {windows}\n\
                 mqttshim_windows_total{{outcome=\"unproven\"}} 1\nmqttshim_shadow_total{{outcome=\"same\"}} 0\n"
            ))
        };
        let (before, now) = (page(10), page(30));
        let text = View { now: &now, before: Some((&before, Duration::from_secs(2))) }.to_text();
        assert!(text.contains("7 routes  ·  5 publishers' topics learned"), "{text}");
        let learned = text.lines().find(|line| line.trim_start().starts_with("learned")).unwrap();
        assert!(learned.contains("30") && learned.contains("10/s"), "{text}");
        assert!(!text.contains("compared"), "{text}");
    }

    #[test]
    fn why_nothing_is_accelerated_is_said() {
        let now = page(0, 50, 0);
        let text = View { now: &now, before: None }.to_text();
        assert!(text.contains("nothing is accelerated now: mostly retained: RETAIN"), "{text}");
        let now = page(0, 50, 1);
        let text = View { now: &now, before: None }.to_text();
        assert!(text.contains("1 broker(s) get every PUBLISH now: outside_listener"), "{text}");
    }

    #[test]
    fn what_stands_in_the_way_is_said_by_name_with_what_to_do() {
        let now = Samples::parse(
            "mqttshim_slow_sessions{reason=\"plugin\"} 1\n\
             mqttshim_blind_spots{name=\"/usr/lib/audit.so\",reason=\"plugin\"} 1\n\
             mqttshim_blind_spots{name=\"10.0.0.9:1883\",reason=\"outside_connection\"} 1\n",
        );
        let text = View { now: &now, before: None }.to_text();
        for line in [
            "  not accelerated: plugin /usr/lib/audit.so is loaded; if it neither changes nor denies messages, list it with \
             dpu-server run --trust-plugin audit.so",
            "  not accelerated: the broker has a connection to 10.0.0.9:1883, perhaps a bridge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn a_server_that_started_again_has_no_negative_rates() {
        let (before, now) = (page(1000, 50, 0), page(10, 50, 0));
        let view = View { now: &now, before: Some((&before, Duration::from_secs(1))) };
        assert!(!view.to_text().contains("-"), "{}", view.to_text());
        let json = view.to_json();
        assert_eq!(json["series"][0]["per_second"], 0.0);
        assert_eq!(json["series"][0]["labels"]["decision"], "card");
    }
}

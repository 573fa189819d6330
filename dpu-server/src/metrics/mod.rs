//! Metrics in Prometheus' text form.
//!
//! ```text
//! data plane ──publish──► Board (atomics) ──read──► Registry ──► text ──► http ──► scraper
//! ```
//!
//! The data plane stores a [`Snapshot`] at most fifty times a second, without a lock; the serving thread reads it when asked.
//! `readings` is the one list of what there is: both sides walk it in the same order. No value is torn; values of one
//! scrape may be of two neighbouring snapshots.

mod http;
mod registry;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::attach::intercept::Counters as AttachCounters;
use crate::card::{Blind, Survey};
use crate::mqtt::{DropReason, Reason};

pub use http::{ServeError, serve};
pub use registry::Registry;

/// Shortest time between two snapshots.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(20);
/// The `reason` of a PUBLISH that the card distributed.
const CARD_REASON: &str = "all_rules_hold";

/// Reasons that stand against every PUBLISH, whatever its topic.
const SLOW_REASONS: [Reason; 8] = [
    Reason::TrustNotEstablished,
    Reason::OutsideListener,
    Reason::OutsideConnection,
    Reason::Plugin,
    Reason::OpaqueConnection,
    Reason::UnknownSession,
    Reason::OlderSessions,
    Reason::SubscribePending,
];

/// Everything that is told.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Snapshot {
    /// Of the card.
    pub survey: Survey,
    /// Of the broker side.
    pub attach: AttachCounters,
    /// Time spent looking again before sleeping.
    pub spun: Duration,
}

/// A metric family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) labels: &'static [&'static str],
    pub(crate) is_counter: bool,
    /// What one is worth in the metric's unit.
    pub(crate) scale: f64,
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, help, labels, is_counter: true, scale: 1.0 }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, help, labels, is_counter: false, scale: 1.0 }
}

const PUBLISH: Family = counter(
    "mqttshim_publish_total",
    &["decision", "reason"],
    "PUBLISHes of clients by who distributed them and why",
);
const DELIVERIES: Family =
    counter("mqttshim_deliveries_total", &["by"], "PUBLISHes written to clients by their origin");
const DROPPED: Family = counter(
    "mqttshim_outbox_dropped_total",
    &["reason"],
    "Copies of the card that a subscriber's full outbox did not take",
);
const CONNECTIONS: Family = gauge("mqttshim_connections", &[], "Connections of clients now");
const CONNECTIONS_BEGUN: Family = counter(
    "mqttshim_connections_total",
    &[],
    "Connections there ever were on the card, accepted or asked for by a broker",
);
const ROUTES: Family =
    gauge("mqttshim_routes", &["state"], "Topics whose subscribers are remembered now");
const SESSION_STATE: Family = gauge(
    "mqttshim_session_state",
    &["state"],
    "Brokers now: open, or ended with clients that still take what is left",
);
const SPIN: Family = Family {
    scale: 1e-9,
    ..counter("mqttshim_spin_seconds_total", &[], "Time spent yielding before a sleep")
};
const SLOW: Family = gauge(
    "mqttshim_slow_sessions",
    &["reason"],
    "Brokers that get every PUBLISH now, whatever its topic, and why",
);
/// Told beside [`readings`]: there are as many as there happen to be.
pub(crate) const BLIND: Family = gauge(
    "mqttshim_blind_spots",
    &["reason", "name"],
    "What brokers have now that the card cannot see into, by name; the latest few",
);
const MQTT_SESSIONS: Family =
    gauge("mqttshim_mqtt_sessions", &[], "MQTT sessions the card knows of, connected or not");
const SUBSCRIPTIONS: Family =
    gauge("mqttshim_subscriptions", &[], "Subscriptions the card knows of");
const PINGS: Family =
    counter("mqttshim_pings_injected_total", &[], "PINGREQs the card added towards a broker");
const HELD: Family = counter(
    "mqttshim_publishes_held_total",
    &[],
    "PUBLISHes that waited a moment for what the broker made of an earlier one",
);
const WINDOWS: Family = counter(
    "mqttshim_windows_total",
    &["outcome"],
    "PUBLISHes watched on their way through a broker, and whether that showed who gets such messages",
);
const SHADOW: Family = counter(
    "mqttshim_shadow_total",
    &["outcome"],
    "Decisions compared with what the broker did, with decision = \"shadow\"",
);
const POLICY_CHANGES: Family = counter(
    "mqttshim_policy_changes_total",
    &[],
    "Times that a broker may have changed who may do what",
);
const OPAQUE: Family = counter(
    "mqttshim_opaque_connections_total",
    &[],
    "Connections that turned out not to be readable as MQTT",
);
const SENDS: Family =
    counter("mqttshim_sends_total", &["way"], "Sends to clients by the way they took");
const BUFFERS: Family = gauge(
    "mqttshim_stack_buffer_bytes",
    &[],
    "Bytes that the buffers of connections have now, or would have to take for messages under way, on TCP/IP of the card's own",
);
const REFUSED: Family = counter(
    "mqttshim_stack_refused_total",
    &["what"],
    "Connections not begun and segments dropped because all buffers together had what they may",
);
const FRAMES_LOST: Family = counter(
    "mqttshim_frames_lost_total",
    &["direction"],
    "Frames for which the port of the card's own TCP/IP had no room",
);
const PAUSES: Family = counter(
    "mqttshim_accept_pauses_total",
    &[],
    "Times that accepting stopped for want of descriptors or sockets",
);
const GIVEN_UP: Family = counter(
    "mqttshim_lingers_given_up_total",
    &[],
    "Closed connections reset because their client did not take what was left",
);
const VIOLATIONS: Family =
    counter("mqttshim_violations_total", &[], "Breaches of the channel's protocol by a host");
const CHANNELS_LOST: Family =
    counter("mqttshim_channels_lost_total", &[], "Channels that were lost");
const MESSAGES: Family = counter(
    "mqttshim_channel_messages_total",
    &["direction"],
    "Messages between the card and its host",
);

/// Every series with its value, always in the same order.
fn readings(snapshot: &Snapshot, mut tell: impl FnMut(&'static Family, &[&'static str], u64)) {
    let Snapshot { survey, attach, spun } = snapshot;
    let core = &survey.core;
    tell(&PUBLISH, &["card", CARD_REASON], core.publishes_card);
    for reason in Reason::ALL {
        tell(&PUBLISH, &["broker", reason.label()], core.broker(reason));
    }
    for reason in SLOW_REASONS {
        tell(&SLOW, &[reason.label()], survey.slow[reason as usize]);
    }
    tell(&DELIVERIES, &["card"], core.deliveries_card);
    tell(&DELIVERIES, &["broker"], core.deliveries_broker);
    for reason in DropReason::ALL {
        tell(&DROPPED, &[reason.label()], core.dropped(reason));
    }
    tell(&CONNECTIONS, &[], core.connections);
    tell(&CONNECTIONS_BEGUN, &[], survey.card.connections_begun);
    tell(&ROUTES, &["cached"], core.routes);
    tell(&SESSION_STATE, &["open"], survey.sessions_open);
    tell(&SESSION_STATE, &["ended"], survey.sessions_ended);
    tell(&SPIN, &[], u64::try_from(spun.as_nanos()).unwrap_or(u64::MAX));
    tell(&MQTT_SESSIONS, &[], core.sessions);
    tell(&SUBSCRIPTIONS, &[], core.subscriptions);
    tell(&PINGS, &[], core.pings_injected);
    tell(&ROUTES, &["learned"], core.learned);
    tell(&HELD, &[], core.publishes_held);
    tell(&WINDOWS, &["learned"], core.windows_whole);
    tell(&WINDOWS, &["unproven"], core.windows_failed);
    tell(&SHADOW, &["same"], core.shadow_same);
    tell(&SHADOW, &["different"], core.shadow_different);
    tell(&SHADOW, &["unproven"], core.shadow_unproven);
    tell(&POLICY_CHANGES, &[], core.policy_changes);
    tell(&OPAQUE, &[], core.turned_opaque);
    tell(&SENDS, &["io_uring"], survey.sends.batched);
    tell(&SENDS, &["plain"], survey.sends.plain);
    tell(&SENDS, &["frames"], survey.sends.framed);
    tell(&BUFFERS, &[], survey.memory.bytes);
    tell(&REFUSED, &["connection"], survey.memory.connections_refused);
    tell(&REFUSED, &["segment"], survey.memory.segments_dropped);
    tell(&FRAMES_LOST, &["in"], survey.lost.arrived);
    tell(&FRAMES_LOST, &["out"], survey.lost.leaving);
    tell(&PAUSES, &[], survey.card.accept_pauses);
    tell(&GIVEN_UP, &[], survey.card.lingers_given_up);
    tell(&VIOLATIONS, &[], attach.violations);
    tell(&CHANNELS_LOST, &[], attach.channels_lost);
    tell(&MESSAGES, &["in"], attach.messages_in);
    tell(&MESSAGES, &["out"], attach.messages_out);
}

/// Where the data plane leaves its numbers.
#[derive(Debug)]
pub struct Board {
    cells: Vec<AtomicU64>,
    /// Held for a copy; the data plane does not wait for it.
    blind: Mutex<Arc<[Blind]>>,
}

impl Default for Board {
    fn default() -> Board {
        let mut cells = Vec::new();
        readings(&Snapshot::default(), |_, _, _| cells.push(AtomicU64::new(0)));
        Board { cells, blind: Mutex::default() }
    }
}

/// The data plane's hand on the board.
#[derive(Debug)]
pub struct Publisher {
    board: Arc<Board>,
    published: Option<Instant>,
    /// The names on the board.
    blind: Arc<[Blind]>,
    /// Something may have changed since.
    is_due: bool,
}

impl Publisher {
    /// Publishes to this board from now on.
    #[must_use]
    pub fn new(board: Arc<Board>) -> Publisher {
        Publisher { board, published: None, blind: Arc::default(), is_due: true }
    }

    /// Leaves a snapshot if something changed and the last one is old enough.
    pub fn publish(
        &mut self,
        now: Instant,
        has_changed: bool,
        snapshot: impl FnOnce() -> Snapshot,
    ) {
        self.is_due |= has_changed;
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        self.is_due = false;
        self.published = Some(now);
        let mut cells = self.board.cells.iter();
        let snapshot = snapshot();
        readings(&snapshot, |_, _, value| {
            let cell = cells.next().expect("the board was made by the same list");
            cell.store(value, Ordering::Relaxed);
        });
        if *self.blind != *snapshot.survey.blind {
            match self.board.blind.try_lock() {
                Ok(mut blind) => {
                    self.blind = snapshot.survey.blind.into();
                    blind.clone_from(&self.blind);
                }
                // It is being read: next time.
                Err(_) => self.is_due = true,
            }
        }
    }

    /// When a snapshot is due; an instant in the past means now.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let first = || Instant::now().checked_sub(PUBLISH_INTERVAL);
        let next = self.published.map(|last| last + PUBLISH_INTERVAL);
        if self.is_due { next.or_else(first) } else { None }
    }
}

#[cfg(test)]
mod tests;

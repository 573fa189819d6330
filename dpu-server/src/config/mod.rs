//! The configuration: what a TOML file says, and over it what the command line says.
//!
//! ```text
//! file ──► keys known? ──► File ──┐
//!                                 ├──► Config (checked) ──► the rest of the program
//! command line ──────────► File ──┘
//! ```
//!
//! Every flag is also a key. A key that is none is an error that names the nearest valid one. Whatever [`Config`] holds is
//! within its bounds.

mod choice;
mod nearest;
mod stack;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mqttshim_agent::logs;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::mqtt::{CoreConfig, Limits, Mode, Trust};

pub use choice::{
    ChannelChoice, DecisionChoice, OlderSessionsChoice, PortChoice, StackChoice, TrustChoice,
};
pub use stack::StackConfig;

/// Sessions of one user, unless told otherwise.
const SESSIONS_PER_UID_MAX: u32 = 256;
/// Longest look before a sleep that makes sense, in microseconds.
const SPIN_US_MAX: u64 = 1_000_000;
/// The look before a sleep, in microseconds. Yielding, it takes a core from nobody who has work.
const SPIN_US: u64 = 20;

/// How long what was observed counts where the broker's policy can change unseen, in seconds.
const ROUTE_TTL_S: u64 = 5;
/// The longest that makes sense.
const ROUTE_TTL_S_MAX: u64 = 86_400;

/// A file's keys, or a command line's flags. What is not said is `None`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// `session`
    pub session: Option<PathBuf>,
    /// `session_group`
    pub session_group: Option<String>,
    /// `channel`
    pub channel: Option<ChannelChoice>,
    /// `stack`
    pub stack: Option<StackChoice>,
    /// `port`
    pub port: Option<PortChoice>,
    /// `address`
    #[serde(default, deserialize_with = "list")]
    pub address: Option<Vec<String>>,
    /// `gateway`
    pub gateway: Option<IpAddr>,
    /// `vlan`
    pub vlan: Option<u16>,
    /// `buffers_bytes_max`
    pub buffers_bytes_max: Option<usize>,
    /// `receive_buffer_bytes`
    pub receive_buffer_bytes: Option<usize>,
    /// `send_buffer_bytes`
    pub send_buffer_bytes: Option<usize>,
    /// `trust`
    pub trust: Option<TrustChoice>,
    /// `queue_qos0_messages`
    pub queue_qos0_messages: Option<bool>,
    /// `older_sessions`
    pub older_sessions: Option<OlderSessionsChoice>,
    /// `decision`
    pub decision: Option<DecisionChoice>,
    /// `route_ttl`
    pub route_ttl: Option<u64>,
    /// `trust_plugin`
    #[serde(default, deserialize_with = "list")]
    pub trust_plugin: Option<Vec<String>>,
    /// `metrics`
    pub metrics: Option<String>,
    /// `log`
    pub log: Option<String>,
    /// `spin_us`
    pub spin_us: Option<u64>,
    /// `[limits]`
    #[serde(default)]
    pub limits: FileLimits,
}

/// The section `[limits]`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, expecting = "a section [limits]")]
#[allow(missing_docs, reason = "each is the key of its name; `Limits` and `Config` document them")]
pub struct FileLimits {
    pub sockets_max: Option<usize>,
    pub sessions_per_uid_max: Option<u32>,
    pub inspect_bytes_max: Option<usize>,
    pub outbox_bytes_max: Option<usize>,
    pub outbox_messages_max: Option<usize>,
    pub outbox_total_bytes_max: Option<usize>,
    pub subscriptions_max: Option<usize>,
    pub topic_levels_max: Option<usize>,
    pub mqtt_sessions_max: Option<usize>,
    pub unanswered_max: Option<usize>,
    pub inflight_messages_max: Option<u16>,
    pub queued_messages_max: Option<usize>,
    pub routes_max: Option<usize>,
}

/// Words in brackets, and for who has none: what is missing.
fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    struct Words;
    impl<'de> Visitor<'de> for Words {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list in brackets, also of one: [\"…\"]")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<Vec<String>, A::Error> {
            let mut all = Vec::new();
            while let Some(word) = words.next_element()? {
                all.push(word);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_seq(Words).map(Some)
}

/// The keys of a file, for messages about wrong ones.
const KEYS: [&str; 21] = [
    "session",
    "session_group",
    "channel",
    "stack",
    "port",
    "address",
    "gateway",
    "vlan",
    "buffers_bytes_max",
    "receive_buffer_bytes",
    "send_buffer_bytes",
    "trust",
    "queue_qos0_messages",
    "older_sessions",
    "decision",
    "route_ttl",
    "trust_plugin",
    "metrics",
    "log",
    "spin_us",
    "limits",
];
/// The keys of `[limits]`.
const LIMIT_KEYS: [&str; 13] = [
    "sockets_max",
    "sessions_per_uid_max",
    "inspect_bytes_max",
    "outbox_bytes_max",
    "outbox_messages_max",
    "outbox_total_bytes_max",
    "subscriptions_max",
    "topic_levels_max",
    "mqtt_sessions_max",
    "unanswered_max",
    "inflight_messages_max",
    "queued_messages_max",
    "routes_max",
];

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A key whose value is none, or does not go with the others.
    #[error("{key}: {reason}")]
    Together {
        /// The key.
        key: &'static str,
        /// Why not, and what would.
        reason: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
    /// It is no TOML, or a value has the wrong type.
    #[error("{}: {}", path.display(), plain(error))]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and what.
        error: Box<toml::de::Error>,
    },
    /// A key that is none.
    #[error("{}: unknown key {key:?}{}", path.display(), nearest::hint(nearest))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key, with its section.
        key: String,
        /// The valid key most like it.
        nearest: Option<&'static str>,
    },
    /// A value outside its bounds.
    #[error("{key} = {value} is not within {min} to {max}")]
    Range {
        /// The key.
        key: &'static str,
        /// What was asked for.
        value: u64,
        /// The least that makes sense.
        min: u64,
        /// The most.
        max: u64,
    },
}

/// What a parser says, without the names of types.
fn plain(error: &toml::de::Error) -> String {
    const WORDS: [(&str, &str); 4] = [
        ("expected usize", "expected a whole number"),
        ("expected u64", "expected a whole number"),
        ("expected u32", "expected a whole number"),
        ("expected u16", "expected a whole number up to 65535"),
    ];
    let message = error.message();
    let plain =
        WORDS.iter().fold(message.to_owned(), |text, (type_, word)| text.replace(type_, word));
    error.to_string().trim_end().replace(message, &plain)
}

/// Everything the program needs to know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    /// Where programs find the agent; `None`: the default of this user.
    pub session: Option<PathBuf>,
    /// The group that may open sessions; `None`: everybody.
    pub session_group: Option<String>,
    /// How the host is reached.
    pub channel: ChannelChoice,
    /// Where the connections live.
    pub stack: StackConfig,
    /// Where metrics are served, if they are.
    pub metrics: Option<String>,
    /// What is logged; `None`: the environment's RUST_LOG, or `info`.
    pub log: Option<String>,
    /// How long the idle data plane looks again before it sleeps, in microseconds.
    pub spin_us: u64,
    /// Sockets of all brokers; `None`: what the descriptors allow.
    pub sockets_max: Option<usize>,
    /// Sessions of one user at a time.
    pub sessions_per_uid_max: u32,
    /// For the MQTT core.
    pub core: CoreConfig,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(path: &Path) -> Result<File, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        File::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<File, ConfigError> {
        let failed = |error| ConfigError::Parse { path: path.to_owned(), error: Box::new(error) };
        let table: toml::Table = text.parse().map_err(failed)?;
        check_keys(path, "", table.keys(), &KEYS)?;
        if let Some(limits) = table.get("limits").and_then(toml::Value::as_table) {
            check_keys(path, "limits.", limits.keys(), &LIMIT_KEYS)?;
        }
        // From the text, not the table: errors then name a line.
        toml::from_str(text).map_err(failed)
    }

    /// What `self` says, and where it says nothing, what `other` says.
    #[must_use]
    pub fn or(self, other: File) -> File {
        File {
            session: self.session.or(other.session),
            session_group: self.session_group.or(other.session_group),
            channel: self.channel.or(other.channel),
            stack: self.stack.or(other.stack),
            port: self.port.or(other.port),
            address: self.address.or(other.address),
            gateway: self.gateway.or(other.gateway),
            vlan: self.vlan.or(other.vlan),
            buffers_bytes_max: self.buffers_bytes_max.or(other.buffers_bytes_max),
            receive_buffer_bytes: self.receive_buffer_bytes.or(other.receive_buffer_bytes),
            send_buffer_bytes: self.send_buffer_bytes.or(other.send_buffer_bytes),
            trust: self.trust.or(other.trust),
            queue_qos0_messages: self.queue_qos0_messages.or(other.queue_qos0_messages),
            older_sessions: self.older_sessions.or(other.older_sessions),
            decision: self.decision.or(other.decision),
            route_ttl: self.route_ttl.or(other.route_ttl),
            trust_plugin: self.trust_plugin.or(other.trust_plugin),
            metrics: self.metrics.or(other.metrics),
            log: self.log.or(other.log),
            spin_us: self.spin_us.or(other.spin_us),
            // The command line has no limits.
            limits: other.limits,
        }
    }

    /// Fills in the defaults and checks the bounds.
    ///
    /// # Errors
    /// [`ConfigError::Range`], [`ConfigError::Together`].
    pub fn check(self) -> Result<Config, ConfigError> {
        let stack = stack::stack(&self)?;
        self.check_words()?;
        let limits = self.limits;
        let core = CoreConfig {
            trust: match self.trust {
                None | Some(TrustChoice::Observed) => Trust::Observed,
                Some(TrustChoice::Suback) => Trust::Suback,
            },
            keeps_offline_qos0: self.queue_qos0_messages,
            has_older_sessions: self.older_sessions != Some(OlderSessionsChoice::None),
            mode: match self.decision {
                None | Some(DecisionChoice::Live) => Mode::Live,
                Some(DecisionChoice::Shadow) => Mode::Shadow,
            },
            route_ttl: Duration::from_secs(range(
                "route_ttl",
                self.route_ttl.unwrap_or(ROUTE_TTL_S),
                1,
                ROUTE_TTL_S_MAX,
            )?),
            trusted_plugins: self.trust_plugin.unwrap_or_default().into(),
            limits: limits.core()?,
        };
        let sockets_max =
            limits.sockets_max.map(|max| range("limits.sockets_max", max, 2, 1 << 20));
        let sessions = limits.sessions_per_uid_max.unwrap_or(SESSIONS_PER_UID_MAX);
        Ok(Config {
            session: self.session,
            session_group: self.session_group,
            channel: self.channel.unwrap_or(ChannelChoice::Local),
            stack,
            metrics: self.metrics,
            log: self.log,
            spin_us: range("spin_us", self.spin_us.unwrap_or(SPIN_US), 0, SPIN_US_MAX)?,
            sockets_max: sockets_max.transpose()?,
            sessions_per_uid_max: range("limits.sessions_per_uid_max", sessions, 1, 4096)?,
            core,
        })
    }
}

impl File {
    /// What would be found wrong only when it is used.
    fn check_words(&self) -> Result<(), ConfigError> {
        if let Some(address) = &self.metrics
            && !address
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        {
            let reason = format!("{address:?} is no HOST:PORT, like 127.0.0.1:9184");
            return Err(ConfigError::Together { key: "metrics", reason });
        }
        if let Some(level) = &self.log
            && let Err(error) = logs::check(level)
        {
            return Err(ConfigError::Together { key: "log", reason: error.to_string() });
        }
        Ok(())
    }
}

impl FileLimits {
    fn core(&self) -> Result<Limits, ConfigError> {
        let standard = self.counts()?;
        let mib = 1024 * 1024;
        Ok(Limits {
            inspect_bytes_max: bound(
                "limits.inspect_bytes_max",
                self.inspect_bytes_max,
                standard.inspect_bytes_max,
                1024,
                16 * mib,
            )?,
            outbox_bytes_max: bound(
                "limits.outbox_bytes_max",
                self.outbox_bytes_max,
                standard.outbox_bytes_max,
                1024,
                1024 * mib,
            )?,
            outbox_messages_max: bound(
                "limits.outbox_messages_max",
                self.outbox_messages_max,
                standard.outbox_messages_max,
                1,
                1_000_000,
            )?,
            outbox_total_bytes_max: bound(
                "limits.outbox_total_bytes_max",
                self.outbox_total_bytes_max,
                standard.outbox_total_bytes_max,
                mib,
                1024 * 1024 * mib,
            )?,
            ..standard
        })
    }

    /// Limits of numbers, and the standard of bytes.
    fn counts(&self) -> Result<Limits, ConfigError> {
        let standard = Limits::default();
        Ok(Limits {
            subscriptions_max: bound(
                "limits.subscriptions_max",
                self.subscriptions_max,
                standard.subscriptions_max,
                1,
                100_000_000,
            )?,
            topic_levels_max: bound(
                "limits.topic_levels_max",
                self.topic_levels_max,
                standard.topic_levels_max,
                1,
                32_768,
            )?,
            sessions_max: bound(
                "limits.mqtt_sessions_max",
                self.mqtt_sessions_max,
                standard.sessions_max,
                1,
                100_000_000,
            )?,
            unanswered_max: bound(
                "limits.unanswered_max",
                self.unanswered_max,
                standard.unanswered_max,
                1,
                65_535,
            )?,
            inflight_messages_max: self
                .inflight_messages_max
                .unwrap_or(standard.inflight_messages_max),
            queued_messages_max: bound(
                "limits.queued_messages_max",
                self.queued_messages_max,
                standard.queued_messages_max,
                0,
                1 << 20,
            )?,
            routes_max: bound(
                "limits.routes_max",
                self.routes_max,
                standard.routes_max,
                1,
                10_000_000,
            )?,
            ..standard
        })
    }
}

/// A limit that is said or not, if it is within its bounds.
fn bound(
    key: &'static str,
    value: Option<usize>,
    default: usize,
    min: u64,
    max: u64,
) -> Result<usize, ConfigError> {
    range(key, value.unwrap_or(default), min, max)
}

/// The value, if it is within its bounds.
fn range<T: Copy + TryInto<u64>>(
    key: &'static str,
    value: T,
    min: u64,
    max: u64,
) -> Result<T, ConfigError> {
    let number = value.try_into().unwrap_or(u64::MAX);
    if (min..=max).contains(&number) {
        Ok(value)
    } else {
        Err(ConfigError::Range { key, value: number, min, max })
    }
}

fn check_keys<'k>(
    path: &Path,
    section: &str,
    keys: impl Iterator<Item = &'k String>,
    valid: &[&'static str],
) -> Result<(), ConfigError> {
    for key in keys {
        if !valid.contains(&key.as_str()) {
            return Err(ConfigError::UnknownKey {
                path: path.to_owned(),
                key: format!("{section}{key}"),
                nearest: nearest::of(key, valid),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

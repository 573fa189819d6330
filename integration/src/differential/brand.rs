//! The brokers the oracle knows, and what may be asked of each.
//!
//! A scenario is for a brand: it uses what the brand can do, and keeps to what two runs of the broker alone agree on. What was left
//! out for a brand, and how that was verified, is in `docs/testing.md`.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use crate::mqtt::Version;
use crate::{needs, paths};

/// One program in one version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Brand {
    /// mosquitto as installed.
    #[default]
    Mosquitto,
    /// mosquitto 2.1, unpacked by `tools/fetch-mosquitto.sh`.
    Mosquitto21,
    /// aedes, in Node.
    Aedes,
    /// amqtt, in Python.
    Amqtt,
    /// rumqttd, in Rust.
    Rumqttd,
    /// ejabberd's `mod_mqtt`, in Erlang.
    Ejabberd,
}

/// What a scenario may ask of a brand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    pub(super) versions: &'static [Version],
    /// Topic Filters with `$share`.
    pub(super) has_shared: bool,
    /// Sessions that outlive their connection.
    pub(super) has_sessions: bool,
    pub(super) has_wills: bool,
    pub(super) has_retained: bool,
    pub(super) qos_max: u8,
    /// Of a subscription. Some deliver with its QoS what was published with less.
    pub(super) subscription_qos_max: u8,
    /// Packets no broker has to like.
    pub(super) has_malformed: bool,
    /// Topics that begin with `$` but not `$SYS`.
    pub(super) has_dollar_topics: bool,
    /// A second connection of one client.
    pub(super) has_takeover: bool,
    /// Packets behind a CONNECT that is not answered yet.
    pub(super) has_early_packets: bool,
    /// Topic Aliases of clients.
    pub(super) has_aliases: bool,
    /// Aliases that end the connection: what the broker delivers to it before is open where that is another task's work.
    pub(super) has_wrong_aliases: bool,
    /// Maximum Packet Size and Topic Alias Maximum in one CONNECT: mosquitto 2.1 gives a topic its alias with a message that it does not
    /// send, being too large.
    pub(super) has_aliases_within_limits: bool,
    /// UNSUBSCRIBE of a version 3 client behind a mount point: mosquitto says yes and goes on delivering.
    pub(super) has_vain_unsubscribes: bool,
    /// Clients without keep-alive.
    pub(super) has_no_keep_alive: bool,
    /// Topics that begin with a character of several bytes.
    pub(super) has_wide_topics: bool,
    /// UNSUBSCRIBE of what the client has not subscribed to.
    pub(super) has_wrong_unsubscribes: bool,
    /// Messages sent again with DUP.
    pub(super) has_repeats: bool,
    /// Topic Filters one client has that match the same topic.
    pub(super) has_overlaps: bool,
    /// SUBSCRIBE of what the client has subscribed to.
    pub(super) has_renewals: bool,
    /// Groups of steps without barriers.
    pub(super) has_races: bool,
    /// A Payload Format Indicator that says nothing (MQTT 5 §3.3.2.3.2).
    pub(super) has_format_0: bool,
    /// A client that stops reading until all buffers are full.
    pub(super) has_floods: bool,
    /// Acknowledgements that come late.
    pub(super) has_late_acks: bool,
    /// An access control list that is read again at a signal, and users with names.
    pub(super) has_policies: bool,
    /// Sessions and delays of wills that end by time.
    pub(super) has_lapses: bool,
    /// The end of the card, after which everybody comes again.
    pub(super) has_restarts: bool,
}

const MOSQUITTO: Abilities = Abilities {
    versions: &[Version::V31, Version::V311, Version::V5],
    has_shared: true,
    has_sessions: true,
    has_wills: true,
    has_retained: true,
    qos_max: 2,
    subscription_qos_max: 2,
    has_malformed: true,
    has_dollar_topics: true,
    has_takeover: true,
    has_early_packets: true,
    has_aliases: true,
    has_wrong_aliases: true,
    has_aliases_within_limits: true,
    has_vain_unsubscribes: true,
    has_no_keep_alive: true,
    has_wide_topics: true,
    has_wrong_unsubscribes: true,
    has_repeats: true,
    has_overlaps: true,
    has_renewals: true,
    has_races: true,
    has_format_0: true,
    has_floods: true,
    has_late_acks: true,
    has_policies: true,
    has_lapses: true,
    has_restarts: true,
};

impl Brand {
    /// Every brand.
    pub const ALL: [Brand; 6] = [
        Brand::Mosquitto,
        Brand::Mosquitto21,
        Brand::Aedes,
        Brand::Amqtt,
        Brand::Rumqttd,
        Brand::Ejabberd,
    ];

    pub(super) fn abilities(self) -> Abilities {
        let other = Abilities {
            has_policies: false,
            has_restarts: false,
            has_lapses: false,
            has_wrong_aliases: false,
            has_early_packets: false,
            ..MOSQUITTO
        };
        match self {
            Brand::Mosquitto => MOSQUITTO,
            Brand::Mosquitto21 => Abilities {
                has_aliases_within_limits: false,
                has_vain_unsubscribes: false,
                ..MOSQUITTO
            },
            Brand::Aedes => Abilities {
                versions: &[Version::V31, Version::V311],
                has_retained: false,
                has_repeats: false,
                has_floods: false,
                ..other
            },
            Brand::Amqtt => {
                Abilities { versions: &[Version::V311], subscription_qos_max: 0, ..other }
            }
            Brand::Rumqttd => Abilities {
                versions: &[Version::V311],
                subscription_qos_max: 0,
                has_shared: false,
                has_overlaps: false,
                has_renewals: false,
                has_no_keep_alive: false,
                has_wide_topics: false,
                ..other
            },
            Brand::Ejabberd => Abilities {
                versions: &[Version::V311, Version::V5],
                has_format_0: false,
                has_wrong_unsubscribes: false,
                ..other
            },
        }
    }

    /// Whether it answers a PINGREQ before it has delivered what came before, and answers in the log when a client is reset.
    pub(super) fn is_late(self) -> bool {
        !self.is_mosquitto()
    }

    pub(super) fn is_mosquitto(self) -> bool {
        matches!(self, Brand::Mosquitto | Brand::Mosquitto21)
    }

    /// What clients log in with, where they must.
    pub(super) fn credentials(self, client_id: &str) -> Option<(String, String)> {
        match self {
            Brand::Mosquitto | Brand::Mosquitto21 => Some((client_id.to_owned(), "secret".into())),
            Brand::Ejabberd => Some(("guest".into(), "guest".into())),
            _ => None,
        }
    }

    /// The command that runs it, where it is not what is installed under its name.
    pub(super) fn program(self) -> Vec<String> {
        if self != Brand::Mosquitto21 {
            return Vec::new();
        }
        let mut command = Command::new(paths::workspace().join("tools/fetch-mosquitto.sh"));
        let output = command.arg(paths::workspace().join(".cache/mosquitto")).output();
        let output = output.expect("the script of the workspace runs");
        let prefix = String::from_utf8(output.stdout).expect("paths of ours are text");
        prefix.split_whitespace().map(str::to_owned).collect()
    }

    /// Where its plugin dynamic-security is, if it is installed.
    pub(super) fn dynamic_security(self) -> Option<PathBuf> {
        let folder = match self {
            Brand::Mosquitto => PathBuf::from("/usr/lib"),
            Brand::Mosquitto21 => paths::workspace().join(".cache/mosquitto/root/usr/lib"),
            _ => return None,
        };
        let triplets = ["", "x86_64-linux-gnu", "aarch64-linux-gnu"].into_iter();
        let files =
            triplets.map(|triplet| folder.join(triplet).join("mosquitto_dynamic_security.so"));
        files.into_iter().find(|file| file.exists())
    }

    /// Whether it is here; says so if not.
    #[must_use]
    pub fn is_here(self) -> bool {
        let is_cached = |path: &str| {
            let path = paths::workspace().join(".cache").join(path);
            path.exists()
                || needs::skip(&format!("{self} is missing; run `INSTALL_ONLY=1 make brokers`"))
        };
        match self {
            Brand::Mosquitto => needs::has("mosquitto"),
            Brand::Mosquitto21 => is_cached("mosquitto/complete"),
            Brand::Aedes => needs::has("node") && is_cached("brokers/aedes/.ready"),
            Brand::Amqtt => is_cached("brokers/amqtt/.ready"),
            Brand::Rumqttd => is_cached("brokers/rumqttd/bin/rumqttd"),
            Brand::Ejabberd => needs::has("ejabberdctl"),
        }
    }
}

impl fmt::Display for Brand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Brand::Mosquitto => "mosquitto",
            Brand::Mosquitto21 => "mosquitto-2.1",
            Brand::Aedes => "aedes",
            Brand::Amqtt => "amqtt",
            Brand::Rumqttd => "rumqttd",
            Brand::Ejabberd => "ejabberd",
        })
    }
}

impl FromStr for Brand {
    type Err = String;

    fn from_str(text: &str) -> Result<Brand, String> {
        let known = Brand::ALL.into_iter().find(|brand| brand.to_string() == text);
        known.ok_or_else(|| format!("{text:?} is no broker; there are {:?}", Brand::ALL))
    }
}

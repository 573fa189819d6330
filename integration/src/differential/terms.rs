//! What is compared, and how the broker is configured for it.

use std::fmt;
use std::str::FromStr;

use super::brand::Brand;

/// Scenarios before both brokers start afresh.
pub const SCENARIOS_PER_RIG: u64 = 25;

/// How the card learns who may receive what: `--trust`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Trust {
    /// A granted SUBACK is permission.
    #[default]
    Suback,
    /// By observing the broker.
    Observed,
}

impl fmt::Display for Trust {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Trust::Suback => "suback",
            Trust::Observed => "observed",
        })
    }
}

impl FromStr for Trust {
    type Err = String;

    fn from_str(text: &str) -> Result<Trust, String> {
        let known = [Trust::Suback, Trust::Observed].into_iter().find(|it| it.to_string() == text);
        known.ok_or_else(|| format!("{text:?} is no trust; use suback, or observed"))
    }
}

/// What is compared: a broker, and how the card trusts it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Terms {
    /// The broker.
    pub brand: Brand,
    /// The card's trust.
    pub trust: Trust,
}

/// How mosquitto is configured, which changes from rig to rig.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Variant {
    Ordinary,
    /// Offline sessions get messages of QoS 0 too. mosquitto 2.0 counts these as in flight for ever, so that what is delivered would
    /// depend on how many there were: hence no limit.
    QueuesQos0,
    /// An overlapping version 3 client gets a copy for each of its subscriptions, as 2.1 has it anyway.
    Duplicates,
    /// What a subscriber gets has the QoS of its subscription, whatever that of the message.
    Upgrades,
    /// Rules are the plugin dynamic-security's, where it is installed.
    Dynamic,
    /// Topics have a prefix inside the broker, which mosquitto 2.0.11 does not take off when it delivers: only what is observed shows
    /// what a copy has to be.
    MountPoint,
}

impl Variant {
    pub(super) fn of(seed: u64, trust: Trust) -> Variant {
        let is_observed = trust == Trust::Observed;
        match (seed / SCENARIOS_PER_RIG) % 8 {
            1 => Variant::QueuesQos0,
            3 if is_observed => Variant::MountPoint,
            2 | 4 if is_observed => Variant::Dynamic,
            5 => Variant::Duplicates,
            7 if is_observed => Variant::Upgrades,
            _ => Variant::Ordinary,
        }
    }

    /// Whether the rules may change: a card that trusts SUBACK must not be given a broker whose rules say less.
    pub(super) fn has_policies(self, trust: Trust) -> bool {
        trust == Trust::Observed && self != Variant::MountPoint
    }

    pub(super) fn has_mount_point(self) -> bool {
        self == Variant::MountPoint
    }

    pub(super) fn config(self, brand: Brand) -> String {
        // Small answers go at once; otherwise the runs would wait for delayed acknowledgements of TCP.
        let mut config = "set_tcp_nodelay true\n".to_owned();
        config += match self {
            Variant::Ordinary | Variant::Dynamic => "",
            Variant::Duplicates => "allow_duplicate_messages true\n",
            Variant::Upgrades => "upgrade_outgoing_qos true\n",
            Variant::QueuesQos0 => "queue_qos0_messages true\nmax_inflight_messages 0\n",
            Variant::MountPoint => "mount_point inside/\n",
        };
        if brand == Brand::Mosquitto21 {
            // As 2.0 has it.
            config += "max_packet_size 268435455\n";
        }
        config
    }
}

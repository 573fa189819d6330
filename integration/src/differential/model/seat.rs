//! One client: whether it is there, its session, what it asked for.

use std::collections::BTreeMap;

use super::super::filter::matches;
use super::super::record::properties;
use super::super::scenario::Action;
use crate::mqtt::{Login, Version};

/// Options and Subscription Identifier of a subscription.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscription {
    pub(super) options: u8,
    pub(super) identifier: Option<u8>,
    /// Its number among all that were ever granted to the client.
    pub(super) number: usize,
    /// It is known to hold. A SUBACK of MQTT 3.1 cannot refuse and proves nothing; a copy does.
    pub(super) is_proven: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Seat {
    pub(super) is_online: bool,
    /// The client whose name it logged in with.
    pub(super) user: usize,
    pub(super) version: Option<Version>,
    pub(super) is_persistent: bool,
    pub(super) has_will: bool,
    pub(super) is_stalled: bool,
    pub(super) is_holding: bool,
    /// The card does not know what the session holds.
    pub(super) is_opaque: bool,
    pub(super) packet_bytes_max: Option<usize>,
    pub(super) has_receive_maximum: bool,
    /// Number of its connection.
    pub(super) connection: usize,
    /// There is a session of it, and the card has not seen all of it.
    is_unknown: bool,
    has_session: bool,
    granted: usize,
    subscriptions: BTreeMap<String, Subscription>,
    /// Filters that copies on their way will prove.
    proofs: Vec<String>,
    /// What the broker knows the aliases of this connection to stand for.
    aliases: BTreeMap<u8, String>,
}

impl Seat {
    /// Whether a session goes on.
    pub(super) fn connect(&mut self, login: &Login, user: usize) -> bool {
        let list = properties(&login.properties);
        let has = |kind: &str| list.iter().any(|text| text.starts_with(kind));
        let is_resumed = !login.is_clean && self.has_session;
        let before = std::mem::take(self);
        let is_v5 = login.version == Version::V5;
        *self = Seat {
            is_online: true,
            user,
            version: Some(login.version),
            is_persistent: if is_v5 { has("11=") } else { !login.is_clean },
            has_will: login.will.is_some(),
            packet_bytes_max: packet_bytes_max(&login.properties),
            has_receive_maximum: has("21="),
            connection: before.connection + 1,
            has_session: true,
            granted: before.granted,
            // MQTT 3.1 does not say whether it goes on.
            is_opaque: (is_resumed && (before.is_unknown || before.is_opaque))
                || (login.version == Version::V31 && !login.is_clean),
            ..Seat::default()
        };
        if is_resumed {
            self.subscriptions = before.subscriptions;
        }
        is_resumed
    }

    pub(super) fn leave(&mut self) {
        self.is_online = false;
        self.is_stalled = false;
        self.is_holding = false;
        if !self.is_persistent {
            let Seat { connection, granted, .. } = *self;
            *self = Seat { connection, granted, ..Seat::default() };
        }
    }

    /// The card forgot everything.
    pub(super) fn restart(&mut self) {
        self.leave();
        self.is_opaque = false;
        self.is_unknown = self.has_session;
    }

    pub(super) fn change(&mut self, action: &Action) {
        match action {
            Action::Subscribe { filters, identifier } => {
                for (filter, options) in filters {
                    let is_v5 = super::is_v5(self.version);
                    let options = if is_v5 { *options } else { options & 3 };
                    let identifier = identifier.filter(|_| is_v5);
                    self.granted += 1;
                    let is_proven = self.version != Some(Version::V31);
                    let number = self.granted;
                    let granted = Subscription { options, identifier, number, is_proven };
                    self.subscriptions.insert(filter.clone(), granted);
                }
            }
            Action::Unsubscribe(filters) => {
                self.subscriptions.retain(|filter, _| !filters.contains(filter));
            }
            Action::Stall => self.is_stalled = true,
            Action::Resume => self.is_stalled = false,
            Action::HoldAcks => self.is_holding = true,
            Action::ReleaseAcks => self.is_holding = false,
            _ => {}
        }
    }

    /// The broker delivers a copy that only this subscription can be the reason of.
    pub(super) fn prove(&mut self, filter: &str) {
        self.proofs.push(filter.to_owned());
    }

    /// All is quiet.
    pub(super) fn settle(&mut self) {
        for filter in std::mem::take(&mut self.proofs) {
            if let Some(subscription) = self.subscriptions.get_mut(&filter) {
                subscription.is_proven = true;
            }
        }
    }

    /// Whether the broker would learn something of this alias.
    pub(super) fn is_news(&self, alias: u8, topic: &str) -> bool {
        self.aliases.get(&alias).is_none_or(|known| known != topic)
    }

    /// The broker was told.
    pub(super) fn learn(&mut self, alias: u8, topic: &str) {
        self.aliases.insert(alias, topic.to_owned());
    }

    pub(super) fn matching(&self, topic: &str) -> impl Iterator<Item = (&str, Subscription)> {
        let all = self.subscriptions.iter();
        all.filter(move |(filter, _)| matches(filter, topic))
            .map(|(filter, subscription)| (filter.as_str(), *subscription))
    }
}

/// Maximum Packet Size, which is the only property of four bytes beginning with 0x27.
fn packet_bytes_max(list: &[u8]) -> Option<usize> {
    let at = list.iter().position(|&byte| byte == 0x27)?;
    let bytes: [u8; 4] = list.get(at + 1..at + 5)?.try_into().ok()?;
    Some(u32::from_be_bytes(bytes) as usize)
}

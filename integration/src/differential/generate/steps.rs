//! What a single client does besides publishing.

use super::super::filter::matches;
use super::super::scenario::{Action, Mark, WILLS_FROM};
use super::{Generator, WILD};
use crate::mqtt::{Login, Message, Version, packet, string};

/// A Session Expiry, a Will Delay: longer than any run, in seconds.
const LONG_S: u32 = 4000;

impl Generator {
    /// `is_simple`: without anything behind the CONNECT.
    pub(super) fn connect(&mut self, client: usize, is_simple: bool) -> Action {
        let wanted = match () {
            () if self.rng.percent(self.flavour.old_version) => Version::V31,
            () if self.rng.percent(self.flavour.v5) => Version::V5,
            () => Version::V311,
        };
        let has = |version: &Version| self.abilities.versions.contains(version);
        let version = if has(&wanted) { wanted } else { self.abilities.versions[0] };
        let is_v5 = version == Version::V5;
        let is_persistent = self.rng.percent(self.flavour.persistent);
        let is_clean = if is_persistent { self.rng.percent(15) && is_v5 } else { true };
        let mut login = Login::new("").version(version);
        login.is_clean = is_clean;
        login.keep_alive_s = match *self.rng.pick(&[0, 0, 60, 300, 10]) {
            0 if !self.abilities.has_no_keep_alive => 60,
            keep_alive_s => keep_alive_s,
        };
        let is_online = self.clients[client].is_online;
        let is_anonymous =
            !is_persistent && !is_online && version != Version::V31 && self.rng.percent(5);
        if is_v5 {
            login.properties = self.login_properties(is_persistent);
        }
        if is_v5 && self.rng.percent(2) && self.abilities.has_policies {
            // Authentication Method, of which the broker knows none.
            login.properties.extend([&[0x15][..], &string("none")].concat());
        }
        let user = match self.rng.percent(self.flavour.other_user) {
            true => self.rng.below(self.clients.len()),
            false => client,
        };
        let has_will = !is_anonymous && self.rng.percent(self.flavour.will);
        if has_will {
            login.will = Some(self.will(client, is_v5));
        }
        let guest = &mut self.clients[client];
        guest.is_online = true;
        guest.version = Some(version);
        guest.is_holding = false;
        guest.has_will = has_will;
        guest.user = user;
        if is_clean {
            guest.filters.clear();
        }
        let mut early = Vec::new();
        if !is_simple && self.abilities.has_early_packets && self.rng.percent(25) {
            for _ in 0..self.rng.between(1, 3) {
                early.push(match self.rng.below(4) {
                    0 => self.subscribe(client),
                    1 => Action::Ping,
                    _ => Action::Publish(self.posts(client, 3)),
                });
            }
        }
        Action::Connect { login, is_anonymous, user, early }
    }

    fn login_properties(&mut self, is_persistent: bool) -> Vec<u8> {
        let mut list = Vec::new();
        if is_persistent {
            let expiry_s = if self.rng.percent(20) { u32::MAX } else { LONG_S };
            list.push([&[0x11][..], &expiry_s.to_be_bytes()].concat());
        }
        if self.rng.percent(self.flavour.receive_maximum) {
            // Receive Maximum.
            list.push(vec![0x21, 0, u8::try_from(self.rng.between(1, 30)).expect("small")]);
        }
        let is_limited = self.rng.percent(15);
        if is_limited {
            // Maximum Packet Size.
            let bytes = *self.rng.pick(&[60_u32, 120, 200, 1000, 66_000]);
            list.push([&[0x27][..], &bytes.to_be_bytes()].concat());
        }
        if self.rng.percent(10) {
            list.push([&[0x26][..], &string("who"), &string("me")].concat());
        }
        if self.rng.percent(10) {
            // Request Problem Information.
            list.push(vec![0x17, 0]);
        }
        if self.rng.percent(10) {
            // Request Response Information.
            list.push(vec![0x19, 1]);
        }
        let takes_aliases = self.abilities.has_aliases_within_limits || !is_limited;
        if self.rng.percent(10) && takes_aliases {
            // Topic Alias Maximum: the broker may use aliases.
            list.push(vec![0x22, 0, 5]);
        }
        list.concat()
    }

    pub(super) fn will(&mut self, client: usize, is_v5: bool) -> Message {
        let qos = *self.rng.pick(&[0, 0, 1, 2]).min(&self.abilities.qos_max);
        let publisher = client + WILLS_FROM;
        let mark = Mark { group: self.group, client: publisher, qos, number: self.next_number };
        self.next_number += 1;
        let mut properties = if is_v5 { self.properties() } else { Vec::new() };
        if is_v5 && self.rng.percent(20) {
            let delay_s = *self.rng.pick(&[0, LONG_S]);
            properties.extend([&[0x18][..], &delay_s.to_be_bytes()].concat());
        }
        let topic = *self.rng.pick(&self.topics);
        let payload = if self.rng.percent(10) { String::new() } else { format!("{mark}will") };
        let is_retained = self.rng.percent(self.flavour.retained);
        Message { qos, is_retained, properties, ..Message::new(topic, payload) }
    }

    pub(super) fn subscribe(&mut self, client: usize) -> Action {
        let mut filters = Vec::new();
        for _ in 0..self.rng.between(1, 3) {
            let mut filter = if self.rng.percent(self.flavour.wild) {
                (*self.rng.pick(&WILD)).to_owned()
            } else {
                (*self.rng.pick(&self.topics)).to_owned()
            };
            let is_shared = self.rng.percent(self.flavour.shared) && !filter.starts_with('$');
            if is_shared {
                filter = format!("$share/group/{filter}");
            }
            let qos = if self.rng.percent(self.flavour.sub_above_qos_0) {
                *self.rng.pick(&[1, 2]).min(&self.abilities.subscription_qos_max)
            } else {
                0
            };
            if !self.abilities.has_overlaps && self.overlaps(client, &filter) {
                continue;
            }
            if !self.abilities.has_renewals && self.clients[client].filters.contains(&filter) {
                continue;
            }
            let mut options = qos;
            if self.rng.percent(self.flavour.options) {
                // No Local (not with a shared one: that ends the connection), Retain As Published, Retain Handling.
                let no_local = if is_shared && self.rng.percent(90) { 0 } else { 4 };
                options |= *self.rng.pick(&[no_local, 8, 0x10, 0x20, no_local | 8]);
            }
            self.clients[client].filters.push(filter.clone());
            filters.push((filter, options));
        }
        if filters.is_empty() {
            return Action::Ping;
        }
        let has_identifier = self.rng.percent(self.flavour.options / 2);
        let identifier =
            has_identifier.then(|| u8::try_from(self.rng.between(1, 127)).expect("small"));
        Action::Subscribe { filters, identifier }
    }

    /// Whether a topic matches this filter and another one the client may have.
    fn overlaps(&self, client: usize, filter: &str) -> bool {
        let others = self.clients[client].filters.iter().filter(|other| *other != filter);
        let mut topics =
            others.flat_map(|other| self.topics.iter().filter(move |topic| matches(other, topic)));
        topics.any(|topic| matches(filter, topic))
    }

    pub(super) fn unsubscribe(&mut self, client: usize) -> Action {
        let known = self.clients[client].filters.clone();
        let is_vain = self.flavour.has_mount_point && !self.clients[client].is_v5();
        if is_vain && !self.abilities.has_vain_unsubscribes {
            return Action::Ping;
        }
        if !self.abilities.has_wrong_unsubscribes {
            let Some(filter) = known.first().cloned() else { return Action::Ping };
            self.clients[client].filters.retain(|other| *other != filter);
            return Action::Unsubscribe(vec![filter]);
        }
        let mut filters = Vec::new();
        for _ in 0..self.rng.between(1, 2) {
            filters.push(if known.is_empty() || self.rng.percent(15) {
                (*self.rng.pick(&WILD)).to_owned()
            } else {
                self.rng.pick(&known).clone()
            });
        }
        Action::Unsubscribe(filters)
    }

    pub(super) fn disconnect(&mut self, client: usize) -> Action {
        let reason = *self.rng.pick(&[0, 0, 0, 4]);
        // Zero cannot become more [MQTT-3.14.2-2]; a broker may punish that.
        let expiry_s = self.rng.percent(15).then(|| *self.rng.pick(&[0, LONG_S]));
        self.leave(client, Action::Disconnect { reason, expiry_s })
    }

    pub(super) fn leave(&mut self, client: usize, action: Action) -> Action {
        self.clients[client].is_online = false;
        action
    }

    pub(super) fn stall(&mut self, client: usize) -> Action {
        if !self.clients.iter().any(|guest| guest.is_stalled) {
            self.stalled_bytes = 0;
        }
        self.clients[client].is_stalled = true;
        Action::Stall
    }

    pub(super) fn resume(&mut self, client: usize) -> Action {
        self.clients[client].is_stalled = false;
        Action::Resume
    }

    pub(super) fn hold_or_release(&mut self, client: usize) -> Action {
        let guest = &mut self.clients[client];
        guest.is_holding = !guest.is_holding;
        if guest.is_holding { Action::HoldAcks } else { Action::ReleaseAcks }
    }

    pub(super) fn malformed(&mut self, client: usize) -> Action {
        let is_v5 = self.clients[client].is_v5();
        let topic = *self.rng.pick(&self.topics);
        let no_properties: &[u8] = if is_v5 { &[0] } else { &[] };
        let bytes = match self.rng.below(17) {
            // Packet types that are none, or not a client's. Not a first byte of 0: mosquitto 2.0 forgets it if the second is late.
            0 => vec![0x01, 0x00],
            1 => vec![0xf1, 0x00],
            2 => vec![0x20, 0x02, 0x00, 0x00],
            3 => vec![0xd0, 0x00],
            // Lengths: of five bytes, and of a packet that never ends.
            4 => vec![0x30, 0xff, 0xff, 0xff, 0xff, 0x01],
            5 => [&[0x30, 0xff, 0x7f, 0x00, 0x01][..], b"a"].concat(),
            // PUBLISH: QoS 3, DUP with QoS 0, wildcards, no topic, bad UTF-8, Packet Identifier 0.
            6 => packet(0x36, &[&string(topic)[..], &[0, 9], no_properties, b"x"].concat()),
            7 => packet(0x38, &[&string(topic)[..], no_properties, b"x"].concat()),
            8 => packet(0x30, &[&string("a/+")[..], no_properties, b"x"].concat()),
            9 => packet(0x30, &[&string("")[..], no_properties, b"x"].concat()),
            10 => packet(0x30, &[&[0, 2, 0xc3, 0x28][..], no_properties, b"x"].concat()),
            11 => packet(0x32, &[&string(topic)[..], &[0, 0], no_properties, b"x"].concat()),
            // SUBSCRIBE: no filter, wrong flags, a wildcard inside a level.
            12 => packet(0x82, &[&[0, 9][..], no_properties].concat()),
            13 => packet(0x80, &[&[0, 9][..], no_properties, &string("a"), &[0]].concat()),
            14 => packet(0x82, &[&[0, 9][..], no_properties, &string("a+/b"), &[0]].concat()),
            // AUTH, where nobody began to authenticate.
            15 => packet(0xf0, &[&[0x19, 7, 0x15][..], &string("none")].concat()),
            // A second CONNECT.
            _ => Login::new("again").encode(),
        };
        self.leave(client, Action::Malformed(bytes))
    }
}

//! Messages: topics, sizes, QoS, properties, aliases.

use super::super::record::EXPIRY_STEP_S;
use super::super::scenario::{Action, Post};
use super::{BYTES_MAX, Generator};
use crate::mqtt::{Message, string};

/// Room for the mark of a message, in bytes.
pub(super) const MARK_BYTES: usize = 32;
/// Around the largest payload the card takes, and beyond.
const LARGE_BYTES: [usize; 6] = [65_000, 65_535, 65_536, 65_537, 70_000, 16_383];
/// Messages of a flood, and what one has of payload if the card may take it and if not: together more than the kernel keeps for one
/// connection on loopback (4.2 MB measured, half of it `tcp_wmem`) and the broker's window.
const FLOOD_POSTS: usize = 90;
const FLOOD_CARD_BYTES: usize = 62_000;
const FLOOD_BROKER_BYTES: usize = 66_000;
/// Groups that follow a flood.
const FLOOD_TAILS: usize = 8;

/// Highest Topic Alias mosquitto accepts.
pub(super) const ALIAS_MAX: u8 = 10;
const ALIASES: [u8; 5] = [1, 2, 3, ALIAS_MAX, ALIAS_MAX + 1];

impl Generator {
    /// Up to `most` messages of one client, back to back.
    pub(super) fn posts(&mut self, client: usize, most: usize) -> Vec<Post> {
        let topic = self.topic();
        self.posts_on(client, most, topic)
    }

    /// The same, mostly on `topic`.
    pub(super) fn posts_on(
        &mut self,
        client: usize,
        most: usize,
        topic: &'static str,
    ) -> Vec<Post> {
        self.habit = Some((client, topic));
        let count = self.rng.between(1, most);
        let mut bytes =
            if self.clients.iter().any(|guest| guest.is_stalled) { self.stalled_bytes } else { 0 };
        let mut posts = Vec::new();
        for _ in 0..count {
            let topic = if self.rng.percent(60) { topic } else { self.topic() };
            let post = self.post(client, topic);
            bytes += post.payload_bytes + MARK_BYTES;
            if bytes > BYTES_MAX {
                break;
            }
            posts.push(post);
        }
        self.stalled_bytes = bytes;
        posts
    }

    /// A topic, mostly one that somebody wants: what nobody wants goes to the broker.
    fn topic(&mut self) -> &'static str {
        let is_any = self.rng.percent(20);
        self.wanted().filter(|_| !is_any).unwrap_or_else(|| *self.rng.pick(&self.topics))
    }

    /// A topic somebody has subscribed to by its name.
    pub(super) fn wanted(&mut self) -> Option<&'static str> {
        let guests = self.clients.iter().filter(|guest| guest.is_online);
        let filters: Vec<&String> = guests.flat_map(|guest| &guest.filters).collect();
        let is_wanted = |topic: &&&str| filters.iter().any(|filter| filter == *topic);
        let wanted: Vec<&'static str> = self.topics.iter().filter(is_wanted).copied().collect();
        (!wanted.is_empty()).then(|| *self.rng.pick(&wanted))
    }

    /// Fills the way to `reader`, who does not read, and goes on behind it, once a scenario; `false` if nobody can. What the card may
    /// take and what it may not is mixed: the broker must not be overtaken where it has to wait.
    pub(super) fn flood(&mut self, reader: usize) -> bool {
        let Some(client) = (0..self.clients.len()).find(|&client| self.clients[client].can_act())
        else {
            return false;
        };
        self.flavour.has_flood = false;
        // Nothing else until it is read.
        self.stalled_bytes = BYTES_MAX;
        let filters = &self.clients[reader].filters;
        let wanted = self.topics.iter().find(|topic| filters.iter().any(|filter| filter == *topic));
        let topic = wanted.copied().unwrap_or_else(|| self.topic());
        let sizes = [FLOOD_CARD_BYTES, FLOOD_BROKER_BYTES];
        let mut posts: Vec<Post> =
            (0..FLOOD_POSTS).map(|_| self.flood_post(client, topic, sizes)).collect();
        for _ in 0..FLOOD_TAILS {
            self.settled(client, Action::Publish(posts));
            let sizes = [MARK_BYTES, FLOOD_BROKER_BYTES];
            posts = (0..self.rng.between(1, 2))
                .map(|_| self.flood_post(client, topic, sizes))
                .collect();
        }
        true
    }

    fn flood_post(&mut self, client: usize, topic: &'static str, sizes: [usize; 2]) -> Post {
        let payload_bytes = *self.rng.pick(&sizes);
        let post = self.post(client, topic);
        let message = Message { qos: 0, is_retained: false, ..post.message };
        Post { message, payload_bytes, alias: None, is_repeated: false, ..post }
    }

    pub(super) fn post(&mut self, client: usize, topic: &'static str) -> Post {
        let payload_bytes = if self.rng.percent(self.flavour.large) {
            *self.rng.pick(&LARGE_BYTES)
        } else if self.rng.percent(4) {
            0
        } else {
            self.rng.between(MARK_BYTES, 200)
        };
        let is_retained = self.rng.percent(self.flavour.retained);
        // Mostly 0 or 1, as in the field.
        let qos =
            if self.rng.percent(self.flavour.above_qos_0) { *self.rng.pick(&[1, 1, 2]) } else { 0 };
        let qos = qos.min(self.abilities.qos_max);
        let is_v5 = self.clients[client].is_v5();
        let properties = if is_v5 { self.properties() } else { Vec::new() };
        let alias = (is_v5 && self.rng.percent(self.flavour.alias))
            .then(|| (*self.rng.pick(&ALIASES), self.rng.percent(60)));
        let is_right = !self.abilities.has_wrong_aliases;
        let alias = alias.map(|(alias, has_topic)| match is_right {
            true => (alias.min(ALIAS_MAX), true),
            false => (alias, has_topic),
        });
        let is_repeated =
            self.abilities.has_repeats && self.rng.percent(self.flavour.above_qos_0 / 5);
        let message = Message { qos, is_retained, properties, ..Message::new(topic, Vec::new()) };
        let number = self.next_number;
        self.next_number += 1;
        Post {
            number,
            group: self.group,
            message,
            payload_bytes,
            alias,
            is_repeated,
            is_echo: false,
        }
    }

    /// Properties of a PUBLISH, in any order.
    pub(super) fn properties(&mut self) -> Vec<u8> {
        let mut list: Vec<Vec<u8>> = Vec::new();
        if !self.rng.percent(self.flavour.properties) {
            return Vec::new();
        }
        for number in 0..self.rng.below(4) {
            let value = self.rng.below(100);
            list.push(
                [&[0x26][..], &string("key"), &string(&format!("{number}-{value}"))].concat(),
            );
        }
        if self.rng.percent(30) {
            list.push([&[0x03][..], &string("text/plain")].concat());
        }
        if self.rng.percent(30) {
            list.push([&[0x08][..], &string("answers/here")].concat());
        }
        if self.rng.percent(30) {
            list.push([&[0x09][..], &string("\u{1}correlation\0")].concat());
        }
        if self.rng.percent(30) {
            let is_text = self.rng.percent(50) || !self.abilities.has_format_0;
            list.push(vec![0x01, u8::from(is_text)]);
        }
        if self.rng.percent(30) {
            let steps = u32::try_from(self.rng.between(1, 9)).expect("a digit");
            list.push([&[0x02][..], &(steps * EXPIRY_STEP_S).to_be_bytes()].concat());
        }
        let mut mixed = Vec::new();
        while !list.is_empty() {
            let index = self.rng.below(list.len());
            mixed.extend(list.remove(index));
        }
        mixed
    }
}

//! One PUBLISH: the traps it walks into, and whether it is eligible.

use super::super::brand::Brand;
use super::super::filter::matches;
use super::super::policy::Verb;
use super::super::scenario::{Action, Post, Step};
use super::super::terms::{Trust, Variant};
use super::knowledge::{Sight, Subscriber};
use super::order::{Order, Passed};
use super::seat::{Seat, Subscription};
use super::{Model, is_v5};
use crate::mqtt::{Message, Version, encode_publish};

/// Payload the card inspects, in bytes.
const INSPECT_BYTES: usize = 64 * 1024;
const NO_LOCAL: u8 = 4;

impl Model {
    pub(super) fn post(&mut self, client: usize, post: &Post, changes: &[&Step], is_early: bool) {
        self.walk.publishes += 1;
        self.note_by_itself(client, post);
        let topic = post.message.topic.as_str();
        let is_takable = !is_early && self.is_takable(client, post);
        let mut is_possible =
            is_takable && !self.is_blind() && !changes.iter().any(|step| touches(step, topic));
        let mut copies = 0;
        let mut route = Vec::new();
        // Subscriptions of which a copy by the broker is the proof.
        let mut proofs = Vec::new();
        for reader in 0..self.seats.len() {
            let wanted: Vec<(String, Subscription)> = self.seats[reader]
                .matching(topic)
                .map(|(filter, subscription)| (filter.to_owned(), subscription))
                .collect();
            copies += wanted.len();
            let Some(number) = wanted.iter().map(|(_, it)| it.number).max() else { continue };
            self.note_copies(client, post, reader, &wanted);
            is_possible &= self.is_reachable(post, reader, &wanted);
            let is_for_itself =
                |(_, it): &(String, Subscription)| reader == client && it.options & NO_LOCAL != 0;
            let seat = &self.seats[reader];
            if seat.is_online && !wanted.iter().all(is_for_itself) {
                let is_served = self.policy.allows(seat.user, Verb::Read, topic);
                route.push(((reader, seat.connection, number), is_served));
                if let [(filter, it)] = &wanted[..]
                    && is_served
                    && !seat.is_stalled
                    && post.message.qos.min(it.options & 3) == 0
                {
                    proofs.push((reader, filter.clone()));
                }
            }
        }
        if copies == 0 {
            self.reach_with_post(26);
        }
        let is_for_nobody = is_possible && route.is_empty();
        is_possible &= route.iter().any(|(_, is_served)| *is_served);
        let sight = match (is_possible, self.terms.trust) {
            (false, _) => None,
            (true, Trust::Suback) => Some(Sight::Known),
            (true, Trust::Observed) => Some(self.see(client, post, &route)),
        };
        let route: Vec<Subscriber> = route.into_iter().map(|(who, _)| who).collect();
        let passed = match () {
            () if !is_takable || self.is_blind() => Passed::Unread,
            () if is_for_nobody => Passed::Nobody,
            // Of equal messages nobody can tell which has arrived.
            () if is_possible && !post.is_echo && post.payload_bytes > 0 => Passed::To(&route),
            () => Passed::Somebody,
        };
        if !self.is_the_cards(client, topic, sight, &route, passed) {
            self.pass(client, post, proofs);
        }
    }

    fn see(&mut self, client: usize, post: &Post, route: &[(Subscriber, bool)]) -> Sight {
        let key = (client, self.seats[client].connection, post.message.topic.clone());
        self.known.entry(key).or_default().see(route, packet_bytes(post))
    }

    /// Who distributes it, and what that means for what follows. `sight` is `None` where something keeps it from the card.
    fn is_the_cards(
        &mut self,
        client: usize,
        topic: &str,
        sight: Option<Sight>,
        route: &[Subscriber],
        passed: Passed<'_>,
    ) -> bool {
        let order = match self.terms.brand.is_mosquitto() {
            true => Order::by_answers,
            false => Order::by_copies,
        };
        let key = (client, self.seats[client].connection);
        let order = self.orders.entry(key).or_insert_with(order);
        match sight {
            Some(Sight::Known) if order.holds_up(topic, route) => {
                order.pass(topic, passed);
                self.reach_with_post(15);
                false
            }
            Some(Sight::Known) => {
                self.walk.eligible += 1;
                true
            }
            Some(Sight::Watched) => {
                order.pass_watched(topic, route);
                false
            }
            Some(Sight::New) | None => {
                order.pass(topic, passed);
                false
            }
        }
    }

    /// It goes to the broker, whose copies will prove these subscriptions.
    fn pass(&mut self, client: usize, post: &Post, proofs: Vec<(usize, String)>) {
        let topic = &post.message.topic;
        if self.policy.allows(self.seats[client].user, Verb::Write, topic) {
            proofs.iter().for_each(|(reader, filter)| self.seats[*reader].prove(filter));
        }
        if let Some((alias, true)) = post.alias {
            self.seats[client].learn(alias, topic);
        }
    }

    /// Traps that lie in the packet.
    fn note_by_itself(&mut self, client: usize, post: &Post) {
        let message = &post.message;
        let reached = [
            (1, !self.policy.allows(self.seats[client].user, Verb::Write, &message.topic)),
            (7, message.qos == 2 || post.is_repeated),
            (10, message.topic.starts_with('$')),
            (11, post.alias.is_some() && is_v5(self.seats[client].version)),
            (13, message.is_retained),
            (20, post.payload_bytes > INSPECT_BYTES),
            (27, message.properties.contains(&0x02)),
        ];
        for (number, _) in reached.into_iter().filter(|(_, is_reached)| *is_reached) {
            self.reach_with_post(number);
        }
    }

    /// Traps that lie in who gets it.
    fn note_copies(
        &mut self,
        client: usize,
        post: &Post,
        reader: usize,
        wanted: &[(String, Subscription)],
    ) {
        let seat = &self.seats[reader];
        let (qos, topic) = (post.message.qos, &post.message.topic);
        let any = |is: &dyn Fn(&Subscription) -> bool| wanted.iter().any(|(_, it)| is(it));
        let is_above_0 = qos > 0 && any(&|it| it.options & 3 > 0);
        let reached = [
            (2, !self.policy.allows(seat.user, Verb::Read, topic)),
            (4, is_above_0),
            (6, any(&|it| it.options & 3 < qos)),
            (8, wanted.len() > 1),
            (9, reader == client && any(&|it| it.options & NO_LOCAL != 0)),
            (10, wanted.iter().any(|(filter, _)| filter.starts_with('$'))),
            (12, any(&|it| it.identifier.is_some())),
            (14, !seat.is_online),
            (19, is_above_0 && (seat.has_receive_maximum || seat.is_holding)),
            (20, !fits(seat, post)),
            (28, is_v5(seat.version) != is_v5(self.seats[client].version)),
            (29, seat.is_stalled),
        ];
        for (number, _) in reached.into_iter().filter(|(_, is_reached)| *is_reached) {
            self.reach_with_post(number);
        }
    }

    fn is_takable(&self, client: usize, post: &Post) -> bool {
        let message = &post.message;
        let seat = &self.seats[client];
        let is_alias_news =
            post.alias.is_some_and(|(alias, _)| seat.is_news(alias, &message.topic))
                && is_v5(seat.version);
        self.takes_qos(message.qos)
            && !post.is_repeated
            && !message.is_retained
            && !is_alias_news
            && !message.topic.starts_with('$')
            && post.payload_bytes <= INSPECT_BYTES
            && self.policy.allows(self.seats[client].user, Verb::Write, &message.topic)
    }

    /// With QoS 1 only what mosquitto is known to do, where a granted SUBACK is permission.
    fn takes_qos(&self, qos: u8) -> bool {
        let is_known = self.terms.brand.is_mosquitto() && self.terms.trust == Trust::Suback;
        qos == 0 || (qos == 1 && is_known)
    }

    /// Whether nothing about this reader keeps the message from the card.
    fn is_reachable(&self, post: &Post, reader: usize, wanted: &[(String, Subscription)]) -> bool {
        let seat = &self.seats[reader];
        let is_known = self.terms.brand.is_mosquitto();
        let is_shared = wanted.iter().any(|(filter, _)| filter.starts_with('$'));
        if !seat.is_online
            && is_known
            && self.variant != Variant::QueuesQos0
            && post.message.qos == 0
        {
            return !is_shared;
        }
        let is_proven = wanted.iter().all(|(_, it)| it.is_proven);
        let is_plain = |(_, it): &(String, Subscription)| {
            it.options & NO_LOCAL == 0 && it.identifier.is_none()
        };
        // How these are served is known of mosquitto alone.
        let is_simple = wanted.len() == 1 && wanted.iter().all(is_plain) && fits(seat, post);
        // With QoS above 0 only sessions that end with their connection, which acknowledge.
        let is_above_0 = post.message.qos > 0 && wanted.iter().any(|(_, it)| it.options & 3 > 0);
        let is_lasting = is_above_0 && (seat.is_persistent || seat.is_holding);
        // What was too large for a subscriber mosquitto counts as in flight.
        let is_limited = is_above_0 && is_v5(seat.version) && seat.packet_bytes_max.is_some();
        // A copy is never what the card would have sent.
        let is_other = match self.variant {
            Variant::MountPoint => self.terms.brand == Brand::Mosquitto,
            Variant::Upgrades => is_known && wanted.iter().any(|(_, it)| it.options & 3 > 0),
            _ => false,
        };
        let is_single = wanted.len() == 1 || is_v5(seat.version);
        let is_served_as_known = is_simple || (is_known && is_single);
        seat.is_online
            && !seat.is_stalled
            && is_proven
            && !is_shared
            && !is_lasting
            && !is_limited
            && !is_other
            && is_served_as_known
    }
}

/// Whether a copy fits what the subscriber takes, with what a copy has more.
fn fits(seat: &Seat, post: &Post) -> bool {
    let Some(max) = seat.packet_bytes_max.filter(|_| is_v5(seat.version)) else { return true };
    packet_bytes(post) <= max
}

/// Of version 5.
fn packet_bytes(post: &Post) -> usize {
    let message = Message { payload: vec![0; post.payload_bytes], ..post.message.clone() };
    encode_publish(&message, Version::V5).len()
}

/// Whether a step changes, or may change, who gets messages on `topic`.
fn touches(step: &Step, topic: &str) -> bool {
    match &step.action {
        Action::Subscribe { filters, .. } => {
            filters.iter().any(|(filter, _)| matches(filter, topic))
        }
        Action::Unsubscribe(filters) => filters.iter().any(|filter| matches(filter, topic)),
        _ => true,
    }
}

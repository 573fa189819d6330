//! The Packet Identifiers one client sees of what is sent to it, by two senders who do not know of each other's (MQTT 5 §2.2.1).
//!
//! ```text
//! broker's message 7 ─► 7 is free ─► the client sees 7
//!                    └► the card's message is 7 ─► the client sees 65530; acknowledgements of 65530 reach the broker as of 7
//! card's message     ─► a free one that the broker, which counts upwards, comes to last
//! ```
//!
//! An identifier is in use until its exchange is over: QoS 1 with the PUBACK, QoS 2 with the PUBCOMP. Pure. Bounded by
//! the 65,535 identifiers there are; nothing is allocated while nothing is in flight.

use std::collections::HashMap;

use super::mutation::{Rule, is_off};

/// Whose message an identifier stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Owner {
    Card,
    /// The broker's, which knows it by this identifier.
    Broker(u16),
    /// Nobody that is known: the broker's to judge.
    Nobody,
}

/// The identifiers in use of one client.
#[derive(Debug, Default)]
pub(crate) struct Identifiers {
    /// By the identifier the client sees: the broker's own one, or `None` for the card's.
    in_use: HashMap<u16, Option<u16>>,
    /// By the broker's identifier: what the client sees instead.
    renamed: HashMap<u16, u16>,
    /// Messages of the card in `in_use`.
    card: usize,
    /// The last one that was chosen; 0 before the first.
    last: u16,
    /// The last one of the broker's.
    brokers_last: u16,
}

impl Identifiers {
    /// Messages in flight.
    pub(crate) fn len(&self) -> usize {
        self.in_use.len()
    }

    /// Messages in flight that are the card's.
    pub(crate) fn card(&self) -> usize {
        self.card
    }

    /// Whether the client sees the broker's identifiers as they are, and no others.
    pub(crate) fn are_the_brokers(&self) -> bool {
        self.card == 0 && self.renamed.is_empty()
    }

    /// Whose message the client means.
    pub(crate) fn owner(&self, id: u16) -> Owner {
        match self.in_use.get(&id) {
            Some(None) => Owner::Card,
            Some(&Some(brokers)) => Owner::Broker(brokers),
            None => Owner::Nobody,
        }
    }

    /// What the client sees of a message of the broker's that is in flight.
    pub(crate) fn of_broker(&self, brokers: u16) -> Option<u16> {
        if let Some(&id) = self.renamed.get(&brokers) {
            return Some(id);
        }
        (self.in_use.get(&brokers) == Some(&Some(brokers))).then_some(brokers)
    }

    /// An identifier for a message of the card; `None`: all are in use.
    pub(crate) fn take_for_card(&mut self) -> Option<u16> {
        let id = self.choose()?;
        self.in_use.insert(id, None);
        self.card += 1;
        Some(id)
    }

    /// What the client is to see of a message of the broker's; `None`: all are in use. The same again for one that is in
    /// flight.
    pub(crate) fn take_for_broker(&mut self, brokers: u16) -> Option<u16> {
        if let Some(id) = self.of_broker(brokers) {
            return Some(id);
        }
        self.brokers_last = brokers;
        let is_taken = self.in_use.contains_key(&brokers) && !is_off(Rule::IdentifierMapping);
        let id = if is_taken {
            let id = self.choose()?;
            self.renamed.insert(brokers, id);
            id
        } else {
            brokers
        };
        self.in_use.insert(id, Some(brokers));
        Some(id)
    }

    /// The exchange is over.
    pub(crate) fn release(&mut self, id: u16) {
        match self.in_use.remove(&id) {
            Some(None) => self.card -= 1,
            Some(Some(brokers)) => {
                self.renamed.remove(&brokers);
            }
            None => {}
        }
    }

    fn choose(&mut self) -> Option<u16> {
        if self.in_use.len() >= usize::from(u16::MAX) {
            return None;
        }
        if is_off(Rule::IdentifierMapping) {
            self.last = self.last % u16::MAX + 1;
            return Some(self.last);
        }
        // Not one the broker is about to come to: it may use it in a message that is not read.
        if self.brokers_last > 0 && self.last.wrapping_sub(self.brokers_last) < u16::MAX / 2 {
            self.last = self.brokers_last;
        }
        loop {
            // 0 is no identifier [MQTT-2.2.1-3].
            self.last = if self.last <= 1 { u16::MAX } else { self.last - 1 };
            if !self.in_use.contains_key(&self.last) {
                return Some(self.last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_brokers_identifier_stays_as_it_is_unless_the_card_has_it() {
        let mut ids = Identifiers::default();
        assert_eq!(ids.take_for_card(), Some(65_535));
        assert_eq!(ids.take_for_broker(1), Some(1));
        assert_eq!(ids.take_for_broker(65_535), Some(65_534));
        assert_eq!(ids.take_for_card(), Some(65_533));
        assert_eq!(ids.owner(65_535), Owner::Card);
        assert_eq!(ids.owner(65_534), Owner::Broker(65_535));
        assert_eq!(ids.owner(1), Owner::Broker(1));
        assert_eq!(ids.owner(2), Owner::Nobody);
        assert!(!ids.are_the_brokers());
    }

    #[test]
    fn the_card_stays_behind_the_brokers_counter() {
        let mut ids = Identifiers::default();
        assert_eq!(ids.take_for_card(), Some(65_535));
        ids.take_for_broker(1);
        assert_eq!(ids.take_for_card(), Some(65_534));
        ids.take_for_broker(40_000);
        assert_eq!(ids.take_for_card(), Some(39_999));
        ids.take_for_broker(40_001);
        assert_eq!(ids.take_for_card(), Some(39_998));
    }

    #[test]
    fn a_message_sent_again_keeps_its_identifier() {
        let mut ids = Identifiers::default();
        ids.take_for_card();
        assert_eq!(ids.take_for_broker(65_535), Some(65_534));
        assert_eq!(ids.take_for_broker(65_535), Some(65_534));
        assert_eq!((ids.len(), ids.card()), (2, 1));
        ids.release(65_535);
        // The card's is free, the other is still known by the name the client has seen.
        assert_eq!(ids.of_broker(65_535), Some(65_534));
    }

    #[test]
    fn when_all_are_in_use_there_is_none() {
        let mut ids = Identifiers::default();
        for _ in 1..=u16::MAX {
            assert!(ids.take_for_card().is_some());
        }
        assert_eq!(ids.take_for_card(), None);
        assert_eq!(ids.take_for_broker(9), None);
        ids.release(7);
        assert_eq!(ids.take_for_broker(9), Some(7));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Card,
        Broker(u16),
        Release(usize),
    }

    proptest! {
        #[test]
        fn no_identifier_is_in_use_twice_and_none_is_misrouted(
            steps in prop::collection::vec(
                prop_oneof![
                    Just(Step::Card),
                    (65_520..=65_535_u16).prop_map(Step::Broker),
                    (0..64_usize).prop_map(Step::Release),
                ],
                0..200,
            ),
        ) {
            let mut ids = Identifiers::default();
            let mut model: BTreeMap<u16, Owner> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Card => {
                        let id = ids.take_for_card().unwrap();
                        prop_assert!(id != 0 && model.insert(id, Owner::Card).is_none());
                    }
                    Step::Broker(mid) => {
                        let known = model.iter().find(|(_, owner)| **owner == Owner::Broker(mid));
                        let known = known.map(|(&id, _)| id);
                        let id = ids.take_for_broker(mid).unwrap();
                        match known {
                            Some(known) => prop_assert_eq!(id, known),
                            None => prop_assert!(model.insert(id, Owner::Broker(mid)).is_none()),
                        }
                    }
                    Step::Release(index) => {
                        let ids_in_use: Vec<_> = model.keys().copied().collect();
                        if let Some(&id) = ids_in_use.get(index) {
                            ids.release(id);
                            model.remove(&id);
                        }
                    }
                }
                prop_assert_eq!(ids.len(), model.len());
                for (&id, &owner) in &model {
                    prop_assert_eq!(ids.owner(id), owner);
                    if let Owner::Broker(mid) = owner {
                        prop_assert_eq!(ids.of_broker(mid), Some(id));
                    }
                }
                let card = model.values().filter(|owner| **owner == Owner::Card).count();
                prop_assert_eq!(ids.card(), card);
            }
        }
    }
}

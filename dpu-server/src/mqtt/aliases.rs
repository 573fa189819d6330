//! The Topic Aliases a publisher has taught the broker (MQTT 5 §3.3.2.3.4), so that the card can read what they stand for.
//!
//! ```text
//! PUBLISH topic "a", alias 3 ─► known as "a" already? ─ no ─► the broker must learn it: passes, and is learned here
//!                                                  └─ yes ─► may be the card's
//! PUBLISH "", alias 3        ─► known? ─► its topic is "a" ─► may be the card's, or passes as it is
//!                                  └ no ─► passes: the broker knows
//! ```
//!
//! A PUBLISH that sets an alias anew always reaches the broker, so the broker's map is never behind this one, and no byte of what
//! passes has to be changed. What is not remembered here is the broker's to resolve: forgetting is always safe, remembering what the broker
//! has replaced never is. Hence every PUBLISH with an alias has to be read, or all is forgotten.
//! Bounded by the broker's Topic Alias Maximum and [`TOPIC_BYTES_MAX`].

use std::sync::Arc;

/// Bytes of topics remembered for one connection.
const TOPIC_BYTES_MAX: usize = 16 * 1024;

/// The aliases of one connection.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    /// The broker's Topic Alias Maximum; 0: it takes none.
    max: u16,
    /// In no order: there are few.
    known: Vec<(u16, Arc<str>)>,
    /// Bytes of the topics in `known`.
    bytes: usize,
}

impl Aliases {
    /// For a connection whose broker accepts aliases up to `max`.
    pub(crate) fn new(max: u16) -> Self {
        Self { max, ..Self::default() }
    }

    /// Whether there may be any.
    pub(crate) fn are_possible(&self) -> bool {
        self.max > 0
    }

    /// What an alias stands for, as far as is known.
    pub(crate) fn topic(&self, alias: u16) -> Option<&Arc<str>> {
        self.known.iter().find(|(known, _)| *known == alias).map(|(_, topic)| topic)
    }

    /// A PUBLISH on its way to the broker sets an alias.
    pub(crate) fn learn(&mut self, alias: u16, topic: &str) {
        if let Some(index) = self.known.iter().position(|(known, _)| *known == alias) {
            self.bytes -= self.known.swap_remove(index).1.len();
        }
        // Beyond its maximum the broker ends the connection [MQTT-3.2.2-17].
        if alias <= self.max && self.bytes + topic.len() <= TOPIC_BYTES_MAX {
            self.bytes += topic.len();
            self.known.push((alias, topic.into()));
        }
    }

    /// A PUBLISH that was not read may have set any of them.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_alias_stands_for_the_last_topic_it_came_with() {
        let mut aliases = Aliases::new(2);
        aliases.learn(1, "a");
        aliases.learn(2, "b");
        aliases.learn(1, "c");
        assert_eq!(aliases.topic(1).map(|it| &**it), Some("c"));
        assert_eq!(aliases.topic(2).map(|it| &**it), Some("b"));
        aliases.forget();
        assert_eq!(aliases.topic(1), None);
    }

    #[test]
    fn an_alias_beyond_the_brokers_maximum_is_not_known() {
        let mut aliases = Aliases::new(2);
        aliases.learn(3, "a");
        assert_eq!(aliases.topic(3), None);
        assert!(!Aliases::new(0).are_possible());
    }

    #[test]
    fn a_topic_without_room_replaces_what_its_alias_stood_for_all_the_same() {
        let mut aliases = Aliases::new(2);
        aliases.learn(1, "a");
        aliases.learn(2, &"x".repeat(TOPIC_BYTES_MAX - 1));
        aliases.learn(1, "bc");
        assert_eq!(aliases.topic(1), None);
        aliases.learn(1, "b");
        assert!(aliases.topic(1).is_some());
    }

    proptest! {
        #[test]
        fn whatever_is_known_is_what_a_map_without_bounds_knows(
            steps in prop::collection::vec((1..6_u16, 0..9_000_usize), 0..40),
        ) {
            let mut aliases = Aliases::new(4);
            let mut model = HashMap::new();
            for (alias, length) in steps {
                let topic = "t".repeat(length);
                aliases.learn(alias, &topic);
                model.insert(alias, topic);
                for (alias, topic) in &model {
                    prop_assert!(aliases.topic(*alias).is_none_or(|known| **known == **topic));
                }
                prop_assert!(aliases.bytes <= TOPIC_BYTES_MAX);
            }
        }
    }
}

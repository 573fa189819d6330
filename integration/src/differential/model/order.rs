//! What of one publisher has yet to arrive, and must not be overtaken by the card.
//!
//! mosquitto's answer to a PINGREQ shows that all before it has arrived, and the card asks when a message has to wait. Of other
//! brokers only the copies show it, and only of their own topic.

use std::collections::{BTreeMap, BTreeSet};

use super::knowledge::Subscriber;

/// A message that goes to the broker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Passed<'a> {
    /// Everybody who gets it is known.
    To(&'a [Subscriber]),
    /// Nobody gets it.
    Nobody,
    /// Who gets it is not known.
    Somebody,
    /// Nobody looks at it, or the broker may refuse it.
    Unread,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// Shown by answers.
    Answers {
        /// On which nobody got the last message.
        topics: BTreeSet<String>,
        is_all: bool,
        is_asked: bool,
    },
    /// Shown by copies.
    Copies {
        /// Something went through the broker.
        is_begun: bool,
        /// Topics whose last message arrived, and who got it.
        arrived: BTreeMap<String, Vec<Subscriber>>,
        under_way: BTreeMap<String, Vec<Subscriber>>,
    },
}

impl Order {
    pub(super) fn by_answers() -> Order {
        Order::Answers { topics: BTreeSet::new(), is_all: false, is_asked: false }
    }

    pub(super) fn by_copies() -> Order {
        Order::Copies { is_begun: false, arrived: BTreeMap::new(), under_way: BTreeMap::new() }
    }

    /// Whether a message for these has to wait. The card asks, then, where that helps.
    pub(super) fn holds_up(&mut self, topic: &str, route: &[Subscriber]) -> bool {
        match self {
            Order::Answers { topics, is_all, is_asked } => {
                let is_slow = *is_all || topics.contains(topic);
                *is_asked |= is_slow;
                is_slow
            }
            Order::Copies { is_begun, arrived, .. } => {
                *is_begun && arrived.get(topic).is_none_or(|known| known != route)
            }
        }
    }

    pub(super) fn pass(&mut self, topic: &str, passed: Passed<'_>) {
        match (self, passed) {
            (Order::Answers { topics, .. }, Passed::Nobody) => {
                topics.insert(topic.to_owned());
            }
            (Order::Answers { is_all, .. }, _) => *is_all = true,
            (Order::Copies { is_begun, arrived, under_way }, Passed::Unread) => {
                *is_begun = true;
                arrived.clear();
                under_way.clear();
            }
            (Order::Copies { is_begun, arrived, under_way }, _) => {
                *is_begun = true;
                arrived.remove(topic);
                under_way.remove(topic);
                if let Passed::To(route) = passed {
                    under_way.insert(topic.to_owned(), route.to_vec());
                }
            }
        }
    }

    /// A message is watched: what comes behind it waits until that has shown something.
    pub(super) fn pass_watched(&mut self, topic: &str, route: &[Subscriber]) {
        match self {
            Order::Answers { .. } => *self = Order::by_answers(),
            Order::Copies { is_begun, arrived, under_way } => {
                *is_begun = true;
                under_way.remove(topic);
                arrived.insert(topic.to_owned(), route.to_vec());
            }
        }
    }

    /// All is quiet: copies are there, and answers to what was asked.
    pub(super) fn settle(&mut self) {
        match self {
            Order::Answers { is_asked: true, .. } => *self = Order::by_answers(),
            Order::Answers { .. } => {}
            Order::Copies { arrived, under_way, .. } => arrived.append(under_way),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READERS: [Subscriber; 1] = [(1, 1, 1)];
    const TO: Passed<'_> = Passed::To(&READERS);

    #[test]
    fn by_answers_only_what_nobody_gets_lets_other_topics_pass() {
        let mut order = Order::by_answers();
        order.pass("a", Passed::Nobody);
        assert!(!order.holds_up("b", &READERS) && order.holds_up("a", &READERS));
        order.settle();
        assert!(!order.holds_up("a", &READERS));
        order.pass("a", TO);
        order.settle();
        assert!(order.holds_up("b", &READERS), "nobody has asked");
        order.settle();
        assert!(!order.holds_up("a", &READERS));
    }

    #[test]
    fn by_copies_each_topic_shows_its_own() {
        let mut order = Order::by_copies();
        assert!(!order.holds_up("a", &READERS));
        order.pass("a", TO);
        assert!(order.holds_up("a", &READERS));
        order.settle();
        assert!(!order.holds_up("a", &READERS) && order.holds_up("b", &READERS));
        assert!(order.holds_up("a", &[(1, 1, 2)]), "others get it now");
        order.pass("b", Passed::Somebody);
        order.settle();
        assert!(!order.holds_up("a", &READERS) && order.holds_up("b", &READERS));
        order.pass("c", Passed::Unread);
        order.settle();
        assert!(order.holds_up("a", &READERS));
    }
}

//! By observation: what the card can have learned of one publisher's messages on one topic.
//!
//! Its first message is nothing to go by. Each one after that is watched, until of every subscriber it is known whether it is
//! served; one is known to be left out when it has missed several in a row.

use std::collections::BTreeMap;

/// Client, connection, and the number of its last matching subscription.
pub(super) type Subscriber = (usize, usize, usize);

/// Messages in a row that one must have missed.
const MISSES_PROVING: u32 = 3;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    is_met: bool,
    /// Messages in a row that each subscriber has missed.
    misses: BTreeMap<Subscriber, u32>,
    /// Of the largest message that was watched with success.
    bytes_max: Option<usize>,
}

/// What a message is to the card.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sight {
    New,
    Watched,
    Known,
}

impl Knowledge {
    /// One more message of so many bytes, to `route`: each subscriber, and whether it may have it.
    pub(super) fn see(&mut self, route: &[(Subscriber, bool)], bytes: usize) -> Sight {
        if !std::mem::replace(&mut self.is_met, true) {
            return Sight::New;
        }
        let is_final = |misses: &u32| *misses == 0 || *misses >= MISSES_PROVING;
        let all_final = |misses: &BTreeMap<Subscriber, u32>| {
            route.iter().all(|(who, _)| misses.get(who).is_some_and(is_final))
        };
        if self.bytes_max.is_some_and(|max| bytes <= max) && all_final(&self.misses) {
            return Sight::Known;
        }
        for (who, is_served) in route {
            let misses = self.misses.entry(*who).or_default();
            *misses = if *is_served { 0 } else { *misses + 1 };
        }
        if all_final(&self.misses) {
            self.bytes_max = self.bytes_max.max(Some(bytes));
        }
        Sight::Watched
    }

    /// Who may do what may have changed.
    pub(super) fn forget(&mut self) {
        *self = Knowledge { is_met: self.is_met, ..Knowledge::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 40;
    const OTHER: (Subscriber, bool) = ((2, 1, 1), true);

    #[test]
    fn a_topic_is_known_after_a_first_message_and_a_watched_one() {
        let mut known = Knowledge::default();
        let route = [((1, 1, 1), true)];
        let seen: Vec<_> = (0..3).map(|_| known.see(&route, SMALL)).collect();
        assert_eq!(seen, [Sight::New, Sight::Watched, Sight::Known]);
        assert_eq!(known.see(&route, SMALL + 1), Sight::Watched);
        assert_eq!(known.see(&[route[0], OTHER], SMALL), Sight::Watched);
        assert_eq!(known.see(&route[..0], SMALL), Sight::Known, "one who leaves costs nothing");
        known.forget();
        assert_eq!(known.see(&route, SMALL), Sight::Watched);
    }

    #[test]
    fn who_may_not_read_is_left_out_after_three_messages() {
        let mut known = Knowledge::default();
        let route = [((1, 1, 1), false), OTHER];
        let seen: Vec<_> = (0..5).map(|_| known.see(&route, SMALL)).collect();
        assert_eq!(seen[1..], [Sight::Watched, Sight::Watched, Sight::Watched, Sight::Known]);
    }
}

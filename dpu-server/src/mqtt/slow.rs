//! What of one publisher the broker may not have written the copies of, topic by topic.
//!
//! ```text
//! PUBLISH to the broker ──note──► its topic is slow ──settle(answer to a later PINGREQ)──► the card may take the next one
//! anything else that somebody may get, or for which the broker may close the connection ──note_all──► so is every topic
//! ```
//!
//! MQTT promises the order of one publisher's messages on one topic [MQTT-4.6.0-6]; a broker of one thread keeps it across topics
//! too, and clients that end a list with a message on another topic rely on it. So only a topic that nobody gets, having not
//! subscribed or being denied, lets the publisher's others pass. And what comes behind a packet the broker refuses never happened: behind one that may be refused,
//! such as one larger than any before, everything waits. And a publisher is acknowledged in the order it published
//! [MQTT-4.6.0-2]: a message with QoS 1 waits for all others with QoS 1.
//!
//! Topics are known by a hash: two that share one wait for each other, which costs time and proves nothing false. Bounded: with
//! more than `TOPICS_MAX` of them every topic waits for all.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::ping::PingSeq;

/// Topics of one publisher that are told apart.
const TOPICS_MAX: usize = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Slow {
    /// The last request before the topic's last PUBLISH: the answer to a later one settles it.
    topics: HashMap<u64, PingSeq>,
    /// The same of what holds up every topic.
    all: Option<PingSeq>,
    /// The same of what the broker acknowledges.
    acknowledged: Option<PingSeq>,
    /// The greatest of all these.
    latest: PingSeq,
    /// The request that is out for them, and `bytes_max` when it was made.
    asked: Option<(PingSeq, usize)>,
    /// The largest packet that went to the broker, and the largest behind which it has answered, in bytes.
    bytes_max: usize,
    taken_bytes_max: usize,
}

impl Slow {
    /// A PUBLISH with this topic and QoS, of a kind the broker takes, goes to it behind the request `after`.
    pub(crate) fn note(&mut self, topic: &str, qos: u8, packet_bytes: usize, after: PingSeq) {
        self.bytes_max = self.bytes_max.max(packet_bytes);
        if packet_bytes > self.taken_bytes_max || self.topics.len() >= TOPICS_MAX {
            self.note_all(after);
        } else {
            self.latest = after;
            self.topics.insert(hash(topic), after);
            if qos > 0 {
                self.acknowledged = Some(after);
            }
        }
    }

    /// Something that may be on any topic, or that the broker may refuse, goes to it behind the request `after`.
    pub(crate) fn note_all(&mut self, after: PingSeq) {
        self.latest = after;
        self.all = Some(after);
        self.topics.clear();
        self.acknowledged = None;
    }

    /// Whether something may still be on its way that comes before a message with this topic and QoS.
    pub(crate) fn holds_up(&self, topic: &str, qos: u8) -> bool {
        self.all.is_some()
            || (qos > 0 && self.acknowledged.is_some())
            || (!self.topics.is_empty() && self.topics.contains_key(&hash(topic)))
    }

    /// Whether it is time to ask the broker: one request is out at most, however much is slow.
    pub(crate) fn wants_ping(&self) -> bool {
        self.asked.is_none() && (self.all.is_some() || !self.topics.is_empty())
    }

    pub(crate) fn note_ping(&mut self, seq: PingSeq) {
        self.asked = Some((seq, self.bytes_max));
    }

    /// Every request up to `seq` was answered.
    pub(crate) fn settle(&mut self, seq: PingSeq) {
        if let Some((_, bytes_max)) = self.asked.take_if(|(asked, _)| *asked <= seq) {
            self.taken_bytes_max = self.taken_bytes_max.max(bytes_max);
        }
        self.all.take_if(|after| *after < seq);
        self.acknowledged.take_if(|after| *after < seq);
        if self.latest < seq {
            self.topics.clear();
            self.taken_bytes_max = self.bytes_max;
        } else {
            self.topics.retain(|_, after| *after >= seq);
        }
    }
}

fn hash(topic: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    topic.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A publisher whose messages of 10 bytes are known to be taken.
    fn slow() -> Slow {
        let mut slow = Slow::default();
        slow.note("first", 0, 10, 0);
        assert!(slow.holds_up("first", 0) && slow.holds_up("another", 0), "it may be refused");
        slow.settle(1);
        assert!(!slow.holds_up("first", 0) && !slow.holds_up("another", 0));
        slow
    }

    #[test]
    fn a_topic_waits_for_a_later_answer_and_for_no_other_topic() {
        let mut slow = slow();
        slow.note("a", 0, 10, 3);
        assert!(slow.holds_up("a", 0) && !slow.holds_up("b", 0));
        slow.settle(3);
        assert!(slow.holds_up("a", 0));
        slow.note("b", 0, 10, 4);
        slow.settle(4);
        assert!(!slow.holds_up("a", 0) && slow.holds_up("b", 0));
    }

    #[test]
    fn what_may_be_refused_holds_up_every_topic() {
        let mut slow = slow();
        slow.note("a", 0, 10, 1);
        slow.note_all(2);
        assert!(slow.holds_up("a", 0) && slow.holds_up("b", 0));
        slow.settle(2);
        assert!(slow.holds_up("b", 0));
        slow.settle(3);
        assert!(!slow.holds_up("a", 0) && !slow.holds_up("b", 0));
        slow.note("a", 0, 11, 3);
        assert!(slow.holds_up("b", 0), "larger than any before");
    }

    #[test]
    fn a_size_is_known_to_be_taken_however_much_came_behind_the_question() {
        let mut slow = Slow::default();
        for seq in 1..3 {
            slow.note("a", 0, 10, seq - 1);
            slow.note_ping(seq);
            slow.note("a", 0, 10, seq);
            slow.settle(seq);
        }
        assert!(slow.holds_up("a", 0) && !slow.holds_up("b", 0));
    }

    #[test]
    fn what_is_acknowledged_holds_up_what_is_to_be_acknowledged_on_any_topic() {
        let mut slow = slow();
        slow.note("a", 1, 10, 1);
        assert!(slow.holds_up("a", 0) && slow.holds_up("b", 1) && !slow.holds_up("b", 0));
        slow.settle(2);
        assert!(!slow.holds_up("b", 1));
    }

    #[test]
    fn too_many_topics_hold_up_all() {
        let mut slow = slow();
        for number in 0..=TOPICS_MAX {
            slow.note(&number.to_string(), 0, 10, 1);
        }
        assert!(slow.topics.is_empty() && slow.holds_up("another", 0));
    }

    #[test]
    fn one_request_is_out_at_a_time() {
        let mut slow = slow();
        assert!(!slow.wants_ping());
        slow.note("a", 0, 10, 1);
        assert!(slow.wants_ping());
        slow.note_ping(2);
        slow.note("a", 0, 10, 2);
        assert!(!slow.wants_ping());
        slow.settle(2);
        assert!(slow.wants_ping() && slow.holds_up("a", 0));
    }
}

//! What one client has not acknowledged, and what waits until it has: QoS 1 and 2 towards a client, of the broker and of the
//! card together (MQTT 5 §4.9).
//!
//! ```text
//! card's QoS 1 copy ──► room and nobody waits? ── yes ──► sent under an identifier of its own
//! broker's PUBLISH  ──►                        └─ no ───► waits, in one queue ──► sent as acknowledgements make room
//! ```
//!
//! Nothing overtakes in that queue, so the messages of one publisher and topic keep their order whoever sent them [MQTT-4.6.0-6].
//! Without the card the broker keeps to the client's Receive Maximum by itself; therefore what it sends waits only while there is something of
//! the card's, in flight or before it.
//!
//! The broker has a queue of its own, for what it must not send yet. Nothing of the card's may be sent while a message may be in there that has
//! to come first. It is empty as long as fewer messages are in flight than the client takes at a time; and how many are in flight for the broker, which
//! learns of acknowledgements later than the card, is at most what was in flight when the last answered PINGREQ left, and what has come
//! since. Pure, and generic in what waits. The caller bounds how much waits.

use std::collections::VecDeque;

use super::identifiers::{Identifiers, Owner};
use super::ping::PingSeq;

/// See the module.
#[derive(Debug)]
pub(crate) struct Inflight<T> {
    ids: Identifiers,
    /// Messages the client is to have unacknowledged at a time. Never 0.
    max: usize,
    waiting: VecDeque<Waiting<T>>,
    /// At most so many messages are in flight for the broker.
    brokers_bound: usize,
    /// The PINGREQ that is out, and what the bound will be when it is answered.
    ping: Option<(PingSeq, usize)>,
    /// A message of the broker's passed unread, so that identifiers are in use that nobody here knows.
    is_unread: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    /// The broker's identifier; `None`: it is the card's.
    brokers: Option<u16>,
}

impl<T> Inflight<T> {
    pub(crate) fn new(max: u16) -> Self {
        let max = usize::from(max.max(1));
        Self {
            ids: Identifiers::default(),
            max,
            waiting: VecDeque::new(),
            brokers_bound: 0,
            ping: None,
            is_unread: false,
        }
    }

    /// The broker goes on with a session of which nobody here knows what is in its queue.
    pub(crate) fn resume(&mut self) {
        self.brokers_bound = self.max;
    }

    /// Whether the broker may have messages in its queue for this client.
    pub(crate) fn may_be_queued(&self) -> bool {
        self.brokers_bound >= self.max
    }

    /// Whether a PINGREQ would tell, and none is out.
    pub(crate) fn wants_ping(&self) -> bool {
        self.may_be_queued() && self.ping.is_none()
    }

    /// A PINGREQ is put behind what the broker is to get so far.
    pub(crate) fn note_ping(&mut self, seq: PingSeq) {
        if self.ping.is_none() {
            let waiting = self.waiting.iter().filter(|it| it.brokers.is_some()).count();
            self.ping = Some((seq, self.ids.len() - self.ids.card() + waiting));
        }
    }

    /// Every PINGREQ up to this one is answered.
    pub(crate) fn settle_ping(&mut self, answered: PingSeq) {
        if let Some((_, bound)) = self.ping.take_if(|(seq, _)| *seq <= answered) {
            self.brokers_bound = bound;
        }
    }

    /// Messages that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing in flight or waiting is the card's, and the client sees the broker's identifiers as they are.
    pub(crate) fn is_the_brokers(&self) -> bool {
        self.waiting.is_empty() && self.ids.are_the_brokers()
    }

    /// From here on identifiers may be in use that are not known here: the card must send nothing more.
    pub(crate) fn set_unread(&mut self) {
        self.is_unread = true;
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// An identifier for a message of the card that can be sent now; `None`: it has to wait.
    pub(crate) fn take_for_card(&mut self) -> Option<u16> {
        if self.waiting.is_empty() && self.ids.len() < self.max {
            self.ids.take_for_card()
        } else {
            None
        }
    }

    /// A message of the broker's has come. What the client sees of it if it can be sent now; `None`: it has to wait.
    pub(crate) fn take_for_broker(&mut self, brokers: u16) -> Option<u16> {
        let is_known = self.ids.of_broker(brokers).is_some();
        if !is_known {
            self.brokers_bound += 1;
            if let Some((_, bound)) = &mut self.ping {
                *bound += 1;
            }
        }
        if is_known || (self.waiting.is_empty() && self.has_room_for_broker()) {
            self.ids.take_for_broker(brokers)
        } else {
            None
        }
    }

    /// Queues what has to wait. `brokers`: the broker's identifier of it.
    pub(crate) fn wait(&mut self, item: T, brokers: Option<u16>) {
        self.waiting.push_back(Waiting { item, brokers });
    }

    /// The first that waits, if it can be sent now; `is_forced`: as if there were room.
    pub(crate) fn ready(&self, is_forced: bool) -> Option<&T> {
        let first = self.waiting.front()?;
        let has_room = match first.brokers {
            _ if is_forced => true,
            Some(_) => self.has_room_for_broker(),
            None => self.ids.len() < self.max,
        };
        has_room.then_some(&first.item)
    }

    /// Takes the first that waits, and gives it an identifier whether there is room or not.
    pub(crate) fn pop(&mut self) -> Option<(T, u16)> {
        let first = self.waiting.front()?;
        let id = match first.brokers {
            Some(brokers) => self.ids.take_for_broker(brokers),
            None => self.ids.take_for_card(),
        }?;
        self.waiting.pop_front().map(|first| (first.item, id))
    }

    /// Takes the first that waits, which is not to be sent after all.
    pub(crate) fn discard(&mut self) -> Option<T> {
        self.waiting.pop_front().map(|first| first.item)
    }

    /// Whose message the client acknowledges.
    pub(crate) fn owner(&self, id: u16) -> Owner {
        self.ids.owner(id)
    }

    /// What the client is to see of an exchange of the broker's that goes on, whether it is known or not.
    pub(crate) fn go_on(&mut self, brokers: u16) -> Option<u16> {
        self.ids.take_for_broker(brokers)
    }

    /// An exchange is over.
    pub(crate) fn release(&mut self, id: u16) {
        self.ids.release(id);
    }

    fn has_room_for_broker(&self) -> bool {
        self.ids.card() == 0 || self.ids.len() < self.max
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_senders_share_the_clients_maximum() {
        let mut inflight = Inflight::new(2);
        assert_eq!(inflight.take_for_card(), Some(65_535));
        assert_eq!(inflight.take_for_broker(1), Some(1));
        assert_eq!(inflight.take_for_broker(2), None);
        inflight.wait("broker's", Some(2));
        assert_eq!(inflight.take_for_card(), None);
        inflight.wait("card's", None);
        assert_eq!(inflight.ready(false), None);
        assert_eq!(inflight.ready(true), Some(&"broker's"));
        inflight.release(1);
        assert_eq!(inflight.ready(false), Some(&"broker's"));
        assert_eq!(inflight.pop(), Some(("broker's", 2)));
        assert_eq!(inflight.ready(false), None);
        inflight.release(65_535);
        assert_eq!(inflight.pop(), Some(("card's", 65_534)));
    }

    #[test]
    fn without_the_card_the_broker_sends_as_it_likes() {
        let mut inflight = Inflight::<()>::new(1);
        for brokers in 1..100 {
            assert_eq!(inflight.take_for_broker(brokers), Some(brokers));
        }
        assert!(inflight.is_the_brokers());
    }

    #[test]
    fn the_brokers_queue_is_empty_again_when_an_answered_ping_left_room() {
        let mut inflight = Inflight::<()>::new(2);
        inflight.take_for_broker(1);
        assert!(!inflight.may_be_queued());
        inflight.take_for_broker(2);
        assert!(inflight.wants_ping());
        inflight.note_ping(1);
        assert!(!inflight.wants_ping());
        inflight.release(1);
        // The broker had not heard of that when the ping left.
        inflight.settle_ping(1);
        assert!(inflight.wants_ping());
        inflight.note_ping(2);
        inflight.settle_ping(1);
        assert!(inflight.may_be_queued());
        inflight.settle_ping(2);
        assert!(!inflight.may_be_queued());
        inflight.release(2);
        inflight.note_ping(3);
        inflight.take_for_broker(3);
        inflight.settle_ping(3);
        assert!(!inflight.may_be_queued());
        inflight.resume();
        assert!(inflight.may_be_queued());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Card,
        Broker,
        Acknowledge(usize),
    }

    /// Two senders and a client, as plainly as possible.
    #[derive(Default)]
    struct Model {
        /// What each identifier the client holds stands for, in the order of arrival.
        held: Vec<(u16, usize)>,
        /// The broker's identifier of a message, if it is one.
        brokers: Vec<Option<u16>>,
        received: Vec<usize>,
    }

    impl Model {
        fn receive(&mut self, id: u16, message: usize) {
            assert!(self.held.iter().all(|(held, _)| *held != id), "{id} is in use twice");
            self.held.push((id, message));
            self.received.push(message);
        }

        fn drain(&mut self, inflight: &mut Inflight<usize>) {
            while inflight.ready(false).is_some() {
                let (message, id) = inflight.pop().unwrap();
                self.receive(id, message);
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_misrouted_overtaken_or_left_and_the_maximum_holds(
            max in 1..6_u16,
            // Close to the card's own, so that they collide.
            first_mid in 65_500..65_535_u16,
            steps in prop::collection::vec(
                prop_oneof![
                    Just(Step::Card),
                    Just(Step::Broker),
                    (0..8_usize).prop_map(Step::Acknowledge),
                ],
                0..150,
            ),
        ) {
            let mut inflight = Inflight::new(max);
            let mut model = Model::default();
            let mut next_mid = first_mid;
            let mut brokers_held = 0;
            let everything = steps.iter().copied().chain((0..300).map(|_| Step::Acknowledge(0)));
            for step in everything {
                let message = model.brokers.len();
                match step {
                    Step::Card => {
                        model.brokers.push(None);
                        match inflight.take_for_card() {
                            Some(id) => model.receive(id, message),
                            None => inflight.wait(message, None),
                        }
                    }
                    Step::Broker if brokers_held < usize::from(max) => {
                        next_mid = if next_mid == u16::MAX { 1 } else { next_mid + 1 };
                        brokers_held += 1;
                        model.brokers.push(Some(next_mid));
                        match inflight.take_for_broker(next_mid) {
                            Some(id) => model.receive(id, message),
                            None => inflight.wait(message, Some(next_mid)),
                        }
                    }
                    Step::Broker => {}
                    Step::Acknowledge(index) => {
                        if index >= model.held.len() {
                            continue;
                        }
                        let (id, message) = model.held.remove(index);
                        let expected = match model.brokers[message] {
                            Some(mid) => Owner::Broker(mid),
                            None => Owner::Card,
                        };
                        prop_assert_eq!(inflight.owner(id), expected);
                        brokers_held -= usize::from(expected != Owner::Card);
                        inflight.release(id);
                        prop_assert_eq!(inflight.owner(id), Owner::Nobody);
                        model.drain(&mut inflight);
                    }
                }
                // The broker keeps to the maximum by itself here.
                prop_assert!(model.held.len() <= usize::from(max));
            }
            let all: Vec<_> = (0..model.brokers.len()).collect();
            prop_assert_eq!(&model.received, &all);
            prop_assert!(inflight.is_the_brokers());
        }
    }
}

//! What every subscriber must see: decided from what clients sent and were answered, without a look at card or broker.
//!
//! Time is counted in steps. A message is under way from when it is sent until the world has come to rest. Whoever was subscribed, and
//! there, all that time must get it; whoever was at some time of it, may; nobody else may.

use std::collections::BTreeMap;

use super::broker::{Policy, matches};
use super::wire::{Publish, Version};

/// A step.
pub(crate) type Time = u64;

/// A message somebody published.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) publisher: usize,
    pub(crate) publish: Publish,
    first_sent: Time,
    last_sent: Time,
    done: Option<Time>,
    /// Its publisher's connection ended before it was known to have arrived.
    is_doubtful: bool,
    /// Times it was sent again.
    repeats: usize,
}

/// A subscription, from SUBSCRIBE to its end.
#[derive(Clone, Debug)]
struct Span {
    filter: String,
    qos: u8,
    is_no_local: bool,
    subscription_id: Option<u8>,
    maybe_from: Time,
    sure_from: Option<Time>,
    sure_until: Option<Time>,
    maybe_until: Option<Time>,
    /// `maybe_until` is when the world next comes to rest.
    is_ending: bool,
    /// Its session ended, with whatever waited in it.
    is_discarded: bool,
}

/// Number of a span among its client's.
pub(crate) type SpanId = usize;

/// What a client got on one connection.
#[derive(Clone, Debug)]
struct Received {
    conn: u32,
    number: usize,
    publish: Publish,
}

#[derive(Debug)]
struct Subscriber {
    version: Version,
    is_kept: bool,
    spans: Vec<Span>,
    /// From when to when it was surely there.
    present: Vec<(Time, Option<Time>)>,
    connections: usize,
    received: Vec<Received>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Model {
    now: Time,
    /// When the world last was at rest.
    rest: Time,
    messages: Vec<Message>,
    subscribers: Vec<Subscriber>,
    policy: Policy,
}

impl Model {
    pub(crate) fn add_client(&mut self, version: Version, is_kept: bool) {
        self.subscribers.push(Subscriber {
            version,
            is_kept,
            spans: Vec::new(),
            present: Vec::new(),
            connections: 0,
            received: Vec::new(),
        });
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    pub(crate) fn tick(&mut self) {
        self.now += 1;
    }

    /// The number of the next message.
    pub(crate) fn next_number(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn published(&mut self, publisher: usize, publish: Publish) {
        let now = self.now;
        self.messages.push(Message {
            publisher,
            publish,
            first_sent: now,
            last_sent: now,
            done: None,
            is_doubtful: false,
            repeats: 0,
        });
    }

    pub(crate) fn repeated(&mut self, payload: &[u8]) {
        let message = &mut self.messages[number_of(payload)];
        message.last_sent = self.now;
        message.done = None;
        message.is_doubtful = false;
        message.repeats += 1;
    }

    pub(crate) fn subscribes(
        &mut self,
        client: usize,
        filter: &str,
        qos: u8,
        is_no_local: bool,
        subscription_id: Option<u8>,
    ) -> SpanId {
        self.unsubscribes(client, filter);
        let spans = &mut self.subscribers[client].spans;
        spans.push(Span {
            filter: filter.to_owned(),
            qos,
            is_no_local,
            subscription_id,
            maybe_from: self.now,
            sure_from: None,
            sure_until: None,
            maybe_until: None,
            is_ending: false,
            is_discarded: false,
        });
        spans.len() - 1
    }

    pub(crate) fn subscribed(&mut self, client: usize, span: SpanId) {
        self.subscribers[client].spans[span].sure_from = Some(self.now);
        self.end_before(client, span);
    }

    /// An UNSUBSCRIBE, or a SUBSCRIBE that takes the place of what was.
    pub(crate) fn unsubscribes(&mut self, client: usize, filter: &str) {
        let now = self.now;
        for span in self.subscribers[client].spans.iter_mut().filter(|it| it.filter == filter) {
            span.sure_until.get_or_insert(now);
        }
    }

    /// What had this filter up to `span` has surely ended; `usize::MAX`: all.
    fn end_before(&mut self, client: usize, span: SpanId) {
        let now = self.now;
        let spans = &mut self.subscribers[client].spans;
        let filter = spans[span].filter.clone();
        for old in spans[..span].iter_mut().filter(|it| it.filter == filter) {
            old.maybe_until.get_or_insert(now);
        }
    }

    pub(crate) fn unsubscribed(&mut self, client: usize, spans: usize, filter: &str) {
        let now = self.now;
        let old = self.subscribers[client].spans[..spans].iter_mut();
        for span in old.filter(|it| it.filter == filter) {
            span.maybe_until.get_or_insert(now);
        }
    }

    /// Spans of a client so far.
    pub(crate) fn span_count(&self, client: usize) -> usize {
        self.subscribers[client].spans.len()
    }

    pub(crate) fn connected(&mut self, client: usize) {
        let now = self.now;
        let subscriber = &mut self.subscribers[client];
        subscriber.present.push((now, None));
        subscriber.connections += 1;
    }

    /// A connection of this client ends, or will: what was under way may be lost, its messages and those to it.
    pub(crate) fn left(&mut self, client: usize) {
        let rest = self.rest;
        if let Some((_, until)) = self.subscribers[client].present.last_mut() {
            until.get_or_insert(rest);
        }
        if !self.subscribers[client].is_kept {
            self.session_ends(client);
        }
        let own = self.messages.iter_mut().filter(|it| it.publisher == client);
        own.filter(|it| it.done.is_none()).for_each(|it| it.is_doubtful = true);
    }

    /// Its session ends soon.
    fn session_ends(&mut self, client: usize) {
        self.session_may_end(client);
        self.subscribers[client].spans.iter_mut().for_each(|span| span.is_ending = true);
    }

    /// A CONNECT that ends its session is on its way, and may be lost.
    pub(crate) fn session_may_end(&mut self, client: usize) {
        let rest = self.rest;
        for span in &mut self.subscribers[client].spans {
            span.sure_until = Some(span.sure_until.map_or(rest, |it| it.min(rest)));
            span.is_discarded = true;
        }
    }

    /// The broker has a new session for it; so many spans belonged to earlier ones.
    pub(crate) fn session_is_new(&mut self, client: usize, spans: usize) {
        let now = self.now;
        for span in &mut self.subscribers[client].spans[..spans] {
            span.maybe_until.get_or_insert(now);
        }
    }

    /// Nothing is under way any more.
    pub(crate) fn rests(&mut self) {
        self.now += 1;
        self.rest = self.now;
        for message in &mut self.messages {
            message.done.get_or_insert(self.now);
        }
        for span in self.subscribers.iter_mut().flat_map(|it| &mut it.spans) {
            if std::mem::take(&mut span.is_ending) {
                span.maybe_until.get_or_insert(self.now);
            }
        }
        self.now += 1;
    }

    /// A client got this. It has to be what somebody sent, and in order.
    pub(crate) fn received(&mut self, client: usize, conn: u32, publish: Publish) {
        let number = number_of(&publish.payload);
        let message = &self.messages[number];
        let subscriber = &self.subscribers[client];
        let of_v5 = self.subscribers[message.publisher].version == Version::V5;
        let user =
            message.publish.user.clone().filter(|_| of_v5 && subscriber.version == Version::V5);
        assert_eq!(publish.topic, message.publish.topic, "{client} got {number}");
        assert_eq!(publish.payload, message.publish.payload, "{client} got {number}");
        assert_eq!(publish.user, user, "{client} got {number}");
        let of_its_kind = |other: &&Received| {
            let its = &self.messages[other.number];
            other.conn == conn
                && its.publisher == message.publisher
                && its.publish.topic == publish.topic
                && its.publish.qos == message.publish.qos
                && other.publish.qos == publish.qos
                && its.repeats == 0
                && !other.publish.is_dup
                && !other.publish.is_retained
        };
        if message.repeats == 0 && !publish.is_dup && !publish.is_retained {
            let last = subscriber.received.iter().rev().find(of_its_kind);
            let is_late = last.is_some_and(|it| it.number > number);
            assert!(!is_late, "{client} got {number} behind {last:?}");
        }
        self.subscribers[client].received.push(Received { conn, number, publish });
    }

    /// At the end, and at rest: everybody got what it must, and nothing it must not.
    pub(crate) fn judge(&self) {
        for (client, subscriber) in self.subscribers.iter().enumerate() {
            for (number, message) in self.messages.iter().enumerate() {
                self.judge_one(client, subscriber, number, message);
            }
        }
    }

    fn judge_one(&self, client: usize, subscriber: &Subscriber, number: usize, message: &Message) {
        // How many copies of each kind must be there, may be, and are.
        let mut kinds: BTreeMap<(u8, Option<u8>), (usize, usize, usize)> = BTreeMap::new();
        for span in subscriber.spans.iter().filter(|it| matches(&it.filter, &message.publish.topic))
        {
            let [from, to] = [message.publisher, client].map(name_of);
            let is_allowed = self.policy.allows(&from, &to, &message.publish.topic);
            if !is_allowed || (span.is_no_local && message.publisher == client) {
                continue;
            }
            let qos = span.qos.min(message.publish.qos);
            let kind = kinds.entry((qos, span.subscription_id)).or_default();
            kind.0 += usize::from(subscriber.must_get(span, qos, message));
            kind.1 += usize::from(span.may_cover(message));
        }
        for got in subscriber.received.iter().filter(|it| it.number == number) {
            let key = (got.publish.qos, got.publish.subscription_id);
            if got.publish.is_retained {
                assert!(message.publish.is_retained, "{client} got {number} as retained");
                continue;
            }
            kinds.entry(key).or_default().2 += 1;
        }
        for ((qos, id), (must, may, is)) in kinds {
            let is_offered_again = qos > 0 && subscriber.is_kept && subscriber.connections > 1;
            let max =
                if is_offered_again && may > 0 { usize::MAX } else { may * (1 + message.repeats) };
            assert!(
                (must..=max).contains(&is),
                "client {client} got {is} copies of {message:?} with QoS {qos} and subscription {id:?}, \
                 at least {must} and at most {max} were due; {:?}; {:?}",
                subscriber.present,
                subscriber.spans
            );
        }
    }
}

impl Span {
    fn surely_covers(&self, message: &Message) -> bool {
        let until = self.sure_until.unwrap_or(Time::MAX);
        self.sure_from.is_some_and(|from| from < message.last_sent)
            && message.done.is_some_and(|done| done <= until)
    }

    fn may_cover(&self, message: &Message) -> bool {
        let done = message.done.unwrap_or(Time::MAX);
        self.maybe_from <= done && message.first_sent <= self.maybe_until.unwrap_or(Time::MAX)
    }
}

impl Subscriber {
    fn must_get(&self, span: &Span, qos: u8, message: &Message) -> bool {
        let is_there = self.present.iter().any(|&(from, until)| {
            let until = until.unwrap_or(Time::MAX);
            from < message.last_sent && message.done.is_some_and(|done| done <= until)
        });
        let is_stored = qos > 0 && self.is_kept && !span.is_discarded;
        !message.is_doubtful && span.surely_covers(message) && (is_there || is_stored)
    }
}

/// The Client Identifier of a client.
pub(crate) fn name_of(client: usize) -> String {
    format!("client-{client}")
}

/// Payloads begin with their number, in four digits.
pub(crate) fn number_of(payload: &[u8]) -> usize {
    let text = std::str::from_utf8(&payload[..4]).expect("a number");
    text.parse().expect("a number")
}

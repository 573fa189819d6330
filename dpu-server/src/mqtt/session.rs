//! The sessions the broker keeps, as far as the card has seen them, and their subscriptions.
//!
//! ```text
//!            CONNECT            CONNACK                    end of connection
//! (nothing) ────────► claimed ──────────► Connected ──────────────────────────► Offline (persistent)
//!                        │ refused            ▲   │                                │  or gone
//!                        ▼                    └───┼── CONNACK session-present = 1 ─┘
//!                     as before                   └── session-present = 0: subscriptions dropped
//! ```
//!
//! A session the broker went on with although the card does not know what it holds is *opaque*; it blinds the card until
//! it ends. A subscription is in the trie from the SUBSCRIBE on; while an answer is awaited it only says "do not touch".
//! Everything here is bounded by `sessions_max` and `subscriptions_max`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::ConnId;
use super::config::Limits;
use super::packet::{GrantedOptions, Malformed};
use super::topic::Filter;
use super::trie::{NodeId, SubscriptionId, Trie};

/// How long an expired session with a CONNECT under way is kept before it is looked at again.
const CLAIM_TIME: Duration = Duration::from_secs(60);

/// A session, by its place in the table.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct SessionId(usize);

/// What a route needs to know of a connected session's client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Subscriber {
    pub(crate) conn: ConnId,
    pub(crate) is_v5: bool,
    /// Largest packet it accepts, in bytes.
    pub(crate) packet_bytes_max: u32,
    /// The broker may hold messages for it.
    pub(crate) is_backlogged: bool,
    /// The session outlives the connection.
    pub(crate) is_persistent: bool,
    /// Packet Identifiers are in use that the card does not know.
    pub(crate) is_unread: bool,
}

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Life {
    /// Only claimed: no CONNACK has confirmed it, or it ended while claimed.
    Absent,
    Connected(Subscriber),
    Offline,
}

#[derive(Debug)]
pub(crate) struct Session {
    /// `None`: the client left its name empty, so nobody can come back to it.
    client_id: Option<Arc<str>>,
    pub(crate) life: Life,
    /// CONNECTs with this client identifier that the broker has not answered.
    claims: u32,
    is_opaque: bool,
    /// The connection whose SUBACKs belong here. Stays a while after the life has turned to Offline.
    owner: Option<ConnId>,
    /// Number of its last CONNACK.
    accepted_at: u64,
    /// When the broker will have forgotten it; only while it is offline.
    expires_at: Option<Instant>,
    subscriptions: HashMap<Arc<str>, SubscriptionId>,
    /// Set by a walk that collects the subscribers of a topic, to notice a second filter of the same session.
    pub(crate) mark: u64,
}

/// A granted subscription.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Grant {
    pub(crate) options: GrantedOptions,
    /// The SUBACK could not have refused it, and nothing has come of it yet.
    pub(crate) is_unproven: bool,
    /// SUBSCRIBEs asked for it with and without No Local.
    pub(crate) is_no_local_unclear: bool,
}

#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) session: SessionId,
    filter: Arc<str>,
    node: NodeId,
    /// Place among the node's entries.
    place: usize,
    pub(crate) is_shared: bool,
    pub(crate) grant: Option<Grant>,
    /// Number of its last grant.
    granted_at: u64,
    /// SUBSCRIBEs and UNSUBSCRIBEs of it under way.
    pending: u32,
    /// One of them will never be answered.
    is_in_doubt: bool,
}

impl Subscription {
    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0 || self.is_in_doubt
    }

    fn is_unproven(&self) -> bool {
        self.grant.is_some_and(|grant| grant.is_unproven)
    }
}

/// What a CONNACK, or the version's silence, says of the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Presence {
    /// The broker made a new one.
    Fresh,
    /// The broker goes on with what it had.
    Resumed,
    /// The version cannot say (3.1 without Clean Session).
    Unsaid,
}

/// All sessions and subscriptions of one broker.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: Slab<Session>,
    by_client_id: HashMap<Arc<str>, SessionId>,
    subscriptions: Slab<Subscription>,
    trie: Trie,
    /// Grows with every change that a route could see.
    generation: u64,
    /// Last number of a grant or a CONNACK.
    serial: u64,
    opaque: usize,
    /// Subscriptions with an unproven grant.
    unproven: usize,
    /// Every `expires_at`.
    expiries: BTreeSet<(Instant, SessionId)>,
}

impl Sessions {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    pub(crate) fn opaque_count(&self) -> usize {
        self.opaque
    }

    /// The session of this client, if there is one.
    pub(crate) fn find(&self, client_id: &str) -> Option<SessionId> {
        self.by_client_id.get(client_id).copied()
    }

    /// The sessions from this place on, of at most `max` places, and the next place, if there is one.
    pub(crate) fn page(&self, from: usize, max: usize) -> (Vec<SessionId>, Option<usize>) {
        let end = from.saturating_add(max).min(self.sessions.capacity());
        let ids = (from..end).filter(|&at| self.sessions.contains(at)).map(SessionId).collect();
        (ids, (end < self.sessions.capacity()).then_some(end))
    }

    pub(crate) fn get(&self, id: SessionId) -> &Session {
        &self.sessions[id.0]
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> &mut Session {
        &mut self.sessions[id.0]
    }

    pub(crate) fn subscription(&self, id: SubscriptionId) -> &Subscription {
        &self.subscriptions[id.0]
    }

    /// A number of this subscription as its present connection has it, which no other ever has.
    pub(crate) fn since(&self, id: SubscriptionId) -> u64 {
        let subscription = &self.subscriptions[id.0];
        subscription.granted_at.max(self.sessions[subscription.session.0].accepted_at)
    }

    pub(crate) fn find_matches(&self, topic: &str, out: &mut Vec<SubscriptionId>) {
        self.trie.find(topic, out);
    }

    /// A CONNECT with this client identifier is under way. Balanced by [`Self::accept`] or [`Self::release`].
    pub(crate) fn claim(
        &mut self,
        client_id: &str,
        limits: &Limits,
    ) -> Result<SessionId, Malformed> {
        let id = match self.by_client_id.get(client_id) {
            Some(&id) if !client_id.is_empty() => id,
            _ => {
                if self.sessions.len() >= limits.sessions_max {
                    return Err(Malformed::Limit("sessions"));
                }
                let id = SessionId(self.sessions.insert(Session {
                    client_id: None,
                    life: Life::Absent,
                    claims: 0,
                    is_opaque: false,
                    owner: None,
                    accepted_at: 0,
                    expires_at: None,
                    subscriptions: HashMap::new(),
                    mark: 0,
                }));
                self.name(id, client_id);
                id
            }
        };
        self.sessions[id.0].claims += 1;
        self.note_change(id);
        Ok(id)
    }

    /// The broker gave a name to a client that had none. A session of that name would be taken over.
    pub(crate) fn rename(&mut self, id: SessionId, client_id: &str) -> SessionId {
        match self.by_client_id.get(client_id) {
            Some(&known) if known != id => {
                self.sessions[known.0].claims += 1;
                self.release(id);
                known
            }
            _ => {
                self.name(id, client_id);
                id
            }
        }
    }

    fn name(&mut self, id: SessionId, client_id: &str) {
        if !client_id.is_empty() {
            let name: Arc<str> = client_id.into();
            self.sessions[id.0].client_id = Some(name.clone());
            self.by_client_id.insert(name, id);
        }
    }

    /// The broker accepted a claim: the session is the subscriber's. Who had it before has been disowned.
    pub(crate) fn accept(&mut self, id: SessionId, subscriber: Subscriber, presence: Presence) {
        let session = &mut self.sessions[id.0];
        session.claims -= 1;
        let was_known = session.life != Life::Absent;
        session.life = Life::Connected(subscriber);
        session.owner = Some(subscriber.conn);
        self.serial += 1;
        session.accepted_at = self.serial;
        self.set_expiry(id, None);
        match presence {
            Presence::Fresh => {
                self.drop_subscriptions(id);
                self.set_opaque(id, false);
            }
            Presence::Resumed if was_known => {}
            Presence::Resumed | Presence::Unsaid => self.set_opaque(id, true),
        }
        self.note_change(id);
    }

    /// A claim came to nothing.
    pub(crate) fn release(&mut self, id: SessionId) {
        self.sessions[id.0].claims -= 1;
        self.note_change(id);
        self.remove_if_unused(id);
    }

    /// The connection of this session ended, and with it the session unless it is persistent.
    pub(crate) fn end(&mut self, id: SessionId, is_persistent: bool) {
        if is_persistent {
            self.sessions[id.0].life = Life::Offline;
            self.note_change(id);
        } else {
            self.drop_subscriptions(id);
            self.set_opaque(id, false);
            self.set_expiry(id, None);
            self.sessions[id.0].life = Life::Absent;
            self.sessions[id.0].owner = None;
            self.remove_if_unused(id);
        }
    }

    /// No more answers will come on the connection that owned this session, which may now expire.
    pub(crate) fn disown(&mut self, id: SessionId, expires_at: Option<Instant>) {
        self.sessions[id.0].owner = None;
        self.set_expiry(id, expires_at);
    }

    fn set_expiry(&mut self, id: SessionId, at: Option<Instant>) {
        let old = std::mem::replace(&mut self.sessions[id.0].expires_at, at);
        if let Some(old) = old {
            self.expiries.remove(&(old, id));
        }
        if let Some(at) = at {
            self.expiries.insert((at, id));
        }
    }

    /// When [`Self::expire`] has something to do.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Forgets the sessions whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.expiries.first()
            && at <= now
        {
            if self.sessions[id.0].is_claimed() {
                // The CONNACK will say what became of it.
                self.set_expiry(id, Some(now + CLAIM_TIME));
            } else {
                self.end(id, false);
            }
        }
    }

    /// From here on the card does not know what the session holds, or again does.
    pub(crate) fn set_opaque(&mut self, id: SessionId, is_opaque: bool) {
        let session = &mut self.sessions[id.0];
        match (session.is_opaque, is_opaque) {
            (false, true) => self.opaque += 1,
            (true, false) => self.opaque -= 1,
            _ => {}
        }
        session.is_opaque = is_opaque;
    }

    /// The broker may still make something of a CONNECT that it will not answer: remember that, whatever it is.
    pub(crate) fn abandon(&mut self, id: SessionId) {
        let session = &mut self.sessions[id.0];
        if session.life == Life::Absent {
            session.life = Life::Offline;
        }
        self.set_opaque(id, true);
        self.release(id);
    }

    /// Where a connected session's messages go may have changed.
    pub(crate) fn set_backlogged(&mut self, id: SessionId, backlogged: bool) {
        let Life::Connected(subscriber) = &mut self.sessions[id.0].life else { return };
        if subscriber.is_backlogged != backlogged {
            subscriber.is_backlogged = backlogged;
            self.note_change(id);
        }
    }

    /// A connected session's client has Packet Identifiers in use that the card does not know.
    pub(crate) fn set_unread(&mut self, id: SessionId) {
        if let Life::Connected(subscriber) = &mut self.sessions[id.0].life {
            subscriber.is_unread = true;
            self.note_change(id);
        }
    }

    /// A SUBSCRIBE or UNSUBSCRIBE of this filter is under way. Balanced by [`Self::settle`] or [`Self::doubt`].
    pub(crate) fn begin(
        &mut self,
        session: SessionId,
        filter: Filter<'_>,
        limits: &Limits,
    ) -> Result<SubscriptionId, Malformed> {
        self.generation += 1;
        if let Some(&id) = self.sessions[session.0].subscriptions.get(filter.text()) {
            self.subscriptions[id.0].pending += 1;
            return Ok(id);
        }
        if self.subscriptions.len() >= limits.subscriptions_max {
            return Err(Malformed::Limit("subscriptions"));
        }
        if super::topic::levels(filter.path()) > limits.topic_levels_max {
            return Err(Malformed::Limit("topic levels"));
        }
        let text: Arc<str> = filter.text().into();
        let entry = self.subscriptions.vacant_entry();
        let id = SubscriptionId(entry.key());
        let (node, place) = self.trie.insert(filter.path(), id);
        entry.insert(Subscription {
            session,
            filter: text.clone(),
            node,
            place,
            is_shared: filter.is_shared(),
            grant: None,
            granted_at: 0,
            pending: 1,
            is_in_doubt: false,
        });
        self.sessions[session.0].subscriptions.insert(text, id);
        Ok(id)
    }

    /// The broker granted it, replacing what was granted before. If No Local changes, what holds is unclear until it is
    /// unsubscribed: the new SUBSCRIBE's should [MQTT-3.8.4-3], but mosquitto 2.0 goes on with the first one's.
    pub(crate) fn grant(&mut self, id: SubscriptionId, mut grant: Grant) {
        let subscription = &mut self.subscriptions[id.0];
        if let Some(known) = subscription.grant {
            grant.is_no_local_unclear =
                known.is_no_local_unclear || known.options.no_local != grant.options.no_local;
        }
        self.unproven += usize::from(grant.is_unproven);
        self.unproven -= usize::from(subscription.is_unproven());
        subscription.grant = Some(grant);
        subscription.is_in_doubt = false;
        self.generation += 1;
        self.serial += 1;
        subscription.granted_at = self.serial;
    }

    /// Whether [`Self::prove`] may have something to do.
    pub(crate) fn has_unproven(&self) -> bool {
        self.unproven > 0
    }

    /// The broker sent this session a message with QoS 0 on this topic, so it honours the one subscription that matches.
    pub(crate) fn prove(&mut self, session: SessionId, topic: &str) {
        let mut matches = Vec::new();
        self.trie.find(topic, &mut matches);
        matches.retain(|id| self.subscriptions[id.0].session == session);
        // Of several it may be any.
        let &[id] = &matches[..] else { return };
        let subscription = &mut self.subscriptions[id.0];
        if !subscription.is_pending()
            && let Some(grant) = subscription.grant.as_mut().filter(|grant| grant.is_unproven)
        {
            grant.is_unproven = false;
            self.unproven -= 1;
            self.generation += 1;
        }
    }

    /// The broker ended it.
    pub(crate) fn revoke(&mut self, id: SubscriptionId) {
        let subscription = &mut self.subscriptions[id.0];
        self.unproven -= usize::from(subscription.is_unproven());
        subscription.grant = None;
        subscription.is_in_doubt = false;
        self.generation += 1;
    }

    /// The broker knows nothing of it. If it was granted, the broker looked elsewhere, as mosquitto does behind a mount point, and may go
    /// on with it.
    pub(crate) fn contradict(&mut self, id: SubscriptionId) {
        let subscription = &mut self.subscriptions[id.0];
        subscription.is_in_doubt |= subscription.grant.is_some();
        self.generation += 1;
    }

    /// What was begun has been answered, and its barrier is back.
    pub(crate) fn settle(&mut self, id: SubscriptionId) {
        let subscription = &mut self.subscriptions[id.0];
        subscription.pending -= 1;
        self.generation += 1;
        if !subscription.is_pending() && subscription.grant.is_none() {
            self.remove_subscription(id);
        }
    }

    /// What was begun will never be answered.
    pub(crate) fn doubt(&mut self, id: SubscriptionId) {
        let subscription = &mut self.subscriptions[id.0];
        subscription.pending -= 1;
        subscription.is_in_doubt = true;
        self.generation += 1;
    }

    fn note_change(&mut self, id: SessionId) {
        if !self.sessions[id.0].subscriptions.is_empty() {
            self.generation += 1;
        }
    }

    fn remove_if_unused(&mut self, id: SessionId) {
        let session = &self.sessions[id.0];
        if session.claims == 0 && session.life == Life::Absent {
            let session = self.sessions.remove(id.0);
            if let Some(name) = session.client_id {
                self.by_client_id.remove(&name);
            }
        }
    }

    fn drop_subscriptions(&mut self, id: SessionId) {
        let all = std::mem::take(&mut self.sessions[id.0].subscriptions);
        for subscription in all.into_values() {
            self.remove_from_trie(subscription);
        }
    }

    fn remove_subscription(&mut self, id: SubscriptionId) {
        let subscription = self.remove_from_trie(id);
        self.sessions[subscription.session.0].subscriptions.remove(&subscription.filter);
    }

    fn remove_from_trie(&mut self, id: SubscriptionId) -> Subscription {
        let subscription = self.subscriptions.remove(id.0);
        self.unproven -= usize::from(subscription.is_unproven());
        if let Some(moved) = self.trie.remove(subscription.node, subscription.place) {
            self.subscriptions[moved.0].place = subscription.place;
        }
        self.generation += 1;
        subscription
    }
}

impl Session {
    /// The client left its name empty, and the broker has not made one up.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.client_id.is_none()
    }

    /// `None`: the client left its name empty.
    pub(crate) fn client_id(&self) -> Option<&Arc<str>> {
        self.client_id.as_ref()
    }

    pub(crate) fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    /// When the card forgets it; `None`: not by itself.
    pub(crate) fn expires_at(&self) -> Option<Instant> {
        self.expires_at
    }

    /// The connection whose SUBACKs belong here.
    pub(crate) fn owner(&self) -> Option<ConnId> {
        self.owner
    }

    /// The card does not know what it holds.
    pub(crate) fn is_opaque(&self) -> bool {
        self.is_opaque
    }

    /// Whether this connection is the one its messages go to.
    pub(crate) fn is_connected_as(&self, conn: ConnId) -> bool {
        matches!(self.life, Life::Connected(subscriber) if subscriber.conn == conn)
    }

    /// A CONNECT may be about to change it.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claims > 0
    }
}

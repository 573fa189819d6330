//! How connections, sessions and the card itself end.
//!
//! ```text
//! broker closes ──► outbox empty? ── yes ──► close in the stack (FIN), forget
//!                        └─ no ──► linger: until it is, or until the client stalls too long (RST)
//! ```
//!
//! The kernel's own rules, close(2) and RFC 9293 §3.10.4 with RFC 2525 §2.17: what was written is delivered, then FIN; but
//! where the program left received bytes unread, or set a zero linger, the connection is reset at once and what is still
//! queued is lost. Bytes the stack has taken by then are on their way as they would be in the kernel.

use std::time::Instant;

use mqttshim_schema::{How, SessionId};

use super::sockets::{Broker, Client, Entry, Kind};
use super::{Card, LINGER, LINGER_ENDED};
use crate::attach::Attach;
use crate::mqtt::{ConnId, Counters as CoreCounters};
use crate::stack::{End, Key, Stack};

impl<A: Attach, S: Stack> Card<A, S> {
    /// The broker holds no descriptor any more.
    pub(super) fn close_stream(&mut self, key: Key, unread: bool, now: Instant) {
        let session = self.sockets[key.index()].session;
        self.sessions[session].core.handle_broker_gone(ConnId(key.0), now);
        let Some(stream) = self.sockets[key.index()].stream() else { return };
        stream.broker = Broker::Closed;
        if let Client::Gone(_) = stream.client {
            self.close_in_stack(key, End::Close);
            self.forget(key, now);
        } else if unread || self.lingers_zero(key) {
            self.offer_once(key);
            self.close_in_stack(key, End::Reset);
            self.forget(key, now);
        } else {
            self.linger_on(key, now);
            self.queue_send(key);
            self.finish_if_drained(key, now);
        }
    }

    /// socket(7), SO_LINGER on with no time: the program wants a reset.
    fn lingers_zero(&mut self, key: Key) -> bool {
        let mut value = [0; 8];
        let read = self.stack.option(key, libc::SOL_SOCKET, libc::SO_LINGER, &mut value);
        let (on, seconds) = value.split_at(4);
        read == Ok(8) && on != [0; 4] && seconds == [0; 4]
    }

    /// What the broker wrote goes to the stack as far as it takes it, as a write to a kernel's socket would have.
    fn offer_once(&mut self, key: Key) {
        let session = self.sockets[key.index()].session;
        let mut batch = crate::stack::Batch::default();
        let outbox = self.sessions[session].core.outbox(ConnId(key.0));
        batch.push(key, outbox.chunks());
        if !batch.is_empty() {
            self.stack.send(&batch, &mut self.sent);
        }
    }

    /// Does what waits for an empty outbox, if it is.
    pub(super) fn finish_if_drained(&mut self, key: Key, now: Instant) {
        let Some(entry) = self.sockets.get_mut(key.index()) else { return };
        let session = entry.session;
        let Some(stream) = entry.stream() else { return };
        if !self.sessions[session].core.outbox(ConnId(key.0)).is_empty() {
            return;
        }
        match stream.broker {
            Broker::Open | Broker::Finished => {}
            Broker::Ended => {
                stream.broker = Broker::Finished;
                let how = if stream.is_deaf { How::Both } else { How::Write };
                // A failure means that the client is gone; its read says so.
                let _ = self.stack.shutdown(key, how);
            }
            Broker::Closed => {
                self.close_in_stack(key, End::Close);
                self.forget(key, now);
            }
        }
    }

    /// A connection whose broker is gone has made progress, or begins to linger. Where the whole session is gone there is
    /// one time for it, and progress does not move it.
    pub(super) fn linger_on(&mut self, key: Key, now: Instant) {
        let entry = &mut self.sockets[key.index()];
        let is_ended = self.sessions[entry.session].is_ended;
        let Some(stream) = entry.stream() else { return };
        if stream.broker != Broker::Closed || (is_ended && stream.linger.is_some()) {
            return;
        }
        let until = now + if is_ended { LINGER_ENDED } else { LINGER };
        if let Some(before) = stream.linger.replace(until) {
            self.lingering.remove(&(before, key));
        }
        self.lingering.insert((until, key));
    }

    /// The client did not take what was left in time.
    pub(super) fn give_up(&mut self, key: Key, now: Instant) {
        self.counters.lingers_given_up += 1;
        self.close_in_stack(key, End::Reset);
        self.forget(key, now);
    }

    /// Ends a socket in the stack, which may let accepting go on.
    pub(super) fn close_in_stack(&mut self, key: Key, end: End) {
        self.stack.close(key, end);
        self.accept_retry = None;
    }

    /// A connection is over on both sides: its number is free.
    fn forget(&mut self, key: Key, now: Instant) {
        let session = self.sockets[key.index()].session;
        self.sessions[session].core.handle_close(ConnId(key.0), now);
        self.remove(key);
    }

    /// A listener, or a connection that never was, ends.
    pub(super) fn discard(&mut self, key: Key) {
        self.close_in_stack(key, End::Close);
        self.remove(key);
    }

    fn remove(&mut self, key: Key) {
        let entry = self.sockets.remove(key.index());
        if let Kind::Stream(stream) = entry.kind {
            // A queue may still name the key; a new socket of that number is not marked as queued, and so left alone.
            if let Some(until) = stream.linger {
                self.lingering.remove(&(until, key));
            }
        }
        let session = &mut self.sessions[entry.session];
        session.sockets -= 1;
        if session.is_ended && session.sockets == 0 {
            self.retire(entry.session);
        }
    }

    /// The core of a session that is over and has no socket left goes; what it counted stays.
    fn retire(&mut self, index: usize) {
        let session = self.sessions.remove(index);
        add(&mut self.past, session.core.counters());
        tracing::info!(session = session.id.0, program = session.program, "session closed");
    }

    /// A broker is gone: its ports are free at once; what it had written is delivered, within a time.
    pub(super) fn end_session(&mut self, id: SessionId, now: Instant) {
        let Some(index) = self.by_id.remove(&id) else { return };
        self.sessions[index].is_ended = true;
        tracing::info!(session = id.0, program = self.sessions[index].program, "session ended");
        if self.sessions[index].sockets == 0 {
            self.retire(index);
            return;
        }
        let of_it = self.sockets.iter().filter(|(_, entry)| entry.session == index);
        let keys: Vec<Key> = of_it.map(|(key, _)| Key(key as u32)).collect();
        for key in keys {
            match self.sockets.get_mut(key.index()) {
                None => {}
                Some(Entry { kind: Kind::Stream(stream), .. }) => {
                    if let Some(before) = stream.linger.take() {
                        self.lingering.remove(&(before, key));
                        self.linger_on(key, now);
                    } else {
                        self.close_stream(key, false, now);
                    }
                }
                Some(_) => self.discard(key),
            }
        }
    }

    /// Stops: no new connections, every session ends. The card is done when no socket is open.
    pub fn stop(&mut self, now: Instant) {
        let ids: Vec<SessionId> = self.by_id.keys().copied().collect();
        for id in ids {
            self.end_session(id, now);
        }
    }
}

/// Adds what another core counted; what comes and goes is gone.
pub(super) fn add(sum: &mut CoreCounters, other: &CoreCounters) {
    sum.publishes_card += other.publishes_card;
    sum.deliveries_card += other.deliveries_card;
    sum.deliveries_broker += other.deliveries_broker;
    sum.pings_injected += other.pings_injected;
    sum.publishes_held += other.publishes_held;
    sum.windows_whole += other.windows_whole;
    sum.windows_failed += other.windows_failed;
    sum.shadow_same += other.shadow_same;
    sum.shadow_different += other.shadow_different;
    sum.shadow_unproven += other.shadow_unproven;
    sum.policy_changes += other.policy_changes;
    sum.turned_opaque += other.turned_opaque;
    for (sum, other) in sum.publishes_broker.iter_mut().zip(other.publishes_broker.iter()) {
        *sum += other;
    }
    for (sum, other) in sum.outbox_dropped.iter_mut().zip(&other.outbox_dropped) {
        *sum += other;
    }
}

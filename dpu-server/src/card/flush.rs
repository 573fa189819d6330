//! What waits leaves: client bytes towards brokers, outboxes towards clients.
//!
//! ```text
//! Core::poll_dirty ──► upward   ──► attach.data, as far as credit goes
//!                 └──► sendable ──► Batch ──► stack.send ──► advance, credit back to the broker
//! ```
//!
//! A connection is dirty when its core put something into its outbox or its queue to the broker. The batch borrows every
//! outbox, so all subscribers of a PUBLISH are one submission to the kernel (`stack::kernel::uring`); a stack that needs no
//! batches gets few connections at a time, which then stay in the processor's cache for all of these steps. What a socket does
//! not take stays where it is until the stack reports room.

use std::time::Instant;

use super::sockets::{Client, Entry};
use super::{Card, TO_BROKER_BYTES_MAX};
use crate::attach::Attach;
use crate::mqtt::ConnId;
use crate::stack::{Batch, Key, Sent, Stack};
use mqttshim_port::prefetch::soon;

/// How many connections ahead is asked for what sending to one looks at.
const LOOK_AHEAD: usize = 12;

impl<A: Attach, S: Stack> Card<A, S> {
    /// The last step of a pass. True if anything moved.
    pub(super) fn flush(&mut self, now: Instant) -> bool {
        let mut moved = false;
        loop {
            let is_all = self.collect_dirty();
            moved |= self.send_up();
            moved |= self.send_down(now);
            if is_all {
                return moved;
            }
        }
    }

    /// Asks every core which connections have something new, until there are as many to send to as the stack likes. True if those are
    /// all.
    fn collect_dirty(&mut self) -> bool {
        for (_, session) in &mut self.sessions {
            while let Some(conn) = session.core.poll_dirty() {
                if let Some(later) = session.core.dirty_later(LOOK_AHEAD)
                    && let Some(entry) = self.sockets.get(later.0 as usize)
                {
                    soon(entry);
                    self.stack.expect(Key(later.0));
                }
                let key = Key(conn.0);
                let Some(stream) = self.sockets.get_mut(key.index()).and_then(Entry::stream) else {
                    continue;
                };
                if !stream.in_upward && !session.core.to_broker(conn).is_empty() {
                    stream.in_upward = true;
                    self.upward.push_back(key);
                }
                let outbox = session.core.outbox_mut(conn);
                if !stream.in_sendable && stream.may_send && !outbox.is_empty() {
                    stream.in_sendable = true;
                    self.sendable.push(key);
                }
                let swallowed = outbox.broker_bytes_drained();
                if swallowed > 0 {
                    self.attach.drained(key, swallowed);
                }
                if self.sendable.len() >= S::SENDS_TOGETHER {
                    return false;
                }
            }
        }
        true
    }

    pub(super) fn queue_up(&mut self, key: Key) {
        if let Some(stream) = self.sockets.get_mut(key.index()).and_then(Entry::stream)
            && !stream.in_upward
        {
            stream.in_upward = true;
            self.upward.push_back(key);
        }
    }

    pub(super) fn queue_send(&mut self, key: Key) {
        if let Some(stream) = self.sockets.get_mut(key.index()).and_then(Entry::stream)
            && stream.may_send
            && !stream.in_sendable
        {
            stream.in_sendable = true;
            self.sendable.push(key);
        }
    }

    /// Hands client bytes, and behind the last of them the client's end, to the brokers.
    fn send_up(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.upward.len() {
            if self.attach.is_blocked() {
                break;
            }
            let Some(key) = self.upward.pop_front() else { break };
            let Some(entry) = self.sockets.get_mut(key.index()) else { continue };
            let session = entry.session;
            let Some(stream) = entry.stream() else { continue };
            if !std::mem::take(&mut stream.in_upward) {
                continue;
            }
            let queue = self.sessions[session].core.to_broker(ConnId(key.0));
            let taken = self.attach.data(key, queue.as_slice());
            queue.advance(taken);
            moved |= taken > 0;
            let left = queue.bytes();
            if left == 0 && !stream.is_told {
                match stream.client {
                    Client::Open => {}
                    Client::Fin => {
                        stream.is_told = true;
                        self.attach.eof(key);
                    }
                    Client::Gone(error) => {
                        stream.is_told = true;
                        self.attach.reset(key, error);
                    }
                }
            }
            if left <= TO_BROKER_BYTES_MAX {
                self.queue_read(key);
            }
            if left > 0 && self.attach.is_blocked() {
                // Credit is left, the channel is full: the first again when it has room.
                if let Some(stream) = self.sockets[key.index()].stream() {
                    stream.in_upward = true;
                    self.upward.push_front(key);
                }
            }
        }
        moved
    }

    /// Sends all outboxes that have something and room, in one batch.
    fn send_down(&mut self, now: Instant) -> bool {
        let Card { sockets, sessions, sendable, batch, sent, outcomes, stack, .. } = self;
        let mut offers: Batch<'_> = std::mem::take(batch).recycle();
        for key in sendable.drain(..) {
            let Some(entry) = sockets.get_mut(key.index()) else { continue };
            let session = entry.session;
            let Some(stream) = entry.stream() else { continue };
            if std::mem::take(&mut stream.in_sendable) && stream.may_send {
                offers.push(key, sessions[session].core.outbox(ConnId(key.0)).chunks());
            }
        }
        stack.send(&offers, sent);
        outcomes.extend(offers.iter().zip(&*sent).map(|((key, part), &sent)| {
            let offered = part.iter().map(|slice| slice.len()).sum();
            (key, offered, sent)
        }));
        *batch = offers.recycle();
        let mut outcomes = std::mem::take(&mut self.outcomes);
        let moved = !outcomes.is_empty();
        for (key, offered, sent) in outcomes.drain(..) {
            self.note_sent(key, offered, sent, now);
        }
        self.outcomes = outcomes;
        moved
    }

    fn note_sent(&mut self, key: Key, offered: usize, sent: Sent, now: Instant) {
        match sent {
            Sent::Bytes(bytes) => self.sent(key, bytes, bytes < offered, now),
            Sent::Full => self.sent(key, 0, true, now),
            Sent::Gone(error) => {
                self.send_failed(key, error, now);
                self.finish_if_drained(key, now);
            }
        }
    }

    /// Takes bytes off an outbox, and gives the broker its credit for them back. True if nothing is left.
    pub(super) fn advance_outbox(&mut self, key: Key, bytes: usize) -> bool {
        let session = self.sockets[key.index()].session;
        let outbox = self.sessions[session].core.outbox_mut(ConnId(key.0));
        outbox.advance(bytes);
        let drained = outbox.broker_bytes_drained();
        let is_empty = outbox.is_empty();
        if drained > 0 {
            self.attach.drained(key, drained);
        }
        is_empty
    }

    /// Bytes of an outbox left.
    fn sent(&mut self, key: Key, bytes: usize, is_full: bool, now: Instant) {
        let Some(stream) = self.sockets.get_mut(key.index()).and_then(Entry::stream) else {
            return;
        };
        stream.may_send = !is_full;
        if self.advance_outbox(key, bytes) {
            self.finish_if_drained(key, now);
        } else if !is_full {
            self.queue_send(key);
        } else if bytes > 0 {
            self.linger_on(key, now);
        }
    }
}

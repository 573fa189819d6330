//! The clients' side: events, new connections, bytes and ends.
//!
//! ```text
//! event ──► accepting ──► accept ──► a stream of its broker's core
//!      └──► readable  ──► read   ──► Core::handle_client ──► outboxes and queues, for `flush`
//!                                       └──► copies that need not wait ──► stack.deliver, at once
//! ```
//!
//! A client is not read while too much waits for its broker: TCP holds it back.

use std::net::SocketAddr;
use std::time::Instant;

use super::sockets::{Broker, Client, Entry, Kind, Stream};
use super::{ACCEPT_RETRY, ACCEPTS_MAX, Card, PolicyEpochs, READS_MAX, TO_BROKER_BYTES_MAX};
use crate::attach::Attach;
use crate::mqtt::{ConnId, Core};
use crate::stack::{AcceptError, Event, Key, Received, Stack};
use rustix::io::Errno;

impl<A: Attach, S: Stack> Card<A, S> {
    /// Remembers what changed.
    pub(super) fn note_events(&mut self, events: &[Event], now: Instant) {
        for event in events {
            let Event::Socket { key, readable, writable, ended } = *event else { continue };
            let Some(entry) = self.sockets.get_mut(key.index()) else { continue };
            let session = entry.session;
            match &mut entry.kind {
                Kind::Named { is_accepting } => {
                    if readable && !*is_accepting {
                        *is_accepting = true;
                        self.accepting.push_back(key);
                    }
                }
                Kind::Connecting => {
                    if writable {
                        self.finish_connect(key, now);
                    }
                }
                Kind::Stream(stream) => {
                    stream.may_read |= readable;
                    stream.has_end |= ended;
                    stream.may_send |= writable;
                    let is_read_no_more = stream.client == Client::Fin || stream.has_deaf_end();
                    if writable {
                        self.sessions[session].core.handle_room(ConnId(key.0), now);
                    }
                    if readable {
                        self.queue_read(key);
                    }
                    if writable {
                        self.queue_send(key);
                    }
                    if ended && is_read_no_more {
                        self.look_for_reset(key, now);
                    }
                }
            }
        }
    }

    /// A client that has sent its FIN, or that the broker does not listen to, is not read any more: a reset shows as its
    /// socket's error only.
    fn look_for_reset(&mut self, key: Key, now: Instant) {
        let mut value = [0; 4];
        let read = self.stack.option(key, libc::SOL_SOCKET, libc::SO_ERROR, &mut value);
        let errno = i32::from_ne_bytes(value);
        if read == Ok(4) && errno != 0 {
            self.client_ended(key, Client::Gone(Errno::from_raw_os_error(errno)), now);
        } else if self.is_over_in_stack(key) {
            self.client_ended(key, Client::Fin, now);
        }
    }

    /// Where the broker reads no more and its FIN is out, the client's shows as the connection's end only.
    fn is_over_in_stack(&mut self, key: Key) -> bool {
        /// `tcpi_state`, the first byte: both FINs were seen.
        const TCP_CLOSE: u8 = 7;
        let Some(stream) = self.sockets.get_mut(key.index()).and_then(Entry::stream) else {
            return false;
        };
        let mut state = [0; 1];
        stream.client == Client::Open
            && stream.has_deaf_end()
            && self.stack.option(key, libc::SOL_TCP, libc::TCP_INFO, &mut state).is_ok()
            && state == [TCP_CLOSE]
    }

    fn finish_connect(&mut self, key: Key, now: Instant) {
        let Some(outcome) = self.stack.connect_result(key) else { return };
        if let Ok(ends) = outcome {
            self.begin_stream(key, ends.peer, now);
        } else {
            self.sockets[key.index()].kind = Kind::Named { is_accepting: false };
        }
        self.attach.connected(key, outcome);
    }

    /// The socket is a connection from now on.
    fn begin_stream(&mut self, key: Key, peer: SocketAddr, now: Instant) {
        let entry = &mut self.sockets[key.index()];
        entry.kind = Kind::Stream(Stream::new(peer));
        self.counters.connections_begun += 1;
        self.sessions[entry.session].core.handle_open(ConnId(key.0), now);
        self.queue_read(key);
    }

    /// Takes new connections, unless something is short.
    pub(super) fn accept(&mut self, now: Instant) -> bool {
        if self.accept_retry.is_some_and(|retry| retry <= now) {
            self.accept_retry = None;
        }
        let mut moved = false;
        for _ in 0..self.accepting.len() {
            if self.accept_retry.is_some() || self.attach.is_blocked() {
                break;
            }
            let Some(listener) = self.accepting.pop_front() else { break };
            if self.accept_from(listener, now, &mut moved) {
                self.accepting.push_back(listener);
            } else if let Some(Entry { kind: Kind::Named { is_accepting }, .. }) =
                self.sockets.get_mut(listener.index())
            {
                *is_accepting = false;
            }
        }
        moved
    }

    /// True: there may be more.
    fn accept_from(&mut self, listener: Key, now: Instant, moved: &mut bool) -> bool {
        for _ in 0..ACCEPTS_MAX {
            let Some(&Entry { session, kind: Kind::Named { .. } }) =
                self.sockets.get(listener.index())
            else {
                return false;
            };
            if self.sockets.len() >= self.config.sockets_max {
                let bound = self.config.sockets_max;
                let full = format_args!(
                    "{bound} sockets are open, as many as may be (limits.sockets_max, else by ulimit -n)"
                );
                self.pause_accepting(now, &full);
                return true;
            }
            // A key is a u32 on the channel; there are never as many descriptors.
            let key = Key(self.sockets.vacant_key() as u32);
            match self.stack.accept(listener, key) {
                Ok(ends) => {
                    // `begin_stream` makes it one, once the broker's side knows its key.
                    self.insert(session, Kind::Connecting);
                    self.attach.accepted(listener, key, ends);
                    self.begin_stream(key, ends.peer, now);
                    *moved = true;
                }
                Err(AcceptError::Empty) => return false,
                Err(error @ AcceptError::Exhausted(_)) => {
                    self.pause_accepting(now, &error);
                    return true;
                }
                Err(AcceptError::Failed(error)) => {
                    tracing::warn!(?listener, %error, "accept failed");
                    return false;
                }
            }
        }
        true
    }

    fn pause_accepting(&mut self, now: Instant, reason: &dyn std::fmt::Display) {
        if self.counters.accept_pauses == 0 {
            tracing::warn!(%reason, "accepting pauses until a socket is free; said once");
        }
        self.counters.accept_pauses += 1;
        self.accept_retry = Some(now + ACCEPT_RETRY);
    }

    /// Adds a socket to its session and returns its key.
    pub(super) fn insert(&mut self, session: usize, kind: Kind) -> Key {
        self.sessions[session].sockets += 1;
        Key(self.sockets.insert(Entry { session, kind }) as u32)
    }

    pub(super) fn queue_read(&mut self, key: Key) {
        if let Some(stream) = self.sockets.get_mut(key.index()).and_then(Entry::stream)
            && stream.wants_read()
            && !stream.in_readable
        {
            stream.in_readable = true;
            self.readable.push_back(key);
        }
    }

    /// Reads each readable client once.
    pub(super) fn read(&mut self, now: Instant, epochs: &dyn PolicyEpochs) -> bool {
        let mut moved = false;
        for _ in 0..self.readable.len().min(READS_MAX) {
            let Some(key) = self.readable.pop_front() else { break };
            let Some(entry) = self.sockets.get_mut(key.index()) else { continue };
            let session = entry.session;
            let Some(stream) = entry.stream() else { continue };
            let is_queued = std::mem::take(&mut stream.in_readable);
            let core = &mut self.sessions[session].core;
            let conn = ConnId(key.0);
            if !is_queued
                || !stream.wants_read()
                || core.to_broker(conn).bytes() > TO_BROKER_BYTES_MAX
            {
                // Read again when its broker has taken some.
                continue;
            }
            moved = true;
            match self.stack.recv(key, &mut self.read_buffer) {
                Received::Bytes(bytes) => {
                    let session = &mut self.sessions[session];
                    // After the read: what was changed before these bytes came is known before they are looked at.
                    session.reach_policy_epoch(epochs.policy_epoch(session.id));
                    let bytes_read = &self.read_buffer[..bytes];
                    if S::DELIVERS {
                        session.core.handle_client_directly(conn, bytes_read, now);
                        deliver(&mut session.core, &mut self.stack, &mut self.refused, now);
                    } else {
                        session.core.handle_client(conn, bytes_read, now);
                    }
                    stream.may_read = bytes == self.read_buffer.len() || stream.has_end;
                    if stream.may_read {
                        self.queue_read(key);
                    }
                }
                Received::Empty => stream.may_read = false,
                // The end is the broker's own doing: the client may not be at its.
                Received::Fin if stream.has_deaf_end() && stream.send_error.is_none() => {
                    stream.may_read = false;
                    self.look_for_reset(key, now);
                }
                Received::Fin => match stream.send_error {
                    None => self.client_ended(key, Client::Fin, now),
                    Some(error) => self.client_ended(key, Client::Gone(error), now),
                },
                Received::Gone(error) => {
                    let error = stream.send_error.unwrap_or(error);
                    self.client_ended(key, Client::Gone(error), now);
                }
            }
        }
        // Clients that are held back leave the queue without moving anything: behind them others wait for the next pass.
        moved || !self.readable.is_empty()
    }

    /// The client will send nothing more.
    fn client_ended(&mut self, key: Key, how: Client, now: Instant) {
        let entry = &mut self.sockets[key.index()];
        let session = entry.session;
        let Some(stream) = entry.stream() else { return };
        stream.may_read = false;
        // After a FIN a reset is news.
        stream.is_told = false;
        stream.client = how;
        self.sessions[session].core.handle_client_gone(ConnId(key.0), now);
        if let Client::Gone(_) = how {
            // The stack's socket stays until the broker lets go: options can be asked of it still.
            self.drop_outbox(key);
        }
        // The end follows what is still to be handed to the broker.
        self.queue_up(key);
    }

    /// Nobody will take what waits for this client.
    pub(super) fn drop_outbox(&mut self, key: Key) {
        let session = self.sockets[key.index()].session;
        let bytes = self.sessions[session].core.outbox(ConnId(key.0)).bytes();
        self.advance_outbox(key, bytes);
    }

    /// A send found the connection gone.
    pub(super) fn send_failed(&mut self, key: Key, error: Errno, now: Instant) {
        self.drop_outbox(key);
        let Some(stream) = self.sockets[key.index()].stream() else { return };
        if stream.client == Client::Fin && stream.broker != Broker::Closed {
            self.client_ended(key, Client::Gone(error), now);
            return;
        }
        stream.send_error = Some(error);
        stream.may_send = false;
        stream.may_read = true;
        stream.has_end = true;
        self.queue_read(key);
    }
}

/// Sends what goes past the outboxes; the rest waits in them for `flush`.
fn deliver<S: Stack>(core: &mut Core, stack: &mut S, refused: &mut Vec<u32>, now: Instant) {
    let direct = core.direct();
    if !direct.is_empty() {
        stack.deliver(direct.iter().map(|(conn, copy, bytes)| (Key(conn.0), copy, bytes)), refused);
        core.settle_direct(refused, now);
    }
}

//! Brokers under the shim: the schema's messages over a Comm Channel.
//!
//! ```text
//! channel ──► recv ──► interpret ──► Input ──► card
//! channel ◄── outgoing ◄── Accepted, Data, Eof, Reset, Credit, Close, Reply ◄── card
//! ```
//!
//! Hello goes first, both ways. One channel at a time; when it is lost, every session on it ends ([`Attach::poll_lost`])
//! and another channel may take its place ([`Intercept::plug`]). Everything from the host is checked against what is known
//! of its socket (`interpret`): a violation ends that one session, a message that is no message ends the channel.
//!
//! Credit (schema, Hello): each side allows [`WINDOW_BYTES`] of one socket under way towards itself, and the card gives credit
//! back as the bytes leave it, a quarter of the window at a time.

mod interpret;
mod liveness;
mod outgoing;
mod sockets;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use mqttshim_channel::CommChannel;
use mqttshim_schema::{Hello, Message, RequestId, SessionId, SocketId, VERSION_MAX, VERSION_MIN};
use rustix::io::Errno;

use super::{Answer, Attach, Input, Token};
use crate::stack::{Ends, Key};
use liveness::{Due, Liveness};
use outgoing::Outgoing;
use sockets::{Socket, Sockets, State};

/// Bytes of one socket that may be under way towards the card.
pub const WINDOW_BYTES: u32 = 256 * 1024;
/// Credit is given back in pieces of at least this.
const GRANT_BYTES_MIN: u32 = WINDOW_BYTES / 4;
/// What the card calls itself in logs of the other side.
const PROGRAM: &str = concat!("dpu-server ", env!("CARGO_PKG_VERSION"));
/// Where a message has an address and there is none to tell.
const NO_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// How a session stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Open,
    /// Ended for a violation: its requests are refused, the rest of its messages is dropped.
    Expelled,
}

/// What was counted, over the life of the process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Sessions and channels ended for a violation, and messages dropped for naming an unknown socket.
    pub violations: u64,
    /// Channels that were lost.
    pub channels_lost: u64,
    /// Messages received.
    pub messages_in: u64,
    /// Messages sent.
    pub messages_out: u64,
}

/// What holds for one channel.
struct Link {
    outgoing: Outgoing,
    liveness: Liveness,
    /// Bytes the host allows at first for each socket; none before its Hello.
    window_bytes: Option<u32>,
    sockets: Sockets,
    sessions: HashMap<SessionId, Standing>,
    /// Sockets whose Credit waits for the channel.
    grants: Vec<SocketId>,
}

/// See the module.
#[derive(Default)]
pub struct Intercept {
    link: Option<Link>,
    /// Sessions of a lost channel that the card was not told of yet.
    lost: Vec<SessionId>,
    counters: Counters,
}

impl std::fmt::Debug for Intercept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intercept").field("plugged", &self.link.is_some()).finish_non_exhaustive()
    }
}

impl Intercept {
    /// Uses this channel from now on. The one before must be lost.
    pub fn plug(&mut self, channel: Box<dyn CommChannel>, now: Instant) {
        debug_assert!(self.link.is_none(), "one channel at a time");
        let mut outgoing = Outgoing::new(channel);
        let max_message_bytes = outgoing.channel().max_message_bytes();
        outgoing.send(&Message::Hello(our_hello(max_message_bytes)));
        self.link = Some(Link {
            outgoing,
            liveness: Liveness::new(now),
            window_bytes: None,
            sockets: Sockets::default(),
            sessions: HashMap::new(),
            grants: Vec::new(),
        });
    }

    /// Lets go of the channel, if there is one; its sessions are lost.
    pub fn unplug(&mut self) {
        self.end_all();
    }

    /// Whether there is a channel.
    #[must_use]
    pub fn is_plugged(&self) -> bool {
        self.link.is_some()
    }

    /// Wakes the loop for the channel.
    #[must_use]
    pub fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref()?.outgoing.channel().readiness()
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let sent = self.link.as_ref().map_or(0, |link| link.outgoing.sent);
        Counters { messages_out: self.counters.messages_out + sent, ..self.counters }
    }

    /// Gives the channel up.
    fn lose(&mut self, reason: &dyn std::fmt::Display) {
        let Some(link) = &self.link else { return };
        tracing::warn!(%reason, sessions = link.sessions.len(), "channel lost");
        self.counters.channels_lost += 1;
        self.end_all();
    }

    fn end_all(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        self.counters.messages_out += link.outgoing.sent;
        link.sockets.clear();
        let open = link.sessions.into_iter();
        self.lost.extend(open.filter(|(_, at)| *at == Standing::Open).map(|(session, _)| session));
    }

    /// Sends one message about a socket that the host still knows by its key.
    fn tell(
        &mut self,
        key: Key,
        message: impl FnOnce(SocketId, &mut Outgoing) -> Message<'static>,
    ) {
        let Some(link) = &mut self.link else { return };
        let Some(socket) = link.sockets.id(key) else { return };
        let message = message(socket, &mut link.outgoing);
        link.outgoing.send(&message);
    }
}

fn our_hello(max_message_bytes: usize) -> Hello<'static> {
    let limit = mqttshim_schema::MESSAGE_BYTES_MAX;
    Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        max_message_bytes: u32::try_from(max_message_bytes.min(limit)).expect("at most the limit"),
        window_bytes: WINDOW_BYTES,
        layout_min: 0,
        layout_max: 0,
        program: PROGRAM,
    }
}

impl Link {
    /// Announces what left the card, if it is worth a message and the channel has room.
    fn grant(&mut self, socket: SocketId) {
        let Some(known) = self.sockets.get_mut(socket) else { return };
        if known.grant < GRANT_BYTES_MIN || known.key.is_none() {
            return;
        }
        if self.outgoing.is_blocked() {
            if !known.grant_listed {
                known.grant_listed = true;
                self.grants.push(socket);
            }
            return;
        }
        let bytes = std::mem::take(&mut known.grant);
        known.used -= bytes;
        self.outgoing.send(&Message::Credit { socket, bytes });
    }

    fn flush(&mut self) -> bool {
        let moved = self.outgoing.flush();
        while !self.outgoing.is_blocked()
            && let Some(socket) = self.grants.pop()
        {
            if let Some(known) = self.sockets.get_mut(socket) {
                known.grant_listed = false;
            }
            self.grant(socket);
        }
        moved
    }
}

impl Attach for Intercept {
    fn recv(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        let Some(link) = &mut self.link else { return false };
        match link.outgoing.recv(buffer) {
            Ok(false) => false,
            Ok(true) => {
                link.liveness.heard(now);
                self.counters.messages_in += 1;
                true
            }
            Err(broken) => {
                self.lose(&broken);
                false
            }
        }
    }

    fn interpret<'b>(&mut self, message: &'b [u8]) -> Option<Input<'b>> {
        self.handle(message)
    }

    fn poll_lost(&mut self) -> Option<SessionId> {
        self.lost.pop()
    }

    fn opened(&mut self, session: SessionId, token: Token, key: Key) {
        let Some(link) = &mut self.link else { return };
        let credit = link.window_bytes.unwrap_or(0);
        let known = Socket::new(session, key, State::Named, credit);
        link.sockets.insert_odd(SocketId(token.0), known);
    }

    fn connecting(&mut self, key: Key) {
        let Some(link) = &mut self.link else { return };
        if let Some((_, known)) = link.sockets.by_key(key) {
            known.state = State::Connecting;
        }
    }

    fn reply(&mut self, request: RequestId, answer: Result<Answer<'_>, Errno>) {
        let Some(link) = &mut self.link else { return };
        let (errno, address, value) = match answer {
            Ok(Answer::Done) => (0, NO_ADDRESS, &[][..]),
            Ok(Answer::Address(address)) => (0, address, &[][..]),
            Ok(Answer::Value(value)) => (0, NO_ADDRESS, value),
            Err(error) => (error.raw_os_error(), NO_ADDRESS, &[][..]),
        };
        link.outgoing.send(&Message::Reply { request, errno, address, value });
    }

    fn accepted(&mut self, listener: Key, key: Key, ends: Ends) {
        let Some(link) = &mut self.link else { return };
        let credit = link.window_bytes.unwrap_or(0);
        let Some((listener, known)) = link.sockets.by_key(listener) else { return };
        let known = Socket::new(known.session, key, State::Stream, credit);
        let socket = link.sockets.insert_even(known);
        let Ends { local, peer } = ends;
        link.outgoing.send(&Message::Accepted { listener, socket, local, peer });
    }

    fn connected(&mut self, key: Key, outcome: Result<Ends, Errno>) {
        let Some(link) = &mut self.link else { return };
        let Some((socket, known)) = link.sockets.by_key(key) else { return };
        let (state, errno, local, peer) = match outcome {
            Ok(ends) => (State::Stream, 0, ends.local, ends.peer),
            Err(error) => (State::Named, error.raw_os_error(), NO_ADDRESS, NO_ADDRESS),
        };
        known.state = state;
        link.outgoing.send(&Message::Connected { socket, errno, local, peer });
    }

    fn data(&mut self, key: Key, bytes: &[u8]) -> usize {
        let Some(link) = &mut self.link else { return bytes.len() };
        // A key the host let go of: its bytes have no reader.
        let Some((socket, known)) = link.sockets.by_key(key) else { return bytes.len() };
        let allowed = bytes.len().min(known.credit as usize);
        let taken = link.outgoing.data(socket, &bytes[..allowed]);
        // At most the credit, which is a u32.
        known.credit -= taken as u32;
        taken
    }

    fn eof(&mut self, key: Key) {
        self.tell(key, |socket, outgoing| Message::Eof { socket, stamp: outgoing.stamp() });
    }

    fn reset(&mut self, key: Key, errno: Errno) {
        self.tell(key, |socket, _| Message::Reset { socket, errno: errno.raw_os_error() });
    }

    fn drained(&mut self, key: Key, bytes: usize) {
        let Some(link) = &mut self.link else { return };
        let Some((socket, known)) = link.sockets.by_key(key) else { return };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        known.grant = known.grant.saturating_add(bytes).min(known.used);
        link.grant(socket);
    }

    fn is_blocked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.outgoing.is_blocked())
    }

    fn flush(&mut self, now: Instant) -> bool {
        let Some(link) = &mut self.link else { return false };
        let moved = link.flush();
        match link.liveness.due(now) {
            Due::Nothing => {}
            // A host that does not read is told of life by what waits already.
            Due::Beat(_) if link.outgoing.is_blocked() => {}
            Due::Beat(sequence) => link.outgoing.send(&Message::Heartbeat { sequence }),
            Due::Silence => {
                self.lose(&format_args!(
                    "the host was silent for {} s",
                    mqttshim_schema::LEASE_SECONDS
                ));
                return true;
            }
        }
        if let Some(broken) = self.link.as_ref().and_then(|link| link.outgoing.broken()) {
            self.lose(&broken);
            return true;
        }
        moved
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.link.as_ref().map(|link| link.liveness.next_deadline())
    }
}

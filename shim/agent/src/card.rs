//! What the card says: connections, bytes, credit, ends.
//!
//! A message for a number the agent has closed already is on its way past the Close and means nothing. A number nobody gave
//! out is a fault of the card; it is logged, and the message dropped.

use std::net::SocketAddr;
use std::time::Instant;

use mqttshim_channel::CommChannel;
use mqttshim_schema::{Hello, Message, SessionId, SocketId, Stamp};
use mqttshim_session::{SlotId, State};
use rustix::io::Errno;

use crate::agent::{Agent, Orphan, WAKES};
use crate::entries::Violation;
use crate::lease::Lease;
use crate::socket::{Role, Socket};

/// The place of a number that was refused: what the card says of it until it has seen the Close means nothing.
const NOWHERE: SlotId = SlotId { index: u32::MAX, generation: 0 };

impl Agent {
    pub(crate) fn handle_card(
        &mut self,
        channel: &mut dyn CommChannel,
        message: &Message<'_>,
        now: Instant,
    ) {
        if self.card.is_none() && !matches!(message, Message::Hello(_)) {
            tracing::error!("the card said something before Hello");
            self.lose_card(now);
            return;
        }
        match *message {
            Message::Hello(ref hello) => self.meet_card(channel, hello, now),
            Message::Accepted { listener, socket, local, peer } => {
                self.accept(channel, listener, socket, local, peer);
            }
            Message::Connected { socket, errno, local, peer } => {
                self.connected(socket, errno, local, peer);
            }
            Message::Data { socket, stamp, bytes, .. } => {
                self.deliver(channel, socket, bytes, stamp);
            }
            Message::Eof { socket, .. } => {
                if let Some((session, slot)) = self.find(socket) {
                    self.with_peer(session, |peer| peer.end_of_stream(slot));
                }
            }
            Message::Reset { socket, errno } => self.reset(socket, errno),
            Message::Credit { socket, bytes } => self.credit(socket, bytes),
            Message::Close { socket, .. } => {
                self.places.remove(&socket);
            }
            Message::Reply { request, errno, address, value } => {
                self.handle_reply(channel, request, errno, address, value);
            }
            Message::Heartbeat { .. } => {}
            Message::Bind { .. }
            | Message::Listen { .. }
            | Message::Connect { .. }
            | Message::Blocked { .. }
            | Message::Shutdown { .. }
            | Message::Option { .. }
            | Message::Notice { .. }
            | Message::PolicyChanged { .. } => {
                tracing::error!("the card said something only a host says");
                self.lose_card(now);
            }
        }
    }

    fn meet_card(&mut self, channel: &mut dyn CommChannel, hello: &Hello<'_>, now: Instant) {
        match mqttshim_schema::negotiate(&Lease::hello(channel.max_message_bytes()), hello) {
            Ok(agreed) => {
                tracing::info!(card = hello.program, version = agreed.version, "the card answered");
                self.card_window = hello.window_bytes;
                self.misfit = None;
                let is_first = self.card.replace(agreed).is_none();
                if is_first {
                    let woken = self.rendezvous.wake_orphans().into_iter();
                    self.orphans = woken.map(|name| Orphan { name, wakes: WAKES }).collect();
                    self.open_door(now, true);
                }
            }
            Err(error) => {
                let error = error.to_string();
                // Once, however often it is tried: the card may be replaced while this host runs.
                if self.misfit.as_ref() != Some(&error) {
                    tracing::error!(%error, "the card and this host do not understand each other");
                    self.misfit = Some(error);
                }
                self.lose_card(now);
                // Nothing to wait for: programs that knock are told at once.
                self.open_door(now, true);
            }
        }
    }

    fn find(&self, socket: SocketId) -> Option<(SessionId, SlotId)> {
        let place = self.places.get(&socket).copied();
        if place.is_none() {
            tracing::warn!(socket = socket.0, "the card named a socket nobody gave out");
        }
        place
    }

    fn with_peer(&mut self, session: SessionId, act: impl FnOnce(&mut crate::peer::Peer)) {
        if let Some(peer) = self.peers.get_mut(&session) {
            act(peer);
        }
    }

    fn accept(
        &mut self,
        channel: &mut dyn CommChannel,
        listener: SocketId,
        socket: SocketId,
        local: SocketAddr,
        client: SocketAddr,
    ) {
        let Some((session, queue)) = self.find(listener) else { return };
        let place = self.peers.get_mut(&session).and_then(|peer| {
            let is_listener = matches!(peer.socket_at(queue)?.role, Role::Listener(_));
            let slot = is_listener.then(|| peer.host.allocate(State::Gone)).flatten()?;
            Some((slot, peer.host.rx_delivered(queue)))
        });
        let Some((slot, at)) = place else {
            // The listener is closing, or the session is full: the client is reset, as when a backlog overflows.
            self.places.insert(socket, (session, NOWHERE));
            self.say(channel, &Message::Close { socket, stamp: 0, unread: true });
            return;
        };
        self.places.insert(socket, (session, slot));
        let Some(peer) = self.peers.get_mut(&session) else { return };
        let role = Role::Offered { listener: queue, at };
        peer.insert(Socket::new(slot, socket, role, self.card_window));
        peer.host.set(slot, Some(local), Some(client), State::Connected);
        if let Err(violation) = peer.offer(queue, slot, &self.rendezvous) {
            tracing::warn!(%violation, "a listener's queue is full");
            self.reset_socket(channel, session, slot);
        }
    }

    fn connected(&mut self, socket: SocketId, errno: i32, local: SocketAddr, other: SocketAddr) {
        let Some((session, slot)) = self.find(socket) else { return };
        self.with_peer(session, |peer| {
            let Some(place) = peer.socket_at(slot).filter(|place| place.is_connecting()) else {
                return;
            };
            if errno == 0 {
                place.is_stream = true;
                peer.host.set(slot, Some(local), Some(other), State::Connected);
                peer.take_filler(slot);
            } else {
                peer.fail(slot, errno);
            }
        });
    }

    fn deliver(
        &mut self,
        channel: &mut dyn CommChannel,
        socket: SocketId,
        bytes: &[u8],
        stamp: Stamp,
    ) {
        let Some((session, slot)) = self.find(socket) else { return };
        let Some(peer) = self.peers.get_mut(&session) else { return };
        let place = peer.socket_at(slot).filter(|socket| socket.is_stream);
        let Some(delivered) = place.map(|socket| {
            socket.delivered += bytes.len() as u64;
            socket.delivered
        }) else {
            return;
        };
        let mut outcome = peer.deliver(slot, bytes, stamp).map_err(Violation::Receive);
        if outcome.is_ok() && peer.wants_grant(slot, delivered) {
            outcome = self.grant(channel, session, slot);
        }
        if let Err(violation) = outcome {
            self.expel(session, &violation);
        }
    }

    /// The program shut down a socket that is connecting: the card need not go on.
    pub(crate) fn give_up(&mut self, channel: &mut dyn CommChannel, socket: SocketId) {
        self.reset(socket, Errno::CONNRESET.raw_os_error());
        let Some((session, slot)) = self.find(socket) else { return };
        let Some(peer) = self.peers.get_mut(&session) else { return };
        let stamp = peer.host.consumed();
        let Some(place) = peer.socket_at(slot) else { return };
        if !std::mem::replace(&mut place.is_closed, true) {
            self.say(channel, &Message::Close { socket, stamp, unread: false });
        }
    }

    /// The client is gone. Its number stays until the program closes its last descriptor: options can be asked for still.
    fn reset(&mut self, socket: SocketId, errno: i32) {
        let Some((session, slot)) = self.find(socket) else { return };
        let Some(peer) = self.peers.get_mut(&session) else { return };
        let Some(place) = peer.socket_at(slot) else { return };
        if std::mem::replace(&mut place.is_gone, true) {
            return;
        }
        let errno = if errno > 0 { errno } else { Errno::CONNRESET.raw_os_error() };
        peer.fail(slot, errno);
    }

    fn credit(&mut self, socket: SocketId, bytes: u32) {
        let Some((session, slot)) = self.find(socket) else { return };
        self.with_peer(session, |peer| {
            if let Some(place) = peer.socket_at(slot) {
                place.tx_left += u64::from(bytes);
            }
            peer.host.grant(slot, bytes);
            if peer.host.unblocks(slot) {
                peer.take_filler(slot);
            }
        });
    }
}

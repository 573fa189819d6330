//! From programs to the card: what lies in their send rings, and what follows from sockets they no longer hold.

use mqttshim_channel::CommChannel;
use mqttshim_schema::{
    DATA_BYTES_MAX, DATA_OVERHEAD_BYTES, How, MESSAGE_BYTES_MIN, Message, Notice, OptionAction,
    SessionId, SocketId, Stamp,
};
use mqttshim_session::host::ReceiveViolation;
use mqttshim_session::{Entry, Kind, RX_BYTES, RingViolation, SlotId};

use crate::agent::{Agent, Orphan, WAKES};
use crate::peer::{Ending, Peer};
use crate::socket::Role;

/// Entries taken from one program in one turn, so that a loud one does not silence the others.
const ENTRIES_PER_TURN: usize = 1024;
/// Payload bytes after which the others have their turn.
const BYTES_PER_TURN: usize = 256 * 1024;

/// Credit worth a message. The card is granted more when it has no more than this left; the program says when its ring is at
/// most half full, and then there is at least as much again to grant: it never has to say so twice.
const GRANT_BYTES_MIN: u64 = RX_BYTES as u64 / 4;

/// Why a session was ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Violation {
    #[error(transparent)]
    Ring(#[from] RingViolation),
    #[error(transparent)]
    Receive(#[from] ReceiveViolation),
    #[error("a notice that is none")]
    Notice,
    #[error("an option that is none")]
    Option,
    #[error("more data than the card granted")]
    Credit,
    #[error("{0:?} for a socket that is no connection")]
    NoStream(Kind),
    #[error("a message with no business on a control socket")]
    Control,
    #[error("a frame on the control socket that is no message: {0}")]
    Frame(mqttshim_schema::DecodeError),
}

impl Agent {
    /// One pass over every program. Says whether anything moved.
    pub(crate) fn drain_programs(&mut self, channel: &mut dyn CommChannel) -> bool {
        let mut has_moved = false;
        let mut over = Vec::new();
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        ids.extend(self.peers.keys());
        // Whoever fills the channel first silences those behind it: each is the first in turn.
        self.first = self.first.wrapping_add(1);
        let first = self.first % ids.len().max(1);
        ids.rotate_left(first);
        for &id in &ids {
            match self.drain_program(channel, id) {
                Ok(moved) => has_moved |= moved,
                Err(violation) => self.expel(id, &violation),
            }
            if self.peers.get(&id).is_some_and(Peer::is_over) {
                over.push(id);
            }
        }
        self.ids = ids;
        has_moved |= !over.is_empty();
        for id in over {
            self.end_session(channel, id);
        }
        has_moved
    }

    fn drain_program(
        &mut self,
        channel: &mut dyn CommChannel,
        id: SessionId,
    ) -> Result<bool, Violation> {
        let (mut taken, mut bytes, mut has_news) = (0, 0, false);
        while taken < ENTRIES_PER_TURN && bytes < BYTES_PER_TURN && self.line.is_empty() {
            let Some(peer) = self.peers.get_mut(&id) else { break };
            if peer.is_over() {
                break;
            }
            let entry = peer.host.peek()?;
            // After the look at the ring: whatever the program did before it wrote this entry is in the epoch.
            has_news |= self.tell_policy_epoch(channel, id);
            let Some(entry) = entry else { break };
            let Some(peer) = self.peers.get_mut(&id) else { break };
            peer.host.copy_payload(&entry, 0, &mut self.payload[..entry.length]);
            peer.host.consume(&entry);
            self.handle_entry(channel, id, entry)?;
            taken += 1;
            bytes += entry.length;
        }
        Ok(self.close_hung_up(channel, id) || taken > 0 || has_news)
    }

    /// Tells the card if what the program permits may have changed since it was told last. Says whether it did.
    fn tell_policy_epoch(&mut self, channel: &mut dyn CommChannel, id: SessionId) -> bool {
        let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.is_open) else { return false };
        let Some(epoch) = peer.host.take_policy_epoch() else { return false };
        let stamp = peer.host.consumed();
        self.say(channel, &Message::PolicyChanged { session: id, stamp, epoch });
        true
    }

    fn handle_entry(
        &mut self,
        channel: &mut dyn CommChannel,
        id: SessionId,
        entry: Entry,
    ) -> Result<(), Violation> {
        if entry.kind == Kind::Notice {
            return self.forward_notice(channel, id, entry);
        }
        let slot = SlotId { index: entry.slot, generation: entry.generation };
        let Some(peer) = self.peers.get_mut(&id) else { return Ok(()) };
        // An entry for a socket that is gone, or was closed towards the card, says nothing any more.
        let Some(socket) = peer.socket_at(slot) else { return Ok(()) };
        if socket.is_connecting() && entry.kind == Kind::ShutdownBoth {
            let connecting = socket.id;
            self.give_up(channel, connecting);
            return Ok(());
        }
        if matches!(socket.role, Role::Listener(_)) && entry.kind == Kind::ShutdownBoth {
            self.close_listener(channel, id, slot);
            return Ok(());
        }
        if !socket.is_stream && entry.kind != Kind::Close {
            return Err(Violation::NoStream(entry.kind));
        }
        let (id_there, is_gone) = (socket.id, socket.is_gone);
        let stamp = entry.stamp;
        match entry.kind {
            // Nothing is sent after its end.
            Kind::Data if is_gone || socket.is_write_over => {}
            Kind::Data => {
                let left = socket.tx_left.checked_sub(entry.length as u64);
                socket.tx_left = left.ok_or(Violation::Credit)?;
                self.forward_data(channel, id_there, entry);
            }
            Kind::Credit => self.grant(channel, id, slot)?,
            Kind::Blocked => {
                if peer.host.unblocks(slot) {
                    peer.take_filler(slot);
                }
                if !is_gone {
                    self.say(channel, &Message::Blocked { socket: id_there, stamp });
                }
            }
            Kind::ShutdownRead | Kind::ShutdownWrite | Kind::ShutdownBoth => {
                self.shut_down(channel, id, slot, entry, is_gone);
            }
            Kind::Close => self.handle_close(channel, id, slot),
            Kind::WantsByte => peer.put_token(slot),
            // A connection that was reset keeps its options.
            Kind::Option if socket.is_closed => {}
            Kind::Option => self.forward_option(channel, id_there, entry)?,
            Kind::Notice => {}
        }
        Ok(())
    }

    /// Sends a message that fits every channel.
    pub(crate) fn say(&mut self, channel: &mut dyn CommChannel, message: &Message<'_>) {
        let sent = self.line.emit(channel, message);
        debug_assert!(sent.is_ok(), "a message without payload fits every channel");
    }

    fn forward_data(&mut self, channel: &mut dyn CommChannel, socket: SocketId, entry: Entry) {
        let agreed = self.card.map_or(MESSAGE_BYTES_MIN, |card| card.max_message_bytes as usize);
        let most = channel.max_message_bytes().min(agreed).max(MESSAGE_BYTES_MIN);
        let most = (most - DATA_OVERHEAD_BYTES).min(DATA_BYTES_MAX);
        let (stamp, read) = (entry.stamp, entry.read);
        for bytes in self.payload[..entry.length].chunks(most) {
            let sent = self.line.emit(channel, &Message::Data { socket, stamp, read, bytes });
            debug_assert!(sent.is_ok(), "cut to what the channel carries");
        }
    }

    /// Nobody waits for the answer, which says nothing: the number of this request is on no list.
    fn forward_option(
        &mut self,
        channel: &mut dyn CommChannel,
        socket: SocketId,
        entry: Entry,
    ) -> Result<(), Violation> {
        let ([level, name, _], []) = self.payload[..entry.length].as_chunks() else {
            return Err(Violation::Option);
        };
        let (level, name) = (i32::from_ne_bytes(*level), i32::from_ne_bytes(*name));
        let request = self.next_request();
        let action = OptionAction::Set(&self.payload[8..entry.length]);
        let message = Message::Option { request, socket, level, name, action };
        self.line.emit(channel, &message).map_err(|_| Violation::Option)
    }

    fn forward_notice(
        &mut self,
        channel: &mut dyn CommChannel,
        id: SessionId,
        entry: Entry,
    ) -> Result<(), Violation> {
        match mqttshim_schema::decode(&self.payload[..entry.length]) {
            // A program says what it holds outside the card; the rest is the agent's to say.
            Ok(Message::Notice { what, detail, .. })
                if !matches!(what, Notice::SessionOpened | Notice::SessionEnded) =>
            {
                let message = Message::Notice { session: id, stamp: entry.stamp, what, detail };
                self.line.emit(channel, &message).map_err(|_| Violation::Notice)
            }
            _ => Err(Violation::Notice),
        }
    }

    /// Grants the card what the program has read since.
    pub(crate) fn grant(
        &mut self,
        channel: &mut dyn CommChannel,
        id: SessionId,
        slot: SlotId,
    ) -> Result<(), Violation> {
        let Some(peer) = self.peers.get_mut(&id) else { return Ok(()) };
        let Some((socket, bytes)) = peer.take_grant(slot)? else { return Ok(()) };
        self.say(channel, &Message::Credit { socket, bytes });
        Ok(())
    }

    fn shut_down(
        &mut self,
        channel: &mut dyn CommChannel,
        id: SessionId,
        slot: SlotId,
        entry: Entry,
        is_gone: bool,
    ) {
        let how = match entry.kind {
            Kind::ShutdownRead => How::Read,
            Kind::ShutdownWrite => How::Write,
            _ => How::Both,
        };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if how != How::Write {
            peer.stop_reading(slot);
        }
        if how != How::Read {
            peer.stop_writing(slot);
        }
        let Some(socket) = peer.socket_at(slot).map(|socket| socket.id) else { return };
        if !is_gone {
            self.say(channel, &Message::Shutdown { socket, stamp: entry.stamp, how });
        }
    }

    /// A program says that a descriptor is gone, of a listener or of a socket that never became one.
    fn handle_close(&mut self, channel: &mut dyn CommChannel, id: SessionId, slot: SlotId) {
        let state = self.peers.get_mut(&id).and_then(|peer| peer.socket_at(slot));
        match state.map(|socket| &socket.role) {
            Some(Role::Listener(_)) => self.close_listener_if_gone(channel, id, slot),
            Some(Role::Bound) => self.close_socket(channel, id, slot),
            // A wire shows the last close by itself; what was not accepted has no descriptor.
            Some(Role::Wired(_) | Role::Over(_) | Role::Offered { .. }) | None => {}
        }
    }

    /// A connection's last descriptor is gone, as its wire or lifeline shows.
    pub(crate) fn hang_up(&mut self, id: SessionId, index: u32) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(socket) = peer.socket(index) else { return };
        let slot = socket.slot;
        if let Role::Wired(wire) | Role::Over(Some(wire)) = &mut socket.role {
            // Level-triggered: without this it is reported until what was written has been sent.
            wire.mute();
            peer.hang_up(slot);
        }
    }

    /// Closes the sockets whose wires hung up, once everything written before has been forwarded.
    fn close_hung_up(&mut self, channel: &mut dyn CommChannel, id: SessionId) -> bool {
        let mut has_moved = false;
        while self.line.is_empty() {
            let Some(peer) = self.peers.get_mut(&id) else { break };
            match peer.hang_ups.front() {
                Some(&(slot, written)) if written <= peer.host.consumed() => {
                    peer.hang_ups.pop_front();
                    self.tell_policy_epoch(channel, id);
                    self.close_socket(channel, id, slot);
                    has_moved = true;
                }
                _ => break,
            }
        }
        has_moved
    }

    /// No descriptor is left: tells the card, and frees the slot.
    pub(crate) fn close_socket(
        &mut self,
        channel: &mut dyn CommChannel,
        id: SessionId,
        slot: SlotId,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let unread = peer.host.has_unread(slot);
        let stamp: Stamp = peer.host.consumed();
        let Some(socket) = peer.release(slot) else { return };
        if !socket.is_closed {
            let unread = unread && !matches!(socket.role, Role::Listener(_) | Role::Bound);
            self.say(channel, &Message::Close { socket: socket.id, stamp, unread });
        }
    }

    /// Asks whether any process still holds a listener; if not, closes it.
    pub(crate) fn close_listener_if_gone(
        &mut self,
        channel: &mut dyn CommChannel,
        id: SessionId,
        slot: SlotId,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(socket) = peer.socket_at(slot) else { return };
        let Role::Listener(name) = &socket.role else { return };
        if !self.rendezvous.keep_held(name) {
            self.close_listener(channel, id, slot);
        }
    }

    /// Closes a listener and what waited on it.
    fn close_listener(&mut self, channel: &mut dyn CommChannel, id: SessionId, slot: SlotId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(socket) = peer.socket_at(slot) else { return };
        let Role::Listener(name) = &socket.role else { return };
        let directory = self.rendezvous.directory();
        // Failing leaves a name that refuses, which the next agent removes.
        let _ = std::fs::remove_file(directory.join(name));
        for waiting in peer.queued_on(slot) {
            self.reset_socket(channel, id, waiting);
        }
        self.close_socket(channel, id, slot);
    }

    /// Closes a connection that no program will ever take: its client is reset.
    pub(crate) fn reset_socket(
        &mut self,
        channel: &mut dyn CommChannel,
        id: SessionId,
        slot: SlotId,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let stamp: Stamp = peer.host.consumed();
        let Some(socket) = peer.release(slot) else { return };
        if !socket.is_closed {
            self.say(channel, &Message::Close { socket: socket.id, stamp, unread: true });
        }
    }

    /// Every process of a program is gone, or it broke the contract: closes what it held.
    pub(crate) fn end_session(&mut self, channel: &mut dyn CommChannel, id: SessionId) {
        let Some(mut peer) = self.peers.remove(&id) else { return };
        peer.host.end();
        self.pending.retain(|_, pending| !pending.is_of(id));
        let stamp: Stamp = peer.host.consumed();
        for socket in peer.sockets() {
            if let Role::Listener(name) = &socket.role
                && self.rendezvous.keep_held(name)
            {
                // Expelled, its program may go on; it has to be told that its listener needs another session.
                let wakes = if peer.ending == Some(Ending::Expelled) { WAKES } else { 0 };
                self.orphans.push(Orphan { name: name.clone(), wakes });
            }
        }
        for socket in peer.take_sockets() {
            if socket.is_closed {
                continue;
            }
            let unread = match socket.role {
                Role::Bound | Role::Listener(_) => false,
                Role::Offered { .. } => true,
                Role::Wired(_) | Role::Over(_) => peer.host.has_unread(socket.slot),
            };
            self.say(channel, &Message::Close { socket: socket.id, stamp, unread });
        }
        if peer.is_open {
            let (what, detail) = (Notice::SessionEnded, "");
            self.say(channel, &Message::Notice { session: id, stamp, what, detail });
        }
        tracing::info!(session = id.0, "session ended");
    }
}

impl Peer {
    /// The credit the card should get now, if it is worth a message. Otherwise the program is asked to say when it has read.
    fn take_grant(&mut self, slot: SlotId) -> Result<Option<(SocketId, u32)>, ReceiveViolation> {
        for asks in [true, false] {
            let read = self.host.rx_read(slot)?;
            let Some(socket) = self.socket_at(slot) else { return Ok(None) };
            let bytes = (read + RX_BYTES as u64).saturating_sub(socket.granted);
            if bytes >= GRANT_BYTES_MIN {
                socket.granted += bytes;
                let id = socket.id;
                return Ok((!socket.is_gone).then_some((id, bytes as u32)));
            }
            if asks {
                self.host.ask_for_credit(slot);
            }
        }
        Ok(None)
    }

    /// Whether the card is running out of credit for this socket.
    pub(crate) fn wants_grant(&mut self, slot: SlotId, delivered: u64) -> bool {
        self.socket_at(slot)
            .is_some_and(|socket| socket.granted.saturating_sub(delivered) <= GRANT_BYTES_MIN)
    }

    /// Whether the session can be ended: what its program had written before it died has been forwarded.
    fn is_over(&self) -> bool {
        self.ending.is_some_and(|ending| match ending {
            Ending::Left(written) => written <= self.host.consumed(),
            Ending::Expelled => true,
        })
    }
}

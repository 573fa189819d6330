//! From programs to the card: what lies in their send rings, and what follows from sockets they no longer hold.

use mqttshim_channel::CommChannel;
use mqttshim_schema::{
    DATA_BYTES_MAX, DATA_OVERHEAD_BYTES, How, Message, Notice, SessionId, SocketId, Stamp,
};
use mqttshim_session::host::ReceiveViolation;
use mqttshim_session::{Entry, Kind, RX_BYTES, RingViolation, SlotId, State};

use crate::agent::Agent;
use crate::listener;
use crate::peer::{Peer, Role};

/// Entries taken from one program in one turn, so that a loud one does not silence the others.
const ENTRIES_PER_TURN: usize = 1024;

/// Why a session was ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Violation {
    #[error(transparent)]
    Ring(#[from] RingViolation),
    #[error(transparent)]
    Receive(#[from] ReceiveViolation),
    #[error("a notice that is none")]
    Notice,
    #[error("more data than the card granted")]
    Credit,
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
        for &id in &ids {
            match self.drain_program(channel, id) {
                Ok(moved) => has_moved |= moved,
                Err(violation) => {
                    tracing::error!(session = id.0, %violation, "a program broke its session's contract; the session is ended");
                    over.push(id);
                    continue;
                }
            }
            let is_over = self.peers.get(&id).is_some_and(|peer| {
                peer.is_ending && self.line.is_empty() && matches!(peer.host.peek(), Ok(None))
            });
            if is_over {
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
        let mut taken = 0;
        while taken < ENTRIES_PER_TURN && self.line.is_empty() {
            let Some(peer) = self.peers.get_mut(&id) else { break };
            let Some(entry) = peer.host.peek()? else { break };
            peer.host.copy_payload(&entry, 0, &mut self.payload[..entry.length]);
            peer.host.consume(&entry);
            self.handle_entry(channel, id, entry)?;
            taken += 1;
        }
        Ok(self.close_hung_up(channel, id) || taken > 0)
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
        let (socket, is_closed) = (socket.id, socket.is_closed);
        let stamp = entry.stamp;
        match entry.kind {
            Kind::Data if is_closed => {}
            Kind::Data => self.forward_data(channel, socket, entry)?,
            Kind::Credit => self.grant(channel, id, slot)?,
            Kind::Blocked => {
                if peer.host.unblocks(slot) {
                    peer.take_filler(slot);
                }
                if !is_closed {
                    self.say(channel, &Message::Blocked { socket, stamp });
                }
            }
            Kind::ShutdownRead | Kind::ShutdownWrite | Kind::ShutdownBoth => {
                self.shut_down(channel, id, slot, entry, is_closed);
            }
            Kind::Close => self.handle_close(channel, id, slot),
            Kind::Notice => {}
        }
        Ok(())
    }

    /// Sends a message that fits every channel.
    pub(crate) fn say(&mut self, channel: &mut dyn CommChannel, message: &Message<'_>) {
        let sent = self.line.emit(channel, message);
        debug_assert!(sent.is_ok(), "a message without payload fits every channel");
    }

    fn forward_data(
        &mut self,
        channel: &mut dyn CommChannel,
        socket: SocketId,
        entry: Entry,
    ) -> Result<(), Violation> {
        let most = (channel.max_message_bytes() - DATA_OVERHEAD_BYTES).min(DATA_BYTES_MAX);
        let (stamp, read) = (entry.stamp, entry.read);
        for bytes in self.payload[..entry.length].chunks(most) {
            let message = Message::Data { socket, stamp, read, bytes };
            self.line.emit(channel, &message).map_err(|_| Violation::Credit)?;
        }
        Ok(())
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
        is_closed: bool,
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
        if !is_closed {
            self.say(channel, &Message::Shutdown { socket, stamp: entry.stamp, how });
        }
    }

    /// A program says that a descriptor is gone, where no wire shows it.
    fn handle_close(&mut self, channel: &mut dyn CommChannel, id: SessionId, slot: SlotId) {
        let state = self.peers.get_mut(&id).and_then(|peer| peer.socket_at(slot));
        match state.map(|socket| &socket.role) {
            Some(Role::Listener(_)) => self.close_listener_if_gone(channel, id, slot),
            Some(Role::Bound | Role::Wireless) => self.close_socket(channel, id, slot),
            // A wire shows the last close by itself; what was not accepted has no descriptor.
            Some(Role::Wired(_) | Role::Offered(_)) | None => {}
        }
    }

    /// A wire's last descriptor is gone.
    pub(crate) fn hang_up(&mut self, id: SessionId, index: u32) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let written = peer.host.written();
        let Some(socket) = peer.socket(index) else { return };
        let slot = socket.slot;
        if let Role::Wired(wire) = &socket.role {
            // Level-triggered: without this it is reported until what was written has been sent.
            let removed = rustix::event::epoll::delete(&self.epoll, wire);
            debug_assert!(removed.is_ok());
            peer.hang_ups.push_back((slot, written));
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

    /// Asks whether any process still holds a listener; if not, closes it and what waited on it.
    pub(crate) fn close_listener_if_gone(
        &mut self,
        channel: &mut dyn CommChannel,
        id: SessionId,
        slot: SlotId,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(socket) = peer.socket_at(slot) else { return };
        let Role::Listener(name) = &socket.role else { return };
        let directory = self.rendezvous.directory();
        if listener::is_held(directory, name) {
            return;
        }
        // Failing leaves a name that refuses, which the next agent removes.
        let _ = std::fs::remove_file(directory.join(name));
        for waiting in peer.offered_by(slot) {
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
        self.pending.retain(|_, pending| pending.session != id);
        let stamp: Stamp = peer.host.consumed();
        let directory = self.rendezvous.directory();
        for socket in peer.sockets() {
            if let Role::Listener(name) = &socket.role
                && !listener::is_held(directory, name)
            {
                let _ = std::fs::remove_file(directory.join(name));
            }
        }
        for socket in peer.take_sockets() {
            if socket.is_closed {
                continue;
            }
            let unread = match socket.role {
                Role::Bound | Role::Listener(_) => false,
                Role::Offered(_) => true,
                Role::Wired(_) | Role::Wireless => peer.host.has_unread(socket.slot),
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
            if bytes >= RX_BYTES as u64 / 4 {
                socket.granted += bytes;
                let id = socket.id;
                return Ok((!socket.is_closed).then_some((id, bytes as u32)));
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
            .is_some_and(|socket| socket.granted.saturating_sub(delivered) <= RX_BYTES as u64 / 2)
    }
}

/// The state a role shows to the program.
pub(crate) fn state_of(role: &Role) -> State {
    match role {
        Role::Bound => State::Bound,
        Role::Listener(_) => State::Listening,
        Role::Offered(_) | Role::Wired(_) | Role::Wireless => State::Connected,
    }
}

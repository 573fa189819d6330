//! One program's session as the agent sees it: its memory, its control socket, its sockets and their wires.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use mqttshim_schema::{SessionId, SocketId, Stamp};
use mqttshim_session::host::{Host, ReceiveViolation, Wake};
use mqttshim_session::{RX_BYTES, SlotId};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::rendezvous::Rendezvous;

/// A program and everything it holds.
pub(crate) struct Peer {
    pub(crate) id: SessionId,
    pub(crate) uid: u32,
    pub(crate) host: Host,
    pub(crate) control: OwnedFd,
    /// By slot index.
    sockets: Vec<Option<Socket>>,
    /// Wires whose last descriptor is gone, and how far the program had written then.
    pub(crate) hang_ups: VecDeque<(SlotId, Stamp)>,
    /// The card was told of it.
    pub(crate) is_open: bool,
    /// Every process of it is gone: what is left in the send ring is still delivered.
    pub(crate) is_ending: bool,
}

/// One socket of a program.
pub(crate) struct Socket {
    pub(crate) slot: SlotId,
    pub(crate) id: SocketId,
    pub(crate) role: Role,
    /// Bytes the card may have sent, from the connection's start.
    pub(crate) granted: u64,
    /// Bytes it has sent.
    pub(crate) delivered: u64,
    /// A byte is owed to a wire that has not arrived yet.
    is_token_owed: bool,
    /// The client sent everything it will.
    is_read_over: bool,
    /// The program sent everything it will.
    is_write_over: bool,
    /// The card was told Close: nothing more is said about this number.
    pub(crate) is_closed: bool,
}

/// What the socket is, with what belongs to it.
pub(crate) enum Role {
    /// Bound, not yet more.
    Bound,
    /// A listener, by its placeholder's name.
    Listener(String),
    /// A connection of this listener, not yet accepted.
    Offered(SlotId),
    /// A connection whose wire the agent holds.
    Wired(OwnedFd),
    /// A connection whose wire was closed: the program says when its last descriptor is gone.
    Wireless,
}

impl Socket {
    pub(crate) fn new(slot: SlotId, id: SocketId, role: Role) -> Socket {
        Socket {
            slot,
            id,
            role,
            granted: RX_BYTES as u64,
            delivered: 0,
            is_token_owed: false,
            is_read_over: false,
            is_write_over: false,
            is_closed: false,
        }
    }

    fn wire(&self) -> Option<&OwnedFd> {
        match &self.role {
            Role::Wired(wire) => Some(wire),
            _ => None,
        }
    }
}

impl Peer {
    pub(crate) fn new(id: SessionId, uid: u32, host: Host, control: OwnedFd) -> Peer {
        Peer {
            id,
            uid,
            host,
            control,
            sockets: Vec::new(),
            hang_ups: VecDeque::new(),
            is_open: false,
            is_ending: false,
        }
    }

    pub(crate) fn insert(&mut self, socket: Socket) {
        let index = socket.slot.index as usize;
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, || None);
        }
        self.sockets[index] = Some(socket);
    }

    /// The socket in this slot now.
    pub(crate) fn socket(&mut self, index: u32) -> Option<&mut Socket> {
        self.sockets.get_mut(index as usize)?.as_mut()
    }

    /// The socket in this slot, if it is still the one meant.
    pub(crate) fn socket_at(&mut self, slot: SlotId) -> Option<&mut Socket> {
        self.socket(slot.index).filter(|socket| socket.slot == slot)
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.sockets.iter().flatten()
    }

    pub(crate) fn take_sockets(&mut self) -> impl Iterator<Item = Socket> + use<> {
        std::mem::take(&mut self.sockets).into_iter().flatten()
    }

    pub(crate) fn has_listeners(&self) -> bool {
        self.sockets().any(|socket| matches!(socket.role, Role::Listener(_)))
    }

    /// This program's listeners, with the session they belong to.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = (SessionId, SlotId)> + '_ {
        let of = self.id;
        self.sockets()
            .filter(|socket| matches!(socket.role, Role::Listener(_)))
            .map(move |socket| (of, socket.slot))
    }

    /// Connections that wait in this listener's queue.
    pub(crate) fn offered_by(&self, listener: SlotId) -> Vec<SlotId> {
        self.sockets()
            .filter(|socket| matches!(socket.role, Role::Offered(by) if by == listener))
            .map(|socket| socket.slot)
            .collect()
    }

    /// Makes a blocked or connecting placeholder writable again.
    pub(crate) fn take_filler(&mut self, slot: SlotId) {
        if let Some(wire) = self.socket_at(slot).and_then(|socket| socket.wire()) {
            // An empty or dead wire has nothing to take.
            let _ = rustix::net::recv(wire, &mut [0_u8; 1][..], RecvFlags::DONTWAIT);
        }
    }

    /// Forgets a socket; its slot may be used again.
    pub(crate) fn release(&mut self, slot: SlotId) -> Option<Socket> {
        let place = self.sockets.get_mut(slot.index as usize)?;
        let socket = place.take_if(|socket| socket.slot == slot)?;
        self.host.release(slot);
        Some(socket)
    }

    /// Bytes from the card.
    pub(crate) fn deliver(
        &mut self,
        slot: SlotId,
        bytes: &[u8],
        stamp: Stamp,
    ) -> Result<(), ReceiveViolation> {
        let wake = self.host.deliver(slot, bytes, stamp)?;
        let Some(socket) = self.sockets.get_mut(slot.index as usize).and_then(Option::as_mut)
        else {
            return Ok(());
        };
        match (&socket.role, wake) {
            (_, Wake::No) => {}
            (Role::Wired(wire), wake) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let sent = rustix::net::send(wire, &[1], flags).is_ok();
                if sent && wake == Wake::Edge {
                    self.host.count_edge(slot);
                }
            }
            (_, Wake::Token) => socket.is_token_owed = true,
            (_, Wake::Edge) => {}
        }
        Ok(())
    }

    /// A connection for a listener's queue.
    pub(crate) fn offer(
        &mut self,
        listener: SlotId,
        slot: SlotId,
        rendezvous: &Rendezvous,
    ) -> Result<(), ReceiveViolation> {
        let wake = self.host.offer(listener, slot)?;
        let Some(Socket { role: Role::Listener(name), .. }) = self.socket_at(listener) else {
            return Ok(());
        };
        // A listener that is gone is found by its Close or by the next look at its name.
        if wake != Wake::No && rendezvous.wake(name).is_ok() && wake == Wake::Edge {
            self.host.count_edge(listener);
        }
        Ok(())
    }

    /// The wire of an accepted connection arrived: whatever happened since is made up for.
    pub(crate) fn attach(&mut self, slot: SlotId, wire: OwnedFd) -> Option<&OwnedFd> {
        let socket = self.sockets.get_mut(slot.index as usize)?.as_mut()?;
        if socket.slot != slot || !matches!(socket.role, Role::Offered(_)) {
            return None;
        }
        if socket.is_closed {
            // Reset before it was accepted: the filler left on the wire makes the placeholder say so.
            socket.role = Role::Wireless;
            return None;
        }
        if socket.is_token_owed {
            socket.is_token_owed = false;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // A program that is gone needs no waking.
            let _ = rustix::net::send(&wire, &[1], flags);
        }
        if socket.is_read_over {
            let _ = rustix::net::shutdown(&wire, Shutdown::Write);
        }
        socket.role = Role::Wired(wire);
        socket.wire()
    }

    /// The client's side of the stream is over.
    pub(crate) fn end_of_stream(&mut self, slot: SlotId) {
        self.host.end_of_stream(slot);
        self.stop_reading(slot);
    }

    /// Nothing more will be readable: the placeholder says so.
    pub(crate) fn stop_reading(&mut self, slot: SlotId) {
        let Some(socket) = self.socket_at(slot) else { return };
        socket.is_read_over = true;
        if let Some(wire) = socket.wire() {
            // The other end may be gone already.
            let _ = rustix::net::shutdown(wire, Shutdown::Write);
        }
        self.hang_up_if_over(slot);
    }

    /// The program's side of the stream is over.
    pub(crate) fn stop_writing(&mut self, slot: SlotId) {
        let Some(socket) = self.socket_at(slot) else { return };
        socket.is_write_over = true;
        self.hang_up_if_over(slot);
    }

    /// Both sides are over: TCP shows EPOLLHUP, so the wire is closed, without a filler left on it.
    fn hang_up_if_over(&mut self, slot: SlotId) {
        let Some(socket) = self.socket_at(slot) else { return };
        if !(socket.is_read_over && socket.is_write_over) {
            return;
        }
        let Some(wire) = socket.wire() else { return };
        let mut fillers = [0_u8; 16];
        while matches!(rustix::net::recv(wire, &mut fillers[..], RecvFlags::DONTWAIT), Ok((1.., _)))
        {
        }
        self.drop_wire(slot);
    }

    /// The connection is gone: a filler stays on the wire as it closes, so the placeholder reports ECONNRESET.
    pub(crate) fn fail(&mut self, slot: SlotId, errno: i32) {
        self.host.fail(slot, errno);
        self.drop_wire(slot);
    }

    /// Closes the wire. From then on the program says when its last descriptor is gone; if it went before it could know that,
    /// the wire shows it here.
    fn drop_wire(&mut self, slot: SlotId) {
        self.host.set_wireless(slot);
        let Some(socket) = self.socket_at(slot) else { return };
        let Role::Wired(wire) = &socket.role else { return };
        let mut fds = [PollFd::from_borrowed_fd(wire.as_fd(), PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut fds, Some(&now));
        let is_gone = polled == Ok(1) && fds[0].revents().contains(PollFlags::HUP);
        socket.role = Role::Wireless;
        if is_gone {
            let written = self.host.written();
            self.hang_ups.push_back((slot, written));
        }
    }
}

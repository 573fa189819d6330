//! One program's session as the agent sees it: its memory, its control sockets, its sockets and their wires.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use mqttshim_schema::{SessionId, Stamp};
use mqttshim_session::SlotId;
use mqttshim_session::host::{Host, ReceiveViolation, Wake};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::controls::Controls;
use crate::lifeline;
use crate::rendezvous::Rendezvous;
use crate::socket::{Role, Socket};
use crate::token::Token;
use crate::watch::Watched;

/// Most bytes put on a wire at once: what became of a connection before its wire arrived.
const TOKENS_AT_ONCE: usize = 64;

/// Looks, one a second, after which a connection that was taken and not handed over is given up. A program that was stopped
/// in between for longer finds its connection reset.
const LOOKS_WITHOUT_WIRE_MAX: u32 = 5;

/// What an idle connection's receive ring may keep.
const PAGE_BYTES: u64 = 4096;

/// A program and everything it holds.
pub(crate) struct Peer {
    pub(crate) id: SessionId,
    pub(crate) uid: u32,
    pub(crate) host: Host,
    pub(crate) controls: Controls,
    /// Only held: its events lead to [`Host::clear_doorbell`].
    _doorbell: Watched,
    /// By slot index.
    sockets: Vec<Option<Socket>>,
    /// Sockets whose last descriptor is gone, and how far the program had written then.
    pub(crate) hang_ups: VecDeque<(SlotId, Stamp)>,
    /// It said Hello, and the card was told of it.
    pub(crate) is_open: bool,
    pub(crate) ending: Option<Ending>,
}

/// Why a session is about to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    /// Every process of it is gone: what it had written up to here is still delivered.
    Left(Stamp),
    /// It broke the contract, or was refused.
    Expelled,
}

impl Peer {
    /// Watches a program's control socket and doorbell in `set`.
    pub(crate) fn new(
        id: SessionId,
        uid: u32,
        host: Host,
        control: OwnedFd,
        set: &Arc<OwnedFd>,
    ) -> Result<Peer, Errno> {
        let bell = rustix::io::fcntl_dupfd_cloexec(host.doorbell(), 0)?;
        let doorbell = Watched::new(set, bell, Token::Doorbell(id), EventFlags::IN)?;
        let controls = Controls::new(id, control, set)?;
        Ok(Peer {
            id,
            uid,
            host,
            controls,
            _doorbell: doorbell,
            sockets: Vec::new(),
            hang_ups: VecDeque::new(),
            is_open: false,
            ending: None,
        })
    }

    /// Nothing more is taken from the control sockets, which would be reported for ever. The first reason stays, but that a
    /// violation outweighs a death.
    pub(crate) fn end(&mut self, ending: Ending) {
        self.controls.mute();
        if self.ending.is_none() || ending == Ending::Expelled {
            self.ending = Some(ending);
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

    /// The listener whose placeholder has this name.
    pub(crate) fn listener_named(&self, name: &str) -> Option<&Socket> {
        self.sockets().find(|socket| matches!(&socket.role, Role::Listener(own) if own == name))
    }

    /// This program's listeners, with the session they belong to.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = (SessionId, SlotId)> + '_ {
        let of = self.id;
        self.sockets()
            .filter(|socket| matches!(socket.role, Role::Listener(_)))
            .map(move |socket| (of, socket.slot))
    }

    /// Those of them that were bound to this port.
    pub(crate) fn listeners_on(&self, port: u16) -> impl Iterator<Item = (SessionId, SlotId)> + '_ {
        let of = self.id;
        let is_one =
            move |socket: &&Socket| matches!(socket.role, Role::Listener(_)) && socket.port == port;
        self.sockets().filter(is_one).map(move |socket| (of, socket.slot))
    }

    /// Connections that wait in this listener's queue. What was taken off it is a program's already, its wire under way.
    pub(crate) fn queued_on(&self, queue: SlotId) -> Vec<SlotId> {
        // A position that makes no sense: nothing was taken.
        let taken = self.host.rx_read(queue).unwrap_or(0);
        self.sockets()
            .filter(|socket| {
                matches!(socket.role, Role::Offered { listener, at } if listener == queue && at >= taken)
            })
            .map(|socket| socket.slot)
            .collect()
    }

    /// Connections whose program took them and then did not hand over the wire for so long that it must have been killed in
    /// between, while others share its session. To be asked once a second.
    pub(crate) fn abandoned(&mut self) -> Vec<SlotId> {
        let host = &self.host;
        let is_taken =
            |listener: SlotId, at: u64| host.rx_read(listener).is_ok_and(|read| at < read);
        let without_wire = self.sockets.iter_mut().flatten().filter(|socket| {
            matches!(socket.role, Role::Offered { listener, at } if is_taken(listener, at))
        });
        let mut abandoned = Vec::new();
        for socket in without_wire {
            socket.looks_without_wire += 1;
            if socket.looks_without_wire > LOOKS_WITHOUT_WIRE_MAX {
                abandoned.push(socket.slot);
            }
        }
        abandoned
    }

    /// Makes a blocked or connecting placeholder writable again.
    pub(crate) fn take_filler(&mut self, slot: SlotId) {
        match self.socket_at(slot) {
            Some(Socket { role: Role::Wired(wire), .. }) => take_bytes(wire, 1),
            Some(socket @ Socket { role: Role::Offered { .. }, .. }) => socket.fillers_owed += 1,
            _ => {}
        }
    }

    /// Makes a placeholder readable.
    pub(crate) fn put_token(&mut self, slot: SlotId) {
        match self.socket_at(slot) {
            Some(Socket { role: Role::Wired(wire), .. }) => {
                put_bytes(wire, 1);
            }
            Some(socket @ Socket { role: Role::Offered { .. }, .. }) => socket.tokens_owed += 1,
            _ => {}
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
        let Some(socket) = self.socket_at(slot) else { return Ok(()) };
        let is_sent = match (&socket.role, wake) {
            (Role::Wired(wire), Wake::Token | Wake::Edge) => put_bytes(wire, 1),
            (Role::Offered { .. }, Wake::Token) => {
                socket.tokens_owed += 1;
                false
            }
            _ => false,
        };
        if is_sent && wake == Wake::Edge {
            self.host.count_edge(slot);
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

    /// The wire of an accepted connection arrived: whatever happened since is made up for. One that nobody waits for is closed.
    pub(crate) fn attach(&mut self, slot: SlotId, wire: Watched) {
        let Some(socket) = self.socket_at(slot) else { return };
        if !matches!(socket.role, Role::Offered { .. }) {
            return;
        }
        if socket.is_gone {
            // Reset before it was accepted: the filler left on the wire makes the placeholder say so.
            socket.role = Role::Wired(wire);
            self.drop_wire(slot);
            return;
        }
        take_bytes(&wire, std::mem::take(&mut socket.fillers_owed));
        put_bytes(&wire, std::mem::take(&mut socket.tokens_owed));
        let is_read_over = socket.is_read_over;
        socket.role = Role::Wired(wire);
        if is_read_over {
            self.end_wire(slot);
            self.hang_up_if_over(slot);
        }
    }

    /// Gives back the pages of receive rings that are free, or are empty and got nothing since the last look. One page stays: a connection
    /// that is used again would only ask for it again.
    pub(crate) fn return_idle_pages(&mut self) {
        self.host.return_free_pages();
        for socket in self.sockets.iter_mut().flatten() {
            let before = std::mem::replace(&mut socket.delivered_at_look, socket.delivered);
            let is_idle = before == socket.delivered;
            if is_idle && socket.delivered - socket.delivered_at_return > PAGE_BYTES {
                socket.delivered_at_return = socket.delivered;
                self.host.return_pages(socket.slot);
            }
        }
    }

    /// The client's side of the stream is over.
    pub(crate) fn end_of_stream(&mut self, slot: SlotId) {
        self.host.end_of_stream(slot);
        self.stop_reading(slot);
    }

    /// Nothing more will be readable: the placeholder says so.
    pub(crate) fn stop_reading(&mut self, slot: SlotId) {
        let Some(socket) = self.socket_at(slot) else { return };
        if !std::mem::replace(&mut socket.is_read_over, true) {
            self.end_wire(slot);
            self.hang_up_if_over(slot);
        }
    }

    /// Ends the wire's write side, and leaves a lifeline behind.
    fn end_wire(&mut self, slot: SlotId) {
        let Some(socket) = self.socket_at(slot) else { return };
        let Role::Wired(wire) = &socket.role else { return };
        let lifeline = lifeline::leave(wire);
        // The other end may be gone already.
        let _ = rustix::net::shutdown(wire, Shutdown::Write);
        match lifeline {
            Ok(lifeline) => socket.lifeline = Some(lifeline),
            Err(Errno::PIPE | Errno::CONNRESET) => self.hang_up(slot),
            Err(errno) => {
                tracing::warn!(%errno, "no lifeline; a slot may be taken until its session ends");
            }
        }
    }

    /// The program's side of the stream is over.
    pub(crate) fn stop_writing(&mut self, slot: SlotId) {
        let Some(socket) = self.socket_at(slot) else { return };
        socket.is_write_over = true;
        if self.host.unblocks_for_good(slot) {
            self.take_filler(slot);
        }
        self.hang_up_if_over(slot);
    }

    /// Both sides are over: TCP shows EPOLLHUP, so the wire is closed, without a filler left on it.
    fn hang_up_if_over(&mut self, slot: SlotId) {
        let Some(socket) = self.socket_at(slot) else { return };
        if !(socket.is_read_over && socket.is_write_over) {
            return;
        }
        let Role::Wired(wire) = &socket.role else { return };
        take_bytes(wire, TOKENS_AT_ONCE);
        self.drop_wire(slot);
    }

    /// The connection is gone: a filler stays on the wire as it closes, so the placeholder reports ECONNRESET.
    pub(crate) fn fail(&mut self, slot: SlotId, errno: i32) {
        self.host.fail(slot, errno);
        self.drop_wire(slot);
    }

    /// Closes the wire. From then on its lifeline is watched.
    fn drop_wire(&mut self, slot: SlotId) {
        if self.socket_at(slot).is_some_and(|socket| !socket.is_read_over) {
            self.end_wire(slot);
        }
        let token = Token::Wire(self.id, slot.index);
        let Some(socket) = self.socket_at(slot) else { return };
        let Role::Wired(wire) = &socket.role else { return };
        // A child forked between socketpair(2) and the hand-over holds a copy, so closing alone would say nothing.
        let _ = rustix::net::shutdown(wire, Shutdown::Both);
        // Of two fillers one is enough to report an error, and lets the placeholder be writable by the time it does.
        let fillers = rustix::io::ioctl_fionread(wire).unwrap_or(0);
        take_bytes(wire, usize::try_from(fillers).unwrap_or(0).saturating_sub(1));
        let lifeline = socket.lifeline.take();
        let watched = lifeline.map(|fd| wire.beside(fd, token, EventFlags::empty()));
        socket.role = Role::Over(watched.and_then(Result::ok));
    }

    /// No descriptor of this socket is left: it is closed once everything written so far has been forwarded.
    pub(crate) fn hang_up(&mut self, slot: SlotId) {
        self.hang_ups.push_back((slot, self.host.written()));
    }
}

/// Puts bytes on a wire. A full or dead one needs no more of them.
fn put_bytes(wire: &Watched, count: usize) -> bool {
    let bytes = [1; TOKENS_AT_ONCE];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut left = count;
    while left > 0 {
        match rustix::net::send(wire, &bytes[..left.min(TOKENS_AT_ONCE)], flags) {
            Ok(sent) => left -= sent,
            Err(_) => return false,
        }
    }
    true
}

/// Takes fillers off a wire. An empty or dead one has none.
fn take_bytes(wire: &Watched, count: usize) {
    let mut bytes = [0_u8; TOKENS_AT_ONCE];
    let mut left = count;
    while left > 0 {
        let target = &mut bytes[..left.min(TOKENS_AT_ONCE)];
        match rustix::net::recv(wire, target, RecvFlags::DONTWAIT) {
            Ok((taken @ 1.., _)) => left -= taken,
            _ => return,
        }
    }
}

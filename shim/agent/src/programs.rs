//! Programs that come: rendezvous, Hello, and the frames on their control sockets.
//!
//! ```text
//! knock ──► session, memory ──► Hello ◄─► Hello + memory + doorbell ──► wires at once, requests in their turn
//! ```
//!
//! Nothing is answered here but Hello: a request waits in `requests` until what the program wrote before it has been
//! forwarded, so that closing a listener and binding its port again reach the card in that order.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use mqttshim_schema::{Hello, Message, Notice, SessionId};
use mqttshim_session::frame::{self, FRAME_BYTES_MAX, Received};
use mqttshim_session::host::Host;
use mqttshim_session::{CLAIM, LAYOUT_MAX, LAYOUT_MIN, NEW_SOCKET, SlotId};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use crate::agent::Agent;
use crate::entries::Violation;
use crate::lease::Lease;
use crate::peer::{Ending, Peer};
use crate::requests::{Frame, REQUESTS_PER_SESSION_MAX, answer_errno, answer_reason};
use crate::token::Token;
use crate::watch::Watched;

/// How long a program that knocks waits for a card that has not answered yet.
pub(crate) const CARD_WAIT: Duration = Duration::from_secs(1);
/// Pause after the agent ran out of descriptors.
const DESCRIPTORS_WAIT: Duration = Duration::from_millis(100);
/// Frames taken from one program in one go.
const FRAMES_PER_EVENT: usize = 64;

impl Agent {
    /// Lets no program in before `until`: those that knock wait, and wake nobody.
    pub(crate) fn close_door(&mut self, until: Instant) {
        self.door_closed_until = Some(until);
        self.watch_door(EventFlags::empty());
    }

    /// Lets programs in again if it is time, or if the card is there.
    pub(crate) fn open_door(&mut self, now: Instant, is_met: bool) {
        if self.door_closed_until.is_some_and(|until| until <= now || is_met) {
            self.door_closed_until = None;
            self.watch_door(EventFlags::IN);
        }
    }

    fn watch_door(&self, flags: EventFlags) {
        let socket = self.rendezvous.socket();
        let watched = epoll::modify(&self.epoll, socket, Token::Rendezvous.data(), flags);
        debug_assert!(watched.is_ok());
    }

    /// Programs that knock.
    pub(crate) fn accept_programs(&mut self) {
        while self.door_closed_until.is_none() {
            match self.rendezvous.accept() {
                Ok(Some(control)) => {
                    if let Err(reason) = self.open_session(control) {
                        tracing::warn!(%reason, "refused a session");
                    }
                }
                Ok(None) => return,
                Err(errno) => {
                    tracing::error!(%errno, "cannot let a program in; raise the limit of open files");
                    self.close_door(Instant::now() + DESCRIPTORS_WAIT);
                }
            }
        }
    }

    fn open_session(&mut self, control: OwnedFd) -> Result<(), String> {
        let who = sockopt::socket_peercred(&control).map_err(|errno| errno.to_string())?;
        let uid = who.uid.as_raw();
        let refuse = |control: &dyn AsFd, reason: String| {
            answer_reason(control.as_fd(), Errno::PERM, &reason);
            Err(reason)
        };
        if self.card.is_none() {
            let reason = match &self.misfit {
                Some(misfit) => format!("the card is not connected: {misfit}"),
                None => "the card is not connected".into(),
            };
            return refuse(&control, reason);
        }
        let open = self.peers.values().filter(|peer| peer.uid == uid).count();
        if open >= self.config.sessions_per_uid_max as usize {
            let reason = format!("uid {uid} has {open} sessions, the most one user may have");
            return refuse(&control, reason);
        }
        let host = match Host::create(self.config.sockets_max, u64::from(self.card_window)) {
            Ok(host) => host,
            Err(error) => return refuse(&control, error.to_string()),
        };
        // Frames carry who sent them from the first on.
        sockopt::set_socket_passcred(&control, true).map_err(|errno| errno.to_string())?;
        let id = SessionId(self.next_session);
        self.next_session = self.next_session.wrapping_add(1);
        let peer = Peer::new(id, uid, host, control, &self.epoll)
            .map_err(|errno| format!("the agent is out of descriptors: {errno}"))?;
        let pid = who.pid.as_raw_nonzero().get();
        tracing::info!(session = id.0, uid, pid, "session opened");
        self.peers.insert(id, peer);
        Ok(())
    }

    /// Frames of a program.
    pub(crate) fn read_control(&mut self, mut id: SessionId, mut number: u32) {
        let mut buffer = std::mem::take(&mut self.frame);
        buffer.resize(FRAME_BYTES_MAX, 0);
        for _ in 0..FRAMES_PER_EVENT {
            let Some(peer) = self.peers.get_mut(&id) else { break };
            if peer.ending.is_some() {
                break;
            }
            let Some(control) = peer.controls.get(number) else { break };
            match frame::receive(control, &mut buffer, RecvFlags::DONTWAIT) {
                Ok(Received { length: 0, .. }) | Err(Errno::CONNRESET) => {
                    if peer.controls.remove(number) {
                        let written = peer.host.written();
                        peer.end(Ending::Left(written));
                    }
                }
                Ok(received) => match self.handle_frame((id, number), &buffer, received) {
                    Ok(place) => (id, number) = place,
                    Err(violation) => self.expel(id, &violation),
                },
                Err(Errno::MSGSIZE) => self.expel(id, &Violation::Control),
                // Nothing more, or no memory: asked again.
                Err(_) => break,
            }
        }
        self.frame = buffer;
    }

    /// Ends a session for a violation: its sockets report ECONNRESET at once, the card learns of it in the next turn.
    pub(crate) fn expel(&mut self, id: SessionId, violation: &Violation) {
        tracing::error!(session = id.0, %violation, "a program broke its session's contract; the session is ended");
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.host.end();
            peer.end(Ending::Expelled);
        }
    }

    /// Says where the control socket belongs from now on.
    fn handle_frame(
        &mut self,
        (id, number): (SessionId, u32),
        buffer: &[u8],
        received: Received,
    ) -> Result<(SessionId, u32), Violation> {
        let here = Ok((id, number));
        let Received { length, fds: [first, second, ..], sender, is_cut } = received;
        let bytes = &buffer[..length];
        let Some(peer) = self.peers.get_mut(&id) else { return here };
        match mqttshim_schema::decode(bytes).map_err(Violation::Frame)? {
            Message::Hello(hello) if !peer.is_open => {
                return Ok(self.greet_program(id, &hello, first));
            }
            CLAIM if !peer.is_open => {
                let placeholder = first.ok_or(Violation::Control)?;
                return Ok(self.claim(id, &placeholder));
            }
            Message::Accepted { listener, socket, .. } if peer.is_open => {
                let named = SlotId { index: socket.0, generation: listener.0 };
                // A library that does not say which generation it means.
                let is_any = listener == NEW_SOCKET;
                let current = is_any.then(|| peer.host.current(socket.0)).flatten();
                let slot = current.unwrap_or(named);
                match first {
                    Some(wire) => self.attach(id, slot, wire),
                    None if is_cut => {
                        tracing::error!(
                            "no descriptor left for a wire; raise the limit of open files"
                        );
                        self.lose_wire(id, slot);
                    }
                    None => return Err(Violation::Control),
                }
            }
            Message::Bind { .. }
            | Message::Listen { .. }
            | Message::Connect { .. }
            | Message::Option { .. }
                if peer.is_open =>
            {
                let after = peer.host.written();
                match first {
                    Some(reply) if self.requests_of(id) >= REQUESTS_PER_SESSION_MAX => {
                        answer_errno(&reply, Errno::NOBUFS);
                    }
                    Some(reply) => {
                        let (session, bytes) = (id, bytes.to_vec());
                        let frame =
                            Frame { session, number, after, bytes, reply, file: second, sender };
                        self.requests.push_back(frame);
                    }
                    // The program sees its end of the reply socket close.
                    None if is_cut => {}
                    None => return Err(Violation::Control),
                }
            }
            _ => return Err(Violation::Control),
        }
        here
    }

    /// The program's Hello: answered with the memory and the bells, or with the reason why not. With the placeholder of a
    /// listener it is about to make again it may be let into the session that serves it; says where its control is now.
    fn greet_program(
        &mut self,
        id: SessionId,
        hello: &Hello<'_>,
        placeholder: Option<OwnedFd>,
    ) -> (SessionId, u32) {
        let Some(peer) = self.peers.get_mut(&id) else { return (id, 0) };
        let mut ours = Lease::hello(FRAME_BYTES_MAX);
        (ours.layout_min, ours.layout_max) = (LAYOUT_MIN, LAYOUT_MAX);
        let layout = match mqttshim_schema::negotiate(&ours, hello) {
            Ok(agreed) => agreed.layout,
            Err(error) => {
                tracing::warn!(session = id.0, program = hello.program, %error, "refused a session");
                if let Some(control) = peer.controls.get(0) {
                    answer_reason(control.as_fd(), Errno::PROTO, &error.to_string());
                }
                peer.end(Ending::Expelled);
                return (id, 0);
            }
        };
        peer.host.settle_layout(layout);
        let place = placeholder.map_or((id, 0), |placeholder| self.let_join(id, &placeholder));
        let (id, number) = place;
        let Some(peer) = self.peers.get_mut(&id) else { return place };
        let Some(control) = peer.controls.get(number) else { return place };
        let fds = peer.host.fds();
        // Layout 1 knows no bell.
        let fds = if layout == 1 { &fds[..2] } else { &fds[..] };
        let mut bytes = Vec::new();
        if mqttshim_schema::encode(&Message::Hello(ours), &mut bytes).is_ok() {
            // A program that left meanwhile shows on its control socket.
            let _ = frame::send(control, &bytes, fds, SendFlags::DONTWAIT);
        }
        if std::mem::replace(&mut peer.is_open, true) {
            return place;
        }
        let what = Notice::SessionOpened;
        let message = Message::Notice { session: id, stamp: 0, what, detail: hello.program };
        let queued = self.line.queue(&message);
        debug_assert!(queued.is_ok(), "a decoded Hello's text fits a Notice");
        if peer.host.counts_policy() {
            // From here on the card may rely on being told.
            let message = Message::PolicyChanged { session: id, stamp: 0, epoch: 0 };
            let queued = self.line.queue(&message);
            debug_assert!(queued.is_ok(), "it has no payload");
        }
        place
    }

    fn attach(&mut self, id: SessionId, slot: SlotId, wire: OwnedFd) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.socket_at(slot).is_none() {
            // Given up meanwhile: without its wire the placeholder hangs up.
            return;
        }
        let token = Token::Wire(id, slot.index);
        match Watched::new(&self.epoll, wire, token, EventFlags::empty()) {
            Ok(wire) => peer.attach(slot, wire),
            Err(errno) => {
                tracing::error!(%errno, "cannot watch a wire");
                self.lose_wire(id, slot);
            }
        }
    }

    /// The wire of an accepted connection is lost: its placeholder has hung up already, and the connection is closed.
    fn lose_wire(&mut self, id: SessionId, slot: SlotId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.socket_at(slot).is_some_and(|socket| socket.is_offered()) {
            peer.hang_up(slot);
        }
    }
}

//! Processes that hold the same listener meet in one session again, after their agent died; see [`crate::controls`].

use std::os::fd::OwnedFd;

use mqttshim_schema::SessionId;
use mqttshim_session::SlotId;
use rustix::io::Errno;

use crate::agent::Agent;
use crate::listener;
use crate::peer::Peer;
use crate::requests::Frame;

impl Agent {
    /// Finds the session that serves this placeholder's listener, or is about to, and moves the control socket of the new one
    /// there. Without such a session, the new one has claimed the listener.
    pub(crate) fn let_join(&mut self, new: SessionId, placeholder: &OwnedFd) -> (SessionId, u32) {
        let directory = self.rendezvous.directory();
        let name = listener::name_of(placeholder)
            .filter(|name| listener::is_held_by(directory, name, placeholder));
        let Some(name) = name else { return (new, 0) };
        let Some(uid) = self.peers.get(&new).map(|peer| peer.uid) else { return (new, 0) };
        let serving = self.session_with(&name).filter(|(_, owner)| *owner == uid);
        let Some((session, _)) = serving else {
            if let Some(peer) = self.peers.get_mut(&new) {
                peer.controls.claim(0, &name);
            }
            return (new, 0);
        };
        let Some(joining) = self.peers.remove(&new) else { return (new, 0) };
        let Some(peer) = self.peers.get_mut(&session) else { return (new, 0) };
        match peer.controls.join(joining.controls) {
            Ok(number) => {
                let id = session.0;
                tracing::info!(session = id, "another process of a listener joined its session");
                (session, number)
            }
            Err(errno) => {
                // Its control socket is closed: the program goes on without a session.
                tracing::warn!(session = session.0, %errno, "a process could not join a session");
                (new, 0)
            }
        }
    }

    /// The session that has this listener, or in which a program is about to make it; and whose it is.
    fn session_with(&self, name: &str) -> Option<(SessionId, u32)> {
        let has = |peer: &&Peer| {
            peer.ending.is_none()
                && (peer.listener_named(name).is_some() || peer.controls.claimant(name).is_some())
        };
        self.peers.values().find(has).map(|peer| (peer.id, peer.uid))
    }

    /// The slot of a listener that was made by another process with the same placeholder. ENOENT: the caller is to make it;
    /// EAGAIN: somebody is making it; EXDEV: it is in another session of this user; EADDRINUSE: in one of another user.
    pub(crate) fn find_listener(&mut self, frame: &Frame, name: &str) -> Result<SlotId, Errno> {
        let file = frame.file.as_ref().ok_or(Errno::INVAL)?;
        if !listener::is_held_by(self.rendezvous.directory(), name, file) {
            return Err(Errno::INVAL);
        }
        let elsewhere = self.session_with(name).filter(|(session, _)| *session != frame.session);
        let peer = self.peers.get_mut(&frame.session).ok_or(Errno::CONNRESET)?;
        if let Some(listener) = peer.listener_named(name) {
            return Ok(listener.slot);
        }
        match elsewhere {
            Some((_, uid)) if uid == peer.uid => Err(Errno::XDEV),
            Some(_) => Err(Errno::ADDRINUSE),
            None if peer.controls.claim(frame.number, name) => Err(Errno::NOENT),
            None => Err(Errno::AGAIN),
        }
    }
}

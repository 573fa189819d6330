//! Programs that claim a socket they did not open: they inherited one of its descriptors through exec, or received it.
//!
//! The descriptor is the proof. What such a program gets is what a forked child has: the session's memory, its doorbell, and
//! a control socket of its own; see [`crate::controls`]. So it must be the same user's; a descriptor that was passed on to
//! another one opens nothing. The bell stays with whoever opened the session: one process alone takes its ready list.

use std::os::fd::{AsFd, OwnedFd};

use mqttshim_schema::{Message, SessionId};
use mqttshim_session::frame::{self, FRAME_BYTES_MAX};
use mqttshim_session::{LAYOUT_MAX, LAYOUT_MIN};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, sockopt};

use crate::agent::Agent;
use crate::lease::Lease;
use crate::requests::answer_reason;

impl Agent {
    /// A program shows the placeholder it holds instead of saying Hello: it is let into the session the placeholder belongs
    /// to, or told why not. Says where its control socket is now.
    pub(crate) fn claim(&mut self, visitor: SessionId, placeholder: &OwnedFd) -> (SessionId, u32) {
        // It never opened a session of its own, so the card knows nothing of it.
        let Some(visitor_peer) = self.peers.remove(&visitor) else { return (visitor, 0) };
        let owner = match self.owner_of(placeholder, visitor_peer.uid) {
            Ok(owner) => owner,
            Err(reason) => {
                if let Some(control) = visitor_peer.controls.get(0) {
                    answer_reason(control.as_fd(), Errno::PERM, &reason);
                }
                return (visitor, 0);
            }
        };
        let Some(peer) = self.peers.get_mut(&owner) else { return (visitor, 0) };
        let number = match peer.controls.join(visitor_peer.controls) {
            Ok(number) => number,
            Err(errno) => {
                // Its control socket is closed, which it takes for a refusal.
                tracing::warn!(session = owner.0, %errno, "a program could not join a session");
                return (visitor, 0);
            }
        };
        let mut ours = Lease::hello(FRAME_BYTES_MAX);
        (ours.layout_min, ours.layout_max) = (LAYOUT_MIN, LAYOUT_MAX);
        let mut bytes = Vec::new();
        if let Some(control) = peer.controls.get(number)
            && mqttshim_schema::encode(&Message::Hello(ours), &mut bytes).is_ok()
        {
            // A program that left meanwhile shows on its control socket.
            let _ = frame::send(control, &bytes, &peer.host.fds()[..2], SendFlags::DONTWAIT);
        }
        tracing::info!(session = owner.0, "another program joined the session of its socket");
        (owner, number)
    }

    /// The session whose socket this placeholder is. The error is for the program's operator, and empty for a file that has
    /// nothing to do with us.
    fn owner_of(&self, placeholder: &OwnedFd, uid: u32) -> Result<SessionId, String> {
        // Numbers of sockets are unique among sockets; those of other files are not.
        if sockopt::socket_domain(placeholder) != Ok(AddressFamily::UNIX) {
            return Err(String::new());
        }
        let inode = rustix::fs::fstat(placeholder).map_err(|errno| errno.to_string())?.st_ino;
        // Socket inodes are 32 bits wide.
        let inode = inode as u32;
        let mut other = None;
        for peer in self.peers.values().filter(|peer| peer.is_open && peer.ending.is_none()) {
            // A program says itself which files its sockets are, so one user's word counts for that user's programs alone.
            match peer.host.find_file(inode) {
                Some(_) if peer.uid == uid => return Ok(peer.id),
                Some(_) => other = Some(peer.uid),
                None => {}
            }
        }
        Err(other.map_or_else(String::new, |owner| {
            format!("it belongs to uid {owner}, and this program runs as uid {uid}")
        }))
    }
}

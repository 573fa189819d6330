//! The control sockets of one session: one for each program that opened or joined it.
//!
//! Forked processes share the one they inherited. When their agent dies, each of them opens a session anew; those that hold
//! the same listener have to meet in one session again, or the second could not bind the address of the first:
//!
//! ```text
//! Hello with a placeholder ──► nobody serves that listener: a new session, in which this control has claimed it
//!                          └─► a session of the same user serves or has claimed it: that session's memory
//! Listen "by name, no socket" ──► its slot │ ENOENT: yours to bind │ EAGAIN: about to come │ EXDEV: in another session
//! ```
//!
//! Who holds a placeholder is not told by its name, which anybody can give to a socket in a mount namespace of their own;
//! see [`listener::is_held_by`](crate::listener::is_held_by).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use mqttshim_schema::SessionId;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::token::Token;
use crate::watch::Watched;

/// Control sockets one session may have: as many processes as may meet in it.
const CONTROLS_MAX: usize = 1024;
/// Listeners one control may have claimed and not made yet.
const CLAIMS_MAX: usize = 64;

/// See the module.
pub(crate) struct Controls {
    session: SessionId,
    all: Vec<Control>,
    /// Numbers given out so far.
    next: u32,
}

struct Control {
    number: u32,
    socket: Watched,
    /// Names of listeners its program is about to make again.
    claims: Vec<String>,
}

impl Controls {
    /// The first, number 0.
    pub(crate) fn new(
        session: SessionId,
        socket: OwnedFd,
        set: &Arc<OwnedFd>,
    ) -> Result<Controls, Errno> {
        let socket = Watched::new(set, socket, Token::Control(session, 0), EventFlags::IN)?;
        let first = Control { number: 0, socket, claims: Vec::new() };
        Ok(Controls { session, all: vec![first], next: 1 })
    }

    /// The control socket of this number.
    pub(crate) fn get(&self, number: u32) -> Option<&Watched> {
        self.all.iter().find(|control| control.number == number).map(|control| &control.socket)
    }

    /// Takes over the only control socket of a session that never came to be. Returns its number here.
    pub(crate) fn join(&mut self, other: Controls) -> Result<u32, Errno> {
        if self.all.len() >= CONTROLS_MAX {
            return Err(Errno::USERS);
        }
        let number = self.next;
        for mut control in other.all {
            control.socket.retell(Token::Control(self.session, number))?;
            control.number = number;
            self.all.push(control);
        }
        // As many as fit a token: a program that joins so often has long been expelled for something else.
        self.next = (self.next + 1) & ((1 << 30) - 1);
        Ok(number)
    }

    /// The program at this one is gone. Says whether all are.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.all.retain(|control| control.number != number);
        self.all.is_empty()
    }

    /// Nothing is reported of any of them any more.
    pub(crate) fn mute(&mut self) {
        self.all.iter_mut().for_each(|control| control.socket.mute());
    }

    /// The listener of this name is this program's to make. `false`: another has claimed it.
    pub(crate) fn claim(&mut self, number: u32, name: &str) -> bool {
        if let Some(owner) = self.claimant(name) {
            return owner == number;
        }
        let own = self.all.iter_mut().find(|control| control.number == number);
        if let Some(own) = own.filter(|own| own.claims.len() < CLAIMS_MAX) {
            own.claims.push(name.to_owned());
        }
        true
    }

    /// Which program is about to make this listener.
    pub(crate) fn claimant(&self, name: &str) -> Option<u32> {
        let has_claimed = |control: &&Control| control.claims.iter().any(|claim| claim == name);
        self.all.iter().find(has_claimed).map(|control| control.number)
    }

    /// The listener was made: nobody claims it any more.
    pub(crate) fn settle(&mut self, name: &str) {
        for control in &mut self.all {
            control.claims.retain(|claim| claim != name);
        }
    }
}

//! A descriptor in the agent's epoll set.
//!
//! epoll(7): closing a descriptor takes it out of a set only when no copy of it is left anywhere. A program holds a copy of
//! its doorbell, and a forked child may hold one of a wire, so what leaves is taken out by name: an event that stays behind
//! would be reported for ever, for a slot that is another socket's by then.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use crate::token::Token;

/// Owns the descriptor, and its place in the set until [`mute`](Self::mute) or the end.
pub(crate) struct Watched {
    fd: OwnedFd,
    set: Arc<OwnedFd>,
    is_muted: bool,
}

impl Watched {
    /// Puts `fd` into `set`. Without flags, only errors and hang-ups are reported.
    pub(crate) fn new(
        set: &Arc<OwnedFd>,
        fd: OwnedFd,
        token: Token,
        flags: EventFlags,
    ) -> Result<Watched, Errno> {
        epoll::add(set, &fd, token.data(), flags)?;
        Ok(Watched { fd, set: Arc::clone(set), is_muted: false })
    }

    /// Watches another descriptor in the same set.
    pub(crate) fn beside(
        &self,
        fd: OwnedFd,
        token: Token,
        flags: EventFlags,
    ) -> Result<Watched, Errno> {
        Watched::new(&self.set, fd, token, flags)
    }

    /// Reports the same under another token.
    pub(crate) fn retell(&self, token: Token) -> Result<(), Errno> {
        epoll::modify(&self.set, &self.fd, token.data(), EventFlags::IN)
    }

    /// Reports nothing any more.
    pub(crate) fn mute(&mut self) {
        if !std::mem::replace(&mut self.is_muted, true) {
            let removed = epoll::delete(&self.set, &self.fd);
            debug_assert!(removed.is_ok());
        }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.mute();
    }
}

#[cfg(test)]
mod tests {
    use mqttshim_schema::SessionId;
    use rustix::event::Timespec;
    use rustix::event::epoll::CreateFlags;

    use super::*;

    fn events(set: &OwnedFd) -> usize {
        let mut events = Vec::with_capacity(4);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(set, rustix::buffer::spare_capacity(&mut events), Some(&now)).unwrap()
    }

    #[test]
    fn a_descriptor_that_lives_on_elsewhere_is_not_reported_any_more() {
        let set = Arc::new(epoll::create(CreateFlags::CLOEXEC).unwrap());
        let bell = rustix::event::eventfd(1, rustix::event::EventfdFlags::empty()).unwrap();
        let copy = rustix::io::dup(&bell).unwrap();
        let token = Token::Doorbell(SessionId(1));
        let watched = Watched::new(&set, bell, token, EventFlags::IN).unwrap();
        assert_eq!(events(&set), 1);
        drop(watched);
        assert_eq!(events(&set), 0);
        drop(copy);
    }
}

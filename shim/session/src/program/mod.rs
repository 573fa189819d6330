//! The program's side of a session: what the preloaded library calls.
//!
//! `control` asks the card (bind, listen, connect, options: one round trip each), `stream` moves bytes (no round trip, and
//! no system call unless a state changes). A session is shared by all threads and forked children of a program; everything
//! here may run in several of them at once.

mod control;
mod open;
mod ready;
#[cfg(all(test, not(loom)))]
mod ruined;
mod stream;

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use mqttshim_schema::Notice;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::entry::{self, Kind, Says};
use crate::layout::{Inheritance, LAYOUT_WITH_OPTIONS, LAYOUT_WITH_POLICY, Slot, State};
use crate::lock;
use crate::memory::Memory;
use crate::sync::{Ordering, fence};

pub use control::{Found, Listening, NEW_SOCKET, requests_of_thread};
pub use open::{CLAIM, OpenError};
pub use stream::{Accept, Read, Write};

/// A socket of a session. The generation tells it from an earlier socket in the same slot.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SlotId {
    /// Place in the session's table.
    pub index: u32,
    /// How often the place was used.
    pub generation: u32,
}

/// What wakes a program: a pipe of which it has both ends, since its threads wake one another too.
struct Bell {
    hears: OwnedFd,
    rings: OwnedFd,
}

/// A program's end of a session.
pub struct Session {
    memory: Memory,
    control: OwnedFd,
    doorbell: OwnedFd,
    /// Wakes this program, where the agent knows how.
    bell: Option<Bell>,
}

impl Session {
    /// Whether the agent is still there. One `poll(2)`.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut fds, Some(&now));
        polled == Ok(0) && self.memory.header().ended.load(Ordering::Acquire) == 0
    }

    /// The descriptors the program must not close.
    pub fn private_fds(&self) -> impl Iterator<Item = RawFd> {
        let bell = self.bell.iter().flat_map(|bell| [&bell.hears, &bell.rings]);
        [&self.control, &self.doorbell].into_iter().chain(bell).map(AsRawFd::as_raw_fd)
    }

    /// The control socket.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Tells the card something it cannot see, in order with everything written before and after.
    pub fn notice(&self, what: Notice, detail: &str) {
        let Some(payload) = control::encode_notice(what, detail) else { return };
        let header = self.memory.header();
        let says = Says { kind: Kind::Notice, slot: 0, generation: 0 };
        let parts = [std::io::IoSlice::new(&payload)];
        if let Some(guard) = lock::lock(&header.tx_lock.0) {
            entry::push(&self.memory, says, &parts, 0, payload.len());
            drop(guard);
            self.ring_doorbell();
        }
    }

    /// Whether the agent takes the policy epoch, and notices of loaded libraries.
    pub fn reports_policy(&self) -> bool {
        let layout = self.memory.header().layout.load(Ordering::Acquire);
        layout >= u32::from(LAYOUT_WITH_POLICY)
    }

    /// What the program permits may be different from here on: the card hears of it before anything that is written after
    /// this call. No lock, and no system call while the agent is awake; may be called in a signal handler.
    pub fn raise_policy_epoch(&self) {
        self.memory.header().policy.0.fetch_add(1, Ordering::SeqCst);
        self.ring_doorbell();
    }

    /// One more descriptor of the program names this socket.
    pub fn retain(&self, slot: SlotId) {
        if let Some(words) = self.slot(slot) {
            words.refs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A descriptor that named this socket has been closed. Call after the real `close(2)`: for a listener the agent then
    /// looks whether another copy is left anywhere; a connection's last close it sees by itself, on the wire.
    pub fn close(&self, slot: SlotId) {
        let Some(words) = self.slot(slot) else { return };
        let left = words.refs.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1);
        let state = words.state();
        let is_told = match state {
            State::Listening => true,
            State::Bound => left == 0,
            State::Connecting | State::Connected | State::Gone => false,
        };
        if is_told {
            self.say(Kind::Close, slot);
        }
    }

    /// The socket's own address, once it has one.
    pub fn local(&self, slot: SlotId) -> Option<SocketAddr> {
        self.slot(slot)?.local.load()
    }

    /// The client's address, on a connection.
    pub fn peer(&self, slot: SlotId) -> Option<SocketAddr> {
        self.slot(slot)?.peer.load()
    }

    /// Takes the error that `SO_ERROR` reports and clears.
    pub fn take_error(&self, slot: SlotId, placeholder: BorrowedFd<'_>) -> Option<Errno> {
        self.slot(slot)?.take_error(placeholder)
    }

    /// What the socket is now.
    pub fn state(&self, slot: SlotId) -> State {
        self.slot(slot).map_or(State::Gone, Slot::state)
    }

    /// Whether a connection is made and no end of it has been seen: then its wire need not be looked at.
    pub fn is_whole(&self, slot: SlotId) -> bool {
        let Some(words) = self.slot(slot) else { return false };
        let ends = [
            &words.agent.rx_eof,
            &words.program.rx_shut,
            &words.program.tx_shut,
            &words.error,
            &self.memory.header().ended,
        ];
        words.state() == State::Connected && ends.iter().all(|end| end.load(Ordering::SeqCst) == 0)
    }

    /// The program watches this socket for edges: every arrival must be one, drained or not.
    pub fn mark_edge(&self, slot: SlotId) {
        if let Some(words) = self.slot(slot) {
            words.edge.store(1, Ordering::SeqCst);
        }
    }

    /// Notes where this listener's connections have their time-outs from, for every process that accepts them.
    pub fn set_inheritance(&self, slot: SlotId, from: Inheritance) {
        if let Some(words) = self.slot(slot) {
            words.program.inheritance.store(from as u32, Ordering::SeqCst);
        }
    }

    /// Where this listener's connections have their time-outs from.
    pub fn inheritance(&self, slot: SlotId) -> Inheritance {
        let word = self.slot(slot).map(|words| words.program.inheritance.load(Ordering::SeqCst));
        word.map_or(Inheritance::Nothing, Inheritance::from_word)
    }

    /// After a panic in a hook: the socket reports ECONNRESET from now on.
    pub fn poison(&self, slot: SlotId) {
        if let Some(words) = self.slot(slot) {
            words.poisoned.store(1, Ordering::SeqCst);
        }
    }

    /// Notes the inode of the socket's placeholder, by which a program that inherits or receives a descriptor finds the socket.
    pub fn set_file(&self, slot: SlotId, inode: u32) {
        if let Some(words) = self.slot(slot) {
            words.program.file.store(inode, Ordering::Release);
        }
    }

    /// The socket whose placeholder has this inode. One look at every slot.
    pub fn find_file(&self, inode: u32) -> Option<SlotId> {
        find_file(&self.memory, self.memory.slots(), inode)
    }

    fn slot(&self, slot: SlotId) -> Option<&Slot> {
        let words = self.memory.slot(slot.index)?;
        (words.generation.load(Ordering::SeqCst) == slot.generation).then_some(words)
    }

    /// Pushes an entry without payload. What cannot be pushed is dropped: the ring keeps a reserve for these, and only an agent
    /// that does not run at all can let it fill.
    fn say(&self, kind: Kind, slot: SlotId) {
        self.say_with(kind, slot, || ());
    }

    /// The same; `change` happens under the send lock, so that no write sees the old state and yet lands behind the entry.
    fn say_with(&self, kind: Kind, slot: SlotId, change: impl FnOnce()) {
        let guard = lock::lock(&self.memory.header().tx_lock.0);
        change();
        if let Some(guard) = guard {
            let says = Says { kind, slot: slot.index, generation: slot.generation };
            entry::push(&self.memory, says, &[], 0, 0);
            drop(guard);
            self.ring_doorbell();
        }
    }

    /// `setsockopt(2)` of an option that cannot fail, on a connection: told behind what was written before, without a round trip.
    /// `false`: ask by [`set_option`](Self::set_option).
    pub fn tell_option(&self, slot: SlotId, level: i32, name: i32, value: [u8; 4]) -> bool {
        let header = self.memory.header();
        if header.layout.load(Ordering::Acquire) < u32::from(LAYOUT_WITH_OPTIONS)
            || self.state(slot) != State::Connected
        {
            return false;
        }
        let words = [level.to_ne_bytes(), name.to_ne_bytes(), value];
        let payload = words.as_flattened();
        let says = Says { kind: Kind::Option, slot: slot.index, generation: slot.generation };
        let Some(guard) = lock::lock(&header.tx_lock.0) else { return false };
        let parts = [std::io::IoSlice::new(payload)];
        let is_told = entry::push(&self.memory, says, &parts, 0, payload.len());
        drop(guard);
        self.ring_doorbell();
        is_told
    }

    /// Wakes the agent if it sleeps. One system call then, none otherwise.
    fn ring_doorbell(&self) {
        fence(Ordering::SeqCst);
        let asleep = &self.memory.header().asleep;
        if asleep.load(Ordering::SeqCst) == 1 && asleep.swap(0, Ordering::SeqCst) == 1 {
            // An eventfd that is full already wakes; a dead agent is found on the control socket.
            let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
        }
    }
}

/// The slot among the first `slots` that holds a placeholder of this inode.
pub(crate) fn find_file(memory: &Memory, slots: u32, inode: u32) -> Option<SlotId> {
    (0..slots).find_map(|index| {
        let words = memory.slot(index)?;
        let is_it = inode != 0
            && words.program.file.load(Ordering::Acquire) == inode
            && matches!(words.state(), State::Listening | State::Connecting | State::Connected);
        is_it.then(|| SlotId { index, generation: words.generation.load(Ordering::SeqCst) })
    })
}

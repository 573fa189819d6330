//! The agent's side of a session: it makes the memory, hands out slots, fills receive rings and drains the send ring.
//!
//! Wires, the control socket and the channel belong to the agent itself; here is only what touches the memory. Every value
//! the program can write is copied before it is checked and used, and what contradicts itself ends the session by name.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::entry::{Entries, Entry, RingViolation};
use crate::layout::{LAYOUT_WITH_POLICY, RX_BYTES, Slot, State, TX_BYTES};
use crate::memory::{Memory, MemoryError};
use crate::program::{SlotId, find_file};
use crate::ready;
use crate::sync::{Ordering, fence};
use crate::token;

/// Slots given back that rest before the first of them is used again: a thread that was still on its way out of a call when
/// its socket was closed must not write into the next one.
const REST_SLOTS: usize = 64;

/// The program moved its receive position beyond what was delivered, or delivery went beyond the credit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the receive ring of slot {slot} has head {head} and tail {tail}")]
pub struct ReceiveViolation {
    /// The slot's index.
    pub slot: u32,
    /// The agent's position.
    pub head: u64,
    /// The program's position.
    pub tail: u64,
}

/// A session as its agent holds it.
pub struct Host {
    memory: Memory,
    file: OwnedFd,
    doorbell: OwnedFd,
    /// Both ends of the pipe that wakes the program.
    bell: (OwnedFd, OwnedFd),
    entries: Entries,
    /// Own copies of the receive heads: what lies in shared memory is for the program only.
    rx_heads: Vec<u64>,
    generations: Vec<u32>,
    /// Slots given back, the oldest first.
    free: VecDeque<u32>,
    /// Those among them, or taken again since, whose receive rings hold pages.
    used: Vec<u32>,
    next_fresh: u32,
    tx_window: u64,
    /// The policy epoch as last taken.
    policy_taken: u64,
}

impl Host {
    /// Makes a session for `slots` sockets, each of which may send `tx_window` bytes before the card grants more.
    ///
    /// # Errors
    /// When the kernel refuses memory or descriptors.
    pub fn create(slots: u32, tx_window: u64) -> Result<Host, MemoryError> {
        let (memory, file) = Memory::create(slots)?;
        memory.header().tx_window.store(tx_window, Ordering::Relaxed);
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| MemoryError::System { step: "eventfd", errno })?;
        Ok(Host {
            memory,
            file,
            doorbell,
            bell: rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
                .map_err(|errno| MemoryError::System { step: "pipe", errno })?,
            entries: Entries::new(),
            rx_heads: Vec::new(),
            generations: Vec::new(),
            free: VecDeque::new(),
            used: Vec::new(),
            next_fresh: 0,
            tx_window,
            policy_taken: 0,
        })
    }

    /// What a program needs to open the session: its memory, the agent's doorbell, and both ends of the bell that wakes the
    /// program, which its threads ring as well.
    pub fn fds(&self) -> [BorrowedFd<'_>; 4] {
        let (hears, rings) = &self.bell;
        [self.file.as_fd(), self.doorbell.as_fd(), hears.as_fd(), rings.as_fd()]
    }

    /// The program speaks this layout: it is told so in the memory it will map. Call before handing the memory over.
    pub fn settle_layout(&self, layout: u16) {
        self.memory.header().layout.store(u32::from(layout), Ordering::Release);
    }

    /// The descriptor that becomes readable when a program rang.
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }

    /// Takes a free slot. `None` when the session is full.
    pub fn allocate(&mut self, state: State) -> Option<SlotId> {
        let has_fresh = self.next_fresh < self.memory.slots();
        let index = match self.free.len() {
            rested if rested > REST_SLOTS || !has_fresh => self.free.pop_front()?,
            _ => {
                self.next_fresh += 1;
                self.rx_heads.push(0);
                self.generations.push(0);
                self.next_fresh - 1
            }
        };
        let generation = &mut self.generations[index as usize];
        *generation = generation.wrapping_add(1);
        let slot = SlotId { index, generation: *generation };
        self.rx_heads[index as usize] = 0;
        let words = self.memory.slot(index).expect("allocated indices are below the slot count");
        words.reset(slot.generation, self.tx_window);
        words.set_state(state);
        Some(slot)
    }

    /// Gives a slot back. Its number may name another socket from now on.
    pub fn release(&mut self, slot: SlotId) {
        if !self.is_current(slot) {
            return;
        }
        let generation = &mut self.generations[slot.index as usize];
        *generation = generation.wrapping_add(1);
        if let Some(words) = self.memory.slot(slot.index) {
            words.set_state(State::Gone);
            words.generation.store(*generation, Ordering::SeqCst);
        }
        if self.rx_heads[slot.index as usize] > 0 {
            self.used.push(slot.index);
        }
        self.free.push_back(slot.index);
    }

    /// Gives the pages of receive rings back whose slots are free since the last call or longer. Not done in
    /// [`release`](Self::release): a slot that is used again soon would only ask for them again.
    pub fn return_free_pages(&mut self) {
        let mut used = std::mem::take(&mut self.used);
        used.sort_unstable();
        used.dedup();
        for index in used {
            // A generation begins when a slot is taken, and another when it is given back: the even ones are free.
            if self.generations[index as usize].is_multiple_of(2) {
                // Failing only keeps the pages.
                let _ = self.memory.release_rx(self.file.as_fd(), index);
            }
        }
    }

    /// Gives the pages of a socket's receive ring back while it is empty. They come back when they are written to.
    pub fn return_pages(&self, slot: SlotId) {
        if self.rx_room(slot) == Ok(RX_BYTES) {
            // Failing only keeps the pages.
            let _ = self.memory.release_rx(self.file.as_fd(), slot.index);
        }
    }

    /// The socket whose placeholder has this inode, as the program says. Never a slot that was not given out.
    pub fn find_file(&self, inode: u32) -> Option<SlotId> {
        find_file(&self.memory, self.next_fresh, inode).and_then(|slot| self.current(slot.index))
    }

    /// The current socket in a slot, whatever the program says its generation is.
    pub fn current(&self, index: u32) -> Option<SlotId> {
        let generation = *self.generations.get(index as usize)?;
        Some(SlotId { index, generation })
    }

    fn is_current(&self, slot: SlotId) -> bool {
        self.current(slot.index) == Some(slot)
    }

    fn words(&self, slot: SlotId) -> Option<&Slot> {
        self.is_current(slot).then(|| self.memory.slot(slot.index)).flatten()
    }

    /// Sets the addresses the program may ask for, then the state that makes the socket what it is.
    pub fn set(
        &self,
        slot: SlotId,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
        state: State,
    ) {
        let Some(words) = self.words(slot) else { return };
        if let Some(local) = local {
            words.local.store(local);
        }
        if let Some(peer) = peer {
            words.peer.store(peer);
        }
        words.set_state(state);
    }

    /// Puts `bytes`, stamped `stamp` by the card, into the socket's receive ring. Says whether a byte must go on the wire now,
    /// and why.
    ///
    /// # Errors
    /// When they do not fit, or the program's position makes no sense.
    pub fn deliver(
        &mut self,
        slot: SlotId,
        bytes: &[u8],
        stamp: u64,
    ) -> Result<Wake, ReceiveViolation> {
        let room = self.rx_room(slot)?;
        let head = self.rx_heads[slot.index as usize];
        let (Some(words), Some(ring)) = (self.words(slot), self.memory.rx(slot.index)) else {
            return Ok(Wake::No);
        };
        if bytes.len() > room {
            let tail = words.program.rx_tail.load(Ordering::Relaxed);
            return Err(ReceiveViolation { slot: slot.index, head, tail });
        }
        ring.copy_in(head, bytes);
        let head = head + bytes.len() as u64;
        words.agent.rx_stamp.store(stamp, Ordering::SeqCst);
        words.agent.rx_head.store(head, Ordering::SeqCst);
        let wake = match token::announce(&words.agent.rx_armed) {
            token::BYTE => Wake::Token,
            token::LIST => {
                ready::put(&self.memory, slot.index, words, self.bell.1.as_fd());
                Wake::No
            }
            _ if words.edge.load(Ordering::SeqCst) == 1 => Wake::Edge,
            _ => Wake::No,
        };
        self.rx_heads[slot.index as usize] = head;
        Ok(wake)
    }

    /// Puts an accepted connection on a listener's queue, as [`deliver`](Self::deliver) does with bytes.
    ///
    /// # Errors
    /// When the queue is full, or the program's position makes no sense.
    pub fn offer(&mut self, listener: SlotId, slot: SlotId) -> Result<Wake, ReceiveViolation> {
        let mut record = [0_u8; 8];
        record[..4].copy_from_slice(&slot.index.to_ne_bytes());
        record[4..].copy_from_slice(&slot.generation.to_ne_bytes());
        self.deliver(listener, &record, 0)
    }

    /// Counts a byte sent for [`Wake::Edge`]. Call after it was sent.
    pub fn count_edge(&self, slot: SlotId) {
        if let Some(words) = self.words(slot) {
            words.agent.rx_extra.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Bytes that fit into the socket's receive ring now.
    ///
    /// # Errors
    /// When the program's position makes no sense.
    pub fn rx_room(&self, slot: SlotId) -> Result<usize, ReceiveViolation> {
        let Some(words) = self.words(slot) else { return Ok(0) };
        let head = self.rx_heads[slot.index as usize];
        let tail = words.program.rx_tail.load(Ordering::SeqCst);
        let unread = head.wrapping_sub(tail);
        match usize::try_from(unread) {
            Ok(unread) if unread <= RX_BYTES && tail <= head => Ok(RX_BYTES - unread),
            _ => Err(ReceiveViolation { slot: slot.index, head, tail }),
        }
    }

    /// Whether the program left bytes unread. A position that makes no sense counts as yes.
    pub fn has_unread(&self, slot: SlotId) -> bool {
        self.rx_room(slot) != Ok(RX_BYTES)
    }

    /// Bytes the program has read, from the connection's start.
    ///
    /// # Errors
    /// When the program's position makes no sense.
    pub fn rx_read(&self, slot: SlotId) -> Result<u64, ReceiveViolation> {
        let unread = RX_BYTES - self.rx_room(slot)?;
        Ok(self.rx_delivered(slot).saturating_sub(unread as u64))
    }

    /// Bytes put into the socket's receive ring, from the connection's start.
    pub fn rx_delivered(&self, slot: SlotId) -> u64 {
        let head = self.rx_heads.get(slot.index as usize).copied();
        head.filter(|_| self.is_current(slot)).unwrap_or(0)
    }

    /// Asks to hear, by a Credit entry, when the ring is at most half full. Look at [`rx_room`](Self::rx_room) again afterwards.
    pub fn ask_for_credit(&self, slot: SlotId) {
        if let Some(words) = self.words(slot) {
            words.agent.rx_notify.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// The client sent everything it will. The wire's write side must be shut down afterwards.
    pub fn end_of_stream(&self, slot: SlotId) {
        if let Some(words) = self.words(slot) {
            words.agent.rx_eof.store(1, Ordering::SeqCst);
        }
    }

    /// The connection is gone: what is there can still be read, then the program is told `errno` once. The wire must be
    /// closed afterwards.
    pub fn fail(&self, slot: SlotId, errno: i32) {
        if let Some(words) = self.words(slot) {
            words.error.store(errno.unsigned_abs(), Ordering::SeqCst);
            words.program.tx_shut.store(1, Ordering::SeqCst);
        }
    }

    /// Allows the program to send `bytes` more.
    pub fn grant(&self, slot: SlotId, bytes: u32) {
        if let Some(words) = self.words(slot) {
            words.agent.tx_limit.fetch_add(u64::from(bytes), Ordering::SeqCst);
        }
    }

    /// Whether the socket was blocked and has room again: then one filler must be taken off the wire. To be asked after every
    /// grant and every Blocked entry.
    pub fn unblocks(&self, slot: SlotId) -> bool {
        let Some(words) = self.words(slot) else { return false };
        token::unblock(&words.program.tx_blocked, || {
            let sent = words.program.tx_sent.load(Ordering::SeqCst);
            let room = words.agent.tx_limit.load(Ordering::SeqCst).saturating_sub(sent);
            room >= self.tx_window / 3
        })
    }

    /// The same, for a socket that has sent everything it will: a writer that waits is to learn of it.
    pub fn unblocks_for_good(&self, slot: SlotId) -> bool {
        self.words(slot).is_some_and(|words| token::unblock(&words.program.tx_blocked, || true))
    }

    /// The next entry of the send ring, left in place.
    ///
    /// # Errors
    /// When the ring's words contradict each other.
    pub fn peek(&self) -> Result<Option<Entry>, RingViolation> {
        self.entries.peek(&self.memory)
    }

    /// Copies payload bytes of the entry just peeked, from `offset` on. `offset` and `target` stay within its length.
    pub fn copy_payload(&self, entry: &Entry, offset: usize, target: &mut [u8]) {
        assert!(offset + target.len() <= entry.length, "a payload read beyond its entry");
        self.entries.copy_payload(&self.memory, offset, target);
    }

    /// Frees the entry just peeked.
    pub fn consume(&mut self, entry: &Entry) {
        self.entries.consume(&self.memory, entry);
    }

    /// How far the program has written, as a stamp. An entry with a later stamp did not exist yet. At most a ring ahead of
    /// [`consumed`](Self::consumed), whatever the memory says.
    pub fn written(&self) -> u64 {
        let head = self.memory.header().tx_head.0.load(Ordering::SeqCst);
        head.clamp(self.entries.position(), self.entries.position() + TX_BYTES as u64)
    }

    /// How far the agent has read, as a stamp.
    pub fn consumed(&self) -> u64 {
        self.entries.position()
    }

    /// Whether the program speaks a layout that has a policy epoch.
    pub fn counts_policy(&self) -> bool {
        let layout = self.memory.header().layout.load(Ordering::Acquire);
        layout >= u32::from(LAYOUT_WITH_POLICY)
    }

    /// How often what the program permits may have changed, as far as it can be seen. Only ever compared: the program can
    /// write anything here.
    pub fn policy_epoch(&self) -> u64 {
        self.memory.header().policy.0.load(Ordering::SeqCst)
    }

    /// The policy epoch, if it is another than last time. Asked after [`peek`](Self::peek), it covers whatever the program did
    /// before it wrote the entry found there.
    pub fn take_policy_epoch(&mut self) -> Option<u64> {
        let epoch = self.policy_epoch();
        let before = std::mem::replace(&mut self.policy_taken, epoch);
        (epoch != before).then_some(epoch)
    }

    /// Says that the agent is about to sleep: programs ring from now on. `false`: there is something already, do not.
    pub fn prepare_sleep(&self) -> bool {
        let header = self.memory.header();
        header.asleep.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_quiet = matches!(self.peek(), Ok(None)) && self.policy_epoch() == self.policy_taken;
        if !is_quiet {
            header.asleep.store(0, Ordering::SeqCst);
        }
        is_quiet
    }

    /// The agent is awake: no need to ring.
    pub fn woke(&self) {
        self.memory.header().asleep.store(0, Ordering::SeqCst);
    }

    /// Silences the doorbell.
    pub fn clear_doorbell(&self) {
        // Empty is as good: somebody else cleared it.
        let _ = rustix::io::retry_on_intr(|| rustix::io::read(&self.doorbell, &mut [0_u8; 8][..]))
            .or_else(|errno| if errno == Errno::AGAIN { Ok(0) } else { Err(errno) });
    }

    /// Ends the session: every socket of it reports ECONNRESET. The wires must be closed afterwards.
    pub fn end(&self) {
        self.memory.header().ended.store(1, Ordering::SeqCst);
    }
}

/// Whether delivered bytes must be announced on the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wake {
    /// No: a byte is there already.
    No,
    /// Yes: the program saw the ring empty.
    Token,
    /// Yes: the program waits for edges. To be counted by [`Host::count_edge`].
    Edge,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_blocks(host: &Host) -> i64 {
        rustix::fs::fstat(host.fds()[0]).unwrap().st_blocks
    }

    #[test]
    fn an_empty_ring_gives_its_pages_back_and_one_with_bytes_keeps_them() {
        let mut host = Host::create(4, 1000).unwrap();
        let slot = host.allocate(State::Connected).unwrap();
        let bare = resident_blocks(&host);
        let bytes = vec![7; RX_BYTES];
        assert_eq!(host.deliver(slot, &bytes, 1), Ok(Wake::Token));
        let full = resident_blocks(&host);
        host.return_pages(slot);
        assert_eq!(resident_blocks(&host), full, "unread bytes stay");
        let words = host.words(slot).unwrap();
        words.program.rx_tail.store(RX_BYTES as u64, Ordering::SeqCst);
        host.return_pages(slot);
        // In blocks of 512 bytes.
        assert_eq!(full - resident_blocks(&host), RX_BYTES as i64 / 512);
        assert!(resident_blocks(&host) <= bare + 16);
        let other = host.allocate(State::Connected).unwrap();
        assert_eq!(host.deliver(other, &bytes, 1), Ok(Wake::Token));
        let full = resident_blocks(&host);
        host.release(other);
        assert_eq!(resident_blocks(&host), full, "it may be used again soon");
        host.return_free_pages();
        assert_eq!(full - resident_blocks(&host), RX_BYTES as i64 / 512);
        assert_eq!(host.deliver(slot, b"again", 2), Ok(Wake::No));
    }
}

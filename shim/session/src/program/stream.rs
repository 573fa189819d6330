//! Bytes in and out of a socket. Never blocks, allocates nothing, and costs a system call only where a state changes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use mqttshim_schema::How;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::entry::{self, Kind, PAYLOAD_BYTES_MAX, Says};
use crate::layout::{LISTED, RX_BYTES, Slot, State};
use crate::lock;
use crate::program::{Session, SlotId};
use crate::ring::Ring;
use crate::sync::Ordering;
use crate::token::{self, RxToken};

/// What a read found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Read {
    /// This many bytes, at least one unless the target is empty.
    Bytes(usize),
    /// The client sent everything it will.
    Eof,
    /// Nothing now. The placeholder becomes readable when there is.
    Empty,
    /// The connection is gone. Told once; then it is [`Read::Eof`].
    Failed(Errno),
}

/// What became of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Write {
    /// This many bytes were taken, perhaps fewer than offered.
    Bytes(usize),
    /// None now. The placeholder becomes writable when there is room.
    Full,
    /// The connection is gone.
    Failed(Errno),
}

/// What a listener has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Accept {
    /// A connection, taken off the queue. Its wire must be handed over by [`Session::attach`].
    Connection(SlotId),
    /// None now. The placeholder becomes readable when there is.
    Empty,
    /// The session is gone: a new one has to be opened and listened on.
    Lost,
}

/// How often a byte that is about to come is looked for before the thread sleeps. The agent needs a microsecond or two.
const OWED_BYTE_LOOKS: u32 = 8;
/// For how long a byte that is owed may then keep a reader: a few turns of a busy core. Of an agent that was stopped just there
/// it remains a debt, and the placeholder tells of nothing once.
const OWED_BYTE_PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Bytes of one record in a listener's ring: a slot's index and generation.
pub(crate) const ACCEPT_RECORD_BYTES: usize = 8;

impl Slot {
    /// Takes the error of a connection that is gone: told once, then reads are at their end. The placeholder, which shows it
    /// to whoever polls, forgets it too.
    pub(super) fn take_error(&self, placeholder: BorrowedFd<'_>) -> Option<Errno> {
        if self.error.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let word = i32::try_from(self.error.swap(0, Ordering::SeqCst)).ok()?;
        let errno = (1..4096).contains(&word).then(|| Errno::from_raw_os_error(word))?;
        if self.state() == State::Connected {
            self.agent.rx_eof.store(1, Ordering::SeqCst);
        }
        let _ = rustix::net::sockopt::socket_error(placeholder);
        Some(errno)
    }
}

impl Session {
    /// Reads what is there into `into`, or with `peek` leaves it there.
    pub fn read(
        &self,
        slot: SlotId,
        placeholder: BorrowedFd<'_>,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Read {
        let Some(words) = self.slot(slot) else { return Read::Failed(Errno::CONNRESET) };
        if words.poisoned.load(Ordering::Relaxed) == 1 {
            return Read::Failed(Errno::CONNRESET);
        }
        let Some(guard) = lock::lock(&words.lock) else { return Read::Empty };
        let read = loop {
            if let Some(read) = self.read_ring(slot, words, placeholder, into, peek) {
                break read;
            }
            if let Some(read) = look_at_placeholder(words, placeholder) {
                break read;
            }
        };
        let wants_credit = matches!(read, Read::Bytes(_)) && !peek && takes_notify(words);
        drop(guard);
        if wants_credit {
            self.say(Kind::Credit, slot);
        }
        read
    }

    /// One look at the ring. `None`: it is empty and the token is armed.
    fn read_ring(
        &self,
        slot: SlotId,
        words: &Slot,
        placeholder: BorrowedFd<'_>,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Option<Read> {
        // End and error are looked at before the head: when either was reached, the head is final.
        let is_over = words.agent.rx_eof.load(Ordering::SeqCst) != 0;
        let is_shut = words.program.rx_shut.load(Ordering::Relaxed) != 0;
        let has_failed = words.error.load(Ordering::SeqCst) != 0;
        let (head, tail) = positions(words);
        let unread = head.wrapping_sub(tail);
        if unread > RX_BYTES as u64 {
            // Somebody wrote where only the two sides may: without this, garbage would be read for ever.
            return Some(Read::Failed(Errno::CONNRESET));
        }
        let there = unread as usize;
        // As Linux has it, and against RFC 9293 §3.10.7.4: what arrived before a reset is read before the reset is told,
        // and after the client's FIN a reader is told of nothing more; but one who reads no more is.
        if there == 0 {
            if is_over {
                return Some(Read::Eof);
            }
            if has_failed && let Some(errno) = words.take_error(placeholder) {
                return Some(Read::Failed(errno));
            }
            if is_shut {
                return Some(Read::Eof);
            }
            self.drained(slot, words, tail, placeholder);
            return None;
        }
        let ring = self.memory.rx(slot.index)?;
        let taken = copy_out(ring, tail, there, into);
        if !peek {
            words.program.rx_tail.store(tail.wrapping_add(taken as u64), Ordering::SeqCst);
            let stamp = words.agent.rx_stamp.load(Ordering::SeqCst);
            self.memory.header().read.fetch_max(stamp, Ordering::SeqCst);
            // Once the stream is over for either side, what may lie on the wire is no token of this data but the lifeline's byte,
            // and the placeholder stays readable anyway.
            if taken == there && !(is_over || is_shut || has_failed) {
                self.drained(slot, words, tail.wrapping_add(taken as u64), placeholder);
            }
        }
        Some(Read::Bytes(taken))
    }

    /// Arms the token if the ring is empty. Under the slot's lock.
    pub(super) fn look(&self, slot: SlotId, words: &Slot, placeholder: BorrowedFd<'_>) {
        let (head, tail) = positions(words);
        if head == tail {
            self.drained(slot, words, tail, placeholder);
        }
    }

    /// The ring was emptied up to `tail`, or found so. Under the slot's lock.
    fn drained(&self, slot: SlotId, words: &Slot, tail: u64, placeholder: BorrowedFd<'_>) {
        let is_listed = words.listed.load(Ordering::Relaxed) == LISTED;
        let is_unannounced = rx_token(words).drained(
            if is_listed { token::LIST } else { token::BYTE },
            || words.agent.rx_head.load(Ordering::SeqCst) != tail,
            |is_coming| take_owed_byte(placeholder, is_coming),
        );
        if is_unannounced {
            self.put_on_list(slot, words);
        }
    }

    /// Writes as much of `from` as there is room for. What is refused or cut short is announced to the card before anything
    /// later, whether or not the caller goes on to wait.
    pub fn write(&self, slot: SlotId, placeholder: BorrowedFd<'_>, from: &[IoSlice<'_>]) -> Write {
        let Some(words) = self.slot(slot) else { return Write::Failed(Errno::CONNRESET) };
        if words.poisoned.load(Ordering::Relaxed) == 1 {
            return Write::Failed(Errno::CONNRESET);
        }
        if let Some(errno) = words.take_error(placeholder) {
            return Write::Failed(errno);
        }
        let header = self.memory.header();
        let Some(guard) = lock::lock(&header.tx_lock.0) else { return Write::Full };
        // Under the lock, because no data may follow a shutdown.
        if words.program.tx_shut.load(Ordering::SeqCst) != 0 {
            return Write::Failed(Errno::PIPE);
        }
        if header.ended.load(Ordering::Relaxed) != 0 {
            return Write::Failed(Errno::CONNRESET);
        }
        if words.state() == State::Connecting {
            // The placeholder is not writable yet.
            return Write::Full;
        }
        let wanted: usize = from.iter().map(|part| part.len()).sum();
        let taken = self.push_data(words, slot, from, wanted);
        let blocked = if taken < wanted { self.block(words, slot, placeholder) } else { Ok(()) };
        drop(guard);
        self.ring_doorbell();
        match (taken, blocked) {
            (0, Err(errno)) => Write::Failed(errno),
            (0, Ok(())) if wanted > 0 => Write::Full,
            (taken, _) => Write::Bytes(taken),
        }
    }

    /// Pushes Data entries while credit and ring allow. Under the send lock.
    fn push_data(&self, words: &Slot, slot: SlotId, from: &[IoSlice<'_>], wanted: usize) -> usize {
        let says = Says { kind: Kind::Data, slot: slot.index, generation: slot.generation };
        let mut taken = 0;
        while taken < wanted {
            let sent = words.program.tx_sent.load(Ordering::Relaxed);
            let limit = words.agent.tx_limit.load(Ordering::SeqCst);
            let credit = usize::try_from(limit.saturating_sub(sent)).unwrap_or(usize::MAX);
            let room = entry::data_room(&self.memory).min(PAYLOAD_BYTES_MAX);
            let length = (wanted - taken).min(credit).min(room);
            if length == 0 {
                break;
            }
            // Counted first: a writer that dies in between has lost credit, not overdrawn it.
            words.program.tx_sent.store(sent.wrapping_add(length as u64), Ordering::SeqCst);
            if !entry::push(&self.memory, says, from, taken, length) {
                words.program.tx_sent.store(sent, Ordering::SeqCst);
                break;
            }
            taken += length;
        }
        taken
    }

    /// Makes the placeholder unwritable and announces it. Under the send lock.
    fn block(&self, words: &Slot, slot: SlotId, placeholder: BorrowedFd<'_>) -> Result<(), Errno> {
        if !entry::fits(&self.memory, 0) {
            // Unannounced, nothing would ever take the filler away. The placeholder stays writable: try again.
            return Ok(());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let first = token::block(&words.program.tx_blocked, || {
            match rustix::net::send(placeholder, &[0], flags) {
                // A wire too full for a filler is unwritable already.
                Ok(_) | Err(Errno::AGAIN) => Ok(()),
                Err(_) => Err(Errno::CONNRESET),
            }
        })?;
        if first {
            let says = Says { kind: Kind::Blocked, slot: slot.index, generation: slot.generation };
            entry::push(&self.memory, says, &[], 0, 0);
        }
        Ok(())
    }

    /// Takes a connection off a listener's queue.
    pub fn accept(&self, listener: SlotId, placeholder: BorrowedFd<'_>) -> Accept {
        // The placeholder outlives the session, and other processes may hold it: what lies on it now is the next session's.
        if !self.is_alive() {
            return Accept::Lost;
        }
        loop {
            let mut record = [0_u8; ACCEPT_RECORD_BYTES];
            let target = &mut [IoSliceMut::new(&mut record)];
            match self.read(listener, placeholder, target, false) {
                Read::Bytes(ACCEPT_RECORD_BYTES) => {
                    let [a, b, c, d, e, f, g, h] = record;
                    let slot = SlotId {
                        index: u32::from_ne_bytes([a, b, c, d]),
                        generation: u32::from_ne_bytes([e, f, g, h]),
                    };
                    if self.slot(slot).is_some() {
                        return Accept::Connection(slot);
                    }
                }
                Read::Empty if self.is_alive() => return Accept::Empty,
                _ => return Accept::Lost,
            }
        }
    }

    /// `shutdown(2)`.
    ///
    /// # Errors
    /// ENOTCONN on a bound socket, and on a connection that is over in both directions.
    pub fn shutdown(&self, slot: SlotId, how: How) -> Result<(), Errno> {
        let words = self.slot(slot).ok_or(Errno::NOTCONN)?;
        let how = match words.state() {
            State::Connected if !self.is_over(slot) => how,
            // As Linux has it: a connect under way is given up, and a listener listens no more.
            State::Connecting | State::Listening => How::Both,
            _ => return Err(Errno::NOTCONN),
        };
        let kind = match how {
            How::Read => Kind::ShutdownRead,
            How::Write => Kind::ShutdownWrite,
            How::Both => Kind::ShutdownBoth,
        };
        self.say_with(kind, slot, || {
            // A connect that was given up has an error to tell a reader.
            if how != How::Write && words.state() != State::Connecting {
                words.program.rx_shut.store(1, Ordering::SeqCst);
            }
            if how != How::Read {
                words.program.tx_shut.store(1, Ordering::SeqCst);
            }
        });
        Ok(())
    }

    /// Whether nothing more will arrive than what a read finds now: the client's end, its own, or an error. Takes none of
    /// them.
    pub fn is_read_over(&self, slot: SlotId) -> bool {
        self.slot(slot).is_none_or(|words| {
            words.agent.rx_eof.load(Ordering::SeqCst) == 1
                || words.program.rx_shut.load(Ordering::SeqCst) == 1
                || words.error.load(Ordering::SeqCst) != 0
        })
    }

    /// Whether the connection is gone and nobody was told the error yet.
    pub fn has_failed(&self, slot: SlotId) -> bool {
        self.slot(slot).is_some_and(|words| words.error.load(Ordering::SeqCst) != 0)
    }

    /// Whether both sides ended their half of a connection, or it was reset: TCP_CLOSE.
    pub fn is_over(&self, slot: SlotId) -> bool {
        let Some(words) = self.slot(slot) else { return true };
        let is_read_over = words.agent.rx_eof.load(Ordering::SeqCst) != 0
            || words.error.load(Ordering::SeqCst) != 0;
        is_read_over && words.program.tx_shut.load(Ordering::SeqCst) != 0
    }

    /// Bytes written that have not left the card yet: `SIOCOUTQ`.
    pub fn unsent_bytes(&self, slot: SlotId) -> usize {
        let Some(words) = self.slot(slot) else { return 0 };
        let window = self.memory.header().tx_window.load(Ordering::Relaxed);
        let sent = words.program.tx_sent.load(Ordering::Relaxed);
        let limit = words.agent.tx_limit.load(Ordering::SeqCst);
        usize::try_from(sent.saturating_add(window).saturating_sub(limit)).unwrap_or(0)
    }

    /// Bytes a read would find: `FIONREAD`.
    pub fn readable_bytes(&self, slot: SlotId) -> usize {
        let Some(words) = self.slot(slot) else { return 0 };
        let (head, tail) = positions(words);
        head.wrapping_sub(tail).min(RX_BYTES as u64) as usize
    }
}

fn positions(words: &Slot) -> (u64, u64) {
    let head = words.agent.rx_head.load(Ordering::SeqCst);
    (head, words.program.rx_tail.load(Ordering::Relaxed))
}

/// The receive token of a socket.
pub(super) fn rx_token(words: &Slot) -> RxToken<'_> {
    RxToken {
        armed: &words.agent.rx_armed,
        asked: &words.program.rx_asked,
        extra: &words.agent.rx_extra,
        debt: &words.program.rx_debt,
    }
}

/// Takes a byte, where `is_coming` also one that the agent is about to send: between announcing and sending it executes next to
/// nothing, but may lose its core there. Without the wait, a program that has just read everything would find its socket
/// readable.
fn take_owed_byte(placeholder: BorrowedFd<'_>, is_coming: bool) -> bool {
    for _ in 0..OWED_BYTE_LOOKS {
        match take_byte(placeholder) {
            Err(Errno::AGAIN | Errno::INTR) if is_coming => rustix::thread::sched_yield(),
            taken => return taken == Ok(1),
        }
    }
    let mut watched = [PollFd::from_borrowed_fd(placeholder, PollFlags::IN)];
    let is_there = rustix::event::poll(&mut watched, Some(&OWED_BYTE_PATIENCE)) == Ok(1);
    is_there && take_byte(placeholder) == Ok(1)
}

fn take_byte(placeholder: BorrowedFd<'_>) -> Result<usize, Errno> {
    rustix::net::recv(placeholder, &mut [0_u8; 1][..], RecvFlags::DONTWAIT).map(|(_, taken)| taken)
}

/// The ring is empty: what does the kernel say? `None`: look at the ring again.
fn look_at_placeholder(words: &Slot, placeholder: BorrowedFd<'_>) -> Option<Read> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    let seen = rustix::net::recv(placeholder, &mut [0_u8; 1][..], flags).map(|(_, seen)| seen);
    let is_unchanged = || {
        let (head, tail) = positions(words);
        head == tail
            && words.agent.rx_eof.load(Ordering::SeqCst) == 0
            && words.program.rx_shut.load(Ordering::SeqCst) == 0
            && words.error.load(Ordering::SeqCst) == 0
    };
    match seen {
        // Whoever died half-way through a read may have left a debt that took the byte of this data.
        Err(Errno::AGAIN | Errno::INTR) => is_unchanged().then_some(Read::Empty),
        // The wire is closed and nothing in the memory says why: the agent is dead.
        Ok(0) | Err(_) if is_unchanged() => {
            words.agent.rx_eof.store(1, Ordering::SeqCst);
            words.program.tx_shut.store(1, Ordering::SeqCst);
            Some(Read::Failed(Errno::CONNRESET))
        }
        Ok(0) | Err(_) => None,
        Ok(_) => {
            if !is_unchanged() {
                return None;
            }
            if words.edge.load(Ordering::Relaxed) == 0 && rx_token(words).is_stray() {
                // A byte sent for newer data would have cleared `armed` before it was sent.
                let _ = take_byte(placeholder);
            }
            Some(Read::Empty)
        }
    }
}

fn copy_out(ring: Ring<'_>, tail: u64, there: usize, into: &mut [IoSliceMut<'_>]) -> usize {
    let mut taken = 0;
    for part in into {
        let length = part.len().min(there - taken);
        ring.copy_out(tail.wrapping_add(taken as u64), &mut part[..length]);
        taken += length;
        if taken == there {
            break;
        }
    }
    taken
}

/// The ring is at most half full and the agent asked to hear of it: whoever sees this first says so.
fn takes_notify(words: &Slot) -> bool {
    let notify = &words.agent.rx_notify;
    if notify.load(Ordering::SeqCst) == 0 {
        return false;
    }
    let (head, tail) = positions(words);
    head.wrapping_sub(tail) <= RX_BYTES as u64 / 2 && notify.swap(0, Ordering::SeqCst) == 1
}

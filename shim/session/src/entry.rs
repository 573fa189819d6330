//! The send ring: everything a session's program says, in one order.
//!
//! ```text
//! ┌─ 24 bytes ──────────────────────────────┬─ length bytes ─┬ to 8 ┐
//! │ kind │ slot │ generation │ length │ read │ payload        │ pad  │   next entry …
//! └─────────────────────────────────────────┴────────────────┴──────┘
//! ```
//!
//! One ring for all sockets *is* the order across sockets: an entry's stamp is the position behind it. Writers take turns
//! under `tx_lock`; the head is published last, so a writer that dies half-way wrote nothing. The agent copies a header
//! out, checks it, then acts; the payload's length is bounded by what lies in the ring.

use std::io::IoSlice;

use crate::layout::{TX_BYTES, TX_RESERVE_BYTES};
use crate::memory::Memory;
use crate::ring::Ring;
use crate::sync::Ordering;

/// Bytes of an entry's header.
pub(crate) const ENTRY_BYTES: usize = 24;
/// Most payload bytes of one entry.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// What an entry says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Kind {
    /// The payload was written to the socket.
    Data = 1,
    /// A write was refused or taken in part.
    Blocked = 2,
    /// The receive ring was emptied below half, and the agent asked to hear of it.
    Credit = 3,
    /// `shutdown(SHUT_RD)`.
    ShutdownRead = 4,
    /// `shutdown(SHUT_WR)`.
    ShutdownWrite = 5,
    /// `shutdown(SHUT_RDWR)`.
    ShutdownBoth = 6,
    /// The last descriptor of a socket without a wire is gone.
    Close = 7,
    /// A Notice message, encoded as on the channel.
    Notice = 8,
    /// The program waits for bytes on the wire again, and lacks the one for what is in its ring (layout 2).
    WantsByte = 9,
    /// `setsockopt` of an option that cannot fail (layout 3): level, name, value, each a native word, in this order.
    Option = 10,
}

impl Kind {
    fn from_word(word: u32) -> Option<Kind> {
        Some(match word {
            1 => Kind::Data,
            2 => Kind::Blocked,
            3 => Kind::Credit,
            4 => Kind::ShutdownRead,
            5 => Kind::ShutdownWrite,
            6 => Kind::ShutdownBoth,
            7 => Kind::Close,
            8 => Kind::Notice,
            9 => Kind::WantsByte,
            10 => Kind::Option,
            _ => return None,
        })
    }
}

/// An entry's header, as its writer put it and its reader found it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry {
    /// What it says.
    pub kind: Kind,
    /// The socket's slot index.
    pub slot: u32,
    /// The socket's generation.
    pub generation: u32,
    /// Payload bytes.
    pub length: usize,
    /// Nothing the card stamped later than this had been read.
    pub read: u64,
    /// The entry's place in the session's order.
    pub stamp: u64,
}

/// Why the session's program broke the contract of the send ring.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RingViolation {
    /// The head is behind the tail, or further ahead than the ring is long.
    #[error("the send ring's head {head} does not fit its tail {tail}")]
    Head {
        /// As read from shared memory.
        head: u64,
        /// As kept by the agent.
        tail: u64,
    },
    /// An entry of an unknown kind.
    #[error("an entry of kind {0}")]
    Kind(u32),
    /// An entry longer than what was published, or than the limit.
    #[error("an entry of {length} bytes where {published} are published")]
    Length {
        /// As the header says.
        length: u32,
        /// What lies between tail and head.
        published: u64,
    },
    /// A slot the session does not have.
    #[error("an entry for slot {0}")]
    Slot(u32),
}

fn padded(length: usize) -> u64 {
    (ENTRY_BYTES + length).next_multiple_of(8) as u64
}

/// Payload bytes that still fit, keeping the reserve for announcements. Call under the lock.
pub(crate) fn data_room(memory: &Memory) -> usize {
    let header = memory.header();
    let head = header.tx_head.0.load(Ordering::Relaxed);
    let used = head.wrapping_sub(header.tx_tail.0.load(Ordering::Acquire));
    let usable = (TX_BYTES - TX_RESERVE_BYTES) as u64;
    usable.saturating_sub(used).saturating_sub(ENTRY_BYTES as u64 + 8) as usize
}

/// Whether an entry with `length` payload bytes fits, reserve included. Call under the lock.
pub(crate) fn fits(memory: &Memory, length: usize) -> bool {
    let header = memory.header();
    let head = header.tx_head.0.load(Ordering::Relaxed);
    let used = head.wrapping_sub(header.tx_tail.0.load(Ordering::Acquire));
    used.saturating_add(padded(length)) <= TX_BYTES as u64
}

/// What a writer says beside its payload.
#[derive(Clone, Copy)]
pub(crate) struct Says {
    pub(crate) kind: Kind,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Appends an entry whose payload is the `length` bytes of `parts` from `skip` on. `false` when it does not fit. Call under
/// the lock.
pub(crate) fn push(
    memory: &Memory,
    says: Says,
    parts: &[IoSlice<'_>],
    skip: usize,
    length: usize,
) -> bool {
    if !fits(memory, length) {
        return false;
    }
    let header = memory.header();
    let head = header.tx_head.0.load(Ordering::Relaxed);
    let ring = memory.tx();
    let read = header.read.load(Ordering::SeqCst);
    let mut words = [0_u8; ENTRY_BYTES];
    words[0..4].copy_from_slice(&(says.kind as u32).to_ne_bytes());
    words[4..8].copy_from_slice(&says.slot.to_ne_bytes());
    words[8..12].copy_from_slice(&says.generation.to_ne_bytes());
    words[12..16].copy_from_slice(&(length as u32).to_ne_bytes());
    words[16..24].copy_from_slice(&read.to_ne_bytes());
    ring.copy_in(head, &words);
    copy_parts(ring, head.wrapping_add(ENTRY_BYTES as u64), parts, skip, length);
    // Foreign as any word here: garbage wraps, and the agent refuses it.
    header.tx_head.0.store(head.wrapping_add(padded(length)), Ordering::SeqCst);
    true
}

fn copy_parts(ring: Ring<'_>, mut at: u64, parts: &[IoSlice<'_>], mut skip: usize, length: usize) {
    let mut left = length;
    for part in parts {
        if skip >= part.len() {
            skip -= part.len();
            continue;
        }
        let bytes = &part[skip..];
        let bytes = &bytes[..bytes.len().min(left)];
        ring.copy_in(at, bytes);
        at = at.wrapping_add(bytes.len() as u64);
        left -= bytes.len();
        skip = 0;
        if left == 0 {
            break;
        }
    }
}

/// The agent's end of a session's send ring.
pub(crate) struct Entries {
    tail: u64,
}

impl Entries {
    pub(crate) fn new() -> Entries {
        Entries { tail: 0 }
    }

    pub(crate) fn position(&self) -> u64 {
        self.tail
    }

    /// The next entry, left in place until [`consume`](Self::consume).
    pub(crate) fn peek(&self, memory: &Memory) -> Result<Option<Entry>, RingViolation> {
        let head = memory.header().tx_head.0.load(Ordering::SeqCst);
        let published = head.wrapping_sub(self.tail);
        if published == 0 {
            return Ok(None);
        }
        if published > TX_BYTES as u64 || published < ENTRY_BYTES as u64 {
            return Err(RingViolation::Head { head, tail: self.tail });
        }
        let mut words = [0_u8; ENTRY_BYTES];
        memory.tx().copy_out(self.tail, &mut words);
        let word = |at: usize| {
            u32::from_ne_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
        };
        let kind = Kind::from_word(word(0)).ok_or(RingViolation::Kind(word(0)))?;
        let (slot, length) = (word(4), word(12));
        if length as usize > PAYLOAD_BYTES_MAX || padded(length as usize) > published {
            return Err(RingViolation::Length { length, published });
        }
        if slot >= memory.slots() {
            return Err(RingViolation::Slot(slot));
        }
        let mut read = [0_u8; 8];
        read.copy_from_slice(&words[16..24]);
        Ok(Some(Entry {
            kind,
            slot,
            generation: word(8),
            length: length as usize,
            read: u64::from_ne_bytes(read),
            stamp: self.tail + padded(length as usize),
        }))
    }

    /// Copies payload bytes of the entry just peeked, from `offset` on.
    pub(crate) fn copy_payload(&self, memory: &Memory, offset: usize, target: &mut [u8]) {
        memory.tx().copy_out(self.tail + (ENTRY_BYTES + offset) as u64, target);
    }

    /// Frees the space of the entry just peeked.
    pub(crate) fn consume(&mut self, memory: &Memory, entry: &Entry) {
        self.tail = entry.stamp;
        memory.header().tx_tail.0.store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAYS: Says = Says { kind: Kind::Data, slot: 1, generation: 5 };

    #[test]
    fn entries_come_out_in_order_with_growing_stamps() {
        let (memory, _file) = Memory::create(2).unwrap();
        let mut entries = Entries::new();
        let mut stamp = 0;
        for round in 0..5_000_u32 {
            let length = (round as usize * 37) % 2_000;
            let bytes: Vec<u8> = (0..length).map(|i| (i as u32 ^ round) as u8).collect();
            let (first, second) = bytes.split_at(length / 3);
            let parts = [IoSlice::new(b"skip"), IoSlice::new(first), IoSlice::new(second)];
            assert!(push(&memory, SAYS, &parts, 4, length));
            let entry = entries.peek(&memory).unwrap().unwrap();
            assert_eq!((entry.kind, entry.slot, entry.length), (Kind::Data, 1, length));
            assert!(entry.stamp > stamp);
            stamp = entry.stamp;
            let mut payload = vec![0; length];
            entries.copy_payload(&memory, 0, &mut payload);
            assert_eq!(payload, bytes);
            entries.consume(&memory, &entry);
            assert_eq!(entries.peek(&memory), Ok(None));
        }
    }

    #[test]
    fn data_leaves_room_for_announcements() {
        let (memory, _file) = Memory::create(2).unwrap();
        let block = vec![1_u8; PAYLOAD_BYTES_MAX];
        while data_room(&memory) > 0 {
            let length = data_room(&memory).min(block.len());
            assert!(push(&memory, SAYS, &[IoSlice::new(&block)], 0, length));
        }
        let blocked = Says { kind: Kind::Blocked, ..SAYS };
        for _ in 0..TX_RESERVE_BYTES / ENTRY_BYTES {
            assert!(push(&memory, blocked, &[], 0, 0));
        }
    }

    #[test]
    fn what_a_hostile_program_writes_is_a_named_violation() {
        let (memory, _file) = Memory::create(2).unwrap();
        let entries = Entries::new();
        let head = &memory.header().tx_head.0;
        head.store(TX_BYTES as u64 + 1, Ordering::SeqCst);
        assert!(matches!(entries.peek(&memory), Err(RingViolation::Head { .. })));
        head.store(8, Ordering::SeqCst);
        assert!(matches!(entries.peek(&memory), Err(RingViolation::Head { .. })));
        head.store(64, Ordering::SeqCst);
        assert_eq!(entries.peek(&memory), Err(RingViolation::Kind(0)));
        let ring = memory.tx();
        ring.copy_in(0, &1_u32.to_ne_bytes());
        ring.copy_in(4, &2_u32.to_ne_bytes());
        assert_eq!(entries.peek(&memory), Err(RingViolation::Slot(2)));
        ring.copy_in(12, &100_u32.to_ne_bytes());
        assert!(matches!(entries.peek(&memory), Err(RingViolation::Length { length: 100, .. })));
        ring.copy_in(12, &u32::MAX.to_ne_bytes());
        assert!(matches!(entries.peek(&memory), Err(RingViolation::Length { .. })));
    }
}

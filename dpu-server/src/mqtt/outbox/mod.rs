//! What waits to be written: [`Outbox`] towards a client, [`ByteQueue`] towards the broker.
//!
//! ```text
//! broker's bytes ──► relay (one buffer) ─┐
//!                                        ├─► chunks in order ──► chunks() / advance()
//! card's copies  ──► shared packets ─────┘
//!        └─ while the broker is inside a packet: deferred, until it ends
//! ```
//!
//! Broker-origin bytes are bounded by the broker's credit and never dropped. The card's copies are bounded in bytes and
//! messages, for one client and for all; the newest is dropped, whole, and nobody else notices. Queueing a copy costs a
//! reference count and an entry; nothing is allocated once the queue has its size.

mod copy;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;

use self::copy::{OwnCopy, Pieces};
use super::config::Limits;
use super::counters::DropReason;
use super::packet::Encoded;
use mqttshim_port::prefetch::{soon, soon_at};

/// Capacity kept when a queue runs empty, in bytes.
const CAPACITY_KEPT_BYTES: usize = 16 * 1024;

/// With fewer bytes waiting nobody is refused one more copy because much waits for others.
const SHARE_BYTES: usize = 128 * 1024;

/// A first-in first-out queue of bytes in one contiguous buffer.
#[derive(Debug, Default)]
pub struct ByteQueue {
    buffer: Vec<u8>,
    /// Bytes at the front that are gone. Always <= `buffer.len()`.
    start: usize,
}

impl ByteQueue {
    /// Bytes waiting.
    pub fn bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// All that waits, oldest first.
    pub fn as_slice(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Removes `n` bytes from the front.
    ///
    /// # Panics
    /// If fewer wait.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.bytes(), "advanced by {n} of {} bytes", self.bytes());
        self.start += n;
        if self.is_empty() {
            self.buffer.clear();
            self.buffer.shrink_to(CAPACITY_KEPT_BYTES);
            self.start = 0;
        }
    }

    /// Keeps the first `n` bytes that wait.
    fn truncate(&mut self, n: usize) {
        self.buffer.truncate(self.start + n);
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Moving what waits is paid for by the bytes that left: at least as many.
        if self.start > self.bytes() && self.buffer.len() + bytes.len() > self.buffer.capacity() {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }
}

/// Bytes of copies waiting in all outboxes of one core.
///
/// Written by plain loads and stores: outboxes and core live in one thread, the atomic only lets the core move there.
#[derive(Clone, Debug, Default)]
pub(crate) struct TotalBytes(Arc<AtomicUsize>);

impl TotalBytes {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, n: usize) {
        self.0.store(self.get() + n, Ordering::Relaxed);
    }

    fn subtract(&self, n: usize) {
        self.0.store(self.get() - n, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Chunk {
    /// So many bytes of `relay`. Never 0.
    Broker(usize),
    /// A copy made by the card, or what is left of it.
    Card(Bytes),
    /// The same, with bytes of its own.
    Own(OwnCopy),
    /// So many bytes of `acks`. Never 0.
    Acks(usize),
}

impl Chunk {
    fn of(copy: &Encoded, id: Option<u16>, since: Instant) -> Chunk {
        if copy.expiry.is_none() && id.is_none() {
            Chunk::Card(copy.packet.clone())
        } else {
            Chunk::Own(OwnCopy::new(copy, id, since))
        }
    }

    /// Bytes of a copy.
    fn card_bytes(&self) -> usize {
        match self {
            Self::Broker(_) | Self::Acks(_) => 0,
            Self::Card(bytes) => bytes.len(),
            Self::Own(copy) => copy.bytes(),
        }
    }

    /// Bytes of anything but the broker's.
    fn own_bytes(&self) -> usize {
        match self {
            Self::Acks(len) => *len,
            other => other.card_bytes(),
        }
    }

    fn may_expire(&self) -> bool {
        matches!(self, Self::Own(copy) if copy.may_expire())
    }
}

/// What one client is to be sent.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Outbox {
    // What tells whether a copy may pass by comes first, close together.
    chunks: VecDeque<Chunk>,
    /// The last broker-origin byte does not end a packet.
    is_mid_packet: bool,
    relay: ByteQueue,
    /// The card's acknowledgements.
    acks: ByteQueue,
    /// Copies that wait for the end of the packet the broker is in the middle of.
    deferred: VecDeque<Chunk>,
    /// Bytes of copies in `chunks` and `deferred`, and of what was admitted and has yet to be pushed.
    card_bytes: usize,
    /// Bytes of those that have yet to be pushed.
    admitted_bytes: usize,
    /// Copies in `chunks` and `deferred`.
    card_messages: usize,
    /// Copies among them that may not wait for ever.
    expiring: usize,
    /// Broker-origin bytes that left since last asked.
    broker_bytes_drained: usize,
    total: TotalBytes,
}

impl Outbox {
    pub(crate) fn new(total: TotalBytes) -> Self {
        let mut outbox = Self::default();
        outbox.total = total;
        outbox
    }

    /// Asks for what [`Outbox::is_idle`] looks at.
    #[inline]
    pub(crate) fn expect_idle(&self) {
        soon(&self.chunks);
        soon(&self.is_mid_packet);
    }

    /// Asks for where the next copy goes.
    #[inline]
    pub(crate) fn expect(&self) {
        // Of an empty slice only the address is asked for; an empty queue begins at it (`advance`).
        let place = self.chunks.as_slices().0.as_ptr();
        soon_at(place);
    }

    /// Whether a copy may be sent past it: nothing waits, and the client is between two packets.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.chunks.is_empty() && !self.is_mid_packet
    }

    /// Whether nothing can be sent.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes that can be sent.
    pub fn bytes(&self) -> usize {
        let deferred: usize = self.deferred.iter().map(Chunk::own_bytes).sum();
        self.relay.bytes() + self.acks.bytes() + self.card_bytes - self.admitted_bytes - deferred
    }

    /// What can be sent, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut relay = self.relay.as_slice();
        let mut acks = self.acks.as_slice();
        self.chunks.iter().flat_map(move |chunk| match chunk {
            Chunk::Card(bytes) => Pieces::one(bytes),
            Chunk::Own(copy) => copy.pieces(),
            &Chunk::Acks(len) => {
                let (front, rest) = acks.split_at(len);
                acks = rest;
                Pieces::one(front)
            }
            &Chunk::Broker(len) => {
                let (front, rest) = relay.split_at(len);
                relay = rest;
                Pieces::one(front)
            }
        })
    }

    /// Removes `n` bytes from the front: they were sent.
    ///
    /// # Panics
    /// If fewer can be sent.
    pub fn advance(&mut self, n: usize) {
        self.take_sent(n);
        if self.chunks.is_empty() {
            // The next copy goes where this one was, and not around the queue's memory.
            self.chunks.clear();
        }
    }

    fn take_sent(&mut self, mut n: usize) {
        while n > 0 {
            match self.chunks.front_mut().expect("cannot advance past what waits") {
                Chunk::Broker(len) => {
                    let gone = n.min(*len);
                    *len -= gone;
                    n -= gone;
                    if *len == 0 {
                        self.chunks.pop_front();
                    }
                    self.relay.advance(gone);
                    self.broker_bytes_drained += gone;
                }
                Chunk::Acks(len) => {
                    let gone = n.min(*len);
                    *len -= gone;
                    n -= gone;
                    if *len == 0 {
                        self.chunks.pop_front();
                    }
                    self.acks.advance(gone);
                }
                copy => {
                    let gone = n.min(copy.card_bytes());
                    n -= gone;
                    self.card_bytes -= gone;
                    self.total.subtract(gone);
                    let may_expire = copy.may_expire();
                    match copy {
                        Chunk::Card(bytes) => bytes::Buf::advance(bytes, gone),
                        Chunk::Own(copy) => copy.advance(gone),
                        Chunk::Broker(_) | Chunk::Acks(_) => {}
                    }
                    if copy.card_bytes() == 0 {
                        self.chunks.pop_front();
                        self.card_messages -= 1;
                        self.expiring -= usize::from(may_expire);
                    }
                }
            }
        }
    }

    /// Broker-origin bytes that left since last asked, so that as much credit can be returned to the broker.
    pub fn broker_bytes_drained(&mut self) -> usize {
        std::mem::take(&mut self.broker_bytes_drained)
    }

    /// Queues bytes of the broker. `is_mid_packet`: they do not end a packet.
    pub(crate) fn push_broker(&mut self, bytes: &[u8], is_mid_packet: bool) {
        self.is_mid_packet = is_mid_packet;
        if !bytes.is_empty() {
            self.relay.push(bytes);
            match self.chunks.back_mut() {
                Some(Chunk::Broker(len)) => *len += bytes.len(),
                _ => self.chunks.push_back(Chunk::Broker(bytes.len())),
            }
        }
        if !is_mid_packet {
            self.chunks.extend(self.deferred.drain(..));
        }
    }

    /// Bytes of the broker that are not for the client: its credit comes back all the same.
    pub(crate) fn swallow_broker(&mut self, n: usize) {
        self.broker_bytes_drained += n;
    }

    /// Queues a copy with QoS 0, or says why it is dropped.
    #[inline]
    pub(crate) fn push_card(
        &mut self,
        copy: &Encoded,
        now: Instant,
        limits: &Limits,
    ) -> Result<(), DropReason> {
        if self.is_full(limits) {
            return Err(DropReason::Messages);
        }
        self.admit(copy.packet.len(), limits)?;
        self.push_admitted(copy, None, now);
        Ok(())
    }

    /// Queues a copy with QoS 0 before all that waits, whatever the bounds: when it came, nothing waited.
    pub(crate) fn push_first(&mut self, copy: &Encoded, since: Instant) {
        self.admit_all(copy.packet.len());
        self.admitted_bytes -= copy.packet.len();
        self.card_messages += 1;
        self.expiring += usize::from(copy.expiry.is_some());
        self.chunks.push_front(Chunk::of(copy, None, since));
    }

    /// Counts bytes that will be pushed later, or says why they must not be.
    #[inline]
    pub(crate) fn admit(&mut self, bytes: usize, limits: &Limits) -> Result<(), DropReason> {
        self.check_room(bytes, limits)?;
        self.admit_all(bytes);
        Ok(())
    }

    /// Whether as many copies wait as may.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        self.card_messages >= limits.outbox_messages_max
    }

    /// Whether so many bytes more may wait.
    #[inline]
    pub(crate) fn check_room(&self, bytes: usize, limits: &Limits) -> Result<(), DropReason> {
        if self.card_bytes + bytes > limits.outbox_bytes_max {
            return Err(DropReason::Bytes);
        }
        if self.total.get() + bytes > limits.outbox_total_bytes_max
            && self.card_bytes >= SHARE_BYTES
        {
            return Err(DropReason::TotalBytes);
        }
        Ok(())
    }

    /// Counts bytes that will be pushed later, whatever the bounds: they are bounded otherwise.
    pub(crate) fn admit_all(&mut self, bytes: usize) {
        self.card_bytes += bytes;
        self.admitted_bytes += bytes;
        self.total.add(bytes);
    }

    /// What was admitted will not be pushed.
    pub(crate) fn dismiss(&mut self, bytes: usize) {
        self.card_bytes -= bytes;
        self.admitted_bytes -= bytes;
        self.total.subtract(bytes);
    }

    /// Queues an admitted copy that waits `since` then. `id`: its Packet Identifier, if it has one.
    #[inline]
    pub(crate) fn push_admitted(&mut self, copy: &Encoded, id: Option<u16>, since: Instant) {
        self.admitted_bytes -= copy.packet.len();
        self.card_messages += 1;
        self.expiring += usize::from(copy.expiry.is_some());
        self.push(Chunk::of(copy, id, since));
    }

    /// Queues an acknowledgement of the card's. Never dropped: the caller looks at [`Self::ack_bytes`].
    pub(crate) fn push_ack(&mut self, packet: &[u8]) {
        self.acks.push(packet);
        let queue = if self.is_mid_packet { &mut self.deferred } else { &mut self.chunks };
        match queue.back_mut() {
            Some(Chunk::Acks(len)) => *len += packet.len(),
            _ => queue.push_back(Chunk::Acks(packet.len())),
        }
    }

    /// Bytes of the card's acknowledgements that wait.
    pub(crate) fn ack_bytes(&self) -> usize {
        self.acks.bytes()
    }

    fn push(&mut self, chunk: Chunk) {
        let queue = if self.is_mid_packet { &mut self.deferred } else { &mut self.chunks };
        queue.push_back(chunk);
    }

    /// Takes the time that copies have waited off the time they may; how many are dropped because it is over. Their Packet
    /// Identifiers are added to `ids`. To be called when something that may have waited for long is about to be sent.
    pub(crate) fn count_down(&mut self, now: Instant, ids: &mut Vec<u16>) -> u64 {
        if self.expiring == 0 {
            return 0;
        }
        let (mut dropped, mut bytes) = (0, 0);
        for queue in [&mut self.chunks, &mut self.deferred] {
            queue.retain_mut(|chunk| {
                let Chunk::Own(copy) = chunk else { return true };
                let is_over = copy.count_down(now);
                if is_over {
                    dropped += 1;
                    bytes += copy.bytes();
                    ids.extend(copy.id());
                }
                !is_over
            });
        }
        self.expiring -= dropped;
        self.card_messages -= dropped;
        self.card_bytes -= bytes;
        self.total.subtract(bytes);
        dropped as u64
    }

    /// There will be no end of packet any more; how many copies waited for it.
    pub(crate) fn drop_deferred(&mut self) -> usize {
        let bytes: usize = self.deferred.iter().map(Chunk::card_bytes).sum();
        self.expiring -= self.deferred.iter().filter(|chunk| chunk.may_expire()).count();
        // Acknowledgements were the last to come, and are the last to be told of.
        let is_ack = |chunk: &Chunk| matches!(chunk, Chunk::Acks(_));
        let messages = self.deferred.iter().filter(|chunk| !is_ack(chunk)).count();
        let acks: usize = self.deferred.iter().filter(|it| is_ack(it)).map(Chunk::own_bytes).sum();
        self.acks.truncate(self.acks.bytes() - acks);
        self.deferred.clear();
        self.card_bytes -= bytes;
        self.card_messages -= messages;
        self.total.subtract(bytes);
        messages
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.total.subtract(self.card_bytes);
    }
}

#[cfg(test)]
mod tests;

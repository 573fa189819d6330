//! Messages that left before their connections were told: kept until all of these know.
//!
//! One copy each, however many connections it went to. Numbers grow with time and go round.

use std::collections::VecDeque;

use smoltcp::time::Instant;
use smoltcp::wire::checksum;

/// Memory of messages that are gone, kept for the next ones: so many, and so long each at most.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 2048;
/// Places of messages that are kept while there are none.
const PLACES_MAX: usize = 4096;

/// One message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// The sum of its octets (RFC 1071 §2).
    pub(super) sum: u16,
    /// When it was sent, by smoltcp's clock.
    pub(super) at: Instant,
    /// Connections that do not know yet, and one more while its batch is under way.
    holders: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Messages {
    kept: VecDeque<Message>,
    /// The number of the first one kept.
    first: u32,
    /// The numbers of the batch's.
    batch: Vec<Option<u32>>,
    spare: Vec<Vec<u8>>,
    /// Of each message as many times as it is held.
    bytes: usize,
    /// Places of messages that nobody holds, behind one that is held.
    gone: usize,
}

impl Messages {
    /// The number of the batch's message `place`, which is sent now.
    #[inline]
    pub(super) fn number(&mut self, place: u32, bytes: &[u8], now: Instant) -> u32 {
        match self.batch.get(place as usize) {
            Some(Some(number)) => *number,
            _ => self.keep(place as usize, bytes, now),
        }
    }

    #[cold]
    fn keep(&mut self, place: usize, bytes: &[u8], now: Instant) -> u32 {
        let number = self.first.wrapping_add(self.kept.len() as u32);
        if self.batch.len() <= place {
            self.batch.resize(place + 1, None);
        }
        self.batch[place] = Some(number);
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.extend_from_slice(bytes);
        self.bytes += memory.len();
        let sum = checksum::data(bytes);
        self.kept.push_back(Message { bytes: memory, sum, at: now, holders: 1 });
        number
    }

    /// One that is kept.
    #[inline]
    pub(super) fn get(&self, number: u32) -> &Message {
        &self.kept[number.wrapping_sub(self.first) as usize]
    }

    /// One connection more was not told of it.
    #[inline]
    pub(super) fn hold(&mut self, number: u32) -> &Message {
        let message = &mut self.kept[number.wrapping_sub(self.first) as usize];
        message.holders += 1;
        self.bytes += message.bytes.len();
        message
    }

    /// One fewer. What nobody holds takes no memory but its place, also behind one that is held for long.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        let message = &mut self.kept[number.wrapping_sub(self.first) as usize];
        message.holders -= 1;
        self.bytes -= message.bytes.len();
        if message.holders == 0 {
            self.gone += 1;
            let memory = std::mem::take(&mut message.bytes);
            self.forget(memory);
        }
    }

    /// The batch is over.
    pub(super) fn end_batch(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        for number in batch.drain(..).flatten() {
            self.release(number);
        }
        self.batch = batch;
    }

    /// Takes back the memory of a message, and the numbers of the oldest ones that nobody holds.
    fn forget(&mut self, mut memory: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && memory.capacity() <= SPARE_BYTES_MAX {
            memory.clear();
            self.spare.push(memory);
        }
        while self.kept.pop_front_if(|message| message.holders == 0).is_some() {
            self.first = self.first.wrapping_add(1);
            self.gone -= 1;
        }
        if self.kept.is_empty() && self.kept.capacity() > PLACES_MAX {
            self.kept.shrink_to(PLACES_MAX);
        }
    }

    /// Panics unless the messages are held so often, outside a batch.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self, held: &std::collections::BTreeMap<u32, u32>) {
        let holders =
            |at: usize| held.get(&self.first.wrapping_add(at as u32)).copied().unwrap_or(0);
        for (at, message) in self.kept.iter().enumerate() {
            assert_eq!(message.holders, holders(at), "of message {at} behind {}", self.first);
        }
        let known = (0..self.kept.len()).filter(|at| holders(*at) > 0).count();
        assert_eq!(known, held.len(), "a lane has a message that is gone");
        assert!(self.kept.front().is_none_or(|message| message.holders > 0));
    }

    /// Bytes that buffers would take if all who hold a message had to keep it, those of the batch, and places that are kept for
    /// nobody.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.gone * size_of::<Message>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_kept_until_everybody_knows_and_those_before_it_are_gone() {
        let mut messages = Messages { first: u32::MAX, ..Messages::default() };
        let now = Instant::from_millis(7);
        let numbers = [0, 1].map(|place| messages.number(place, &[place as u8; 3], now));
        assert_eq!(numbers, [u32::MAX, 0]);
        assert_eq!(messages.number(1, b"not looked at", now), 0);
        assert_eq!(messages.hold(u32::MAX).bytes, [0; 3]);
        messages.hold(0);
        messages.end_batch();
        messages.release(0);
        assert_eq!((messages.bytes, messages.gone, messages.get(u32::MAX).at), (3, 1, now));
        assert_eq!((messages.kept.len(), messages.spare.len()), (2, 1));
        messages.release(u32::MAX);
        assert_eq!((messages.bytes(), messages.kept.len(), messages.spare.len()), (0, 0, 2));
        assert_eq!(messages.number(0, b"next", now), 1, "a batch of its own");
        assert_eq!(messages.get(1).bytes, b"next");
    }
}

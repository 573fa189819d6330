//! What was said to a broker, and may come out of it at any time: a set that forgets nothing.
//!
//! A Bloom filter of a fixed size: what was added is always found, and the fuller it is, the more is found that was not. Here that
//! costs a window, never a proof. What is said of one topic is in one part of it, so that a topic of which much is said takes the others
//! of that part along, one in [`PARTS`].
//!
//! With 50,000 in a part, less than one in ten others is found wrongly. There is no aging: nothing that was said to such a broker becomes
//! impossible with time.

use super::digest::Digest;

/// Parts, one a topic.
const PARTS: usize = 256;
/// Bits of a part: 8 MiB in all, of which only what is written to takes memory.
const PART_BITS: usize = 1 << 18;
const PART_WORDS: usize = PART_BITS / 64;
/// Bits set for each that is added.
const BITS: u64 = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Empty until the first is added.
    words: Box<[u64]>,
}

impl Said {
    pub(super) fn add(&mut self, content: Digest) {
        if self.words.is_empty() {
            self.words = vec![0; PARTS * PART_WORDS].into();
        }
        for bit in bits(content) {
            self.words[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Whether it was added, or looks as if.
    pub(super) fn has(&self, content: Digest) -> bool {
        !self.words.is_empty()
            && bits(content).all(|bit| self.words[bit / 64] >> (bit % 64) & 1 == 1)
    }
}

/// The upper half is the topic's, and says which part.
fn bits(content: Digest) -> impl Iterator<Item = usize> {
    let (topic, content) = ((content >> 64) as u64, content as u64);
    let part = topic as usize % PARTS * PART_BITS;
    let (first, step) = (content & 0xFFFF_FFFF, content >> 32 | 1);
    (0..BITS).map(move |n| part + (first + n * step) as usize % PART_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contents of a part before one in ten others looks as if it was added.
    const ADDED_MAX: u64 = 50_000;

    /// Digests as good as random.
    fn content(topic: u64, number: u64) -> Digest {
        let mixed = number.wrapping_add(topic << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Digest::from(topic) << 64 | Digest::from(mixed ^ mixed >> 32)
    }

    #[test]
    fn what_was_added_is_found_and_little_else() {
        let mut said = Said::default();
        assert!(!said.has(content(1, 0)));
        (0..ADDED_MAX).for_each(|number| said.add(content(1, number)));
        assert!((0..ADDED_MAX).all(|number| said.has(content(1, number))));
        let wrong = (ADDED_MAX..2 * ADDED_MAX).filter(|&number| said.has(content(1, number)));
        assert!(wrong.count() < ADDED_MAX as usize / 10);
        assert!((0..ADDED_MAX).all(|number| !said.has(content(2, number))), "another part");
    }
}

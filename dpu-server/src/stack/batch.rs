//! The bytes of many outboxes, borrowed for one call of [`send`](super::Stack::send).
//!
//! ```text
//! slices: [ a1 a2 │ b1 │ c1 c2 c3 ]      parts: [ a: 0..2, b: 2..3, c: 3..6 ]
//! ```
//!
//! Holds references only. Its two tables keep their capacity from flush to flush ([`Batch::recycle`]).

use std::io::IoSlice;
use std::ops::Range;

use super::Key;

/// Most slices one connection contributes to one batch: what one `writev(2)` may take is 1024 (IOV_MAX), and a shorter list
/// keeps one connection from filling the batch.
const SLICES_MAX: usize = 64;

/// Connections with bytes to send, and the bytes.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    slices: Vec<IoSlice<'a>>,
    /// In order, each range behind the one before.
    parts: Vec<(Key, Range<usize>)>,
}

impl<'a> Batch<'a> {
    /// Adds one connection with the front of its bytes; returns whether there was anything to add. A key must not be added
    /// twice.
    pub fn push(&mut self, key: Key, chunks: impl Iterator<Item = &'a [u8]>) -> bool {
        let start = self.slices.len();
        self.slices.extend(chunks.take(SLICES_MAX).map(IoSlice::new));
        if self.slices.len() == start {
            return false;
        }
        self.parts.push((key, start..self.slices.len()));
        true
    }

    /// Number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// One connection's part.
    #[must_use]
    pub fn part(&self, index: usize) -> (Key, &[IoSlice<'a>]) {
        let (key, range) = &self.parts[index];
        (*key, &self.slices[range.clone()])
    }

    /// Every connection's part, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &[IoSlice<'a>])> + Clone {
        self.parts.iter().map(|(key, range)| (*key, &self.slices[range.clone()]))
    }

    /// An empty batch in the memory of this one.
    #[must_use]
    pub fn recycle<'b>(mut self) -> Batch<'b> {
        self.slices.clear();
        self.parts.clear();
        // An in-place collect: the lifetime changes, the allocation stays.
        let slices = self.slices.into_iter().map(|_| IoSlice::new(&[])).collect();
        Batch { slices, parts: self.parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_order_and_their_slices() {
        let mut batch = Batch::default();
        assert!(batch.push(Key(7), [&b"a"[..], b"b"].into_iter()));
        assert!(!batch.push(Key(8), std::iter::empty()));
        assert!(batch.push(Key(9), [&b"c"[..]].into_iter()));
        assert_eq!(batch.len(), 2);
        let (key, slices) = batch.part(0);
        assert_eq!((key, slices.len()), (Key(7), 2));
        assert_eq!(&*batch.part(1).1[0], b"c");
    }

    #[test]
    fn one_connection_contributes_a_bounded_number_of_slices() {
        let mut batch = Batch::default();
        batch.push(Key(1), std::iter::repeat_n(&b"x"[..], 10 * SLICES_MAX));
        assert_eq!(batch.part(0).1.len(), SLICES_MAX);
    }

    #[test]
    fn a_recycled_batch_is_empty_and_keeps_its_memory() {
        let mut batch = Batch::default();
        for key in 0..100 {
            batch.push(Key(key), [&b"x"[..]].into_iter());
        }
        let capacity = batch.slices.capacity();
        let batch: Batch<'static> = batch.recycle();
        assert!(batch.is_empty());
        assert_eq!(batch.slices.capacity(), capacity);
    }
}

//! Digests that tell equal bytes from different ones, also where an adversary chooses the bytes.

use std::hash::{BuildHasher, RandomState};

/// 128 bits that are equal for equal bytes, and for no others anybody could find.
pub(crate) type Digest = u128;

/// Two keys of SipHash, drawn when the core is made. Nobody outside sees a digest, so that finding two inputs of one digest is
/// guessing. No decision depends on which keys they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys([RandomState; 2]);

impl Keys {
    /// The digest of these parts, each with its length.
    pub(crate) fn digest(&self, parts: &[&[u8]]) -> Digest {
        let [high, low] = self.0.each_ref().map(|key| key.hash_one(parts));
        Digest::from(high) << 64 | Digest::from(low)
    }

    /// A digest whose upper half is of the first parts alone, and the lower one of all.
    pub(crate) fn digest_below(&self, first: &[&[u8]], all: &[&[u8]]) -> Digest {
        let [high, low] = &self.0;
        Digest::from(high.hash_one(first)) << 64 | Digest::from(low.hash_one(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_order_count_and_keys_differ() {
        let keys = Keys::default();
        let all: [&[&[u8]]; 4] = [&[b"ab", b"c"], &[b"a", b"bc"], &[b"abc"], &[b"c", b"ab"]];
        let digests = all.map(|parts| keys.digest(parts));
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest));
        }
        assert_eq!(keys.digest(all[0]), digests[0]);
        let halves = [b"x", b"y"].map(|last: &[u8; 1]| keys.digest_below(&[b"t"], &[b"t", last]));
        assert_eq!(halves[0] >> 64, halves[1] >> 64);
        assert_ne!(halves[0], halves[1]);
        assert_ne!(Keys::default().digest(all[0]), digests[0]);
        assert_ne!(digests[0] >> 64, digests[0] & Digest::from(u64::MAX));
    }
}

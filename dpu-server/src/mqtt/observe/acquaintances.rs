//! Which publisher has published on which topic before, as far as one fixed table remembers.
//!
//! Only a topic that is published again is worth watching. A newer pair takes the place of an older one; to remember wrongly costs
//! one window too early, to forget one too late.

use super::super::ConnId;
use super::digest::Digest;

/// Places in the table, of 8 bytes each.
const PLACES: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Acquaintances {
    /// Empty until the first is met.
    places: Box<[u64]>,
}

impl Acquaintances {
    /// Notes that a publisher publishes on a topic; whether it has before.
    pub(crate) fn meet(&mut self, publisher: ConnId, topic: Digest) -> bool {
        if self.places.is_empty() {
            self.places = vec![0; PLACES].into();
        }
        let pair = topic
            ^ Digest::from(publisher.0).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let (print, place) = ((pair >> 64) as u64, pair as usize % PLACES);
        std::mem::replace(&mut self.places[place], print) == print
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_new_once() {
        let mut known = Acquaintances::default();
        let (topic, other) = (0xABCD_u128 << 64 | 5, 0xABCD_u128 << 64 | 6);
        assert!(!known.meet(ConnId(1), topic));
        assert!(!known.meet(ConnId(2), topic));
        assert!(!known.meet(ConnId(1), other));
        assert!(known.meet(ConnId(1), topic) && known.meet(ConnId(2), topic));
    }
}

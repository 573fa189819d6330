//! Deadlines of connections: a hierarchical timer wheel, one millisecond fine.
//!
//! ```text
//! level 0   256 slots of 1 ms        ┐ an entry lies in the level whose span holds its distance, and falls to the one
//! level 1   256 slots of 256 ms      ├ below when its slot's time comes
//! level 2   256 slots of 65.5 s      ┘ (4.6 hours; what is farther away waits in the last slot)
//! ```
//!
//! Nothing is ever taken out: whoever owns a deadline remembers which entry is its own, ignores the others when they fire, and
//! where its deadline moved back lets the entry fire early and puts in a new one. So a connection whose retransmission timer
//! is set anew with every segment costs one entry, not one a segment; and an idle one costs none.

const SLOTS: usize = 256;
const SLOT_BITS: u32 = 8;
const LEVELS: usize = 3;
/// Words of one bit a slot.
const WORDS: usize = SLOTS / 64;
/// Farthest a deadline may lie ahead, in milliseconds.
const SPAN: u64 = 1 << (SLOT_BITS * LEVELS as u32);

/// An entry: who, and when in milliseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Due {
    /// The connection.
    pub(super) id: u32,
    /// Its deadline.
    pub(super) at: u64,
}

#[derive(Debug)]
struct Level {
    slots: Vec<Vec<Due>>,
    /// Which slots hold entries.
    occupied: [u64; WORDS],
}

impl Level {
    fn new() -> Level {
        Level { slots: vec![Vec::new(); SLOTS], occupied: [0; WORDS] }
    }

    fn put(&mut self, slot: usize, due: Due) {
        self.slots[slot].push(due);
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    fn take(&mut self, slot: usize, into: &mut Vec<Due>) {
        into.append(&mut self.slots[slot]);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
    }

    /// How many slots behind `from` the first occupied one is, counting round: a word at a time, the first one in two parts.
    fn first_after(&self, from: usize) -> Option<usize> {
        let start = (from + 1) % SLOTS;
        let behind_start = !0 << (start % 64);
        (0..=WORDS).find_map(|step| {
            let word = (start / 64 + step) % WORDS;
            let bits = match step {
                0 => self.occupied[word] & behind_start,
                WORDS => self.occupied[word] & !behind_start,
                _ => self.occupied[word],
            };
            let slot = word * 64 + bits.trailing_zeros() as usize;
            (bits != 0).then(|| (slot + SLOTS - start) % SLOTS + 1)
        })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Wheel {
    levels: [Level; LEVELS],
    /// Everything due at or before this was given out.
    now: u64,
    entries: usize,
    moved: Vec<Due>,
}

impl Wheel {
    /// A wheel that begins at 0.
    pub(super) fn new() -> Wheel {
        let levels = [Level::new(), Level::new(), Level::new()];
        Wheel { levels, now: 0, entries: 0, moved: Vec::new() }
    }

    /// Everything due at or before this was given out.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// Puts an entry in; one that is due already fires at the next advance.
    pub(super) fn put(&mut self, due: Due) {
        self.entries += 1;
        self.place(due);
    }

    fn place(&mut self, due: Due) {
        let at = due.at.clamp(self.now + 1, self.now + SPAN - SPAN / SLOTS as u64);
        let ahead = at - self.now;
        let level = (0..LEVELS - 1).find(|level| ahead < 1 << (SLOT_BITS * (*level as u32 + 1)));
        let level = level.unwrap_or(LEVELS - 1);
        let slot = (at >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        self.levels[level].put(slot, due);
    }

    /// Gives out what is due at `now`, in no order.
    pub(super) fn advance(&mut self, now: u64, due: &mut Vec<Due>) {
        while self.now < now {
            // Over the empty stretches in one step each.
            let Some(next) = self.next() else {
                self.now = now;
                return;
            };
            self.now = next.min(now);
            if next <= now {
                self.fall(due);
            }
        }
    }

    /// Empties the slots whose time is `self.now`.
    fn fall(&mut self, due: &mut Vec<Due>) {
        for level in (0..LEVELS).rev() {
            let bits = SLOT_BITS * level as u32;
            if self.now & ((1 << bits) - 1) != 0 {
                continue;
            }
            let mut moved = std::mem::take(&mut self.moved);
            self.levels[level].take((self.now >> bits) as usize % SLOTS, &mut moved);
            for entry in moved.drain(..) {
                if entry.at <= self.now {
                    self.entries -= 1;
                    due.push(entry);
                } else {
                    self.place(entry);
                }
            }
            self.moved = moved;
        }
    }

    /// When something may be due next: never after the earliest deadline, and before it only to move entries on.
    pub(super) fn next(&self) -> Option<u64> {
        if self.entries == 0 {
            return None;
        }
        (0..LEVELS)
            .filter_map(|level| {
                let bits = SLOT_BITS * level as u32;
                let current = self.now >> bits;
                let ahead = self.levels[level].first_after(current as usize % SLOTS)?;
                Some((current + ahead as u64) << bits)
            })
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fired(wheel: &mut Wheel, now: u64) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.advance(now, &mut due);
        let mut ids: Vec<u32> = due.into_iter().map(|due| due.id).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn an_empty_wheel_has_nothing_to_wait_for() {
        let mut wheel = Wheel::new();
        assert_eq!(wheel.next(), None);
        assert!(fired(&mut wheel, 1 << 40).is_empty());
        wheel.put(Due { id: 1, at: (1 << 40) + 3 });
        assert_eq!(wheel.next(), Some((1 << 40) + 3));
    }

    #[test]
    fn what_is_due_already_fires_at_the_next_advance() {
        let mut wheel = Wheel::new();
        fired(&mut wheel, 500);
        wheel.put(Due { id: 7, at: 3 });
        assert_eq!(wheel.next(), Some(501));
        assert_eq!(fired(&mut wheel, 501), [7]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn a_deadline_beyond_the_span_still_fires_in_its_time() {
        let mut wheel = Wheel::new();
        let at = 3 * SPAN + 17;
        wheel.put(Due { id: 1, at });
        assert!(fired(&mut wheel, at - 1).is_empty());
        assert_eq!(fired(&mut wheel, at), [1]);
    }

    proptest! {
        #[test]
        fn every_deadline_fires_at_its_time_and_next_never_oversleeps(
            steps in prop::collection::vec((0u64..400_000, 0u64..100_000), 1..60)
        ) {
            let mut wheel = Wheel::new();
            let (mut open, mut now) = (Vec::<Due>::new(), 0);
            for (id, (ahead, pause)) in steps.into_iter().enumerate() {
                let due = Due { id: id as u32, at: now + ahead };
                wheel.put(due);
                open.push(due);
                let earliest = open.iter().map(|due| due.at).min().unwrap();
                prop_assert!(wheel.next().unwrap() <= earliest.max(now + 1));
                now += pause;
                let mut expected: Vec<u32> = Vec::new();
                // What was due when it was put in fires with the next millisecond.
                open.retain(|due| {
                    let is_due = due.at <= now && pause > 0;
                    if is_due { expected.push(due.id) }
                    !is_due
                });
                expected.sort_unstable();
                prop_assert_eq!(fired(&mut wheel, now), expected);
            }
        }
    }
}

//! What becomes of frame n in one direction, under a seed: a function of the three, so that a run with the same seed meets the same faults.
//!
//! What a frame is depends on the timing of both ends; that the 17th one towards the card is lost does not.

use std::time::Duration;

use crate::differential::rng::Rng;

/// Of what chances are given in.
const PARTS: usize = 10_000;
/// Apart from the step between two numbers of one generator, or draws of one frame would be another's.
const APART: u64 = 0xd6e8_feb8_6659_fd93;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// From the kernel's end.
    ToCard,
    /// To the kernel's end.
    FromCard,
}

/// What a wire does to frames, each way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Faults {
    /// Frames in ten thousand that never arrive.
    pub lost: usize,
    /// In ten thousand, that arrive twice.
    pub repeated: usize,
    /// In ten thousand, that arrive later by [`Faults::late`], so that others overtake them.
    pub overtaken: usize,
    /// How much later.
    pub late: Duration,
    /// How long each frame takes: half a round trip.
    pub delay: Duration,
}

impl Faults {
    /// After how long the copies of a frame arrive; none: it is lost.
    #[must_use]
    pub fn copies(&self, seed: u64, way: Way, number: u64) -> [Option<Duration>; 2] {
        let side = match way {
            Way::ToCard => 0,
            Way::FromCard => 1 << 63,
        };
        let mut rng = Rng::new(seed.rotate_left(32) ^ side ^ number.wrapping_mul(APART));
        if rng.below(PARTS) < self.lost {
            return [None; 2];
        }
        let is_repeated = rng.below(PARTS) < self.repeated;
        let mut copy = || {
            let is_late = rng.below(PARTS) < self.overtaken;
            self.delay + if is_late { self.late } else { Duration::ZERO }
        };
        [Some(copy()), is_repeated.then(&mut copy)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULTS: Faults = Faults {
        lost: 500,
        repeated: 200,
        overtaken: 100,
        late: Duration::from_millis(3),
        delay: Duration::from_millis(5),
    };

    #[test]
    fn a_frame_meets_the_same_fate_whenever_it_is_asked_for() {
        let fates = || (0..1000).map(|n| FAULTS.copies(7, Way::ToCard, n)).collect::<Vec<_>>();
        assert_eq!(fates(), fates());
    }

    #[test]
    fn seeds_and_directions_have_fates_of_their_own() {
        let lost = |seed, way| -> Vec<u64> {
            (0..1000).filter(|n| FAULTS.copies(seed, way, *n) == [None; 2]).collect()
        };
        assert_ne!(lost(7, Way::ToCard), lost(7, Way::FromCard));
        assert_ne!(lost(7, Way::ToCard), lost(8, Way::ToCard));
    }

    #[test]
    fn as_many_frames_are_lost_repeated_and_late_as_was_asked_for() {
        let fates: Vec<_> = (0..100_000).map(|n| FAULTS.copies(1, Way::FromCard, n)).collect();
        let share = |is: &dyn Fn(&[Option<Duration>; 2]) -> bool| {
            fates.iter().filter(|fate| is(fate)).count()
        };
        assert!(share(&|fate| fate[0].is_none()).abs_diff(5_000) < 400);
        assert!(share(&|fate| fate[1].is_some()).abs_diff(1_900) < 250);
        assert!(share(&|fate| fate[0] == Some(Duration::from_millis(8))).abs_diff(950) < 200);
    }

    #[test]
    fn without_faults_each_frame_arrives_once_and_in_time() {
        for n in 0..1000 {
            assert_eq!(Faults::default().copies(1, Way::ToCard, n), [Some(Duration::ZERO), None]);
        }
    }
}

//! Randomness from a seed: the same numbers on every machine and in every run (SplitMix64).
//!
//! Not for secrets. Bounded draws are biased by less than 2⁻³² here, which no test minds.

/// See the module.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that depends on nothing but `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x6a09_e667_f3bc_c908)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let drawn = self.draw() % u64::try_from(bound).expect("a usize fits");
        usize::try_from(drawn).expect("smaller than a usize")
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of `choices`, which are not empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// An index of `weights`, each as likely as its weight says. They are not all 0.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut drawn = self.below(weights.iter().sum());
        for (index, &weight) in weights.iter().enumerate() {
            if drawn < weight {
                return index;
            }
            drawn -= weight;
        }
        unreachable!("drawn below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let draw = || {
            let mut rng = Rng::new(7);
            [rng.below(1000), rng.between(5, 9), rng.weighted(&[0, 1, 0])]
        };
        assert_eq!(draw(), draw());
        assert_eq!(draw()[2], 1);
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            assert!(rng.below(3) < 3);
            assert!((5..=9).contains(&rng.between(5, 9)));
            assert!(!rng.percent(0) && rng.percent(100));
        }
    }
}

//! Bytes of the fuzzer as choices.

/// Choices, until they run out; then the first of each.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices(bytes)
    }

    pub fn are_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Bytes as they are.
    pub fn noise(&mut self) -> Vec<u8> {
        let count = usize::from(self.byte()).min(self.0.len());
        let (noise, rest) = self.0.split_at(count);
        self.0 = rest;
        noise.to_vec()
    }
}

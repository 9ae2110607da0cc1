//! The one random source: everything that a simulation does follows from its seed.

/// A small generator (SplitMix64). A clone repeats its numbers.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Creates the generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws sixty-four bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Draws a number from 0 to `bound - 1`, or 0 if there is none.
    pub const fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            return 0;
        }
        ((self.next_u64() >> 33) as usize) % bound
    }

    /// Returns true in one of `n` cases.
    pub const fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Draws one element of a list that is not empty.
    pub const fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Draws the position of a weight, as often as its share of the sum.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let sum: u32 = weights.iter().sum();
        let mut left = self.below(sum as usize) as u32;
        for (n, weight) in weights.iter().enumerate() {
            if left < *weight {
                return n;
            }
            left -= weight;
        }
        0
    }
}

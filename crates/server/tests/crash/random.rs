//! Randomness that follows from a seed.

/// The seed when none is given.
const DEFAULT_SEED: u64 = 0x5eed_0001;

/// SplitMix64: small, and good enough to choose what to break.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The source of a test, from its seed, which is printed.
    #[expect(clippy::print_stderr, reason = "a failure must name its seed")]
    pub fn of_test(name: &str) -> Self {
        let seed = std::env::var("ASYNCGATE_CRASH_SEED")
            .ok()
            .map_or(DEFAULT_SEED, |text| text.parse().expect("a number"));
        eprintln!("{name}: ASYNCGATE_CRASH_SEED={seed}");
        Self(seed)
    }

    /// A source of its own that follows from this one and a number.
    pub fn fork(&self, number: usize) -> Self {
        let mut forked = Self(self.0 ^ (number as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95));
        forked.next();
        forked
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

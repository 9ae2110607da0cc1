//! Fake time and fake randomness for the engine.

use std::sync::{Mutex, PoisonError};

use asyncgate_core::Timestamp;
use asyncgate_engine::Entropy;

use crate::rng::Rng;

/// Numbers that follow from a seed.
#[derive(Debug)]
pub struct FakeEntropy(Mutex<Rng>);

impl FakeEntropy {
    /// Creates the numbers of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(Mutex::new(Rng::new(seed)))
    }
}

impl Entropy for FakeEntropy {
    fn next_u64(&self) -> u64 {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rng.next_u64()
    }
}

/// The machine's clocks: one that only runs forward, and a wall clock that can be set.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    elapsed_ms: i64,
    wall_offset_ms: i64,
}

impl Machine {
    /// Creates a machine that was just switched on.
    pub const fn new() -> Self {
        Self {
            elapsed_ms: 0,
            wall_offset_ms: 1_767_225_600_000,
        }
    }

    /// Lets time pass.
    pub const fn advance(&mut self, millis: i64) {
        self.elapsed_ms += millis;
    }

    /// Sets the wall clock forward or back.
    pub const fn jump(&mut self, millis: i64) {
        self.wall_offset_ms += millis;
    }

    /// Returns the time on the wall clock.
    pub const fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.elapsed_ms + self.wall_offset_ms)
    }
}

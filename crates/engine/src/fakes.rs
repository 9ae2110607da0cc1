//! A clock and random numbers that tests decide.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use asyncgate_core::Timestamp;

use crate::{Clock, Entropy};

/// A clock that stands still unless somebody moves it.
#[derive(Debug)]
pub struct FakeClock(AtomicI64);

impl FakeClock {
    /// Makes a clock that shows so many milliseconds since 1970.
    pub const fn at(millis: i64) -> Self {
        Self(AtomicI64::new(millis))
    }

    /// Sets the clock to so many milliseconds since 1970.
    pub fn set(&self, millis: i64) {
        self.0.store(millis, Ordering::Relaxed);
    }

    /// Moves the clock forward.
    pub fn advance(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// The numbers from one on. Tests that draw them in the same order get the same ids.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Default for Counter {
    fn default() -> Self {
        Self(AtomicU64::new(1))
    }
}

impl Entropy for Counter {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

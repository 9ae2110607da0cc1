//! The engine's view of the outside world: time and randomness. Only the server has real ones.

use asyncgate_core::Timestamp;

/// The one clock that deadlines are compared with. It never runs backwards.
pub trait Clock: Send + Sync {
    /// Returns the time now.
    fn now(&self) -> Timestamp;
}

/// Random numbers for ids and jitter.
pub trait Entropy: Send + Sync {
    /// Returns sixty-four random bits.
    fn next_u64(&self) -> u64;
}

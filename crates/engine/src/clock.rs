//! What the engine is given of the outside world. Only the server implements these for real.

use asyncgate_core::Timestamp;

/// The one clock that deadlines are compared with. It never runs backwards.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// Random numbers for ids and jitter.
pub trait Entropy: Send + Sync {
    /// Sixty-four random bits.
    fn next_u64(&self) -> u64;
}

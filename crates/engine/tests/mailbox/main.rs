//! The mailbox's operations over the memory store, on a clock that the test moves.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod bounds;
mod degraded;
mod delivery;
mod metrics;
mod single;
mod stream;
mod watch;
mod world;

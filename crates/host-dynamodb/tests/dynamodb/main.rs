//! Tests of the host on emulators of DynamoDB, which they start and stop: dynalite, which has no transactions,
//! for questions about one row, and moto for all questions.
//!
//! Without the emulators the tests say so and pass; `cargo xtask test` installs both.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, in its helpers too, and says what it skips"
)]

mod batches;
mod clocks;
mod concurrency;
mod conformance;
mod credentials;
mod differential;
mod emulators;
mod faults;
mod many_nonces;
mod proxy;
mod request_counts;

//! The host on emulators of DynamoDB, which the tests start and stop: dynalite, which has no transactions,
//! for whatever is about one row, and moto for all of it.
//!
//! Without them the tests say so and pass; `cargo xtask test` installs both.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, in its helpers too, and says what it skips"
)]

mod at_once;
mod clocks;
mod conformance;
mod credentials;
mod differential;
mod emulators;
mod faults;
mod in_line;
mod many_nonces;
mod tap;
mod trips;

//! Tests of the store on a real PostgreSQL, which they start and stop.
//!
//! Without PostgreSQL on the machine the tests say so and pass; `cargo xtask test` installs it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, in its helpers too, and says what it skips"
)]

mod conformance;
mod crash;
mod fence;
mod server;
mod warning;

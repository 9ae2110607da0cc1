//! Tests of the host on real Redis servers, which they start and stop.
//!
//! Without `redis-server` on the machine the tests say so and pass; `cargo xtask test` installs it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, in its helpers too, and says what it skips"
)]

mod batches;
mod clock;
mod conformance;
mod differential;
mod faults;
mod partition;
mod servers;
mod tls;
mod topologies;

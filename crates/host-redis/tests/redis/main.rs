//! The host on real Redis servers, which the tests start and stop.
//!
//! Without `redis-server` on the machine they say so and pass; `cargo xtask test` installs it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, in its helpers too, and says what it skips"
)]

mod clock;
mod conformance;
mod differential;
mod faults;
mod partition;
mod servers;
mod singles;
mod tls;
mod topologies;

//! The host on real Redis servers, which the tests start and stop.
//!
//! Without `redis-server` on the machine they say so and pass; `cargo xtask test` installs it.

mod clock;
mod conformance;
mod differential;
mod faults;
mod servers;
mod topologies;

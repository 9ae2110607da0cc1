//! The rules of the mailbox, seen from outside.
//!
//! Every test drives the public functions through a small [`world`], which keeps the rows that a
//! store would keep and checks after each decision what must hold after every decision.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the cases that it is about"
)]

mod ack;
mod dead;
mod hashes;
mod model;
mod nack;
mod operator;
mod partition;
mod receive;
mod send;
mod sweep;
mod topic_class;
mod twin;
mod world;

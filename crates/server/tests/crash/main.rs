//! Crashes of the real binary on SQLite: killed at any moment, robbed of every write that was not
//! synced, started on a damaged file or a full disk.
//!
//! Clients keep a journal of what was acknowledged; after each crash an audit from outside compares
//! it with the ledger, whose links it computes itself, and with everything else that can be read.
//! What is random follows from a seed that every test prints; `ASYNCGATE_CRASH_SEED` sets it. The
//! tests in `mutation` break a promise on purpose and demand that the audit says so.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, in its helpers too, and measures what callers would wait"
)]

mod ask;
mod audit;
mod chain;
#[path = "../blackbox/contract.rs"]
mod contract;
mod disk;
mod final_audit;
mod flip;
mod full;
#[path = "../blackbox/harness.rs"]
#[expect(dead_code, reason = "the black-box tests use the rest")]
mod harness;
#[path = "../blackbox/http.rs"]
#[expect(dead_code, reason = "the black-box tests use the rest")]
mod http;
mod image;
mod journal;
mod kill;
mod load;
mod mail;
mod mutation;
mod offline;
mod power;
mod random;
mod story;

//! The rules of tasks, leases, receipts and obligations, seen from outside.
//!
//! Every test drives the public functions through a small [`world`], which keeps the rows that a
//! store would keep and checks after each decision what must hold after every decision.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod attempts;
mod batch;
mod cancel;
mod canonical;
mod claim;
mod complete;
mod contract;
mod create;
mod done;
mod expiry;
mod fencing;
mod hash;
mod hold;
mod limits;
mod model;
mod proof;
mod quotas;
mod receipts;
mod transitions;
mod world;

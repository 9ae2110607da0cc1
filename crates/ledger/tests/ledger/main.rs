//! The promises of the ledger crate: every forgery is found, the format stays readable, and a story
//! is told from receipts alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod flips;
mod format;
mod standing;
mod story;
mod tampering;
mod verify;
mod world;

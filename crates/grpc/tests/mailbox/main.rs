//! The service through its generated client: every method, every refusal, and what stands beside it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod beside;
mod methods;
mod refusals;
mod streams;
mod world;

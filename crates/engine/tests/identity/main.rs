//! The operations of identity, on a store in memory.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod audit;
mod incident;
mod keys;
mod macaroons;
mod people;
mod tenants;
mod token_key;
mod world;

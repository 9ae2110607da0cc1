//! Every way to be let in, and every way to be refused.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod audit;
mod drill;
mod ending;
mod flood;
mod import;
mod keyring;
mod keys;
mod macaroons;
mod remembered;
mod shared;
mod signing;
mod tenants;
mod tokens;
mod world;

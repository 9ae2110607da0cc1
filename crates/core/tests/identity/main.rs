//! The rules of identity, by tables over every role and scope, and over the life of a key.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod audit;
mod keys;
mod manage;
mod oauth;
mod records;
mod roles;
mod tenants;

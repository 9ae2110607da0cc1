//! Tenants and what they may use: quotas at work, limits by the hour, exceptions, metering.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod bounds;
mod exceptions;
mod hourly;
mod metering;
mod world;

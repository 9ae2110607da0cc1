//! The rules of admission, seen from outside.
//!
//! Every test asks through a small [`world`], which keeps the rows that a store would keep.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod bucket;
mod delay;
mod limits;
mod nonce;
mod revocation;
mod together;
mod window;
mod world;

//! The client and the worker runtime against a real server, with a proxy between them that breaks
//! connections as it is told.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod admission;
mod calls;
mod consumer;
mod faults;
mod http_get;
mod identity;
mod lists;
mod mailbox;
mod proxy;
mod server;
#[cfg(feature = "tls")]
mod tls;
mod worker;
mod worker_batches;
mod worker_ends;

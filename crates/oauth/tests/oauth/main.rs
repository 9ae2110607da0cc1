//! OAuth over HTTP, on a store in memory and a clock that the tests move: the whole contract, and every way to abuse it.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod browser;
mod client_documents;
mod clients;
mod documents;
mod flow;
mod id_provider;
mod keyring;
mod logins;
mod providers;
mod registration;
mod reload;
mod requests;
mod tokens;
mod world;

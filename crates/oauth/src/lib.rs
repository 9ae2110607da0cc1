//! OAuth 2.1 over HTTP: the routes by which programs get tokens for people.
//!
//! This facade reads requests, leads browsers through a login, and writes answers. What is decided is decided by the
//! engine's [`Oauth`](asyncgate_engine::oauth::Oauth).
//!
//! Invariants: a browser is sent only to an address that a client registered, to a provider of the settings, or to this
//! server; a login goes on only in the browser in which it began; no secret, code or token reaches the log.

mod app;
mod authorize;
mod base;
mod callback;
mod client_document;
mod consent;
mod cookie;
mod documents;
mod fetch;
mod form;
mod login;
mod metadata;
mod page;
mod pending;
mod provider;
mod register;
mod token;

pub use app::{Facade, Options, PATHS};
pub use base::OwnAddress;
pub use client_document::DocumentOptions;
pub use fetch::Lookup;
pub use provider::ProviderSettings;

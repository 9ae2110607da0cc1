//! ID tokens: what a provider of identities says about a person who has logged in there (OpenID Connect).
//!
//! Invariants: no other algorithms than RS256 and ES256 are ever tried, and each only with a key of its own kind; no
//! claim is looked at before the signature was found good; a token that was made for another client, another login
//! or another time is refused.

mod keys;
mod token;

pub use keys::{BadKeySet, ProviderKeys};
pub use token::{Expected, MAX_BYTES, Refusal, Subject, verify};

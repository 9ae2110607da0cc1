//! Credentials that carry their rights with them: macaroons and signed tokens.
//!
//! [`macaroon`] reads, makes and verifies macaroons; [`Caveat`] gives their conditions a meaning and checks
//! them against a call; [`jwt`] signs and verifies access tokens; [`oidc`] verifies what providers of identities say
//! about people. What a role and its scopes allow is decided in `core::identity`.
//!
//! Invariants: nothing here waits or reads a clock; time, keys and secrets come in as arguments; no input makes
//! it panic or use more memory than a small multiple of its size; what it does not understand is refused; no
//! secret shows in `Debug`. The only randomness is in [`jwt::SigningKey::generate`], for the server's first
//! start.

mod caveat;
pub mod jwt;
pub mod macaroon;
pub mod oidc;

pub use caveat::{Call, Caveat, Denial, DenialReason, MailboxOp, QuotaUnit, Topic, check, quotas};

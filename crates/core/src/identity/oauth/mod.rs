//! The server as an authorization server of OAuth 2.1: who may ask for tokens, and what becomes of them.
//!
//! ```text
//! request --> login --> code (60 s, once) --> family of tokens --> refresh --> refresh --> ... --> expiry or revocation
//! ```
//!
//! Invariants: nothing is ever sent to an address that the client did not register; a code and a refresh token give
//! tokens once, and showing one again ends all tokens that came of it; a family that was revoked gives nothing more,
//! and neither does one whose person, client or tenant is gone; nobody is granted more than they have.
//!
//! Secrets do not come here. The shell draws codes and tokens, and hands over the hashes by which they are found.

mod authorize;
mod client;
mod code;
mod document;
mod error;
mod exchange;
mod person;
mod pkce;
mod redirect;
mod refresh;
mod resource;
mod revoke;
mod token;

pub use authorize::{AuthorizationRequest, ClientName, Params, check, client_name, redirect_uri};
pub(super) use client::made;
pub use client::{
    BadClient, BadSecret, NewClient, STRANGER_SCOPES, check_client, prove_client, register_stranger,
};
pub use code::{CODE_TTL_MS, Entering, LoginRefusal, issue_code};
pub use document::{
    BAD_DOCUMENT_LIFE_MS, BadDocument, DOCUMENT_LIFE_MS, MAX_DOCUMENT_BYTES, Reach, Statement,
    check_statement, describe, document_client_id, is_up_to_date,
};
pub use error::{ErrorCode, Refusal};
pub use exchange::{Exchange, FoundCode, exchange, family_of};
pub use person::enter;
pub use pkce::{is_challenge, is_verifier};
pub use redirect::{BadRedirect, check_redirect, is_loopback, origin};
pub use refresh::{FoundToken, Refresh, refresh};
pub use resource::resource;
pub use revoke::{revoke, revoke_families};
pub use token::{GrantRefusal, Issued, Lifetimes};

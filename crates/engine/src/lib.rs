//! The canonical operations: authorise, transact, answer.
//!
//! Facades decide nothing: they find an operation in the [`registry`], hand it the caller and the input
//! as they came, and encode the answer or the [`Fault`]. Every call takes the way of the module `call`.

mod audit;
mod audit_retention;
mod authorise;
mod background;
mod batch;
mod budget;
mod call;
mod call_limits;
mod caller;
mod caveats;
mod client_limits;
mod clock;
mod domains;
mod engine;
mod events;
#[cfg(feature = "fakes")]
pub mod fakes;
mod fault;
mod ingress;
mod input;
mod keyring;
mod mailbox;
mod metering;
mod metrics;
pub mod oauth;
mod operations;
mod origin;
mod outbox;
mod rate_headers;
mod refusals;
mod refused_rights;
mod registry;
pub mod schema;
mod settings;
mod sign;
mod sweep;
mod tenant_turns;
mod tenants;
mod touches;
mod used_up;
mod view;

pub use asyncgate_core::{
    Principal, PrincipalKind, TenantId,
    identity::{Role, Scope, Scopes},
    json::has_unfit_number,
};
pub use asyncgate_warrants::Network;
pub use background::{Background, background};
pub use budget::{Budget, Grant, Holder};
pub use call::{Typed, execute, hold};
pub use caller::{Authenticator, Caller, Caveats, Credential, CredentialKind, RequestContext};
pub use clock::{Clock, Entropy};
pub use domains::{DomainAnswer, DomainRequest, Domains};
pub use engine::Engine;
pub use events::{Event, Events, Subscription};
pub use fault::Fault;
pub use ingress::{Ingress, Ingresses, LimitBy, Message, Provider, Received, Secret};
pub use input::decode;
pub use keyring::{Keyring, MintedKey, MintedMacaroon, NewSecret, NewTokenKey, RetiredTokenKey};
pub use mailbox::{MessageStream, Streamed};
pub use metering::{BILLING, MeteringSettings};
pub use metrics::{
    CryptoMetrics, CryptoWork, Downgrade, HandshakeResult, KeyExchange, Signature, Surface,
};
pub use operations::{Descriptor, Execute};
pub use origin::{CorrId, Remote, UserAgent};
pub use outbox::{Courier, RETRIES, Undelivered};
pub use rate_headers::{Header, rate_headers, with_rate_headers};
pub use refusals::{Client, Window, Windows};
pub use registry::{Answer, Answered, Call, Entry, Source, registry};
pub use settings::{Bodies, Durability, Settings};
pub use sign::Signer;
pub use tenant_turns::{TenantTurns, Turn};
pub use tenants::TenantSettings;
pub use touches::Touches;

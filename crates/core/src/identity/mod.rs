//! Identity: what the bearer of a credential may do, how long API keys live, and what a tenant may use.
//!
//! Invariants: a credential never gives more than its role; a scope that the role does not have gives
//! nothing, except for `host:use`; a key is valid up to its expiry and not at it.

pub mod audit;
mod change;
mod exception;
mod key;
pub mod manage;
pub mod oauth;
mod quota;
mod record;
mod role;
mod scope;
mod stored;
mod tenant;

pub use change::{Changes, Rejection, first_key, forget, import_keys, note_uses};
pub use exception::{ExceptionEffect, LimitException, end_exception, except};
pub use key::{KeyLife, KeyRejection, KeyStanding, Rotation, expiry};
pub use quota::{BadQuota, Quota, QuotaExceeded, QuotaName, Quotas, UnknownQuota};
pub use record::{
    ApiKey, AuthorizationCode, DEFAULT_TENANT, Find, Grant, IdentityLink, Macaroon, OauthClient,
    Person, Record, RecordKey, RecordKind, RefreshToken, TenantRecord, TokenFamily,
};
pub use role::{Missing, Role, UnknownRole, may};
pub use scope::{Scope, Scopes, UnknownScope};
pub use tenant::{Tenant, TenantSuspended, TenantTier, UnknownTenantTier};

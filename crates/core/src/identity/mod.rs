//! Identity: what the bearer of a credential may do, how long API keys live, and what a tenant may use.
//!
//! Invariants: a credential never gives more than its role; a scope that the role does not have gives
//! nothing, except for `host:use`; a key is valid up to its expiry and not at it.

mod key;
mod quota;
mod role;
mod scope;
mod tenant;

pub use key::{KeyLife, KeyRejection, KeyStanding, Rotation, expiry};
pub use quota::{BadQuota, Quota, QuotaExceeded, QuotaName, Quotas, UnknownQuota};
pub use role::{Missing, Role, UnknownRole, may};
pub use scope::{Scope, Scopes, UnknownScope};
pub use tenant::{Tenant, TenantSuspended, TenantTier, UnknownTenantTier};

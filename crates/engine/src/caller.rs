//! Who is calling: what a credential became once it was checked.

use asyncgate_core::{Principal, TenantId};
use futures_util::future::BoxFuture;

use crate::Fault;

/// The identity that every operation runs under. The tenant comes from the credential only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant whose rows the call may see.
    pub tenant: TenantId,
    /// Who the credential belongs to.
    pub principal: Principal,
    /// What the credential may do.
    pub role: Role,
}

/// What a credential may do. An admin may do what agents and workers may, for any principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Hands out work and reads its own.
    Agent,
    /// Does work.
    Worker,
    /// Acts for any principal of its tenant.
    Admin,
}

impl Role {
    /// The role's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Worker => "worker",
            Self::Admin => "admin",
        }
    }
}

/// Turns a bearer credential into a [`Caller`].
pub trait Authenticator: Send + Sync {
    /// Checks what stood behind `Authorization: Bearer`, or its absence.
    fn authenticate<'a>(&'a self, bearer: Option<&'a str>) -> BoxFuture<'a, Result<Caller, Fault>>;
}

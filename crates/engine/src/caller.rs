//! The caller of an operation: the identity behind a credential that was checked.

use asyncgate_core::{Principal, TenantId, admission::SERVER_TENANT};
use futures_util::future::BoxFuture;

use crate::Fault;

/// The identity that every operation runs under. The tenant comes from the credential only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant whose rows the call may see.
    pub tenant: TenantId,
    /// The principal that the credential belongs to.
    pub principal: Principal,
    /// The rights of the credential.
    pub role: Role,
}

impl Caller {
    /// Returns the server itself as a caller, for questions on behalf of clients that show no credential.
    pub(crate) fn server() -> Self {
        Self {
            tenant: SERVER_TENANT,
            principal: Principal::system(),
            role: Role::Admin,
        }
    }
}

/// The rights of a credential. An admin may do everything that agents and workers may, for any principal.
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
    /// Returns the role's name on the wire.
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
    /// Checks the text behind `Authorization: Bearer`, or its absence.
    fn authenticate<'a>(&'a self, bearer: Option<&'a str>) -> BoxFuture<'a, Result<Caller, Fault>>;
}

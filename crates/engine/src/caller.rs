//! The caller of an operation: the identity behind a credential that was checked.

use std::fmt;

use asyncgate_core::{Principal, TenantId, admission::SERVER_TENANT};
use futures_util::future::BoxFuture;

use crate::{CorrId, Fault, Remote};

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

/// The facts about a request that are known before its caller is.
#[derive(Clone, Default)]
pub struct RequestContext<'a> {
    /// The credential behind `Authorization: Bearer`.
    pub credential: Option<&'a str>,
    /// The program that says it sent the request.
    pub user_agent: Option<&'a str>,
    /// The other end of the connection.
    pub remote: Option<Remote>,
    /// The correlation id.
    pub corr_id: Option<CorrId>,
}

impl fmt::Debug for RequestContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The credential is a secret, so only its presence is shown.
        f.debug_struct("RequestContext")
            .field("credential", &self.credential.map(|_| "***"))
            .field("user_agent", &self.user_agent)
            .field("remote", &self.remote)
            .field("corr_id", &self.corr_id)
            .finish()
    }
}

/// Turns a request's credential into a [`Caller`].
pub trait Authenticator: Send + Sync {
    /// Checks the credential of a request, or its absence.
    fn authenticate<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Caller, Fault>>;

    /// Waits for the end of a credential that was accepted: until it is revoked or expires. An answer that
    /// goes on for longer than a call, such as a stream, must end with it.
    fn until_ended(&self, request: &RequestContext<'_>) -> BoxFuture<'static, ()>;
}

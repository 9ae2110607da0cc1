//! The caller of an operation: the identity behind a credential that was checked.

use std::{fmt, sync::Arc};

use asyncgate_core::{
    Principal, RecordId, TenantId, Timestamp,
    admission::SERVER_TENANT,
    identity::{Role, Scope, Scopes},
};
use asyncgate_credentials::{Caveat, QuotaUnit};
use futures_util::future::BoxFuture;

use crate::{CorrId, Fault, Remote};

/// The identity that every operation runs under. The tenant comes from the credential only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant whose rows the call may see.
    pub tenant: TenantId,
    /// The principal that the credential belongs to.
    pub principal: Principal,
    /// The role of the credential, which bounds its scopes.
    pub role: Role,
    /// The scopes that the credential really has.
    pub scopes: Scopes,
    /// The credential itself, as far as it may be told.
    pub credential: Credential,
}

impl Caller {
    /// Makes a caller with everything that its role has by default.
    pub fn new(tenant: TenantId, principal: Principal, role: Role) -> Self {
        Self {
            tenant,
            principal,
            role,
            scopes: role.default_scopes(),
            credential: Credential::of_kind(CredentialKind::SharedKey),
        }
    }

    /// Lets the caller manage tenants, too, if its role allows that.
    #[must_use]
    pub fn with_platform(mut self) -> Self {
        let all = self.scopes.or(Scopes::of(&[Scope::PlatformAdmin]));
        self.scopes = self.role.effective_scopes(Some(all));
        self
    }

    /// Returns the server itself as a caller, for questions on behalf of clients that show no credential.
    pub(crate) fn server() -> Self {
        Self {
            credential: Credential::of_kind(CredentialKind::Server),
            ..Self::new(SERVER_TENANT, Principal::system(), Role::Admin)
        }
    }

    /// Returns true if the caller may read everything of its tenant.
    pub fn sees_all(&self) -> bool {
        self.role == Role::Admin && self.scopes.cover(Scope::AdminRead)
    }

    /// Returns true if the caller may act for every principal of its tenant.
    pub fn acts_for_all(&self) -> bool {
        self.role == Role::Admin && self.scopes.cover(Scope::AdminWrite)
    }

    /// Returns true if the caller may manage tenants, and act in any of them.
    pub fn runs_the_platform(&self) -> bool {
        self.scopes.cover(Scope::PlatformAdmin)
    }
}

/// What is known of a credential that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its kind.
    pub kind: CredentialKind,
    /// The id of its record, if it has one.
    pub id: Option<RecordId>,
    /// The first moment at which it is not valid any more.
    pub expires_at: Option<Timestamp>,
    /// The conditions under which it is good. Only macaroons have any.
    pub caveats: Option<Arc<Caveats>>,
}

impl Credential {
    /// Returns a credential without a record, an end or conditions.
    pub const fn of_kind(kind: CredentialKind) -> Self {
        Self {
            kind,
            id: None,
            expires_at: None,
            caveats: None,
        }
    }
}

/// The kinds of credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// A stored API key.
    ApiKey,
    /// A signed access token.
    Jwt,
    /// A macaroon.
    Macaroon,
    /// The one key of the settings.
    SharedKey,
    /// None, because the server runs in insecure development mode.
    Dev,
    /// None, because the server asks itself.
    Server,
}

impl CredentialKind {
    /// Returns the kind's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::Jwt => "jwt",
            Self::Macaroon => "macaroon",
            Self::SharedKey => "shared_key",
            Self::Dev => "dev",
            Self::Server => "server",
        }
    }
}

/// The conditions of a macaroon, read once when it was verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caveats {
    /// All conditions. A call must meet each of them.
    pub list: Vec<Caveat>,
    /// The quotas among them, each with the name under which its uses are counted.
    pub quotas: Vec<(QuotaUnit, u64, [u8; 32])>,
    /// The end of the macaroon that the server minted. All that were derived from it are counted until then, whenever
    /// they end themselves.
    pub counted_until: Timestamp,
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

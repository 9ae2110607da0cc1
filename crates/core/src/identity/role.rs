//! Roles, and the one rule that says if a credential allows an operation.

use std::str::FromStr;

use super::{Scope, Scopes};
use crate::PrincipalKind;

/// The part that the bearer of a credential plays. It bounds what any scope can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Hands out work and reads its own.
    Agent,
    /// Does work.
    Worker,
    /// Acts for any principal of its tenant.
    Admin,
    /// The server itself. No credential gives this role.
    System,
}

const AGENT: Scopes = Scopes::of(&[
    Scope::TasksRead,
    Scope::TasksWrite,
    Scope::ReceiptsRead,
    Scope::ReceiptsAck,
    Scope::MailboxSend,
    Scope::MailboxRecv,
]);

const WORKER: Scopes = Scopes::of(&[
    Scope::TasksLease,
    Scope::ReceiptsRead,
    Scope::MailboxSend,
    Scope::MailboxRecv,
]);

const ADMIN: Scopes = Scopes::of(&[
    Scope::TasksRead,
    Scope::TasksWrite,
    Scope::TasksLease,
    Scope::ReceiptsRead,
    Scope::ReceiptsAck,
    Scope::AdminRead,
    Scope::AdminWrite,
    Scope::MailboxSend,
    Scope::MailboxRecv,
    Scope::MailboxAdmin,
    Scope::HostUse,
    Scope::HostAdmin,
]);

/// The server does no work of others: it has neither leases nor messages of its own.
const SYSTEM: Scopes = Scopes::of(&[
    Scope::TasksRead,
    Scope::TasksWrite,
    Scope::ReceiptsRead,
    Scope::AdminRead,
    Scope::HostUse,
]);

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Agent, Self::Worker, Self::Admin, Self::System];

    /// Returns the role's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Worker => "worker",
            Self::Admin => "admin",
            Self::System => "system",
        }
    }

    /// Returns the role of a token that names none.
    pub const fn of_kind(kind: PrincipalKind) -> Self {
        match kind {
            PrincipalKind::Worker => Self::Worker,
            PrincipalKind::Agent
            | PrincipalKind::Service
            | PrincipalKind::Human
            | PrincipalKind::System => Self::Agent,
        }
    }

    /// Returns the scopes of a credential that names none.
    pub const fn default_scopes(self) -> Scopes {
        match self {
            Self::Agent => AGENT,
            Self::Worker => WORKER,
            Self::Admin => ADMIN,
            Self::System => SYSTEM,
        }
    }

    /// Returns the scopes that a credential of this role can be given at all.
    pub const fn widest_scopes(self) -> Scopes {
        let granted_by_name = match self {
            Self::Admin => Scopes::of(&[Scope::PlatformAdmin]),
            Self::Agent | Self::Worker => Scopes::of(&[Scope::HostUse]),
            Self::System => Scopes::NONE,
        };
        self.default_scopes().or(granted_by_name)
    }

    /// Returns what a credential of this role really has, if its scopes are `named`.
    pub fn effective_scopes(self, named: Option<Scopes>) -> Scopes {
        match named {
            Some(named) => named.and(self.widest_scopes()),
            None => self.default_scopes(),
        }
    }
}

/// The error for a text that is no role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown role")]
pub struct UnknownRole;

impl FromStr for Role {
    type Err = UnknownRole;

    /// Reads the role of a credential. `system` is none.
    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let mut given = [Self::Agent, Self::Worker, Self::Admin].into_iter();
        given.find(|role| role.as_str() == text).ok_or(UnknownRole)
    }
}

/// What a credential lacks for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// No credential of its role could do it; one of this role can.
    Role(Role),
    /// Its role could do it with this scope.
    Scope(Scope),
}

/// Decides if a credential may do something for which any one of `needed` is enough. Returns those of them
/// that the credential covers; none if nothing is needed, because then every credential may.
///
/// `scopes` are those of the credential, as named by whoever made it or as [`Role::default_scopes`] says.
pub fn may(
    role: Role,
    scopes: Scopes,
    needed: impl IntoIterator<Item = Scope, IntoIter: Clone>,
) -> Result<Scopes, Missing> {
    let needed = needed.into_iter();
    // The role bounds what is needed too: a wide scope such as `admin:write` must not give the server's
    // own role what it does not have.
    let possible = |scope: &Scope| role.widest_scopes().contains(*scope);
    let held = role.effective_scopes(Some(scopes));
    let covered = needed.clone().filter(possible);
    let covered: Scopes = covered.filter(|scope| held.cover(*scope)).collect();
    match (needed.clone().next(), needed.clone().find(possible)) {
        (Some(first), None) => Err(Missing::Role(role_for(first))),
        (_, Some(missing)) if covered == Scopes::NONE => Err(Missing::Scope(missing)),
        (_, _) => Ok(covered),
    }
}

/// Returns the least role that can have a scope.
fn role_for(scope: Scope) -> Role {
    let mut roles = [Role::Agent, Role::Worker].into_iter();
    roles
        .find(|role| role.widest_scopes().contains(scope))
        .unwrap_or(Role::Admin)
}

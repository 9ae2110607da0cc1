//! Principals: a kind, an id, and optionally the instance that acts.

use std::{fmt, str::FromStr, sync::Arc};

/// Anyone who creates, works on or receives something. Copies share the text of their names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    /// The sort of principal.
    pub kind: PrincipalKind,
    /// Its stable name within its kind.
    pub id: Arc<str>,
    /// The device, process or session, if it said so. Carries no rights.
    pub instance_id: Option<Arc<str>>,
}

impl Principal {
    /// A principal without an instance.
    pub fn new(kind: PrincipalKind, id: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            id: id.into(),
            instance_id: None,
        }
    }

    /// The server itself.
    pub fn system() -> Self {
        Self::new(PrincipalKind::System, "asyncgate")
    }

    /// Returns the identity of the principal, without its instance.
    pub fn key(&self) -> PrincipalKey {
        PrincipalKey {
            kind: self.kind,
            id: Arc::clone(&self.id),
        }
    }

    /// Returns true if both are the same principal, perhaps through different instances.
    pub fn is(&self, other: &Self) -> bool {
        self.kind == other.kind && self.id == other.id
    }
}

/// The identity of a principal within a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrincipalKey {
    /// The sort of principal.
    pub kind: PrincipalKind,
    /// Its stable name within its kind.
    pub id: Arc<str>,
}

impl fmt::Display for PrincipalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.id)
    }
}

/// The sorts of principals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PrincipalKind {
    /// Hands out work.
    Agent,
    /// Does work.
    Worker,
    /// A program that may do both.
    Service,
    /// A person.
    Human,
    /// The server itself.
    System,
}

impl PrincipalKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Agent,
        Self::Worker,
        Self::Service,
        Self::Human,
        Self::System,
    ];

    /// The kind's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Worker => "worker",
            Self::Service => "service",
            Self::Human => "human",
            Self::System => "system",
        }
    }
}

/// The error for a text that is no kind of principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown principal kind")]
pub struct UnknownKind;

impl FromStr for PrincipalKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(UnknownKind)
    }
}

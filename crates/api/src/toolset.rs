//! Toolsets: groups of operations by those who need them, so that a model is shown few tools.

use crate::{Access, Plane, Scope, Spec};

/// A group of operations that a client of MCP can ask to be shown. It says nothing about rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toolset {
    /// Handing out work and following it.
    Agent,
    /// Doing work.
    Worker,
    /// Sending and receiving messages.
    Mailbox,
    /// Asking whether something may happen.
    Admission,
    /// Running the server and proving what it did.
    Ops,
}

impl Toolset {
    /// Every toolset.
    pub const ALL: [Self; 5] = [
        Self::Agent,
        Self::Worker,
        Self::Mailbox,
        Self::Admission,
        Self::Ops,
    ];

    /// Returns the toolset's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Worker => "worker",
            Self::Mailbox => "mailbox",
            Self::Admission => "admission",
            Self::Ops => "ops",
        }
    }
}

impl Spec {
    /// Returns the toolset that an operation belongs to. It follows from the operation's other
    /// properties, so that a new operation always has one.
    pub const fn toolset(&self) -> Toolset {
        let needed = match self.access {
            Access::Open | Access::Any => &[],
            Access::Needs(scopes) => scopes,
        };
        // A model that is new here should not meet what it should not use any more.
        if self.upkeep || self.successor.is_some() || all_for_operators(needed) {
            return Toolset::Ops;
        }
        match (needed, self.plane) {
            ([Scope::TasksLease], _) => Toolset::Worker,
            (_, Plane::Tasks) => Toolset::Agent,
            (_, Plane::Mailbox) => Toolset::Mailbox,
            (_, Plane::Admission) => Toolset::Admission,
            (_, Plane::Identity | Plane::Server) => Toolset::Ops,
        }
    }
}

/// Returns true if something is needed, and only those who run a tenant or the server can have it.
const fn all_for_operators(needed: &[Scope]) -> bool {
    let mut at = 0;
    while at < needed.len() && needed[at].is_for_operators() {
        at += 1;
    }
    !needed.is_empty() && at == needed.len()
}

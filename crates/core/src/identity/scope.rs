//! Scopes: the rights that a credential can be narrowed to.

use std::{fmt, str::FromStr};

/// A right by its name on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Reads one's own tasks.
    TasksRead,
    /// Creates and cancels one's own tasks.
    TasksWrite,
    /// Takes tasks under leases and finishes them.
    TasksLease,
    /// Reads one's own receipts.
    ReceiptsRead,
    /// Acknowledges one's own receipts.
    ReceiptsAck,
    /// Reads everything of the tenant.
    AdminRead,
    /// Does everything within the tenant.
    AdminWrite,
    /// Sends messages.
    MailboxSend,
    /// Receives and settles messages.
    MailboxRecv,
    /// Looks after topics and dead letters.
    MailboxAdmin,
    /// Asks the host about nonces, counters, limits and revocations.
    HostUse,
    /// Revokes at the host.
    HostAdmin,
    /// Manages tenants, and acts in any of them.
    PlatformAdmin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 13] = [
        Self::TasksRead,
        Self::TasksWrite,
        Self::TasksLease,
        Self::ReceiptsRead,
        Self::ReceiptsAck,
        Self::AdminRead,
        Self::AdminWrite,
        Self::MailboxSend,
        Self::MailboxRecv,
        Self::MailboxAdmin,
        Self::HostUse,
        Self::HostAdmin,
        Self::PlatformAdmin,
    ];

    /// Returns the scope's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TasksRead => "tasks:read",
            Self::TasksWrite => "tasks:write",
            Self::TasksLease => "tasks:lease",
            Self::ReceiptsRead => "receipts:read",
            Self::ReceiptsAck => "receipts:ack",
            Self::AdminRead => "admin:read",
            Self::AdminWrite => "admin:write",
            Self::MailboxSend => "mailbox:send",
            Self::MailboxRecv => "mailbox:recv",
            Self::MailboxAdmin => "mailbox:admin",
            Self::HostUse => "host:use",
            Self::HostAdmin => "host:admin",
            Self::PlatformAdmin => "platform:admin",
        }
    }

    /// Returns true if whoever has this scope may do what needs `needed`.
    pub fn covers(self, needed: Self) -> bool {
        match self {
            Self::AdminWrite => needed != Self::PlatformAdmin,
            Self::AdminRead => matches!(
                needed,
                Self::AdminRead | Self::TasksRead | Self::ReceiptsRead
            ),
            Self::HostAdmin => matches!(needed, Self::HostAdmin | Self::HostUse),
            Self::TasksRead
            | Self::TasksWrite
            | Self::TasksLease
            | Self::ReceiptsRead
            | Self::ReceiptsAck
            | Self::MailboxSend
            | Self::MailboxRecv
            | Self::MailboxAdmin
            | Self::HostUse
            | Self::PlatformAdmin => self == needed,
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a text that is no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown scope")]
pub struct UnknownScope;

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let mut all = Self::ALL.into_iter();
        all.find(|scope| scope.as_str() == text).ok_or(UnknownScope)
    }
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Scopes(u16);

impl Scopes {
    /// The set with nothing in it.
    pub const NONE: Self = Self(0);

    /// Builds a set.
    pub const fn of(scopes: &[Scope]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < scopes.len() {
            bits |= scopes[at].bit();
            at += 1;
        }
        Self(bits)
    }

    /// Returns true if the scope itself is in the set.
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Returns true if some scope of the set covers `needed`.
    pub fn cover(self, needed: Scope) -> bool {
        self.iter().any(|scope| scope.covers(needed))
    }

    /// Returns the scopes that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the scopes that are in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the scopes, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        let all = Scope::ALL.into_iter();
        all.filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Display for Scopes {
    /// Writes the names with spaces between them, as OAuth does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Scope::as_str).collect();
        f.write_str(&names.join(" "))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(Scope::as_str))
            .finish()
    }
}

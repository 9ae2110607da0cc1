//! Scopes: the rights that a credential can be narrowed to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A right by its name on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// Reads one's own tasks.
    #[serde(rename = "tasks:read")]
    TasksRead,
    /// Creates and cancels one's own tasks.
    #[serde(rename = "tasks:write")]
    TasksWrite,
    /// Takes tasks under leases and finishes them.
    #[serde(rename = "tasks:lease")]
    TasksLease,
    /// Reads one's own receipts.
    #[serde(rename = "receipts:read")]
    ReceiptsRead,
    /// Acknowledges one's own receipts.
    #[serde(rename = "receipts:ack")]
    ReceiptsAck,
    /// Reads everything of the tenant.
    #[serde(rename = "admin:read")]
    AdminRead,
    /// Does everything within the tenant.
    #[serde(rename = "admin:write")]
    AdminWrite,
    /// Sends messages.
    #[serde(rename = "mailbox:send")]
    MailboxSend,
    /// Receives and settles messages.
    #[serde(rename = "mailbox:recv")]
    MailboxRecv,
    /// Looks after topics and dead letters.
    #[serde(rename = "mailbox:admin")]
    MailboxAdmin,
    /// Asks the host about nonces, counters, limits and revocations.
    #[serde(rename = "host:use")]
    HostUse,
    /// Revokes at the host.
    #[serde(rename = "host:admin")]
    HostAdmin,
    /// Manages tenants, and acts in any of them.
    #[serde(rename = "platform:admin")]
    PlatformAdmin,
}

impl Scope {
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

    /// Returns true if only those who run a tenant or the server have the scope.
    pub const fn is_for_operators(self) -> bool {
        match self {
            Self::AdminRead
            | Self::AdminWrite
            | Self::MailboxAdmin
            | Self::HostAdmin
            | Self::PlatformAdmin => true,
            Self::TasksRead
            | Self::TasksWrite
            | Self::TasksLease
            | Self::ReceiptsRead
            | Self::ReceiptsAck
            | Self::MailboxSend
            | Self::MailboxRecv
            | Self::HostUse => false,
        }
    }
}

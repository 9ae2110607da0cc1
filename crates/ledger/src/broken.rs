//! Breaks: the defects of a ledger, and their places.

use std::{fmt, io};

use serde::Serialize;

/// The first place where a ledger is not what it claims to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Break {
    /// The line of the file, counted from 1; absent when the ledger did not come from a file.
    pub line: Option<u64>,
    /// The place in the ledger that the receipt claims; absent when the break is not in a receipt.
    pub seq: Option<u64>,
    /// The sort of break.
    pub kind: Kind,
    /// The defect, for a person. Text from the ledger is escaped in it.
    pub message: String,
}

impl Break {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            line: None,
            seq: None,
            kind,
            message: message.into(),
        }
    }

    /// Returns the same break, in the receipt that claims the place `seq`.
    pub(crate) fn in_receipt(mut self, seq: u64) -> Self {
        self.seq = Some(seq);
        self
    }

    /// Returns the same break, on a line of a file.
    pub(crate) fn on_line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.seq) {
            (Some(line), Some(seq)) => write!(f, "line {line}, receipt {seq}: ")?,
            (Some(line), None) => write!(f, "line {line}: ")?,
            (None, Some(seq)) => write!(f, "receipt {seq}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.message)
    }
}

/// The reasons why a file could not be verified to its end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The file could not be read. The ledger itself may be good.
    #[error("cannot read the ledger")]
    Read(#[from] io::Error),
    /// The ledger is broken.
    #[error("{0}")]
    Broken(#[from] Break),
}

/// The sorts of breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The file does not begin with the header of an export.
    NotAnExport,
    /// The export has a version that this verifier does not know.
    UnknownVersion,
    /// The file ends before the signed head.
    Truncated,
    /// A line is neither a receipt nor a head.
    Garbled,
    /// Something follows the signed head.
    AfterTheHead,
    /// A value has the wrong form: an id, a link, a principal.
    Malformed,
    /// A receipt or head belongs to another tenant.
    Tenant,
    /// A receipt does not stand at the next place: one is missing, repeated or out of order.
    Gap,
    /// A receipt's id does not carry its place.
    MisplacedId,
    /// A receipt has an unknown type.
    UnknownType,
    /// A time cannot be read.
    Time,
    /// A receipt is older than the one before it.
    TimeRunsBack,
    /// A body is larger or more deeply nested than a server writes.
    Body,
    /// A receipt's hash is not that of its statement.
    Hash,
    /// A receipt's link does not follow from the link before it.
    Link,
    /// A receipt has more parents than allowed.
    TooManyParents,
    /// A parent is no earlier receipt of this ledger.
    UnknownParent,
    /// A parent is of a type that the receipt cannot follow.
    WrongParent,
    /// An obligation is discharged again.
    DischargedTwice,
    /// The same logical receipt stands in the ledger twice.
    Repeated,
    /// A receipt is about a task that was never assigned.
    UnknownTask,
    /// A receipt was written under a lease that was never given for its task.
    UnknownLease,
    /// A signature is missing where there must be one.
    Unsigned,
    /// A signature does not match the statement.
    Signature,
    /// The head is signed with another key than the trusted one.
    UntrustedKey,
    /// A recorded signature is over a head that the ledger did not have at that place.
    SignedHead,
    /// The head's place is not that of the last receipt.
    HeadSeq,
    /// The head's link is not that of the last receipt.
    HeadLink,
    /// The head's number of open obligations is not what the receipts leave open.
    HeadOpenObligations,
    /// The ledger does not contain a head that is known from earlier.
    KnownHead,
}

impl Kind {
    /// The kind's name for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAnExport => "not_an_export",
            Self::UnknownVersion => "unknown_version",
            Self::Truncated => "truncated",
            Self::Garbled => "garbled",
            Self::AfterTheHead => "after_the_head",
            Self::Malformed => "malformed",
            Self::Tenant => "tenant",
            Self::Gap => "gap",
            Self::MisplacedId => "misplaced_id",
            Self::UnknownType => "unknown_type",
            Self::Time => "time",
            Self::TimeRunsBack => "time_runs_back",
            Self::Body => "body",
            Self::Hash => "hash",
            Self::Link => "link",
            Self::TooManyParents => "too_many_parents",
            Self::UnknownParent => "unknown_parent",
            Self::WrongParent => "wrong_parent",
            Self::DischargedTwice => "discharged_twice",
            Self::Repeated => "repeated",
            Self::UnknownTask => "unknown_task",
            Self::UnknownLease => "unknown_lease",
            Self::Unsigned => "unsigned",
            Self::Signature => "signature",
            Self::UntrustedKey => "untrusted_key",
            Self::SignedHead => "signed_head",
            Self::HeadSeq => "head_seq",
            Self::HeadLink => "head_link",
            Self::HeadOpenObligations => "head_open_obligations",
            Self::KnownHead => "known_head",
        }
    }
}

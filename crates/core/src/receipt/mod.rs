//! Receipts: immutable records of requests, work and proof.
//!
//! Invariants: a receipt is written once and never changed; it is written in the same commit as the
//! transition it proves; its [`hash`](Receipt::hash) depends on its statement, not on its time.

mod acknowledge;
mod body;
mod sign;
mod termination;

use std::sync::Arc;

use crate::{Json, LeaseId, Principal, ReceiptId, Seq, TaskId, Timestamp, preimage::Preimage};

pub use acknowledge::acknowledge;
pub use body::Body;
pub use sign::{SignedHead, record_signature};
pub use termination::{can_terminate, is_terminal, opens_obligation};

/// The largest body in bytes.
pub const MAX_BODY_BYTES: usize = 65_536;
/// The most bytes of proof in a body. It never leaves its receipt, so there must be room for the fields
/// beside it.
pub const MAX_PROOF_BYTES: usize = MAX_BODY_BYTES - 256;
/// The most parents.
pub const MAX_PARENTS: usize = 10;
/// The most artifacts.
pub const MAX_ARTIFACTS: usize = 100;

/// A record in a tenant's ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Receipt {
    /// The id, which carries `seq`.
    pub id: ReceiptId,
    /// The kind of event it records.
    pub receipt_type: ReceiptType,
    /// The time it was written.
    pub created_at: Timestamp,
    /// The principal that acted.
    pub from: Principal,
    /// The addressee: the principal in whose inbox it appears.
    pub to: Principal,
    /// The task it is about.
    pub task_id: Option<TaskId>,
    /// The lease under which the principal acted.
    pub lease_id: Option<LeaseId>,
    /// The receipts that caused it; for a terminal receipt, the obligations it discharges.
    pub parents: Vec<ReceiptId>,
    /// The statement: a small JSON object.
    pub body: Json,
    /// The server instance that wrote it.
    pub instance: Arc<str>,
}

impl Receipt {
    /// Returns its place in the ledger.
    pub fn seq(&self) -> Seq {
        self.id.seq()
    }

    /// Returns the hash of the statement: equal for equal statements, at any time and on any server.
    /// It leaves out the receipt's id, its times and its delivery.
    pub fn hash(&self) -> String {
        let mut parts = Preimage::new("asyncgate.receipt.v1");
        self.add_statement(&mut parts);
        format!("b3:{}", parts.hash().to_hex())
    }

    /// Adds the statement to a preimage, without the receipt's time and id.
    pub(crate) fn add_statement(&self, parts: &mut Preimage) {
        parts.add(self.receipt_type.as_str().as_bytes());
        parts.add_principal(&self.from);
        parts.add_principal(&self.to);
        parts.add(
            self.task_id
                .as_ref()
                .map_or(&[], |id| id.as_bytes().as_slice()),
        );
        parts.add(
            self.lease_id
                .as_ref()
                .map_or(&[], |id| id.as_bytes().as_slice()),
        );
        // The count keeps a parent from being read as the body that follows it.
        parts.add(&(self.parents.len() as u32).to_be_bytes());
        for parent in &self.parents {
            parts.add(parent.as_bytes());
        }
        parts.add_json(&self.body);
    }

    /// Returns the key of the logical receipt: two receipts with one key say the same thing, and the
    /// second is not written. A success that was first recorded without proof and later with proof
    /// is two receipts: only the second names a parent.
    pub fn key(&self) -> String {
        let mut parts = Preimage::new("asyncgate.receipt_key.v1");
        parts.add(self.receipt_type.as_str().as_bytes());
        parts.add(
            self.task_id
                .as_ref()
                .map_or(&[], |id| id.as_bytes().as_slice()),
        );
        parts.add(self.from.kind.as_str().as_bytes());
        parts.add(self.from.id.as_bytes());
        parts.add(
            self.lease_id
                .as_ref()
                .map_or(&[], |id| id.as_bytes().as_slice()),
        );
        // One bit for parents is enough: a success with proof and one without are two receipts.
        parts.add(&[u8::from(self.parents.is_empty())]);
        parts.hash().to_hex().to_string()
    }
}

/// The kinds of events that receipts record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReceiptType {
    /// A task was handed over; its owner is owed an outcome.
    TaskAssigned,
    /// A worker took the task under a lease.
    TaskAccepted,
    /// The worker began.
    TaskStarted,
    /// The worker reported its progress.
    TaskProgress,
    /// A failed try will be repeated.
    TaskRetryScheduled,
    /// The worker reported success.
    TaskCompleted,
    /// The worker reported a failure that ended the task.
    TaskFailed,
    /// The task was called off.
    TaskCanceled,
    /// The outcome can be fetched.
    TaskResultReady,
    /// A lease ran out and the task is queued again.
    LeaseExpired,
    /// A worker gave its lease back and the task is queued again.
    LeaseReleased,
    /// Something looks wrong and needs attention.
    SystemAnomaly,
    /// A receipt was acknowledged by its addressee.
    ReceiptAcknowledged,
    /// The server signed the head of the ledger.
    LedgerSigned,
}

impl ReceiptType {
    /// Every type. A type's position is its stored number and never changes.
    pub const ALL: [Self; 14] = [
        Self::TaskAssigned,
        Self::TaskAccepted,
        Self::TaskStarted,
        Self::TaskProgress,
        Self::TaskRetryScheduled,
        Self::TaskCompleted,
        Self::TaskFailed,
        Self::TaskCanceled,
        Self::TaskResultReady,
        Self::LeaseExpired,
        Self::LeaseReleased,
        Self::SystemAnomaly,
        Self::ReceiptAcknowledged,
        Self::LedgerSigned,
    ];

    /// The type's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TaskAssigned => "task.assigned",
            Self::TaskAccepted => "task.accepted",
            Self::TaskStarted => "task.started",
            Self::TaskProgress => "task.progress",
            Self::TaskRetryScheduled => "task.retry_scheduled",
            Self::TaskCompleted => "task.completed",
            Self::TaskFailed => "task.failed",
            Self::TaskCanceled => "task.canceled",
            Self::TaskResultReady => "task.result_ready",
            Self::LeaseExpired => "lease.expired",
            Self::LeaseReleased => "lease.released",
            Self::SystemAnomaly => "system.anomaly",
            Self::ReceiptAcknowledged => "receipt.acknowledged",
            Self::LedgerSigned => "ledger.signed",
        }
    }

    /// The type with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

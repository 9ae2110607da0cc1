//! The plane of tasks: the rows that its decisions declare and are shown.

use asyncgate_core::{
    Changes, Head, PrincipalKey, Reach, Receipt, ReceiptId, Rejection, Relationship, Seq, Task,
    TaskId, Usage,
};

use crate::{Declared, Job, Plane, Work, fair::Lane};

/// Tasks, their receipts and obligations.
#[derive(Debug)]
pub enum Tasks {}

impl Plane for Tasks {
    type Reads = ReadSet;
    type Snapshot = Snapshot;
    type Changes = Changes;
    type Rejection = Rejection;

    fn is_empty(changes: &Changes) -> bool {
        changes.is_empty()
    }

    fn receipts(changes: &Changes) -> usize {
        changes.receipts.len()
    }

    fn work(job: Job<Self>) -> Work {
        Work::Tasks(job)
    }
}

/// The rows that a decision needs. What is not declared is not loaded.
#[derive(Debug, Clone, Default)]
pub struct ReadSet {
    /// Tasks by id. Those that do not exist are missing from the snapshot.
    pub tasks: Vec<TaskId>,
    /// The task that an owner's idempotency key stands for.
    pub keyed: Option<IdempotencyKey>,
    /// Ready tasks that a worker can serve, by priority, then age, and how many at most.
    pub claimable: Option<(Reach, usize)>,
    /// A receipt by id.
    pub receipt: Option<ReceiptId>,
    /// The relationship with a principal.
    pub relationship: Option<PrincipalKey>,
}

impl Declared for ReadSet {
    type Plane = Tasks;

    fn lane(&self) -> Lane {
        Lane::Tasks
    }

    fn rows(&self) -> usize {
        let claimed = self.claimable.as_ref().map_or(0, |(_, limit)| *limit);
        self.tasks.len() + claimed
    }
}

/// An owner's name for a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// The principal that gave the name.
    pub owner: PrincipalKey,
    /// The name.
    pub key: String,
}

/// The rows that were declared, as they stand.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The place of the ledger's last receipt, 0 when it is empty.
    pub head: Seq,
    /// The whole of the ledger's head.
    pub ledger: Head,
    /// What the tenant uses.
    pub usage: Usage,
    /// The declared tasks that exist, in the order declared.
    pub tasks: Vec<Task>,
    /// The task behind the idempotency key.
    pub keyed: Option<Task>,
    /// The claimable tasks, in claim order.
    pub claimable: Vec<Task>,
    /// The receipt.
    pub receipt: Option<Receipt>,
    /// The relationship.
    pub relationship: Option<Relationship>,
}

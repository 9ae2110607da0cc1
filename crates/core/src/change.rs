//! The changes that a decision wants written. A store applies all of them in one commit, or none.

use crate::{
    PrincipalKey, Receipt, Relationship, Seq, Task, Timestamp, metering::Metering,
    outbox::NewDispatch, task::Standing,
};

/// A decision of any plane: the changes to write, and the answer once they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision<T, C = Changes> {
    /// The rows to write.
    pub changes: C,
    /// The answer, valid only after the commit.
    pub output: T,
}

/// Rows to write, in one tenant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    /// Tasks to insert or replace, in order. A task may stand here more than once: each write begins where the one before
    /// it left the task.
    pub tasks: Vec<TaskWrite>,
    /// Receipts to append, in ledger order, the first at the ledger's next place.
    pub receipts: Vec<Receipt>,
    /// Obligations that these receipts open.
    pub opened: Vec<ObligationKey>,
    /// Obligations that these receipts discharge.
    pub closed: Vec<ObligationKey>,
    /// Receipts that were handed over for the first time.
    pub delivered: Option<Delivery>,
    /// The new history of the principal that was seen.
    pub relationship: Option<Relationship>,
    /// What the tenant used since it was metered last. Boxed, because hardly any decision has one.
    pub metering: Option<Box<Metering>>,
    /// What other systems are told of it.
    pub outbox: Vec<NewDispatch>,
}

impl Changes {
    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A task to write, with its standing before.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskWrite {
    /// The task's new content.
    pub task: Task,
    /// The task's status and placement before this write; absent for a new task.
    pub before: Option<Standing>,
}

impl TaskWrite {
    /// Returns true if the task was held under a lease and is not any more.
    pub fn ends_lease(&self) -> bool {
        let was_held = self.before.is_some_and(|before| before.status.is_held());
        was_held && !self.task.status().is_held()
    }
}

/// The place of an open obligation: its owner, and the place of its receipt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObligationKey {
    /// The principal that the obligation is addressed to.
    pub owner: PrincipalKey,
    /// The place of the receipt that opened it.
    pub seq: Seq,
}

/// Receipts that were handed over at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The places of the receipts.
    pub seqs: Vec<Seq>,
    /// The time of the handover.
    pub at: Timestamp,
}

//! The changes that a decision wants written. A store applies all of them in one commit, or none.

use crate::{PrincipalKey, Receipt, Relationship, Seq, Task, Timestamp, task::Standing};

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
    /// Tasks to insert or replace.
    pub tasks: Vec<TaskWrite>,
    /// Receipts to append, in ledger order, the first at the ledger's next place.
    pub receipts: Vec<Receipt>,
    /// Obligations that these receipts open.
    pub opened: Vec<ObligationKey>,
    /// Obligations that these receipts discharge.
    pub closed: Vec<ObligationKey>,
    /// Receipts that were handed over for the first time.
    pub delivered: Option<Delivery>,
    /// What is known of the principal that was seen.
    pub relationship: Option<Relationship>,
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A task to write, and where it stood before.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskWrite {
    /// The task as it shall be.
    pub task: Task,
    /// How the task stood before; absent for a new task.
    pub before: Option<Standing>,
}

/// An open obligation's place: whose it is, and where its receipt stands.
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
    /// When they were handed over.
    pub at: Timestamp,
}

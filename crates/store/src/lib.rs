//! Storage: load, decide, save.
//!
//! A store runs a transaction around a pure decision and knows rows, not rules. Every backend
//! passes the same conformance suite; the [`memory`] store is the reference.

pub mod admission;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod fair;
pub mod mailbox;
pub mod memory;
mod metrics;
mod signals;
mod sync;
mod transact;
mod waiters;

use asyncgate_core::{
    Head, Link, Placement, PrincipalKey, Receipt, ReceiptId, ReceiptType, Relationship, Seq, Task,
    TaskId, TenantId, Timestamp, task::Status,
};
use futures_util::future::BoxFuture;

pub use asyncgate_core::{Changes, Decision};
pub use error::Error;
pub use metrics::{Stopwatch, StoreMetrics};
pub use signals::{Deliveries, EndWaiter, MessageWaiter, Signals, TaskWaiter};
pub use transact::{Decide, IdempotencyKey, Job, ReadSet, Snapshot, transact, transact_admitted};
pub use waiters::{AnyOffer, Interest, Waiter, take_or_wait};

/// How much memory the tasks of one answer may take. A page or a claim that would take more ends
/// early, after at least one task.
pub const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Takes tasks while they fit into one answer.
pub fn fits(taken: &mut usize, task: &Task) -> bool {
    let first = *taken == 0;
    *taken = taken.saturating_add(task.weight().max(1));
    first || *taken <= MAX_ANSWER_BYTES
}

/// A future that a store answers with.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// Durable rows with transactions around pure decisions.
///
/// Contract:
/// - [`transact`](Store::transact) is atomic and serializable within a tenant: it loads the read
///   set, calls the decision, and writes its changes in one commit. It answers `Ok` only when the
///   commit is durable (for the memory store: applied). On `Err` nothing was written, and the
///   caller may try again. The decision may be called more than once, but its last call is the one
///   that was written.
/// - Receipts get the places that the decision gave them; a decision sees the ledger's head, so
///   places have no gaps. Each gets its [`Link`] in the same commit.
/// - Reads see some committed state, at least as new as every commit that was answered before the
///   read began.
/// - After a commit, [`Signals`] tells those who wait for what it changed.
pub trait Store: Send + Sync {
    /// Runs one decision in one transaction.
    fn transact(&self, job: Job) -> Answer<'_, ()>;

    /// The messages that are stored beside the tasks.
    fn mailbox(&self) -> &dyn mailbox::Mailbox;

    /// What is decided about nonces, limits and revocations beside them.
    fn admission(&self) -> &dyn admission::Admission;

    /// One task.
    fn task(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Task>>;

    /// Tasks that match, newest first. See [`TaskPage`] for what a short page means.
    fn tasks(&self, tenant: TenantId, filter: TaskFilter) -> Answer<'_, TaskPage>;

    /// One receipt.
    fn receipt(&self, tenant: TenantId, id: ReceiptId) -> Answer<'_, Option<DeliveredReceipt>>;

    /// Where the tenant's ledger ends.
    fn head(&self, tenant: TenantId) -> Answer<'_, Head>;

    /// Receipts that match, in ledger order.
    fn receipts(
        &self,
        tenant: TenantId,
        filter: ReceiptFilter,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>>;

    /// A principal's open obligations, in ledger order.
    fn obligations(
        &self,
        tenant: TenantId,
        owner: PrincipalKey,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>>;

    /// What is known of a principal.
    fn relationship(
        &self,
        tenant: TenantId,
        principal: PrincipalKey,
    ) -> Answer<'_, Option<Relationship>>;

    /// Tasks whose deadline is at or before `now`, earliest first.
    fn due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, TaskId)>>;

    /// The earliest deadline of all.
    fn next_due(&self) -> Answer<'_, Option<Timestamp>>;

    /// How many tasks there are of each status, over all tenants.
    fn depths(&self) -> Answer<'_, Depths>;

    /// The latest time that any commit was made with. A clock must not start before it.
    fn last_time(&self) -> Timestamp;

    /// Whether writes are being accepted.
    fn health(&self) -> Health;

    /// Where to wait for what commits change.
    fn signals(&self) -> &Signals;

    /// What the store measures of itself.
    fn metrics(&self) -> &StoreMetrics;
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only this principal's.
    pub owner: Option<PrincipalKey>,
    /// Only those in this state.
    pub status: Option<Status>,
    /// Only those of this type.
    pub task_type: Option<String>,
    /// Only those created before this one.
    pub before: Option<TaskId>,
    /// The most to return.
    pub limit: usize,
}

impl TaskFilter {
    /// Whether a task is to be listed.
    pub fn matches(&self, task: &Task) -> bool {
        self.owner
            .as_ref()
            .is_none_or(|owner| *owner == task.created_by.key())
            && self.status.is_none_or(|status| status == task.status())
            && self
                .task_type
                .as_ref()
                .is_none_or(|name| *name == task.spec.task_type)
            && self
                .before
                .is_none_or(|before| task.id.seq() < before.seq())
    }
}

/// Some tasks, and where to go on. Looking through tasks that do not match is bounded, and so is the
/// size of an answer ([`MAX_ANSWER_BYTES`]), so a page may be short, or even empty, and still have a
/// `next`.
#[derive(Debug, Clone, Default)]
pub struct TaskPage {
    /// The tasks, newest first.
    pub tasks: Vec<Task>,
    /// What to give as `before` for more; absent when there are none.
    pub next: Option<TaskId>,
}

/// Which receipts to list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReceiptFilter {
    /// Those addressed to a principal.
    To(PrincipalKey),
    /// Those about a task.
    Task(TaskId),
    /// Those under a lease.
    Lease(asyncgate_core::LeaseId),
    /// Those of a type.
    Type(ReceiptType),
    /// The whole ledger.
    All,
}

impl ReceiptFilter {
    /// Whether a receipt is to be listed.
    pub fn matches(&self, receipt: &Receipt) -> bool {
        match self {
            Self::To(principal) => *principal == receipt.to.key(),
            Self::Task(task) => receipt.task_id == Some(*task),
            Self::Lease(lease) => receipt.lease_id == Some(*lease),
            Self::Type(receipt_type) => receipt.receipt_type == *receipt_type,
            Self::All => true,
        }
    }
}

/// A page of the ledger: what stands after a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeqPage {
    /// Only what stands after this place.
    pub after: Seq,
    /// The most to return.
    pub limit: usize,
}

/// A receipt as it is stored: with its link in the chain, and when it was first handed over.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveredReceipt {
    /// The receipt.
    pub receipt: Receipt,
    /// The hash of the ledger up to and including the receipt.
    pub link: Link,
    /// When it was first handed over by bootstrap.
    pub delivered_at: Option<Timestamp>,
}

/// How many tasks there are of each status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depths([i64; Status::ALL.len()]);

impl Depths {
    /// The number of tasks with `status`.
    pub fn of(&self, status: Status) -> i64 {
        self.0[status as usize]
    }

    /// Counts a change of one task.
    pub fn count(&mut self, before: Option<Status>, after: Status) {
        if let Some(before) = before {
            self.0[before as usize] -= 1;
        }
        self.0[after as usize] += 1;
    }

    /// Sets the number of tasks with `status`.
    pub fn set(&mut self, status: Status, count: i64) {
        self.0[status as usize] = count;
    }

    /// Adds another count to this one.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// Whether a store accepts writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ready,
    /// It does not, for this reason, which may be shown to an operator.
    Failing(String),
}

/// The deadline in a placement, if there is one.
pub(crate) const fn deadline(placement: Placement) -> Option<Timestamp> {
    match placement {
        Placement::Due { at } => Some(at),
        Placement::Ready { .. } | Placement::Ended => None,
    }
}

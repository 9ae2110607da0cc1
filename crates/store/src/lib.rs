//! Storage: load, decide, save.
//!
//! A store runs a transaction around a pure decision and knows rows, not rules. What differs between tasks and
//! messages is said in a [`Plane`]; what a backend must bring is said in [`Rows`]; everything between is shared.
//! Every backend passes the same conformance suite; the [`memory`] store is the reference.

pub mod admission;
pub mod classes;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod fair;
mod hot;
pub mod identity;
mod job;
pub mod mailbox;
pub mod memory;
mod metrics;
pub mod outbox;
mod plane;
mod remembered;
mod shares;
mod signals;
mod sync;
mod tasks;
mod transaction;
mod waiters;
#[cfg(test)]
mod waiters_tests;

use std::sync::Arc;

use asyncgate_core::{
    Head, Link, Principal, PrincipalKey, Receipt, ReceiptId, ReceiptType, Relationship, Seq, Tally,
    Task, TaskId, TenantId, Timestamp, Usage, metering::UsageEvent, task::Status,
};
use futures_util::future::BoxFuture;

pub use asyncgate_core::{Changes, Decision, task::IdempotencyKey};
pub use error::Error;
pub use hot::HotTasks;
pub use identity::Records;
pub use job::{Committed, Decide, Decided, Job, Outcome, transact, transact_admitted};
pub use mailbox::Messages;
pub use metrics::{Stopwatch, StoreMetrics};
pub use outbox::Dispatches;
pub use plane::{Declared, Plane, Work, Written, flow};
pub use remembered::Remembered;
pub use shares::Shares;
pub use signals::{Deliveries, EndWaiter, MessageWaiter, RoomWaiter, Signals, TaskWaiter};
pub use tasks::{ReadSet, Snapshot, Tasks};
pub use transaction::{Rows, Transaction};
pub use waiters::{AnyOffer, Interest, Waiter, WorkerMark, take_or_wait};

/// The most memory that the tasks of one answer may take. A page or a claim that would take more ends early, after
/// at least one task. Others wait while it is put together, so it is not large.
pub const MAX_ANSWER_BYTES: usize = 2 << 20;

/// Returns true while tasks fit into one answer. `taken` counts their bytes; it starts at 0.
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
/// - [`transact`](Store::transact) is atomic and serializable within a tenant: it loads the read set, calls the
///   decision, and writes its changes in one commit. It answers `Ok` only when the commit is durable (for the memory
///   store: applied). On `Err` nothing was written, and the caller may try again. The decision may be called more
///   than once, but its last call is the one that was written.
/// - No decision is made before the latest time that was written: it is given the later of that time and its job's.
/// - Receipts get the places that the decision gave them; a decision sees the ledger's head, so places have no gaps.
///   Each gets its [`Link`] in the same commit.
/// - Reads see some committed state, at least as new as every commit that was answered before the read began.
/// - After a commit, [`Signals`] wakes those who wait for what it changed.
pub trait Store: Send + Sync {
    /// Runs one decision of any plane in one transaction.
    fn transact(&self, work: Work) -> Answer<'_, ()>;

    /// Returns the messages that are stored beside the tasks.
    fn mailbox(&self) -> &dyn mailbox::Mailbox;

    /// Returns the records of identity and the audit logs that are stored beside them.
    fn identity(&self) -> &dyn identity::Identity;

    /// Returns what is on its way to other systems.
    fn outbox(&self) -> &dyn outbox::Outbox;

    /// Returns the nonces, limits and revocations that are stored beside them.
    fn admission(&self) -> &dyn admission::Admission;

    /// Returns the store as a host, for callers that must own their host.
    fn host(self: Arc<Self>) -> Arc<dyn admission::Host>;

    /// Returns one task.
    fn task(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Task>>;

    /// Returns tasks that match, newest first. See [`TaskPage`] for the meaning of a short page.
    fn tasks(&self, tenant: TenantId, filter: TaskFilter) -> Answer<'_, TaskPage>;

    /// Returns whose a task is, without reading the task itself, which may be large.
    fn parties(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Parties>>;

    /// Returns one receipt.
    fn receipt(&self, tenant: TenantId, id: ReceiptId) -> Answer<'_, Option<DeliveredReceipt>>;

    /// Returns the head of the tenant's ledger.
    fn head(&self, tenant: TenantId) -> Answer<'_, Head>;

    /// Returns receipts that match, in ledger order.
    fn receipts(
        &self,
        tenant: TenantId,
        filter: ReceiptFilter,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>>;

    /// Returns the newest receipts that are addressed to a principal, in ledger order.
    fn newest_receipts(
        &self,
        tenant: TenantId,
        to: PrincipalKey,
        limit: usize,
    ) -> Answer<'_, Vec<DeliveredReceipt>>;

    /// Returns a principal's open obligations, in ledger order.
    fn obligations(
        &self,
        tenant: TenantId,
        owner: PrincipalKey,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>>;

    /// Returns the relationship with a principal.
    fn relationship(
        &self,
        tenant: TenantId,
        principal: PrincipalKey,
    ) -> Answer<'_, Option<Relationship>>;

    /// Returns tasks whose deadline is at or before `now`, earliest first.
    fn due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, TaskId)>>;

    /// Returns the earliest deadline of all.
    fn next_due(&self) -> Answer<'_, Option<Timestamp>>;

    /// Returns what a tenant uses at a time, which is now.
    fn usage(&self, tenant: TenantId, now: Timestamp) -> Answer<'_, Usage>;

    /// Returns usage events of a tenant before a place, the newest first.
    fn usage_events(
        &self,
        tenant: TenantId,
        before: Option<Seq>,
        limit: usize,
    ) -> Answer<'_, Vec<UsageEvent>>;

    /// Returns the number of tasks of each status, over all tenants.
    fn depths(&self) -> Answer<'_, Depths>;

    /// Returns the latest time that any commit was made with. A clock must not start before it.
    fn last_time(&self) -> Timestamp;

    /// Tells whether writes are being accepted.
    fn health(&self) -> Health;

    /// Returns the place to wait for what commits change.
    fn signals(&self) -> &Signals;

    /// Returns what the store measures of itself.
    fn metrics(&self) -> &StoreMetrics;
}

/// A choice of tasks.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only those of this principal.
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
    /// Returns true if a task is to be listed.
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

/// A page of tasks. The search through tasks that do not match is bounded, and so is the size of an answer
/// ([`MAX_ANSWER_BYTES`]), so a page may be short, or even empty, and still have a `next`.
#[derive(Debug, Clone, Default)]
pub struct TaskPage {
    /// The tasks, newest first.
    pub tasks: Vec<Task>,
    /// The value of `before` for the next page; absent when there is none.
    pub next: Option<TaskId>,
}

/// The principals that a task belongs to: its owner, and its worker if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parties {
    /// The owner.
    pub owner: PrincipalKey,
    /// The worker that holds the task, or that ended it.
    pub worker: Option<PrincipalKey>,
}

impl Parties {
    /// Returns the parties of a task.
    pub fn of(task: &Task) -> Self {
        let holder = task.lease().map(|lease| &lease.worker);
        let ended = task.end().and_then(|end| end.by.as_ref());
        Self {
            owner: task.created_by.key(),
            worker: holder
                .or(ended.map(|(_, worker)| worker))
                .map(Principal::key),
        }
    }
}

/// A choice of receipts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReceiptFilter {
    /// Those addressed to a principal.
    To(PrincipalKey),
    /// Those about a task.
    Task(TaskId),
    /// Those of a type.
    Type(ReceiptType),
    /// The whole ledger.
    All,
}

impl ReceiptFilter {
    /// Returns true if a receipt is to be listed.
    pub fn matches(&self, receipt: &Receipt) -> bool {
        match self {
            Self::To(principal) => *principal == receipt.to.key(),
            Self::Task(task) => receipt.task_id == Some(*task),
            Self::Type(receipt_type) => receipt.receipt_type == *receipt_type,
            Self::All => true,
        }
    }
}

/// A page of the ledger: the receipts after a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeqPage {
    /// Only those after this place.
    pub after: Seq,
    /// The most to return.
    pub limit: usize,
}

/// A receipt as it is stored: with its link in the chain and the time of its delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveredReceipt {
    /// The receipt.
    pub receipt: Receipt,
    /// The hash of the ledger up to and including the receipt.
    pub link: Link,
    /// The time at which bootstrap first handed it over.
    pub delivered_at: Option<Timestamp>,
}

/// The number of tasks of each status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depths([i64; Status::ALL.len()]);

impl Depths {
    /// Returns the number of tasks with `status`.
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

    /// Returns what a tenant with these tasks uses.
    pub fn usage(&self, tally: &Tally, now: Timestamp) -> Usage {
        let of = |status| u64::try_from(self.of(status)).unwrap_or(0);
        let held = of(Status::Leased) + of(Status::Running);
        Usage::at(now, tally, of(Status::Queued), held)
    }

    /// Adds another count to this one.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// The state of a store: it accepts writes or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It accepts writes.
    Ready,
    /// It does not. The reason may be shown to an operator.
    Failing(String),
}

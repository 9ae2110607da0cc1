//! Jobs: what a transaction reads, and the decision that it runs.

use std::sync::{Arc, Mutex, PoisonError};

use asyncgate_core::{
    Changes, Decision, Head, PrincipalKey, Reach, Receipt, ReceiptId, Rejection, Relationship, Seq,
    Task, TaskId, TenantId, Timestamp,
    admission::{Asks, Verdicts},
};

use crate::{Error, Store};

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
    /// What is known of a principal.
    pub relationship: Option<PrincipalKey>,
}

/// An owner's name for a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// Whose name it is.
    pub owner: PrincipalKey,
    /// The name.
    pub key: String,
}

/// The rows that were declared, as they stand.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The place of the ledger's last receipt, 0 when it is empty.
    pub head: Seq,
    /// The whole of the ledger's head.
    pub ledger: Head,
    /// The latest time that anything was written with. What is decided now is not before it, so
    /// that time never runs back in a ledger.
    pub last_time: Timestamp,
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

/// A pure decision: what to write, or `None` to write nothing. It may be called more than once;
/// the last call counts.
pub type Decide = Box<dyn FnMut(Snapshot) -> Option<Changes> + Send>;

/// One transaction to run.
pub struct Job {
    /// The tenant whose rows it may touch.
    pub tenant: TenantId,
    /// What to load.
    pub reads: ReadSet,
    /// The time it is decided at.
    pub now: Timestamp,
    /// Roughly how much memory it holds while it waits.
    pub weight: usize,
    /// The decision.
    pub decide: Decide,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("tenant", &self.tenant)
            .field("reads", &self.reads)
            .finish_non_exhaustive()
    }
}

/// Where a decision leaves its output.
type Slot<T> = Arc<Mutex<Option<Result<T, Rejection>>>>;

impl Job {
    /// A transaction around a typed decision, and where its output will be.
    fn new<T: Send + 'static>(
        tenant: TenantId,
        now: Timestamp,
        weight: usize,
        reads: ReadSet,
        mut decide: impl FnMut(Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
    ) -> (Self, Slot<T>) {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let decide: Decide = Box::new(move |snapshot| {
            let (changes, decided) = match decide(snapshot) {
                Ok(Decision { changes, output }) => (Some(changes), Ok(output)),
                Err(rejection) => (None, Err(rejection)),
            };
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(decided);
            changes
        });
        let job = Self {
            tenant,
            reads,
            now,
            weight,
            decide,
        };
        (job, answer)
    }
}

/// Runs a typed decision: the outer error is the store's, the inner the rule's.
pub async fn transact<T: Send + 'static>(
    store: &dyn Store,
    tenant: TenantId,
    now: Timestamp,
    weight: usize,
    reads: ReadSet,
    decide: impl FnMut(Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
) -> Result<Result<T, Rejection>, Error> {
    let (job, answer) = Job::new(tenant, now, weight, reads, decide);
    store.transact(job).await?;
    let decided = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
    decided.ok_or_else(|| Error::Unavailable("the transaction was not decided".to_owned()))
}

/// As [`transact`], if what is asked of admission passes, and in the same commit. What admission refused
/// was not decided.
pub async fn transact_admitted<T: Send + 'static>(
    store: &dyn Store,
    tenant: TenantId,
    now: Timestamp,
    weight: usize,
    asks: Asks,
    decide: impl FnMut(Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
) -> Result<(Verdicts, Option<Result<T, Rejection>>), Error> {
    let (job, answer) = Job::new(tenant, now, weight, ReadSet::default(), decide);
    let verdicts = store.admission().transact_admitted(asks, job).await?;
    let decided = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok((verdicts, decided))
}

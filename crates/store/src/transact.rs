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

/// Where a decision leaves its output, or why there is none.
pub(crate) struct Slot<T, R>(Arc<Mutex<Option<Result<T, R>>>>);

impl<T, R> Slot<T, R> {
    /// What was left here, if the decision was called.
    pub(crate) fn take(&self) -> Option<Result<T, R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// As [`Slot::take`], after a transaction that cannot have ended without a decision.
    pub(crate) fn decided(&self) -> Result<Result<T, R>, Error> {
        let undecided = || Error::Unavailable("the transaction was not decided".to_owned());
        self.take().ok_or_else(undecided)
    }
}

/// A decision as stores call it, from one that answers with changes and an output; and where its output
/// will be. Of several calls the last one counts.
pub(crate) fn keeping_output<S, C, T: Send + 'static, R: Send + 'static>(
    mut decide: impl FnMut(S) -> Result<(C, T), R> + Send + 'static,
) -> (impl FnMut(S) -> Option<C> + Send + 'static, Slot<T, R>)
where
    S: 'static,
    C: 'static,
{
    let slot = Arc::new(Mutex::new(None));
    let kept = Slot(Arc::clone(&slot));
    let decide = move |snapshot: S| {
        let (changes, decided) = match decide(snapshot) {
            Ok((changes, output)) => (Some(changes), Ok(output)),
            Err(rejection) => (None, Err(rejection)),
        };
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(decided);
        changes
    };
    (decide, kept)
}

impl Job {
    /// A transaction around a typed decision, and where its output will be.
    fn new<T: Send + 'static>(
        tenant: TenantId,
        now: Timestamp,
        weight: usize,
        reads: ReadSet,
        mut decide: impl FnMut(Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
    ) -> (Self, Slot<T, Rejection>) {
        let (decide, output) = keeping_output(move |snapshot| {
            let Decision { changes, output } = decide(snapshot)?;
            Ok((changes, output))
        });
        let job = Self {
            tenant,
            reads,
            now,
            weight,
            decide: Box::new(decide),
        };
        (job, output)
    }
}

/// Runs a typed decision: the outer error is the store's, the inner the rule's.
///
/// No `async fn`: that would keep every argument twice, for whoever waits to carry along.
pub fn transact<T: Send + 'static>(
    store: &dyn Store,
    tenant: TenantId,
    now: Timestamp,
    weight: usize,
    reads: ReadSet,
    decide: impl FnMut(Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
) -> impl Future<Output = Result<Result<T, Rejection>, Error>> + Send {
    let (job, output) = Job::new(tenant, now, weight, reads, decide);
    let written = store.transact(job);
    async move {
        written.await?;
        output.decided()
    }
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
    let (job, output) = Job::new(tenant, now, weight, ReadSet::default(), decide);
    let verdicts = store.admission().transact_admitted(asks, job).await?;
    Ok((verdicts, output.take()))
}

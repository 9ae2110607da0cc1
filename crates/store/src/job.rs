//! Jobs: what a transaction reads, and the decision that it runs.

use std::sync::{Arc, Mutex, PoisonError};

use asyncgate_core::{
    Decision, Env, TenantId, Timestamp,
    admission::{Asks, Verdicts},
};

use crate::{
    Declared, Error, Plane, Store,
    fair::Flow,
    plane,
    tasks::{ReadSet, Snapshot, Tasks},
};

/// A pure decision: it is given the time it is decided at and the declared rows, and returns what to write, or
/// `None` to write nothing. It may be called more than once; the last call counts.
pub type Decide<P> =
    Box<dyn FnMut(Timestamp, <P as Plane>::Snapshot) -> Option<<P as Plane>::Changes> + Send>;

/// One transaction to run.
pub struct Job<P: Plane> {
    /// The tenant whose rows it may touch.
    pub tenant: TenantId,
    /// The rows to load.
    pub reads: P::Reads,
    /// The time at which it was asked for. It is decided at this time or later, never before what was written.
    pub now: Timestamp,
    /// Roughly how much memory it holds while it waits.
    pub weight: usize,
    /// The decision.
    pub decide: Decide<P>,
}

impl<P: Plane> std::fmt::Debug for Job<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("tenant", &self.tenant)
            .field("reads", &self.reads)
            .finish_non_exhaustive()
    }
}

impl<P: Plane> Job<P> {
    /// Returns the job's place in a fair queue.
    pub fn flow(&self) -> Flow {
        let (lane, rows) = (self.reads.lane(), self.reads.rows());
        plane::flow(self.tenant, lane, rows, self.weight)
    }

    /// Returns a job around a typed decision, and the slot where its outcome will be.
    ///
    /// This closure is all that stands between the caller's decision and the store.
    fn typed<T: Send + 'static>(
        tenant: TenantId,
        env: Env,
        weight: usize,
        reads: P::Reads,
        mut decide: impl FnMut(Env, P::Snapshot) -> Decided<P, T> + Send + 'static,
    ) -> (Self, Slot<Outcome<P, T>>) {
        let now = env.now;
        let outcome = Slot(Arc::default());
        let slot = Slot(Arc::clone(&outcome.0));
        let decide = move |now, snapshot| {
            // A store may call again: a clone gives the same ids, so the decision comes out the same.
            let env = Env { now, ..env.clone() };
            let (changes, decided) = match decide(env, snapshot) {
                Ok(Decision { changes, output }) => {
                    let receipts = P::receipts(&changes);
                    (Some(changes), Ok(Committed { output, receipts }))
                }
                Err(rejection) => (None, Err(rejection)),
            };
            slot.put(decided);
            changes
        };
        let job = Self {
            tenant,
            reads,
            now,
            weight,
            decide: Box::new(decide),
        };
        (job, outcome)
    }
}

/// The answer of a rule: changes and an output, or a refusal.
pub type Decided<P, T> = Result<Decision<T, <P as Plane>::Changes>, <P as Plane>::Rejection>;

/// The output of a decision whose changes are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed<T> {
    /// The output.
    pub output: T,
    /// The number of receipts that the commit appended to the tenant's ledger.
    pub receipts: usize,
}

/// The outcome of a transaction: the output, or the refusal by a rule.
pub type Outcome<P, T> = Result<Committed<T>, <P as Plane>::Rejection>;

/// The place where a decision leaves its outcome. Of several calls the last one counts.
struct Slot<O>(Arc<Mutex<Option<O>>>);

impl<O> Slot<O> {
    fn put(&self, outcome: O) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    /// Takes the outcome. There is none if the decision was never called.
    fn take(&self) -> Option<O> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs a typed decision of any plane: the outer error is the store's, the inner one the rule's.
///
/// The decision is given `env` with the time at which the store decides it, which is that of `env` or later.
pub fn transact<R, P, T>(
    store: &dyn Store,
    tenant: TenantId,
    env: Env,
    weight: usize,
    reads: R,
    decide: impl FnMut(Env, P::Snapshot) -> Decided<P, T> + Send + 'static,
) -> impl Future<Output = Result<Outcome<P, T>, Error>> + Send
where
    R: Declared<Plane = P>,
    P: Plane<Reads = R>,
    T: Send + 'static,
{
    // This is no `async fn`: such a future would hold every argument a second time, and whoever waits for it
    // would carry both copies along.
    let (job, outcome) = Job::<P>::typed(tenant, env, weight, reads, decide);
    let written = store.transact(job.into());
    async move {
        written.await?;
        let undecided = || Error::Unavailable("the transaction was not decided".to_owned());
        outcome.take().ok_or_else(undecided)
    }
}

/// Runs a typed decision about tasks if what is asked of admission passes, both in one commit. What admission
/// refused was not decided.
pub async fn transact_admitted<T: Send + 'static>(
    store: &dyn Store,
    tenant: TenantId,
    env: Env,
    weight: usize,
    asks: Asks,
    decide: impl FnMut(Env, Snapshot) -> Decided<Tasks, T> + Send + 'static,
) -> Result<(Verdicts, Option<Outcome<Tasks, T>>), Error> {
    let (job, outcome) = Job::<Tasks>::typed(tenant, env, weight, ReadSet::default(), decide);
    let verdicts = store.admission().transact_admitted(asks, job).await?;
    Ok((verdicts, outcome.take()))
}

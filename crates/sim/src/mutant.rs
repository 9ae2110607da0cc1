//! Deliberate defects, to show that the simulator can fail.
//!
//! Some are placed above the simulated store, like a defect of the engine or of a rule; some below it, like a
//! defect of a backend; and some around the authenticator.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a defect is named where it strikes and nowhere else"
)]

mod credentials;
mod mail;
mod records;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use asyncgate_core::{
    Changes, ClassesInUse, Head, ObligationKey, PrincipalKey, ReceiptId, ReceiptType, Relationship,
    Task, TaskId, TenantId, Timestamp, Usage, identity::Quotas, mailbox::Message, task::State,
};
use asyncgate_store::{
    Answer, Decide, DeliveredReceipt, Depths, Error, Health, Job, Parties, Plane, ReadSet,
    ReceiptFilter, SeqPage, Signals, Snapshot, Store, StoreMetrics, TaskFilter, TaskPage, Tasks,
    Work,
};

use crate::{
    cast::{TENANTS, tenant_id},
    store::at_once,
};

/// A planted defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// It answers first and commits with the next transaction.
    AnswersBeforeCommit,
    /// It finds no task for an idempotency key.
    ForgetsKeys,
    /// It does not count the classes of tasks.
    ForgetsClasses,
    /// It does not count what a tenant uses.
    ForgetsUsage,
    /// It offers a task again that was just leased.
    LeasesTwice,
    /// It leaves a discharged obligation in the index.
    DropsCloses,
    /// It counts an expired lease as a failed attempt.
    BurnsAttempts,
    /// It lets workers go on under leases that ran out.
    AcceptsStaleLeases,
    /// It lets workers go on with tasks whose deadline has passed.
    AcceptsLateWork,
    /// It cancels tasks that have already ended.
    EndsTwice,
    /// It discharges an obligation without proof.
    TrustsWorkers,
    /// It gives the worst task first.
    IgnoresPriority,
    /// It loses the receipt that tells the owner of an outcome.
    SkipsReceipts,
    /// It runs some transactions a second time.
    RunsTwice,
    /// It finds tasks of other tenants.
    MixesTenants,
    /// It reports a commit that it did not make.
    LosesWrites,
    /// It does not wake those who wait.
    LosesWakeUps,
    /// It shows tasks in the state in which it first saw them.
    ReadsStale,
    /// It never finds a deadline that has come.
    ForgetsDeadlines,
    /// It does not remember the time of its last write.
    ForgetsTime,
    /// It finds no message for the name of a send.
    ForgetsNames,
    /// It reports a message as done and leaves it in place.
    ForgetsAcks,
    /// It hands over a message that somebody holds.
    DeliversTwice,
    /// It gives every receiver of a message the same lease.
    ReusesLeases,
    /// It lets a former receiver settle a message that another one holds now.
    AcceptsOldDeliveries,
    /// It drops a message whose receiver let the time pass.
    DropsTimedOut,
    /// It delivers messages that should be dead letters.
    NeverGivesUp,
    /// It hands over the youngest of the least important first.
    IgnoresOrder,
    /// It begins the chain anew with each message.
    BreaksChains,
    /// It accepts more messages than a topic may hold.
    Overfills,
    /// It lets messages pass others with their partition key.
    JumpsTheLine,
    /// It leaves the messages behind one that has ended blocked.
    KeepsTheTurn,
    /// It purges messages that receivers hold.
    PurgesHeld,
    /// It delivers delayed messages at once.
    ForgetsDelays,
    /// It reports a send as committed that it did not commit.
    LosesMail,
    /// It counts no dead letters.
    Miscounts,
    /// It shows the dead letters of another tenant.
    MixesMail,
    /// It never finds a message whose time has come.
    ForgetsMessages,
    /// It lets in whoever it has let in before, and never reads a record again.
    NeverReadsAgain,
    /// It lets expired credentials in until the second is over.
    RoundsExpiry,
    /// It does not notice what an operator changes on its own instance.
    KeepsToItself,
    /// It lets waits go on while their tenant is suspended.
    WaitsThroughSuspension,
    /// It lets waits go on whatever becomes of their credential.
    OutlivesCredential,
    /// It lets streams go on whatever becomes of their credential.
    ListensOn,
    /// It revokes another credential together with the one that was meant.
    RevokesAnother,
    /// It takes callers for the one before.
    TakesForAnother,
    /// It counts with the first quotas that it saw of a tenant.
    KeepsQuotas,
}

impl Mutant {
    /// Every defect.
    pub const ALL: [Self; 47] = [
        Self::AnswersBeforeCommit,
        Self::ForgetsKeys,
        Self::ForgetsClasses,
        Self::ForgetsUsage,
        Self::LeasesTwice,
        Self::DropsCloses,
        Self::BurnsAttempts,
        Self::AcceptsStaleLeases,
        Self::AcceptsLateWork,
        Self::EndsTwice,
        Self::TrustsWorkers,
        Self::IgnoresPriority,
        Self::SkipsReceipts,
        Self::RunsTwice,
        Self::MixesTenants,
        Self::LosesWrites,
        Self::LosesWakeUps,
        Self::ReadsStale,
        Self::ForgetsDeadlines,
        Self::ForgetsTime,
        Self::ForgetsNames,
        Self::ForgetsAcks,
        Self::DeliversTwice,
        Self::ReusesLeases,
        Self::AcceptsOldDeliveries,
        Self::DropsTimedOut,
        Self::NeverGivesUp,
        Self::IgnoresOrder,
        Self::BreaksChains,
        Self::Overfills,
        Self::JumpsTheLine,
        Self::KeepsTheTurn,
        Self::PurgesHeld,
        Self::ForgetsDelays,
        Self::LosesMail,
        Self::Miscounts,
        Self::MixesMail,
        Self::ForgetsMessages,
        Self::NeverReadsAgain,
        Self::RoundsExpiry,
        Self::KeepsToItself,
        Self::WaitsThroughSuspension,
        Self::OutlivesCredential,
        Self::ListensOn,
        Self::RevokesAnother,
        Self::TakesForAnother,
        Self::KeepsQuotas,
    ];

    const fn is_below(self) -> bool {
        matches!(
            self,
            Self::MixesTenants
                | Self::LosesWrites
                | Self::LosesWakeUps
                | Self::ReadsStale
                | Self::ForgetsDeadlines
                | Self::ForgetsTime
                | Self::LosesMail
                | Self::Miscounts
                | Self::MixesMail
                | Self::ForgetsMessages
        )
    }

    /// Returns the store for the engine to use instead of `store`.
    pub fn above(self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        if self.is_below() {
            return store;
        }
        Arc::new(Mutated::new(self, store))
    }

    /// Returns the store for the simulated store to use instead of `store`.
    pub fn below(self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        if self.is_below() {
            return Arc::new(Mutated::new(self, store));
        }
        store
    }
}

struct Mutated {
    mutant: Mutant,
    store: Arc<dyn Store>,
    jobs: AtomicU64,
    silent: Signals,
    kept: Arc<Mutex<Kept>>,
}

/// The memory of a defect.
#[derive(Default)]
struct Kept {
    tasks: Vec<Task>,
    late: Option<Job<Tasks>>,
    /// Each tenant's messages as they were handed over.
    delivered: BTreeMap<TenantId, Vec<Message>>,
    /// The first quotas of each tenant.
    quotas: BTreeMap<TenantId, Quotas>,
}

impl Mutated {
    fn new(mutant: Mutant, store: Arc<dyn Store>) -> Self {
        Self {
            mutant,
            store,
            jobs: AtomicU64::new(0),
            silent: Signals::default(),
            kept: Arc::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    /// Decides now, answers now, and writes when the next transaction comes.
    fn postpone(&self, mut job: Job<Tasks>) -> Answer<'_, ()> {
        if let Some(late) = self.kept().late.take() {
            let _ = at_once(self.store.transact(late.into()));
        }
        let decided: Arc<Mutex<Option<Changes>>> = Arc::default();
        let slot = Arc::clone(&decided);
        let (tenant, now) = (job.tenant, job.now);
        let mut decide = take(&mut job);
        job.decide = Box::new(move |now, snapshot| {
            *lock(&slot) = decide(now, snapshot);
            None
        });
        let answer = at_once(self.store.transact(job.into()));
        let changes = lock(&decided).take();
        if let Some(changes) = changes.filter(|_| answer.is_ok()) {
            self.kept().late = Some(Job {
                tenant,
                reads: ReadSet::default(),
                now,
                weight: 0,
                decide: Box::new(move |_, _| Some(changes.clone())),
            });
        }
        Box::pin(std::future::ready(answer))
    }

    fn run_twice(&self, mut job: Job<Tasks>) -> Answer<'_, ()> {
        let decide = Arc::new(Mutex::new(take(&mut job)));
        let again = Arc::clone(&decide);
        job.decide = Box::new(move |now, snapshot| lock(&decide)(now, snapshot));
        let second = Job::<Tasks> {
            tenant: job.tenant,
            reads: job.reads.clone(),
            now: job.now,
            weight: job.weight,
            decide: Box::new(move |now, snapshot| lock(&again)(now, snapshot)),
        };
        let first = self.store.transact(job.into());
        Box::pin(async move {
            first.await?;
            self.store.transact(second.into()).await
        })
    }
}

fn take<P: Plane>(job: &mut Job<P>) -> Decide<P> {
    std::mem::replace(&mut job.decide, Box::new(|_, _| None))
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the snapshot that a decision sees.
fn shown(mutant: Mutant, snapshot: &mut Snapshot, kept: &mut Kept) {
    match mutant {
        Mutant::ForgetsKeys => snapshot.keyed.clear(),
        Mutant::ForgetsClasses => snapshot.classes = ClassesInUse::default(),
        Mutant::ForgetsUsage => snapshot.usage = Usage::default(),
        Mutant::LeasesTwice => snapshot.claimable.extend(kept.tasks.pop()),
        Mutant::AcceptsStaleLeases => {
            kept.tasks.clone_from(&snapshot.tasks);
            for task in &mut snapshot.tasks {
                if let State::Leased(lease) | State::Running(lease) = &mut task.state {
                    lease.expires_at = lease.expires_at.plus_millis(3_600_000);
                }
            }
        }
        Mutant::AcceptsLateWork => {
            kept.tasks.clone_from(&snapshot.tasks);
            for task in &mut snapshot.tasks {
                Arc::make_mut(&mut task.spec).contract = None;
            }
        }
        Mutant::EndsTwice => {
            for task in &mut snapshot.tasks {
                if task.end().is_some() {
                    task.state = State::Ready;
                }
            }
        }
        Mutant::IgnoresPriority => snapshot.claimable.reverse(),
        _ => {}
    }
}

/// Changes the writes of a decision.
fn written(mutant: Mutant, changes: &mut Changes, kept: &mut Kept, number: u64) {
    let has = |changes: &Changes, kind| changes.receipts.iter().any(|r| r.receipt_type == kind);
    match mutant {
        Mutant::LeasesTwice if has(changes, ReceiptType::TaskAccepted) => {
            let leased = changes.tasks.iter().map(|write| write.task.clone());
            kept.tasks = leased.collect();
            for task in &mut kept.tasks {
                task.state = State::Ready;
            }
        }
        Mutant::AcceptsStaleLeases => {
            for write in &mut changes.tasks {
                let stood = kept.tasks.iter().find(|task| task.id == write.task.id);
                write.before = stood.map(Task::standing).or(write.before);
            }
        }
        Mutant::AcceptsLateWork => {
            for write in &mut changes.tasks {
                let stood = kept.tasks.iter().find(|task| task.id == write.task.id);
                if let Some(stood) = stood {
                    write.before = Some(stood.standing());
                    write.task.spec = Arc::clone(&stood.spec);
                }
            }
        }
        Mutant::DropsCloses => changes.closed.clear(),
        Mutant::BurnsAttempts if has(changes, ReceiptType::LeaseExpired) => {
            for write in &mut changes.tasks {
                write.task.attempt += 1;
            }
        }
        Mutant::TrustsWorkers => {
            let assignment = changes.tasks.first().map(|write| write.task.assignment);
            for receipt in &mut changes.receipts {
                let bare = receipt.parents.is_empty();
                if bare && receipt.receipt_type == ReceiptType::TaskCompleted {
                    receipt.parents.extend(assignment);
                    let owner = receipt.to.key();
                    let closed = assignment.map(|id| ObligationKey {
                        owner,
                        seq: id.seq(),
                    });
                    changes.closed.extend(closed);
                }
            }
        }
        Mutant::SkipsReceipts if has(changes, ReceiptType::TaskResultReady) => {
            changes.receipts.pop();
        }
        Mutant::LosesWrites if number.is_multiple_of(50) => *changes = Changes::default(),
        _ => {}
    }
}

impl Mutated {
    fn transact_tasks(&self, mut job: Job<Tasks>) -> Answer<'_, ()> {
        let number = self.jobs.fetch_add(1, Ordering::Relaxed) + 1;
        match self.mutant {
            // A claim that writes nothing would be noticed for that reason alone.
            Mutant::AnswersBeforeCommit if job.reads.claimable.is_none() => {
                return self.postpone(job);
            }
            Mutant::RunsTwice if number.is_multiple_of(20) => return self.run_twice(job),
            _ => {}
        }
        let (mutant, kept) = (self.mutant, Arc::clone(&self.kept));
        let mut decide = take(&mut job);
        let asked_at = job.now;
        job.decide = Box::new(move |now, mut snapshot| {
            let mut kept = lock(&kept);
            shown(mutant, &mut snapshot, &mut kept);
            let now = match mutant {
                Mutant::ForgetsTime => asked_at,
                _ => now,
            };
            let mut changes = decide(now, snapshot)?;
            written(mutant, &mut changes, &mut kept, number);
            Some(changes)
        });
        self.store.transact(job.into())
    }
}

impl Store for Mutated {
    fn transact(&self, work: Work) -> Answer<'_, ()> {
        match work {
            Work::Tasks(job) => self.transact_tasks(job),
            Work::Messages(job) => self.transact_messages(job),
            Work::Records(job) => self.transact_records(job),
            work @ Work::Dispatches(_) => self.store.transact(work),
        }
    }

    fn mailbox(&self) -> &dyn asyncgate_store::mailbox::Mailbox {
        self
    }

    fn identity(&self) -> &dyn asyncgate_store::identity::Identity {
        self
    }

    fn outbox(&self) -> &dyn asyncgate_store::outbox::Outbox {
        self.store.outbox()
    }

    fn admission(&self) -> &dyn asyncgate_store::admission::Admission {
        self.store.admission()
    }

    fn host(self: Arc<Self>) -> Arc<dyn asyncgate_store::admission::Host> {
        Arc::clone(&self.store).host()
    }

    fn task(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Task>> {
        let own = at_once(self.store.task(tenant, id));
        let found: Result<Option<Task>, Error> = match (self.mutant, own) {
            (Mutant::MixesTenants, Ok(None)) => {
                let mut all = (0..TENANTS).map(tenant_id);
                Ok(all.find_map(|tenant| at_once(self.store.task(tenant, id)).ok()?))
            }
            (Mutant::ReadsStale, Ok(Some(task))) => {
                let mut kept = self.kept();
                let first = kept.tasks.iter().find(|first| first.id == id).cloned();
                if first.is_none() {
                    kept.tasks.push(task.clone());
                }
                Ok(Some(first.unwrap_or(task)))
            }
            (_, own) => own,
        };
        Box::pin(std::future::ready(found))
    }

    fn tasks(&self, tenant: TenantId, filter: TaskFilter) -> Answer<'_, TaskPage> {
        self.store.tasks(tenant, filter)
    }

    fn parties(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Parties>> {
        self.store.parties(tenant, id)
    }

    fn receipt(&self, tenant: TenantId, id: ReceiptId) -> Answer<'_, Option<DeliveredReceipt>> {
        self.store.receipt(tenant, id)
    }

    fn head(&self, tenant: TenantId) -> Answer<'_, Head> {
        self.store.head(tenant)
    }

    fn receipts(
        &self,
        tenant: TenantId,
        filter: ReceiptFilter,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.store.receipts(tenant, filter, page)
    }

    fn newest_receipts(
        &self,
        tenant: TenantId,
        to: PrincipalKey,
        limit: usize,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.store.newest_receipts(tenant, to, limit)
    }

    fn obligations(
        &self,
        tenant: TenantId,
        owner: PrincipalKey,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.store.obligations(tenant, owner, page)
    }

    fn relationship(
        &self,
        tenant: TenantId,
        principal: PrincipalKey,
    ) -> Answer<'_, Option<Relationship>> {
        self.store.relationship(tenant, principal)
    }

    fn due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, TaskId)>> {
        if self.mutant == Mutant::ForgetsDeadlines {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        self.store.due(now, limit)
    }

    fn next_due(&self) -> Answer<'_, Option<Timestamp>> {
        self.store.next_due()
    }

    fn usage(&self, tenant: TenantId, now: Timestamp) -> Answer<'_, asyncgate_core::Usage> {
        self.store.usage(tenant, now)
    }

    fn usage_events(
        &self,
        tenant: TenantId,
        before: Option<asyncgate_core::Seq>,
        limit: usize,
    ) -> Answer<'_, Vec<asyncgate_core::metering::UsageEvent>> {
        self.store.usage_events(tenant, before, limit)
    }

    fn depths(&self) -> Answer<'_, Depths> {
        self.store.depths()
    }

    fn last_time(&self) -> Timestamp {
        if self.mutant == Mutant::ForgetsTime {
            return Timestamp::default();
        }
        self.store.last_time()
    }

    fn health(&self) -> Health {
        self.store.health()
    }

    fn signals(&self) -> &Signals {
        match self.mutant {
            Mutant::LosesWakeUps => &self.silent,
            _ => self.store.signals(),
        }
    }

    fn metrics(&self) -> &StoreMetrics {
        self.store.metrics()
    }
}

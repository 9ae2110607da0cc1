//! The store between the engine and the memory store: a queue before the writer, injected faults,
//! and a tape of everything that was committed, from which the model learns.
//!
//! Like the real writer, it runs a transaction even if its caller has gone away meanwhile, and loses those that still wait
//! when the process dies. It refuses a transaction before it runs, never after.

mod mail;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use asyncgate_core::{
    Changes, Head, PrincipalKey, Reach, ReceiptId, Relationship, Task, TaskId, TenantId, Timestamp,
    identity, mailbox,
};
use asyncgate_store::{
    Answer, DeliveredReceipt, Depths, Error, Health, Job, Parties, Plane, ReceiptFilter, SeqPage,
    Signals, Store, StoreMetrics, TaskFilter, TaskPage, Work, mailbox as mail_store,
};
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::{
    deed::Place,
    step::{Manner, Op},
};

/// The origin of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client's call, by its number.
    Call(u32, Op),
    /// The server itself.
    Server,
    /// An operator.
    Operator(Place),
}

/// A transaction that ran.
#[derive(Debug)]
pub struct Commit {
    /// The origin.
    pub origin: Origin,
    /// The tenant whose rows it touched.
    pub tenant: TenantId,
    /// The time at which it was decided.
    pub now: Timestamp,
    /// The rows that it read and wrote.
    pub wrote: Wrote,
    /// True if deciding again on the same rows gave the same.
    pub repeatable: bool,
}

/// The rows of a transaction. It has no changes when the rule refused.
#[derive(Debug)]
pub enum Wrote {
    /// Tasks and receipts.
    Tasks {
        /// The reach of a claim, and how many tasks it wanted.
        claim: Option<(Reach, usize)>,
        /// The changes that were written.
        changes: Option<Changes>,
    },
    /// Messages.
    Mail(MailWrote),
    /// Tenants and credentials.
    Records(Option<identity::Changes>),
}

/// The rows of a transaction over messages.
#[derive(Debug)]
pub struct MailWrote {
    /// The rows that it declared.
    pub reads: mail_store::Reads,
    /// The time at which it was asked for.
    pub asked_at: Timestamp,
    /// The changes that were written.
    pub changes: Option<mailbox::Changes>,
}

/// The store of a simulation.
pub struct SimStore {
    below: Arc<dyn Store>,
    capacity: usize,
    repeat: u64,
    state: Mutex<State>,
    faults: AtomicU64,
}

impl std::fmt::Debug for SimStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimStore").finish_non_exhaustive()
    }
}

struct State {
    queue: VecDeque<Queued>,
    origin: Origin,
    manner: Manner,
    refusal: Option<Error>,
    blind: bool,
    ran: u64,
    asked: u64,
    tape: VecDeque<Commit>,
}

struct Queued {
    origin: Origin,
    work: Work,
    reply: oneshot::Sender<Result<(), Error>>,
}

/// The last call of a decision.
struct Tapped<C> {
    /// The time that it was given.
    now: Timestamp,
    changes: Option<C>,
    /// True if deciding again on the same rows gave something else.
    unlike: bool,
}

impl SimStore {
    /// Makes a store over `below` whose queue holds `capacity` transactions. Every `repeat`th is decided more than once.
    pub fn new(below: Arc<dyn Store>, capacity: usize, repeat: u64) -> Self {
        Self {
            below,
            capacity,
            repeat,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                origin: Origin::Server,
                manner: Manner::Prompt,
                refusal: None,
                blind: false,
                ran: 0,
                asked: 0,
                tape: VecDeque::new(),
            }),
            faults: AtomicU64::new(0),
        }
    }

    /// Returns the store below, which holds what is really stored.
    pub fn below(&self) -> &dyn Store {
        self.below.as_ref()
    }

    /// Sets the origin of transactions that are asked for from now on, and how they are treated.
    pub fn polls(&self, origin: Origin, manner: Manner) {
        let mut state = self.state();
        state.origin = origin;
        state.manner = manner;
    }

    /// Refuses the next transaction.
    pub fn refuse(&self, error: Error) {
        self.state().refusal = Some(error);
    }

    /// Fails the next read of a caller.
    pub fn blind(&self) {
        self.state().blind = true;
    }

    /// Returns how many faults were injected so far.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    fn count_faults(&self, count: usize) {
        self.faults.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns how many transactions were asked for so far.
    pub fn asked(&self) -> u64 {
        self.state().asked
    }

    /// Returns true if a transaction of a call waits for the writer.
    pub fn holds(&self, call: u32) -> bool {
        let state = self.state();
        let mut queued = state.queue.iter();
        queued.any(|queued| matches!(queued.origin, Origin::Call(label, _) if label == call))
    }

    /// Takes the first commit from the tape.
    pub fn next_commit(&self) -> Option<Commit> {
        self.state().tape.pop_front()
    }

    /// Runs up to `limit` waiting transactions and answers them.
    pub fn commit(&self, limit: usize) {
        for _ in 0..limit {
            let Some(queued) = self.state().queue.pop_front() else {
                return;
            };
            let Queued {
                origin,
                work,
                reply,
            } = queued;
            let ran = self.run(origin, work);
            // The caller may have gone away; the transaction stands.
            let _ = reply.send(ran);
        }
    }

    /// Fails up to `limit` waiting transactions, as a failed commit does.
    pub fn reject(&self, limit: usize) {
        let mut state = self.state();
        let count = limit.min(state.queue.len());
        self.count_faults(count);
        let rejected: Vec<_> = state.queue.drain(..count).collect();
        drop(state);
        for Queued { reply, .. } in rejected {
            let _ = reply.send(Err(Error::Unavailable("injected".to_owned())));
        }
    }

    /// Forgets transactions that were never committed, as a process does that dies.
    pub fn crash(&self) {
        let mut state = self.state();
        state.refusal = None;
        state.blind = false;
        let lost = std::mem::take(&mut state.queue);
        drop(state);
        drop(lost);
        // The next process reads the names of sends from what is stored.
        self.below.mailbox().set_replay_window(i64::MAX);
    }

    fn run(&self, origin: Origin, work: Work) -> Result<(), Error> {
        match work {
            Work::Tasks(job) => {
                let claim = job.reads.claimable.clone();
                self.run_job(origin, job, |changes| Wrote::Tasks { claim, changes })
            }
            Work::Records(job) => self.run_job(origin, job, Wrote::Records),
            // No operation of the model sends anything out, so nothing goes on the tape.
            work @ Work::Dispatches(_) => at_once(self.below.transact(work)),
            Work::Messages(job) => {
                let (reads, asked_at) = (job.reads.clone(), job.now);
                self.run_job(origin, job, |changes| {
                    Wrote::Mail(MailWrote {
                        reads,
                        asked_at,
                        changes,
                    })
                })
            }
        }
    }

    /// Runs a transaction below, and puts it on the tape unless it failed.
    fn run_job<P: Plane>(
        &self,
        origin: Origin,
        mut job: Job<P>,
        wrote: impl FnOnce(Option<P::Changes>) -> Wrote,
    ) -> Result<(), Error>
    where
        P::Snapshot: Clone + Default,
        P::Changes: Clone + PartialEq,
    {
        let tenant = job.tenant;
        let tapped = tap(&mut job, self.repeats());
        let answer = at_once(self.below.transact(job.into()));
        if answer.is_err() {
            self.count_faults(1);
            return answer;
        }
        let mut tapped = lock(&tapped);
        self.state().tape.push_back(Commit {
            origin,
            tenant,
            now: tapped.now,
            wrote: wrote(tapped.changes.take()),
            repeatable: !tapped.unlike,
        });
        answer
    }

    /// Returns true if the next transaction is decided more than once.
    fn repeats(&self) -> bool {
        let mut state = self.state();
        state.ran += 1;
        state.ran.is_multiple_of(self.repeat)
    }

    /// Takes a transaction, or refuses it.
    fn submit(&self, work: Work) -> Answer<'_, ()> {
        let mut state = self.state();
        state.asked += 1;
        let full = (state.queue.len() >= self.capacity).then_some(Error::Busy);
        if let Some(error) = state.refusal.take().or(full) {
            self.count_faults(1);
            return Box::pin(std::future::ready(Err(error)));
        }
        let (origin, manner) = (state.origin, state.manner);
        if manner != Manner::Late && state.queue.is_empty() {
            drop(state);
            return Box::pin(std::future::ready(self.run(origin, work)));
        }
        let (reply, answer) = oneshot::channel();
        state.queue.push_back(Queued {
            origin,
            work,
            reply,
        });
        drop(state);
        if manner != Manner::Late {
            self.commit(usize::MAX);
        }
        Box::pin(async move {
            let gone = || Error::Unavailable("the writer is gone".to_owned());
            answer.await.map_err(|_| gone()).and_then(|answer| answer)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn sees(&self) -> Result<(), Error> {
        if std::mem::take(&mut self.state().blind) {
            self.count_faults(1);
            return Err(Error::Unavailable("injected".to_owned()));
        }
        Ok(())
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        ask: impl FnOnce(&'a dyn Store) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.sees() {
            Ok(()) => ask(self.below.as_ref()),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// Records the last call of a job's decision. A decision may be called more than once: when it `repeats`, it is first
/// asked about an empty store and about a copy of the rows, as by a store that runs into a conflict.
fn tap<P: Plane>(job: &mut Job<P>, repeats: bool) -> Arc<Mutex<Tapped<P::Changes>>>
where
    P::Snapshot: Clone + Default,
    P::Changes: Clone + PartialEq,
{
    let tapped = Arc::new(Mutex::new(Tapped {
        now: job.now,
        changes: None,
        unlike: false,
    }));
    let kept = Arc::clone(&tapped);
    let mut decide = std::mem::replace(&mut job.decide, Box::new(|_, _| None));
    job.decide = Box::new(move |now, snapshot| {
        let first = repeats.then(|| {
            decide(now, P::Snapshot::default());
            decide(now, snapshot.clone())
        });
        let changes = decide(now, snapshot);
        *lock(&kept) = Tapped {
            now,
            unlike: first.is_some_and(|first| first != changes),
            changes: changes.clone(),
        };
        changes
    });
    tapped
}

/// Returns the answer of the memory store, which never makes anybody wait.
pub fn at_once<T>(answer: Answer<'_, T>) -> Result<T, Error> {
    answer
        .now_or_never()
        .unwrap_or_else(|| Err(Error::Unavailable("the store below waits".to_owned())))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for SimStore {
    fn transact(&self, work: Work) -> Answer<'_, ()> {
        self.submit(work)
    }

    fn mailbox(&self) -> &dyn mail_store::Mailbox {
        self
    }

    fn identity(&self) -> &dyn asyncgate_store::identity::Identity {
        self.below.identity()
    }

    fn outbox(&self) -> &dyn asyncgate_store::outbox::Outbox {
        self.below.outbox()
    }

    fn admission(&self) -> &dyn asyncgate_store::admission::Admission {
        self.below.admission()
    }

    fn host(self: Arc<Self>) -> Arc<dyn asyncgate_store::admission::Host> {
        Arc::clone(&self.below).host()
    }

    fn task(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Task>> {
        self.read(|below| below.task(tenant, id))
    }

    fn tasks(&self, tenant: TenantId, filter: TaskFilter) -> Answer<'_, TaskPage> {
        self.read(|below| below.tasks(tenant, filter))
    }

    fn parties(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Parties>> {
        self.read(|below| below.parties(tenant, id))
    }

    fn receipt(&self, tenant: TenantId, id: ReceiptId) -> Answer<'_, Option<DeliveredReceipt>> {
        self.read(|below| below.receipt(tenant, id))
    }

    fn head(&self, tenant: TenantId) -> Answer<'_, Head> {
        self.read(|below| below.head(tenant))
    }

    fn receipts(
        &self,
        tenant: TenantId,
        filter: ReceiptFilter,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read(|below| below.receipts(tenant, filter, page))
    }

    fn newest_receipts(
        &self,
        tenant: TenantId,
        to: PrincipalKey,
        limit: usize,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read(|below| below.newest_receipts(tenant, to, limit))
    }

    fn obligations(
        &self,
        tenant: TenantId,
        owner: PrincipalKey,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read(|below| below.obligations(tenant, owner, page))
    }

    fn relationship(
        &self,
        tenant: TenantId,
        principal: PrincipalKey,
    ) -> Answer<'_, Option<Relationship>> {
        self.read(|below| below.relationship(tenant, principal))
    }

    fn due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, TaskId)>> {
        self.read(|below| below.due(now, limit))
    }

    fn next_due(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(|below| below.next_due())
    }

    fn usage(&self, tenant: TenantId, now: Timestamp) -> Answer<'_, asyncgate_core::Usage> {
        self.read(|below| below.usage(tenant, now))
    }

    fn usage_events(
        &self,
        tenant: TenantId,
        before: Option<asyncgate_core::Seq>,
        limit: usize,
    ) -> Answer<'_, Vec<asyncgate_core::metering::UsageEvent>> {
        self.read(|below| below.usage_events(tenant, before, limit))
    }

    fn depths(&self) -> Answer<'_, Depths> {
        self.read(|below| below.depths())
    }

    fn last_time(&self) -> Timestamp {
        self.below.last_time()
    }

    fn health(&self) -> Health {
        self.below.health()
    }

    fn signals(&self) -> &Signals {
        self.below.signals()
    }

    fn metrics(&self) -> &StoreMetrics {
        self.below.metrics()
    }
}

//! The store between the engine and the memory store: a queue before the writer, injected faults,
//! and a tape of everything that was committed, from which the model learns.
//!
//! Like the real writer, it runs a transaction even if its caller has gone away meanwhile, and loses
//! what is still waiting when the process dies. It refuses before a transaction runs, never after.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use asyncgate_core::{
    Changes, Head, PrincipalKey, Reach, ReceiptId, Relationship, Task, TaskId, TenantId, Timestamp,
};
use asyncgate_store::{
    Answer, Decide, DeliveredReceipt, Depths, Error, Health, Job, ReceiptFilter, SeqPage, Signals,
    Snapshot, Store, StoreMetrics, TaskFilter, TaskPage,
};
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::step::Manner;

/// Who asked for a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client's call, by its number.
    Call(u32),
    /// The server itself.
    Server,
}

/// A transaction that ran.
#[derive(Debug)]
pub struct Commit {
    /// Who asked for it.
    pub origin: Origin,
    /// Whose rows it touched.
    pub tenant: TenantId,
    /// The time it was decided at.
    pub now: Timestamp,
    /// What it wanted to claim, and how many.
    pub claim: Option<(Reach, usize)>,
    /// What was written; absent when the rule refused.
    pub changes: Option<Changes>,
    /// Whether deciding again on the same rows gave the same.
    pub repeatable: bool,
}

/// The store of a simulation.
pub struct SimStore {
    below: Arc<dyn Store>,
    capacity: usize,
    repeat: u64,
    state: Mutex<State>,
    faults: AtomicU64,
    tapped: Arc<Mutex<Tapped>>,
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
    tape: VecDeque<Commit>,
}

struct Queued {
    origin: Origin,
    job: Job,
    reply: oneshot::Sender<Result<(), Error>>,
}

#[derive(Default)]
struct Tapped {
    last_time: Timestamp,
    changes: Option<Changes>,
    unlike: bool,
}

impl SimStore {
    /// A store over `below` whose queue holds `capacity` transactions; every `repeat`th is decided
    /// more than once.
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
                tape: VecDeque::new(),
            }),
            faults: AtomicU64::new(0),
            tapped: Arc::default(),
        }
    }

    /// What is really stored.
    pub fn below(&self) -> &dyn Store {
        self.below.as_ref()
    }

    /// Says whose future is polled next.
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

    /// How many faults were injected so far.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    fn count_faults(&self, count: usize) {
        self.faults.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The first commit on the tape, which is taken from it.
    pub fn next_commit(&self) -> Option<Commit> {
        self.state().tape.pop_front()
    }

    /// Runs up to `limit` waiting transactions and answers them.
    pub fn commit(&self, limit: usize) {
        for _ in 0..limit {
            let Some(queued) = self.state().queue.pop_front() else {
                return;
            };
            let Queued { origin, job, reply } = queued;
            let ran = self.run(origin, job);
            // Who asked may have gone away; the transaction stands.
            let _ = reply.send(ran);
        }
    }

    /// Answers up to `limit` waiting transactions with a failed commit.
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

    /// Forgets what was never committed, as a process does that dies.
    pub fn crash(&self) {
        let mut state = self.state();
        state.refusal = None;
        state.blind = false;
        let lost = std::mem::take(&mut state.queue);
        drop(state);
        drop(lost);
    }

    fn run(&self, origin: Origin, mut job: Job) -> Result<(), Error> {
        let (tenant, now) = (job.tenant, job.now);
        let claim = job.reads.claimable.clone();
        let repeats = {
            let mut state = self.state();
            state.ran += 1;
            state.ran.is_multiple_of(self.repeat)
        };
        *lock(&self.tapped) = Tapped::default();
        let tapped = Arc::clone(&self.tapped);
        let decide = std::mem::replace(&mut job.decide, Box::new(|_| None));
        job.decide = tap(decide, tapped, repeats);
        let answer = at_once(self.below.transact(job));
        let Tapped {
            last_time,
            changes,
            unlike,
        } = std::mem::take(&mut *lock(&self.tapped));
        if answer.is_err() {
            self.count_faults(1);
            return answer;
        }
        self.state().tape.push_back(Commit {
            origin,
            tenant,
            now: now.max(last_time),
            claim,
            changes,
            repeatable: !unlike,
        });
        answer
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

/// Records what a decision writes. A decision may be called more than once: when it `repeats`, it
/// is first asked about an empty store and about a copy of the rows, as a store may that runs into
/// a conflict.
fn tap(mut decide: Decide, tapped: Arc<Mutex<Tapped>>, repeats: bool) -> Decide {
    Box::new(move |snapshot| {
        let first = repeats.then(|| {
            decide(Snapshot::default());
            decide(copy(&snapshot))
        });
        let last_time = snapshot.last_time;
        let changes = decide(snapshot);
        let mut tapped = lock(&tapped);
        tapped.last_time = last_time;
        tapped.unlike = first.is_some_and(|first| first != changes);
        tapped.changes.clone_from(&changes);
        changes
    })
}

fn copy(snapshot: &Snapshot) -> Snapshot {
    Snapshot {
        head: snapshot.head,
        last_time: snapshot.last_time,
        ledger: snapshot.ledger,
        tasks: snapshot.tasks.clone(),
        keyed: snapshot.keyed.clone(),
        claimable: snapshot.claimable.clone(),
        receipt: snapshot.receipt.clone(),
        relationship: snapshot.relationship.clone(),
    }
}

/// The answer of the memory store, which never makes anybody wait.
pub fn at_once<T>(answer: Answer<'_, T>) -> Result<T, Error> {
    answer
        .now_or_never()
        .unwrap_or_else(|| Err(Error::Unavailable("the store below waits".to_owned())))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for SimStore {
    fn transact(&self, job: Job) -> Answer<'_, ()> {
        let mut state = self.state();
        let full = (state.queue.len() >= self.capacity).then_some(Error::Busy);
        if let Some(error) = state.refusal.take().or(full) {
            self.count_faults(1);
            return Box::pin(std::future::ready(Err(error)));
        }
        let (origin, manner) = (state.origin, state.manner);
        if manner != Manner::Late && state.queue.is_empty() {
            drop(state);
            return Box::pin(std::future::ready(self.run(origin, job)));
        }
        let (reply, answer) = oneshot::channel();
        state.queue.push_back(Queued { origin, job, reply });
        drop(state);
        if manner != Manner::Late {
            self.commit(usize::MAX);
        }
        Box::pin(async move {
            let gone = || Error::Unavailable("the writer is gone".to_owned());
            answer.await.map_err(|_| gone()).and_then(|answer| answer)
        })
    }

    fn mailbox(&self) -> &dyn asyncgate_store::mailbox::Mailbox {
        self.below.mailbox()
    }

    fn admission(&self) -> &dyn asyncgate_store::admission::Admission {
        self.below.admission()
    }

    fn task(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Task>> {
        self.read(|below| below.task(tenant, id))
    }

    fn tasks(&self, tenant: TenantId, filter: TaskFilter) -> Answer<'_, TaskPage> {
        self.read(|below| below.tasks(tenant, filter))
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

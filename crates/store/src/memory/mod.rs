//! The in-memory store: one lock around plain collections.
//!
//! It is the reference that other backends are compared with, and the RAM-only profile.

mod tenant;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::{
    Head, PrincipalKey, ReceiptId, Relationship, Task, TaskId, TenantId, Timestamp,
};

use self::tenant::Tenant;
use crate::{
    Answer, DeliveredReceipt, Depths, Error, Health, Job, ReceiptFilter, SeqPage, Signals,
    Snapshot, Store, StoreMetrics, TaskFilter, TaskPage, deadline,
};

/// A store that forgets everything when the process ends.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    signals: Signals,
    metrics: StoreMetrics,
}

#[derive(Debug, Default)]
struct State {
    tenants: HashMap<TenantId, Tenant>,
    due: BTreeSet<(Timestamp, TenantId, TaskId)>,
    last_time: Timestamp,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut job: Job) {
        let mut guard = self.state();
        let state = &mut *guard;
        let tenant = state.tenants.entry(job.tenant).or_default();
        let snapshot = Snapshot {
            last_time: state.last_time,
            ..tenant.load(&job.reads)
        };
        let Some(changes) = (job.decide)(snapshot) else {
            return;
        };
        if changes.is_empty() {
            return;
        }
        for write in &changes.tasks {
            let id = write.task.id;
            if let Some(at) = write.before.and_then(|before| deadline(before.placement)) {
                state.due.remove(&(at, job.tenant, id));
            }
            if let Some(at) = deadline(write.task.placement()) {
                state.due.insert((at, job.tenant, id));
            }
        }
        tenant.apply(job.tenant, &changes);
        state.last_time = state.last_time.max(job.now);
        drop(guard);
        self.signals.publish(job.tenant, &changes);
        self.metrics.commits.inc();
        self.metrics.jobs_per_commit.observe(1.0);
    }

    fn read<T: Default + Send + 'static>(
        &self,
        tenant: TenantId,
        query: impl FnOnce(&Tenant) -> T,
    ) -> Answer<'_, T> {
        let answer = self
            .state()
            .tenants
            .get(&tenant)
            .map(query)
            .unwrap_or_default();
        ready(answer)
    }
}

impl Store for MemoryStore {
    fn transact(&self, job: Job) -> Answer<'_, ()> {
        self.run(job);
        ready(())
    }

    fn task(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Task>> {
        self.read(tenant, |rows| rows.task(id))
    }

    fn tasks(&self, tenant: TenantId, filter: TaskFilter) -> Answer<'_, TaskPage> {
        self.read(tenant, |rows| rows.tasks(&filter))
    }

    fn receipt(&self, tenant: TenantId, id: ReceiptId) -> Answer<'_, Option<DeliveredReceipt>> {
        self.read(tenant, |rows| rows.receipt(id))
    }

    fn head(&self, tenant: TenantId) -> Answer<'_, Head> {
        self.read(tenant, Tenant::head)
    }

    fn receipts(
        &self,
        tenant: TenantId,
        filter: ReceiptFilter,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read(tenant, |rows| rows.receipts(&filter, page))
    }

    fn obligations(
        &self,
        tenant: TenantId,
        owner: PrincipalKey,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read(tenant, |rows| rows.obligations(&owner, page))
    }

    fn relationship(
        &self,
        tenant: TenantId,
        principal: PrincipalKey,
    ) -> Answer<'_, Option<Relationship>> {
        self.read(tenant, |rows| rows.relationship(&principal))
    }

    fn due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, TaskId)>> {
        let state = self.state();
        let due = state.due.iter().take_while(|(at, ..)| *at <= now);
        let answer = due
            .take(limit)
            .map(|(_, tenant, task)| (*tenant, *task))
            .collect();
        drop(state);
        ready(answer)
    }

    fn next_due(&self) -> Answer<'_, Option<Timestamp>> {
        let earliest = self.state().due.first().map(|(at, ..)| *at);
        ready(earliest)
    }

    fn depths(&self) -> Answer<'_, Depths> {
        let mut sum = Depths::default();
        for tenant in self.state().tenants.values() {
            sum.add(&tenant.depths);
        }
        ready(sum)
    }

    fn last_time(&self) -> Timestamp {
        self.state().last_time
    }

    fn health(&self) -> Health {
        Health::Ready
    }

    fn signals(&self) -> &Signals {
        &self.signals
    }

    fn metrics(&self) -> &StoreMetrics {
        &self.metrics
    }
}

fn ready<'a, T: Send + 'a>(answer: T) -> Answer<'a, T> {
    Box::pin(std::future::ready(Ok::<T, Error>(answer)))
}

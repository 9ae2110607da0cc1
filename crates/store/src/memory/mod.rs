//! The in-memory store: one lock around plain collections.
//!
//! It is the reference that other backends are compared with, and the RAM-only profile.

mod admission;
mod mailbox;
mod tenant;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::{
    Head, MessageId, PrincipalKey, ReceiptId, Relationship, Task, TaskId, TenantId, Timestamp,
    mailbox::{ChainHead, Message},
};

use self::{admission::Gate, mailbox::Messages, tenant::Tenant};
use crate::admission::Admission;
use crate::mailbox::{self as mail, DeadFilter, DeadPage, Load, Mailbox, Take, Topic};
use crate::{
    Answer, DeliveredReceipt, Depths, Error, Health, Job, ReceiptFilter, SeqPage, Signals,
    Snapshot, Store, StoreMetrics, TaskFilter, TaskPage, deadline, fair::Weights,
};

/// Salted like the standard one, and several times quicker for keys as short as these.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A store that forgets everything when the process ends.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    gate: Gate,
    signals: Signals,
    metrics: StoreMetrics,
}

#[derive(Debug, Default)]
struct State {
    tenants: Map<TenantId, Tenant>,
    due: BTreeSet<(Timestamp, TenantId, TaskId)>,
    messages: Messages,
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

    /// Runs a job. Answers whether it wrote anything.
    fn run(&self, mut job: Job) -> bool {
        let mut guard = self.state();
        let state = &mut *guard;
        let tenant = state.tenants.entry(job.tenant).or_default();
        let snapshot = Snapshot {
            last_time: state.last_time,
            ..tenant.load(&job.reads)
        };
        let Some(changes) = (job.decide)(snapshot) else {
            return false;
        };
        if changes.is_empty() {
            return false;
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
        true
    }

    fn run_mailbox(&self, mut job: mail::Job) {
        let mut guard = self.state();
        let state = &mut *guard;
        let snapshot = mail::Snapshot {
            last_time: state.last_time,
            ..state.messages.load(job.tenant, &job.reads, job.now)
        };
        let Some(changes) = (job.decide)(snapshot) else {
            return;
        };
        if changes.is_empty() {
            return;
        }
        state.messages.apply(job.tenant, &changes);
        state.last_time = state.last_time.max(job.now);
        drop(guard);
        self.signals.publish_messages(job.tenant, &changes);
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

    fn mailbox(&self) -> &dyn Mailbox {
        self
    }

    fn admission(&self) -> &dyn Admission {
        self
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

impl Mailbox for MemoryStore {
    fn transact_mailbox(&self, job: mail::Job) -> Answer<'_, ()> {
        self.run_mailbox(job);
        ready(())
    }

    fn set_replay_window(&self, millis: i64) {
        self.state().messages.set_replay_window(millis);
    }

    fn set_weights(&self, _: Weights) {
        // Nobody waits here: each job runs when it comes.
    }

    fn message(&self, tenant: TenantId, id: MessageId) -> Answer<'_, Option<Message>> {
        ready(self.state().messages.message(tenant, id))
    }

    fn messages(
        &self,
        tenant: TenantId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Answer<'_, Vec<Message>> {
        ready(self.state().messages.messages(tenant, after, limit))
    }

    fn peek(&self, tenant: TenantId, take: Take) -> Answer<'_, Vec<Message>> {
        ready(self.state().messages.peek(tenant, &take))
    }

    fn dead_letters(&self, tenant: TenantId, filter: DeadFilter) -> Answer<'_, DeadPage> {
        ready(self.state().messages.dead_letters(tenant, &filter))
    }

    fn topics(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<Topic>> {
        let after = after.as_deref();
        ready(self.state().messages.topics(tenant, after, limit))
    }

    fn chains(&self, tenant: TenantId) -> Answer<'_, BTreeMap<u16, ChainHead>> {
        ready(self.state().messages.chains(tenant))
    }

    fn messages_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        ready(self.state().messages.due(now, limit))
    }

    fn next_message_due(&self) -> Answer<'_, Option<Timestamp>> {
        ready(self.state().messages.next_due())
    }

    fn waiting_since(
        &self,
        since: Timestamp,
        after: Option<(TenantId, MessageId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        ready(self.state().messages.waiting_since(since, after, limit))
    }

    fn load(&self) -> Answer<'_, Load> {
        ready(self.state().messages.total())
    }
}

fn ready<'a, T: Send + 'a>(answer: T) -> Answer<'a, T> {
    Box::pin(std::future::ready(Ok::<T, Error>(answer)))
}

//! The in-memory store: one lock around plain collections.
//!
//! It is the reference that other backends are compared with, and the RAM-only profile. The rows of planes that a
//! durable owner keeps in memory whole are public.

mod admission;
mod messages;
mod outbox;
mod records;
mod tenant;

pub use self::{
    admission::Expiry, messages::MessageRows, outbox::DispatchRows, records::RecordRows,
};

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::{
    Changes, Head, MessageId, PrincipalKey, ReceiptId, Relationship, Seq, Task, TaskId, TenantId,
    Timestamp, Usage,
    mailbox::{self, ChainHead, Message},
    metering::UsageEvent,
};

use self::{admission::Gate, tenant::Tenant};
use crate::admission::{Admission, Host};
use crate::mailbox::{self as mail, DeadFilter, DeadPage, Load, Mailbox, Take, Topic};
use crate::{
    Answer, DeliveredReceipt, Depths, Error, Health, Messages, Parties, ReadSet, ReceiptFilter,
    Rows, SeqPage, Signals, Snapshot, Store, StoreMetrics, TaskFilter, TaskPage, Tasks,
    Transaction, Work, fair::Weights,
};

/// A map whose hash is salted like the standard one, and several times quicker for keys as short as these.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A store that forgets everything when the process ends.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    gate: Gate,
    signals: Signals,
    metrics: StoreMetrics,
}

/// All rows. Whoever holds the lock around them is the one transaction that is open.
#[derive(Debug, Default)]
struct State {
    tenants: Map<TenantId, Tenant>,
    due: BTreeSet<(Timestamp, TenantId, TaskId)>,
    messages: MessageRows,
    records: RecordRows,
    outbox: DispatchRows,
    last_time: Timestamp,
}

impl MemoryStore {
    /// Makes an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job. Returns true if it wrote anything.
    fn run(&self, mut work: Work) -> bool {
        let mut state = self.state();
        let Ok(written) = work.run(&mut *state);
        // A waiter that is woken looks at once, and would have to wait for this lock.
        drop(state);
        let Some(written) = written else {
            return false;
        };
        written.publish(&self.signals, work.tenant());
        self.metrics.commits.inc();
        self.metrics.jobs_per_commit.observe(1.0);
        true
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

impl Transaction for State {
    type Error = Infallible;

    fn last_time(&mut self) -> &mut Timestamp {
        &mut self.last_time
    }

    fn panicked(panic: Box<dyn Any + Send>) -> Infallible {
        // The caller runs its decision itself, on its own thread: so it shall see its own panic.
        resume_unwind(panic)
    }
}

impl Rows<Tasks> for State {
    fn load(
        &mut self,
        tenant: TenantId,
        reads: &ReadSet,
        now: Timestamp,
    ) -> Result<Snapshot, Infallible> {
        Ok(self.tenants.entry(tenant).or_default().load(reads, now))
    }

    fn apply(&mut self, tenant: TenantId, changes: &Changes) -> Result<(), Infallible> {
        for write in &changes.tasks {
            let id = write.task.id;
            if let Some(at) = write.before.and_then(|before| before.placement.due()) {
                self.due.remove(&(at, tenant, id));
            }
            if let Some(at) = write.task.placement().due() {
                self.due.insert((at, tenant, id));
            }
        }
        let rows = self.tenants.entry(tenant).or_default();
        rows.apply(tenant, changes);
        changes.outbox.iter().for_each(|sent| self.outbox.add(sent));
        Ok(())
    }
}

impl Rows<Messages> for State {
    fn load(
        &mut self,
        tenant: TenantId,
        reads: &mail::Reads,
        now: Timestamp,
    ) -> Result<mail::Snapshot, Infallible> {
        Ok(self.messages.load(tenant, reads, now))
    }

    fn apply(&mut self, tenant: TenantId, changes: &mailbox::Changes) -> Result<(), Infallible> {
        self.messages.apply(tenant, changes);
        Ok(())
    }
}

impl Store for MemoryStore {
    fn transact(&self, work: Work) -> Answer<'_, ()> {
        self.run(work);
        ready(())
    }

    fn mailbox(&self) -> &dyn Mailbox {
        self
    }

    fn identity(&self) -> &dyn crate::identity::Identity {
        self
    }

    fn outbox(&self) -> &dyn crate::outbox::Outbox {
        self
    }

    fn admission(&self) -> &dyn Admission {
        self
    }

    fn host(self: Arc<Self>) -> Arc<dyn Host> {
        self
    }

    fn task(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Task>> {
        self.read(tenant, |rows| rows.task(id))
    }

    fn tasks(&self, tenant: TenantId, filter: TaskFilter) -> Answer<'_, TaskPage> {
        self.read(tenant, |rows| rows.tasks(&filter))
    }

    fn parties(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Parties>> {
        self.read(tenant, |rows| rows.parties(id))
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

    fn newest_receipts(
        &self,
        tenant: TenantId,
        to: PrincipalKey,
        limit: usize,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read(tenant, |rows| rows.newest_receipts(to, limit))
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

    fn usage(&self, tenant: TenantId, now: Timestamp) -> Answer<'_, Usage> {
        self.read(tenant, |rows| rows.usage(now))
    }

    fn usage_events(
        &self,
        tenant: TenantId,
        before: Option<Seq>,
        limit: usize,
    ) -> Answer<'_, Vec<UsageEvent>> {
        self.read(tenant, |rows| rows.usage_events(before, limit))
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
    fn set_replay_window(&self, millis: i64) {
        self.state().messages.set_replay_window(millis);
    }

    fn set_weights(&self, _: Weights) {
        // There is no queue here: each job runs when it comes.
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

    fn load(&self, now: Timestamp) -> Answer<'_, Load> {
        ready(self.state().messages.total(now))
    }
}

fn ready<'a, T: Send + 'a>(answer: T) -> Answer<'a, T> {
    Box::pin(std::future::ready(Ok::<T, Error>(answer)))
}

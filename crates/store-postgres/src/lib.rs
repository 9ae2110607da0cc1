//! The PostgreSQL store: tasks, messages, records, the outbox and admission in one database, written by their owner.
//!
//! One instance at a time owns a shard of tenants. It keeps in memory what decisions need, decides there, and writes the
//! changes of many jobs in one round trip that fails whole if another instance has taken over. See `owner.rs` for the
//! loop, `shards.rs` for ownership, `memory.rs` for what is kept, and `schema.rs` for the tables.
//!
//! For now an instance owns all shards or none: whoever comes second waits until the first is gone.

mod admission;
mod ledgers;
mod mail;
mod memory;
mod outbox;
mod outgoing;
mod owner;
mod pack;
mod payloads;
mod prefetch;
mod query;
mod readers;
mod ready;
mod recent;
mod records;
mod restore;
mod schema;
mod session;
mod shards;
mod table;
mod tasks;

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use asyncgate_core::{
    Head, PrincipalKey, ReceiptId, Relationship, Seq, Task, TaskId, TenantId, Timestamp, Usage,
    metering::UsageEvent,
};
use asyncgate_store::{
    Answer, DeliveredReceipt, Depths, Error, Health, Parties, ReceiptFilter, SeqPage, Signals,
    Store, StoreMetrics, TaskFilter, TaskPage, Work,
};
use tokio_postgres::{Config, config::TargetSessionAttrs};

use crate::{
    memory::{Look, Memory, Queued},
    owner::Owner,
    readers::{ReadError, Readers},
    session::{Deadlines, Session},
};

/// The settings of a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of this instance, for people who look at the table of instances.
    pub instance: String,
    /// The number of shards of a new database. An old one keeps the number that it has.
    pub shards: u16,
    /// The time after which another instance takes over from one that gives no sign of life.
    pub lease: Duration,
    /// The most transactions that may wait to be written; more are turned away.
    pub max_queued_jobs: usize,
    /// The most bytes that they may hold together.
    pub max_queued_bytes: usize,
    /// The memory for tasks that were written or read lately, and as much again for the payloads of messages.
    pub max_hot_bytes: usize,
    /// The most rows of admission.
    pub max_admission_rows: usize,
    /// The number of connections that read.
    pub readers: usize,
    /// The time to connect, all steps together.
    pub connect_timeout: Duration,
    /// The time that a statement may take.
    pub statement_timeout: Duration,
    /// The time to wait for a lock.
    pub lock_timeout: Duration,
    /// The time that reading memory back may take.
    pub restore_timeout: Duration,
    /// The time that opening may take, with the wait for the end of another instance's lease.
    pub open_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            instance: "asyncgate".to_owned(),
            shards: 1_024,
            lease: Duration::from_secs(10),
            max_queued_jobs: 4_096,
            max_queued_bytes: 64 << 20,
            max_hot_bytes: 64 << 20,
            max_admission_rows: 10_000_000,
            readers: 2,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(5),
            restore_timeout: Duration::from_secs(300),
            open_timeout: Duration::from_secs(60),
        }
    }
}

impl Options {
    const fn deadlines(&self) -> Deadlines {
        Deadlines {
            connect: self.connect_timeout,
            statement: self.statement_timeout,
            lock: self.lock_timeout,
        }
    }
}

/// The reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address of the database is not one.
    #[error("the address of the database cannot be read")]
    Address(#[from] tokio_postgres::Error),
    /// The database cannot be used now.
    #[error("{0}")]
    Unavailable(String),
    /// The operating system refused.
    #[error("cannot start a thread")]
    Thread(#[from] std::io::Error),
}

/// A store in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    owner: Owner,
    readers: Readers,
}

impl PostgresStore {
    /// Opens the database at an address, as `libpq` writes them. The tables are made if there are none. It blocks until
    /// this instance owns the shards.
    pub fn open(address: &str, options: &Options) -> Result<Self, OpenError> {
        let mut config: Config = address.parse()?;
        config
            .application_name("asyncgate")
            .connect_timeout(options.connect_timeout)
            .tcp_user_timeout(options.statement_timeout)
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        let owner = Owner::start(config.clone(), options)?;
        let readers = Readers::start(config, options.deadlines(), options.readers)?;
        Ok(Self { owner, readers })
    }

    fn submit(&self, queued: Queued) -> Answer<'_, ()> {
        let submitted = self.owner.submit(queued);
        Box::pin(async move {
            let gone = |_| Error::Unavailable("the owner has stopped".to_owned());
            submitted?.await.map_err(gone)?
        })
    }

    /// Looks at rows that the owner keeps in memory.
    fn look<T: Send + 'static>(
        &self,
        tenant: impl Into<Option<TenantId>>,
        mut look: impl FnMut(&mut Memory) -> T + Send + 'static,
    ) -> Answer<'_, T> {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let submitted = self.submit(Queued::Look(Look {
            tenant: tenant.into(),
            run: Box::new(move |memory| {
                let seen = look(memory);
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
            }),
        }));
        Box::pin(async move {
            submitted.await?;
            admission::taken(&answer)
        })
    }

    fn read<T, F>(&self, read: impl Fn(Arc<Session>) -> F + Send + Sync + 'static) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ReadError>> + Send + 'static,
    {
        let read = Arc::new(
            move |session| -> futures_util::future::BoxFuture<'static, _> {
                Box::pin(read(session))
            },
        );
        self.readers.read(read)
    }
}

impl Store for PostgresStore {
    fn transact(&self, work: Work) -> Answer<'_, ()> {
        self.submit(Queued::Work(work))
    }

    fn mailbox(&self) -> &dyn asyncgate_store::mailbox::Mailbox {
        self
    }

    fn identity(&self) -> &dyn asyncgate_store::identity::Identity {
        self
    }

    fn outbox(&self) -> &dyn asyncgate_store::outbox::Outbox {
        self
    }

    fn admission(&self) -> &dyn asyncgate_store::admission::Admission {
        self
    }

    fn host(self: Arc<Self>) -> Arc<dyn asyncgate_store::admission::Host> {
        self
    }

    fn task(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Task>> {
        self.read(move |session| async move { query::task(&session.client, tenant, id).await })
    }

    fn tasks(&self, tenant: TenantId, filter: TaskFilter) -> Answer<'_, TaskPage> {
        self.read(move |session| {
            let filter = filter.clone();
            async move { query::tasks(&session.client, tenant, &filter).await }
        })
    }

    fn parties(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Parties>> {
        self.read(move |session| async move { query::parties(&session.client, tenant, id).await })
    }

    fn receipt(&self, tenant: TenantId, id: ReceiptId) -> Answer<'_, Option<DeliveredReceipt>> {
        self.read(move |session| async move { query::receipt(&session.client, tenant, id).await })
    }

    fn head(&self, tenant: TenantId) -> Answer<'_, Head> {
        self.read(move |session| async move { query::head(&session.client, tenant).await })
    }

    fn receipts(
        &self,
        tenant: TenantId,
        filter: ReceiptFilter,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read(move |session| {
            let filter = filter.clone();
            async move { query::receipts(&session.client, tenant, &filter, page).await }
        })
    }

    fn newest_receipts(
        &self,
        tenant: TenantId,
        to: PrincipalKey,
        limit: usize,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read(move |session| {
            let to = to.clone();
            async move { query::newest_receipts(&session.client, tenant, &to, limit).await }
        })
    }

    fn obligations(
        &self,
        tenant: TenantId,
        owner: PrincipalKey,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read(move |session| {
            let owner = owner.clone();
            async move { query::obligations(&session.client, tenant, &owner, page).await }
        })
    }

    fn relationship(
        &self,
        tenant: TenantId,
        principal: PrincipalKey,
    ) -> Answer<'_, Option<Relationship>> {
        self.read(move |session| {
            let principal = principal.clone();
            async move { query::relationship(&session.client, tenant, &principal).await }
        })
    }

    fn due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, TaskId)>> {
        let timers = self.owner.shared.timers();
        let due = timers.iter().take_while(|(at, ..)| *at <= now);
        let due = due.take(limit).map(|(_, tenant, id)| (*tenant, *id));
        let due: Vec<_> = due.collect();
        drop(timers);
        Box::pin(std::future::ready(Ok(due)))
    }

    fn next_due(&self) -> Answer<'_, Option<Timestamp>> {
        let first = self.owner.shared.timers().first().map(|(at, ..)| *at);
        Box::pin(std::future::ready(Ok(first)))
    }

    fn usage(&self, tenant: TenantId, now: Timestamp) -> Answer<'_, Usage> {
        self.read(move |session| async move { query::usage(&session.client, tenant, now).await })
    }

    fn usage_events(
        &self,
        tenant: TenantId,
        before: Option<Seq>,
        limit: usize,
    ) -> Answer<'_, Vec<UsageEvent>> {
        self.read(move |session| async move {
            query::usage_events(&session.client, tenant, before, limit).await
        })
    }

    fn depths(&self) -> Answer<'_, Depths> {
        self.read(|session| async move { query::depths(&session.client).await })
    }

    fn last_time(&self) -> Timestamp {
        Timestamp::from_millis(self.owner.shared.last_time.load(Ordering::Relaxed))
    }

    fn health(&self) -> Health {
        self.owner.shared.health()
    }

    fn signals(&self) -> &Signals {
        &self.owner.shared.signals
    }

    fn metrics(&self) -> &StoreMetrics {
        &self.owner.shared.metrics
    }
}

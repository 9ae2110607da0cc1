//! The embedded store: one SQLite file, one writer thread, group commit.
//!
//! Writes go through one thread that shares a commit among all jobs that are waiting, so that the cost of an fsync is
//! shared too. A second thread syncs one commit while the writer decides the next. Reads use snapshots of their own and
//! never wait for the writer, but for the disk to have what they saw.

mod admission;
mod check;
mod classes;
mod codec;
mod db;
mod durable;
mod file;
mod identity;
mod ledgers;
mod mailbox;
mod metering;
mod outbox;
#[cfg(test)]
mod plans;
mod query;
mod ranges;
mod reader;
mod rows;
mod schema;
mod tasks;
mod transaction;
mod wal;
mod writer;

use std::{
    fs::File,
    path::Path,
    sync::{Arc, atomic::Ordering},
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

pub use admission::HotLimits;
pub use check::Finding;
pub use file::SqliteFile;
pub use identity::Identities;
pub use wal::LogError;

use crate::{
    db::Db,
    reader::{LONGEST_READ, Readers},
    writer::{Queued, Writer},
};

/// The settings of a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The most transactions that may wait to be written; more are turned away.
    pub max_queued_jobs: usize,
    /// The most bytes that they may hold together.
    pub max_queued_bytes: usize,
    /// The time that a transaction may take before it is committed: others wait so long behind costly jobs.
    pub max_batch_time: Duration,
    /// The memory for tasks that were written or read lately.
    pub max_hot_bytes: usize,
    /// The limits in memory.
    pub hot_limits: HotLimits,
    /// The number of threads that read.
    pub readers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_queued_jobs: 4_096,
            max_queued_bytes: 64 << 20,
            max_batch_time: Duration::from_millis(5),
            max_hot_bytes: 32 << 20,
            hot_limits: HotLimits::default(),
            readers: 2,
        }
    }
}

/// The reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file belongs to a program of another version.
    #[error("{0}")]
    Schema(String),
    /// Its log is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// SQLite refused.
    #[error("cannot open the database")]
    Sqlite(#[from] rusqlite::Error),
    /// The operating system refused.
    #[error("cannot start a thread")]
    Thread(#[from] std::io::Error),
}

impl From<schema::Error> for OpenError {
    fn from(error: schema::Error) -> Self {
        match error {
            schema::Error::TooNew { .. } | schema::Error::TooOld { .. } => {
                Self::Schema(error.to_string())
            }
            schema::Error::Sqlite(error) => Self::Sqlite(error),
        }
    }
}

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
}

impl SqliteStore {
    /// Opens the file. If it does not exist, it is made.
    pub fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        Self::open_with(path, options, Box::new(File::sync_data))
    }

    /// Opens the file on a disk that is synced so.
    fn open_with(
        path: &Path,
        options: &Options,
        sync: durable::SyncLog,
    ) -> Result<Self, OpenError> {
        // SQLite drops the part of a log that it cannot read without a word, so the log is looked at first.
        let cut_off = wal::settle(path)?;
        let writer = Writer::start(path, options, sync)?;
        let durable = Arc::clone(&writer.shared.durable);
        let readers = Readers::start(path, options.readers.max(1), LONGEST_READ, durable)?;
        if let Some(frame) = cut_off {
            tracing::warn!(
                path = %path.display(),
                frame,
                "the last transaction in the write-ahead log is incomplete and was not taken; nobody \
                 was told that it was done, unless the log was damaged"
            );
        }
        Ok(Self { writer, readers })
    }

    fn submit(&self, queued: Queued) -> Answer<'_, ()> {
        let submitted = self.writer.submit(queued);
        Box::pin(async move {
            let stopped = |_| Error::Unavailable("the writer has stopped".to_owned());
            submitted?.await.map_err(stopped)?
        })
    }

    /// Reads for the server itself.
    fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answer<'_, T> {
        self.read_for(admission::NOBODY, query)
    }

    /// Reads for a tenant, when its turn comes.
    fn read_for<T: Send + 'static>(
        &self,
        tenant: TenantId,
        query: impl FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(self.readers.run(tenant, query))
    }

    /// Reads rows of one tenant. For a tenant without rows it returns the default.
    fn read_of<T: Default + Send + 'static>(
        &self,
        tenant: TenantId,
        query: impl FnOnce(&mut Db, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answer<'_, T> {
        self.read_for(tenant, move |db| match db.tenant(tenant)? {
            Some(tenant) => query(db, tenant),
            None => Ok(T::default()),
        })
    }
}

impl Store for SqliteStore {
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
        self.read_of(tenant, move |db, tenant| query::task(db, tenant, id))
    }

    fn tasks(&self, tenant: TenantId, filter: TaskFilter) -> Answer<'_, TaskPage> {
        self.read_of(tenant, move |db, tenant| query::tasks(db, tenant, &filter))
    }

    fn parties(&self, tenant: TenantId, id: TaskId) -> Answer<'_, Option<Parties>> {
        self.read_of(tenant, move |db, tenant| query::parties(db, tenant, id))
    }

    fn receipt(&self, tenant: TenantId, id: ReceiptId) -> Answer<'_, Option<DeliveredReceipt>> {
        self.read_of(tenant, move |db, tenant| {
            rows::receipt::find(db, tenant, id)
        })
    }

    fn head(&self, tenant: TenantId) -> Answer<'_, Head> {
        self.read_of(tenant, query::head)
    }

    fn receipts(
        &self,
        tenant: TenantId,
        filter: ReceiptFilter,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read_of(tenant, move |db, tenant| {
            query::receipts(db, tenant, &filter, page)
        })
    }

    fn newest_receipts(
        &self,
        tenant: TenantId,
        to: PrincipalKey,
        limit: usize,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read_of(tenant, move |db, tenant| {
            query::newest_receipts(db, tenant, &to, limit)
        })
    }

    fn obligations(
        &self,
        tenant: TenantId,
        owner: PrincipalKey,
        page: SeqPage,
    ) -> Answer<'_, Vec<DeliveredReceipt>> {
        self.read_of(tenant, move |db, tenant| {
            query::obligations(db, tenant, &owner, page)
        })
    }

    fn relationship(
        &self,
        tenant: TenantId,
        principal: PrincipalKey,
    ) -> Answer<'_, Option<Relationship>> {
        self.read_of(tenant, move |db, tenant| {
            query::relationship(db, tenant, &principal)
        })
    }

    fn due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, TaskId)>> {
        self.read(move |db| query::due(db, now, limit))
    }

    fn next_due(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(query::next_due)
    }

    fn usage(&self, tenant: TenantId, now: Timestamp) -> Answer<'_, Usage> {
        self.read_of(tenant, move |db, tenant| query::usage(db, tenant, now))
    }

    fn usage_events(
        &self,
        tenant: TenantId,
        before: Option<Seq>,
        limit: usize,
    ) -> Answer<'_, Vec<UsageEvent>> {
        self.read_of(tenant, move |db, tenant| {
            metering::newest(db, tenant, before, limit)
        })
    }

    fn depths(&self) -> Answer<'_, Depths> {
        self.read(query::depths)
    }

    fn last_time(&self) -> Timestamp {
        Timestamp::from_millis(self.writer.shared.last_time.load(Ordering::Relaxed))
    }

    fn health(&self) -> Health {
        match (self.writer.shared.health(), self.writer.shared.hot.health()) {
            (Health::Ready, limits) => limits,
            (failing @ Health::Failing(_), _) => failing,
        }
    }

    fn signals(&self) -> &Signals {
        &self.writer.shared.signals
    }

    fn metrics(&self) -> &StoreMetrics {
        &self.writer.shared.metrics
    }
}

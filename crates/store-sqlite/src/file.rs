//! Reading a database file, also while a server writes to it.

use std::{collections::BTreeMap, path::Path, result};

use asyncgate_core::{
    Head, Task, TenantId,
    mailbox::{ChainHead, Message},
};
use asyncgate_store::{DeliveredReceipt, Error, ReceiptFilter, SeqPage};
use rusqlite::Result;

use crate::{
    Finding, OpenError,
    check::{self, Counted},
    db::{Db, Use},
    identity::{self, Identities},
    mailbox, outbox, query,
    reader::read_error,
    schema, wal,
};

/// A file that is only read, in the state that it had when it was opened. It takes no lock, but while it
/// is open a server cannot shorten its log.
#[derive(Debug)]
pub struct SqliteFile {
    db: Db,
    counted: Counted,
}

impl SqliteFile {
    /// Opens an existing file. A damaged log is refused.
    pub fn open(path: &Path) -> result::Result<Self, OpenError> {
        wal::check_beside_a_writer(path)?;
        let db = Db::open(path, Use::Read)?;
        db.conn.execute_batch("BEGIN")?;
        // The snapshot is taken by the first read of the transaction, which is this one.
        schema::check(&db.conn)?;
        Ok(Self {
            db,
            counted: Counted::default(),
        })
    }

    fn read<T>(&mut self, read: impl FnOnce(&mut Db) -> Result<T>) -> result::Result<T, Error> {
        read(&mut self.db).map_err(|error| read_error(&error))
    }

    /// Returns every tenant that has rows.
    pub fn tenants(&mut self) -> result::Result<Vec<TenantId>, Error> {
        self.read(query::tenants)
    }

    /// Returns the head of a tenant's ledger.
    pub fn head(&mut self, tenant: TenantId) -> result::Result<Head, Error> {
        self.read(|db| match db.tenant(tenant)? {
            Some(tenant) => query::head(db, tenant),
            None => Ok(Head::default()),
        })
    }

    /// Returns a page of a tenant's ledger.
    pub fn receipts(
        &mut self,
        tenant: TenantId,
        page: SeqPage,
    ) -> result::Result<Vec<DeliveredReceipt>, Error> {
        self.read(|db| match db.tenant(tenant)? {
            Some(tenant) => query::receipts(db, tenant, &ReceiptFilter::All, page),
            None => Ok(Vec::new()),
        })
    }

    /// Checks that the file is a sound database. `working` is called now and then.
    pub fn check_pages(
        &mut self,
        mut working: impl FnMut() + Send + 'static,
    ) -> result::Result<(), Finding> {
        const STEPS: i32 = 100_000;
        let conn = &mut self.db.conn;
        let handler = move || {
            working();
            false
        };
        conn.progress_handler(STEPS, Some(handler))?;
        let found = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
        conn.progress_handler(0, None::<fn() -> bool>)?;
        match found? {
            sound if sound == "ok" => Ok(()),
            found => Err(Finding::Wrong(found)),
        }
    }

    /// Checks the tasks of a tenant against the indexes, the counters and `compare`, which compares a task
    /// with what the ledger says of it. `progress` is given the number of tasks that were checked.
    pub fn check_tasks(
        &mut self,
        tenant: TenantId,
        compare: impl FnMut(&Task) -> result::Result<(), String>,
        progress: impl FnMut(u64),
    ) -> result::Result<(), Finding> {
        check::tenant(&mut self.db, &mut self.counted, tenant, compare, progress)
    }

    /// Checks the counts of what a tenant uses against the number of tasks and the bytes of receipts in its ledger.
    pub fn check_usage(
        &mut self,
        tenant: TenantId,
        tasks_created: u64,
        receipt_bytes: u64,
    ) -> result::Result<(), Finding> {
        check::tally(&mut self.db, tenant, tasks_created, receipt_bytes)
    }

    /// Returns the heads of the chains of a tenant's messages, by shard.
    pub fn chains(&mut self, tenant: TenantId) -> result::Result<BTreeMap<u16, ChainHead>, Error> {
        self.read(|db| match db.tenant(tenant)? {
            Some(tenant) => mailbox::chains(db, tenant),
            None => Ok(BTreeMap::new()),
        })
    }

    /// Passes every message of a tenant to `compare` in the order of sending, and checks the counters of its
    /// topics and shards. `progress` is given the number of messages.
    pub fn check_messages(
        &mut self,
        tenant: TenantId,
        compare: impl FnMut(&Message) -> result::Result<(), String>,
        progress: impl FnMut(u64),
    ) -> result::Result<(), Finding> {
        mailbox::check(&mut self.db, tenant, compare, progress)
    }

    /// Checks that every record is found by what it says and that the audit logs are whole. `progress` is given the number
    /// of rows.
    pub fn check_identity(
        &mut self,
        progress: impl FnMut(u64),
    ) -> result::Result<Identities, Finding> {
        identity::check(&self.db, progress)
    }

    /// Checks that whatever of the outbox has the turn to be tried should have it, and nothing else.
    pub fn check_outbox(&mut self) -> result::Result<(), Finding> {
        outbox::check(&self.db)
    }

    /// Checks, after the tasks of every tenant, that the indexes have no other rows.
    pub fn check_indexes(&mut self) -> result::Result<(), Finding> {
        check::nothing_else(&mut self.db, &self.counted)
    }
}

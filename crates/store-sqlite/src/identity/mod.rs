//! Records of identity and audit logs in the file.

mod audit;
mod check;
mod records;

use std::collections::{BTreeMap, btree_map::Entry};

use asyncgate_core::{
    TenantId, Timestamp,
    identity::{Changes, Find, Record, TenantRecord, audit::Log},
};
use asyncgate_store::{
    Answer, Records, Rows,
    identity::{AuditFilter, AuditPage, Identity, Reads, RecordFilter, Snapshot},
};
use rusqlite::Result;

pub use self::check::Identities;
pub(crate) use self::check::all as check;
use crate::{SqliteStore, db::Db, outbox, transaction::Writable};

/// The number that stands for the server's own log. Tenants are numbered from 1.
const SERVER: i64 = 0;

/// Writes what every file has from the start.
pub(crate) fn begin(db: &Db) -> Result<()> {
    let built_in = Record::Tenant(TenantRecord::built_in());
    if records::get(db, built_in.key())?.is_none() {
        records::put(db, &built_in)?;
    }
    Ok(())
}

/// Returns the number of a log; nothing if the tenant has no rows.
fn log_number(db: &mut Db, tenant: Option<TenantId>) -> Result<Option<i64>> {
    match tenant {
        Some(tenant) => db.tenant(tenant),
        None => Ok(Some(SERVER)),
    }
}

/// Returns a log as this transaction has left it.
fn opened<'a>(db: &Db, logs: &'a mut BTreeMap<i64, Log>, number: i64) -> Result<&'a mut Log> {
    match logs.entry(number) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(unknown) => Ok(unknown.insert(audit::log(db, number)?)),
    }
}

impl Rows<Records> for Writable {
    fn load(&mut self, _: TenantId, reads: &Reads, now: Timestamp) -> Result<Snapshot> {
        let db = &mut self.db;
        let found = reads.records.iter().map(|find| records::find(db, find));
        let mut snapshot = Snapshot {
            records: found.collect::<Result<_>>()?,
            over: records::over(db, now, reads.over)?,
            ..Snapshot::default()
        };
        if reads.platform_keys {
            snapshot.platform_keys = records::platform_keys(db, now)?;
        }
        if let Some(oldest) = reads.oldest
            && let Some(number) = log_number(db, oldest.tenant)?
        {
            let after = audit::log(db, number)?.cut.seq;
            snapshot.oldest = audit::after(db, (oldest.tenant, number), after, oldest.limit)?;
        }
        Ok(snapshot)
    }

    fn apply(&mut self, _: TenantId, changes: &Changes) -> Result<()> {
        // First what goes, so that its name can be given again.
        for key in &changes.removed {
            records::remove(&self.db, *key)?;
        }
        for record in &changes.put {
            records::put(&self.db, record)?;
        }
        let mut logs: BTreeMap<i64, Log> = BTreeMap::new();
        for draft in &changes.audit {
            let number = self.log_of(draft.tenant)?;
            let log = opened(&self.db, &mut logs, number)?;
            audit::insert(&self.db, number, &log.append(draft))?;
        }
        if let Some(cut) = changes.cut {
            let number = self.log_of(cut.tenant)?;
            let log = opened(&self.db, &mut logs, number)?;
            audit::forget(&self.db, number, (log.cut.seq, cut.through.seq))?;
            log.cut = cut.through;
        }
        for (number, log) in logs {
            audit::save(&self.db, number, &log)?;
        }
        outbox::add(&self.db, &changes.outbox)
    }
}

impl Writable {
    /// Returns the number of a log. A tenant that has none is given one.
    fn log_of(&mut self, tenant: Option<TenantId>) -> Result<i64> {
        match tenant {
            Some(tenant) => self.number(tenant),
            None => Ok(SERVER),
        }
    }
}

impl Identity for SqliteStore {
    fn record(&self, find: Find) -> Answer<'_, Option<Record>> {
        self.read(move |db| records::find(db, &find))
    }

    fn records(&self, filter: RecordFilter) -> Answer<'_, Vec<Record>> {
        self.read(move |db| records::list(db, &filter))
    }

    fn audit_log(&self, tenant: Option<TenantId>) -> Answer<'_, Log> {
        self.read(move |db| match log_number(db, tenant)? {
            Some(number) => audit::log(db, number),
            None => Ok(Log::default()),
        })
    }

    fn audit(&self, filter: AuditFilter) -> Answer<'_, AuditPage> {
        self.read(move |db| match log_number(db, filter.tenant)? {
            Some(number) => audit::page(db, number, &filter),
            None => Ok(AuditPage::default()),
        })
    }

    fn audit_logs_from_before(
        &self,
        time: Timestamp,
        limit: usize,
    ) -> Answer<'_, Vec<Option<TenantId>>> {
        self.read(move |db| audit::from_before(db, time, limit))
    }
}

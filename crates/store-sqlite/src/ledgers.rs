//! The heads and counts of all tenants, which the writer keeps in memory between commits.

use std::collections::hash_map::Entry;

use asyncgate_core::{Head, Link, Receipt, Tally, TenantId, task::Status};
use asyncgate_store::Depths;
use foldhash::HashMap;
use rusqlite::{OptionalExtension, Result, Row, params};

use crate::db::Db;

/// The ledger head of a tenant, its counts, and the number by which rows name it.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) tenant: i64,
    pub(crate) head: Head,
    pub(crate) depths: Depths,
    pub(crate) tally: Tally,
    changed: bool,
}

impl Ledger {
    /// Moves the head over a receipt. Returns the receipt's link.
    pub(crate) fn append(&mut self, tenant: TenantId, receipt: &Receipt) -> Link {
        self.head.seq += 1;
        self.head.link = self.head.link.then(tenant, receipt);
        self.head.link
    }
}

/// The tenants that were needed since the last rollback.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    known: HashMap<TenantId, Ledger>,
    /// Those that the open transaction changed: a commit must not look through all tenants.
    changed: Vec<TenantId>,
}

impl Ledgers {
    /// Returns the tenant's ledger. If the tenant is new, its ledger is begun.
    pub(crate) fn of(&mut self, db: &Db, id: TenantId) -> Result<&mut Ledger> {
        match self.known.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => {
                let ledger = match find(db, id)? {
                    Some(ledger) => ledger,
                    None => begin(db, id)?,
                };
                Ok(unknown.insert(ledger))
            }
        }
    }

    /// Returns the tenant's ledger to be changed. The commit saves it.
    pub(crate) fn changing(&mut self, db: &Db, id: TenantId) -> Result<&mut Ledger> {
        let was_changed = std::mem::replace(&mut self.of(db, id)?.changed, true);
        if !was_changed {
            self.changed.push(id);
        }
        self.of(db, id)
    }

    /// Writes the ledgers that changed, for the commit that is about to be made.
    pub(crate) fn save(&mut self, db: &Db) -> Result<()> {
        for id in self.changed.drain(..) {
            let Some(ledger) = self.known.get_mut(&id) else {
                continue;
            };
            let count = |status| ledger.depths.of(status);
            db.conn
                .prepare_cached(
                    "UPDATE tenant SET head = ?2, queued = ?3, leased = ?4, running = ?5,
                                       succeeded = ?6, failed = ?7, canceled = ?8,
                                       link = ?9, open = ?10, tasks_created = ?11,
                                       receipt_bytes = ?12, lease_balance = ?13
                     WHERE tenant = ?1",
                )?
                .execute(params![
                    ledger.tenant,
                    ledger.head.seq as i64,
                    count(Status::Queued),
                    count(Status::Leased),
                    count(Status::Running),
                    count(Status::Succeeded),
                    count(Status::Failed),
                    count(Status::Canceled),
                    ledger.head.link.as_bytes(),
                    ledger.head.open_obligations as i64,
                    ledger.tally.tasks_created as i64,
                    ledger.tally.receipt_bytes as i64,
                    ledger.tally.lease_balance_ms,
                ])?;
            ledger.changed = false;
        }
        Ok(())
    }
}

fn find(db: &Db, id: TenantId) -> Result<Option<Ledger>> {
    db.conn
        .prepare_cached(
            "SELECT queued, leased, running, succeeded, failed, canceled, tenant, head,
                    link, open, tasks_created, receipt_bytes, lease_balance
             FROM tenant WHERE tenant_id = ?1",
        )?
        .query_row([id.as_bytes()], |row| {
            Ok(Ledger {
                depths: read_depths(row)?,
                tenant: row.get(6)?,
                head: read_head(row, 7)?,
                tally: read_tally(row, 10)?,
                changed: false,
            })
        })
        .optional()
}

fn begin(db: &Db, id: TenantId) -> Result<Ledger> {
    db.conn.execute(
        "INSERT INTO tenant (tenant_id, head, link, open, queued, leased, running, succeeded,
                             failed, canceled)
         VALUES (?1, 0, ?2, 0, 0, 0, 0, 0, 0, 0)",
        params![id.as_bytes(), Link::START.as_bytes()],
    )?;
    Ok(Ledger {
        tenant: db.conn.last_insert_rowid(),
        head: Head::default(),
        depths: Depths::default(),
        tally: Tally::default(),
        changed: false,
    })
}

/// Reads counts from the first six columns, in the order of [`Status::ALL`].
pub(crate) fn read_depths(row: &Row<'_>) -> Result<Depths> {
    let mut depths = Depths::default();
    for (column, status) in Status::ALL.into_iter().enumerate() {
        depths.set(status, row.get::<_, Option<i64>>(column)?.unwrap_or(0));
    }
    Ok(depths)
}

/// Reads counts from the columns `tasks_created`, `receipt_bytes` and `lease_balance`, of which the first is number
/// `first`.
pub(crate) fn read_tally(row: &Row<'_>, first: usize) -> Result<Tally> {
    Ok(Tally {
        tasks_created: row.get::<_, i64>(first)?.unsigned_abs(),
        receipt_bytes: row.get::<_, i64>(first + 1)?.unsigned_abs(),
        lease_balance_ms: row.get(first + 2)?,
    })
}

/// Reads a head from the columns `head`, `link` and `open`, of which the first is number `first`.
pub(crate) fn read_head(row: &Row<'_>, first: usize) -> Result<Head> {
    Ok(Head {
        seq: row.get::<_, i64>(first)?.unsigned_abs(),
        link: Link::from_bytes(row.get(first + 1)?),
        open_obligations: row.get::<_, i64>(first + 2)?.unsigned_abs(),
    })
}

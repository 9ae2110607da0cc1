//! Reads of tasks and receipts. Each costs what it returns.

use asyncgate_core::{
    Head, LeaseId, PrincipalKey, ReceiptType, Relationship, Task, TaskId, TenantId, Timestamp,
    Usage,
};
use asyncgate_store::{
    DeliveredReceipt, Depths, ReceiptFilter, SeqPage, TaskFilter, TaskPage, fits,
};
use rusqlite::{OptionalExtension, Result, params};

use crate::{
    codec::{self, Columns, Key, SEQ_BITS},
    db::Db,
    ledgers::{read_depths, read_head, read_tally},
    rows::{receipt, task},
};

/// The most tasks that a list looks at before it answers with what it has: a rare filter costs the caller more pages, never
/// the server a scan.
const MAX_LOOKED_AT: usize = 2_000;

pub(crate) fn tasks(db: &mut Db, tenant: i64, filter: &TaskFilter) -> Result<TaskPage> {
    let before = filter
        .before
        .map_or(Key::end(tenant), |id| Key::new(tenant, id.seq()));
    let keys = match &filter.owner {
        Some(owner) => assigned(db, tenant, owner, before)?,
        None => all(db, tenant, before)?,
    };
    let mut page = TaskPage::default();
    let exhausted = keys.len() < MAX_LOOKED_AT;
    let (mut last, mut taken) = (None, 0);
    for key in keys {
        if page.tasks.len() == filter.limit {
            page.next = page.tasks.last().map(|task| task.id);
            return Ok(page);
        }
        let Some(found) = task::load(db, key)? else {
            continue;
        };
        if filter.matches(&found) {
            if !fits(&mut taken, &found) {
                page.next = last;
                return Ok(page);
            }
            last = Some(found.id);
            page.tasks.push(found);
        } else {
            last = Some(found.id);
        }
    }
    page.next = last.filter(|_| !exhausted);
    Ok(page)
}

fn all(db: &Db, tenant: i64, before: Key) -> Result<Vec<Key>> {
    db.conn
        .prepare_cached(
            "SELECT task FROM task WHERE task > ?1 AND task < ?2 ORDER BY task DESC LIMIT ?3",
        )?
        .query_map(
            params![Key::new(tenant, 0).0, before.0, MAX_LOOKED_AT as i64],
            |row| row.get(0).map(Key),
        )?
        .collect()
}

/// Returns the tasks that were assigned to a principal. A task has the key of its assignment.
fn assigned(db: &Db, tenant: i64, owner: &PrincipalKey, before: Key) -> Result<Vec<Key>> {
    db.conn
        .prepare_cached(
            "SELECT receipt FROM receipt INDEXED BY receipt_addressee
             WHERE addressee = ?1 AND receipt > ?2 AND receipt < ?3 AND type = ?4
             ORDER BY receipt DESC LIMIT ?5",
        )?
        .query_map(
            params![
                codec::principal_key(owner),
                Key::new(tenant, 0).0,
                before.0,
                ReceiptType::TaskAssigned as i64,
                MAX_LOOKED_AT as i64
            ],
            |row| row.get(0).map(Key),
        )?
        .collect()
}

pub(crate) fn receipts(
    db: &mut Db,
    tenant: i64,
    filter: &ReceiptFilter,
    page: SeqPage,
) -> Result<Vec<DeliveredReceipt>> {
    let (after, end) = (Key::new(tenant, page.after).0, Key::end(tenant).0);
    let limit = page.limit as i64;
    match filter {
        ReceiptFilter::To(principal) => receipt::list(
            db,
            "INDEXED BY receipt_addressee",
            "WHERE r.addressee = ?1 AND r.receipt > ?2 AND r.receipt < ?3
             ORDER BY r.receipt LIMIT ?4",
            params![codec::principal_key(principal), after, end, limit],
        ),
        ReceiptFilter::Type(receipt_type) => receipt::list(
            db,
            "INDEXED BY receipt_type",
            "WHERE r.type = ?1 AND r.receipt > ?2 AND r.receipt < ?3
             ORDER BY r.receipt LIMIT ?4",
            params![*receipt_type as i64, after, end, limit],
        ),
        ReceiptFilter::Task(id) => receipt::list(
            db,
            "INDEXED BY receipt_task",
            "WHERE r.task = ?1 AND r.task_id = ?2 AND r.receipt > ?3 ORDER BY r.receipt LIMIT ?4",
            params![Key::new(tenant, id.seq()).0, id.as_bytes(), after, limit],
        ),
        ReceiptFilter::Lease(id) => leased(db, tenant, *id, page),
        ReceiptFilter::All => receipt::list(
            db,
            "NOT INDEXED",
            "WHERE r.receipt > ?1 AND r.receipt < ?2 ORDER BY r.receipt LIMIT ?3",
            params![after, end, limit],
        ),
    }
}

/// Returns the receipts under a lease. They begin with the acceptance at the place that the lease's id names, and are among
/// the receipts of its task, so no index of leases is needed.
fn leased(db: &mut Db, tenant: i64, id: LeaseId, page: SeqPage) -> Result<Vec<DeliveredReceipt>> {
    let accepted = Key::new(tenant, id.seq()).0;
    let task: Option<Option<i64>> = db
        .conn
        .prepare_cached("SELECT task FROM receipt WHERE receipt = ?1 AND lease_id = ?2")?
        .query_row(params![accepted, id.as_bytes()], |row| row.get(0))
        .optional()?;
    let Some(task) = task.flatten() else {
        return Ok(Vec::new());
    };
    let after = Key::new(tenant, page.after).0.max(accepted - 1);
    receipt::list(
        db,
        "INDEXED BY receipt_task",
        "WHERE r.task = ?1 AND r.lease_id = ?2 AND r.receipt > ?3 ORDER BY r.receipt LIMIT ?4",
        params![task, id.as_bytes(), after, page.limit as i64],
    )
}

pub(crate) fn head(db: &mut Db, tenant: i64) -> Result<Head> {
    db.conn
        .prepare_cached("SELECT head, link, open FROM tenant WHERE tenant = ?1")?
        .query_row([tenant], |row| read_head(row, 0))
}

pub(crate) fn tenants(db: &mut Db) -> Result<Vec<TenantId>> {
    db.conn
        .prepare_cached("SELECT tenant_id FROM tenant ORDER BY tenant")?
        .query_map([], |row| row.get(0).map(TenantId::from_bytes))?
        .collect()
}

pub(crate) fn obligations(
    db: &mut Db,
    tenant: i64,
    owner: &PrincipalKey,
    page: SeqPage,
) -> Result<Vec<DeliveredReceipt>> {
    receipt::list(
        db,
        "NOT INDEXED",
        "WHERE r.receipt IN (
             SELECT receipt FROM obligation WHERE owner = ?1 AND receipt > ?2 AND receipt < ?3
             ORDER BY receipt LIMIT ?4)
         ORDER BY r.receipt",
        params![
            codec::principal_key(owner),
            Key::new(tenant, page.after).0,
            Key::end(tenant).0,
            page.limit as i64
        ],
    )
}

pub(crate) fn relationship(
    db: &mut Db,
    tenant: i64,
    principal: &PrincipalKey,
) -> Result<Option<Relationship>> {
    db.conn
        .prepare_cached(
            "SELECT principal, instance_id, first_seen_at, last_seen_at, sessions
             FROM relationship WHERE tenant = ?1 AND principal = ?2",
        )?
        .query_row(params![tenant, codec::principal_key(principal)], |row| {
            let mut c = Columns::of(row);
            let mut principal = c.principal()?;
            principal.instance_id = c.get()?;
            Ok(Relationship {
                principal,
                first_seen_at: c.time()?,
                last_seen_at: c.time()?,
                sessions_count: c.get::<i64>()?.unsigned_abs(),
            })
        })
        .optional()
}

pub(crate) fn due(db: &mut Db, now: Timestamp, limit: usize) -> Result<Vec<(TenantId, TaskId)>> {
    db.conn
        .prepare_cached(&format!(
            "SELECT n.tenant_id, t.task_id FROM due d
             JOIN task t ON t.task = d.task JOIN tenant n ON n.tenant = d.task >> {SEQ_BITS}
             WHERE d.at <= ?1 ORDER BY d.at LIMIT ?2"
        ))?
        .query_map(params![now.as_millis(), limit as i64], |row| {
            let (tenant, task) = (row.get(0)?, row.get(1)?);
            Ok((TenantId::from_bytes(tenant), TaskId::from_bytes(task)))
        })?
        .collect()
}

pub(crate) fn next_due(db: &mut Db) -> Result<Option<Timestamp>> {
    db.conn
        .prepare_cached("SELECT at FROM due ORDER BY at LIMIT 1")?
        .query_row([], |row| row.get(0).map(Timestamp::from_millis))
        .optional()
}

pub(crate) fn depths(db: &mut Db) -> Result<Depths> {
    db.conn
        .prepare_cached(
            "SELECT sum(queued), sum(leased), sum(running), sum(succeeded), sum(failed),
                    sum(canceled) FROM tenant",
        )?
        .query_row([], read_depths)
}

pub(crate) fn usage(db: &mut Db, tenant: i64, now: Timestamp) -> Result<Usage> {
    db.conn
        .prepare_cached(
            "SELECT queued, leased, running, succeeded, failed, canceled, tasks_created,
                    receipt_bytes, lease_balance
             FROM tenant WHERE tenant = ?1",
        )?
        .query_row([tenant], |row| {
            Ok(read_depths(row)?.usage(&read_tally(row, 6)?, now))
        })
}

pub(crate) fn task(db: &mut Db, tenant: i64, id: TaskId) -> Result<Option<Task>> {
    task::find(db, tenant, id)
}

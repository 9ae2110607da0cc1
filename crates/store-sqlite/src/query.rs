//! Reads of tasks and receipts. Each costs what it returns.

use asyncgate_core::{
    Head, InstanceSight, PrincipalKey, Receipt, ReceiptId, ReceiptType, Relationship, Task, TaskId,
    TenantId, Timestamp, Usage,
};
use asyncgate_store::{
    DeliveredReceipt, Depths, Parties, ReceiptFilter, SeqPage, TaskFilter, TaskPage, fits,
};
use rusqlite::{OptionalExtension, Result, params};

use crate::{
    codec::{self, Columns, Key, SEQ_BITS},
    db::Db,
    ledgers::{read_depths, read_head, read_tally},
    ranges::{self, Step, Walk},
    rows::{checksum::damaged, receipt, task},
};

/// The most tasks that a list passes over before it answers with what it has: a rare filter costs the caller more pages,
/// never the server a scan.
const MAX_PASSED: usize = 2_000;

pub(crate) fn tasks(db: &mut Db, tenant: i64, filter: &TaskFilter) -> Result<TaskPage> {
    let mut walk = Walk::new(tenant, filter);
    let (mut page, mut taken) = (TaskPage::default(), 0);
    let (mut passed, mut last) = (0, None);
    while passed < MAX_PASSED {
        let key = match walk.step(db)? {
            Step::End => return Ok(page),
            Step::Passed(key) => {
                passed += 1;
                last = Some(key);
                continue;
            }
            Step::Found(key) => key,
        };
        if page.tasks.len() == filter.limit {
            break;
        }
        let found = task::load(db, key)?.filter(|task| filter.matches(task));
        let found = found.ok_or_else(|| damaged("an index names another task"))?;
        if !fits(&mut taken, &found) {
            break;
        }
        last = Some(key);
        page.tasks.push(found);
    }
    page.next = match last {
        Some(key) => task::id(db, key)?,
        None => filter.before,
    };
    Ok(page)
}

pub(crate) fn parties(db: &mut Db, tenant: i64, id: TaskId) -> Result<Option<Parties>> {
    task::parties(db, Key::new(tenant, id.seq()), id)
}

pub(crate) fn receipts(
    db: &mut Db,
    tenant: i64,
    filter: &ReceiptFilter,
    page: SeqPage,
) -> Result<Vec<DeliveredReceipt>> {
    let keys = ranges::receipts(db, tenant, filter, page)?;
    receipt::load(db, &keys)
}

/// Returns the newest receipts to a principal, in ledger order.
pub(crate) fn newest_receipts(
    db: &mut Db,
    tenant: i64,
    to: &PrincipalKey,
    limit: usize,
) -> Result<Vec<DeliveredReceipt>> {
    let keys = ranges::newest_of_inbox(db, tenant, to, limit)?;
    receipt::load(db, &keys)
}

/// Returns the receipt by which a principal acknowledged another one. It is about the same task and stands
/// behind it; one about no task is searched for among all acknowledgements, of which there are few.
pub(crate) fn acknowledgement(
    db: &Db,
    tenant: i64,
    receipt: &Receipt,
    by: &PrincipalKey,
) -> Result<Option<ReceiptId>> {
    let task = receipt.task_id.map(|id| Key::new(tenant, id.seq()).0);
    let (access, same_task) = match task {
        Some(_) => ("receipt_task", "task = ?1"),
        None => ("receipt_type", "task IS ?1"),
    };
    let sql = format!(
        "SELECT sender, receipt_id FROM receipt INDEXED BY {access}
         WHERE {same_task} AND receipt > ?2 AND receipt < ?3 AND type > 0 AND type = ?4 AND parents = ?5
         ORDER BY receipt"
    );
    let mut statement = db.conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![
        task,
        Key::new(tenant, receipt.seq()).0,
        Key::end(tenant).0,
        ReceiptType::ReceiptAcknowledged as i64,
        receipt.id.as_bytes(),
    ])?;
    while let Some(row) = rows.next()? {
        let mut c = Columns::of(row);
        if c.principal()?.key() == *by {
            return c.receipt_id().map(Some);
        }
    }
    Ok(None)
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
    let keys = ranges::obligations(db, tenant, owner, page)?;
    receipt::load(db, &keys)
}

pub(crate) fn relationship(
    db: &mut Db,
    tenant: i64,
    principal: &PrincipalKey,
) -> Result<Option<Relationship>> {
    db.conn
        .prepare_cached(
            "SELECT principal, instance_id, first_seen_at, last_seen_at, sessions, instances
             FROM relationship WHERE tenant = ?1 AND principal = ?2",
        )?
        .query_row(params![tenant, codec::principal_key(principal)], |row| {
            let mut c = Columns::of(row);
            let mut principal = c.principal()?;
            principal.instance_id = c.get()?;
            let (first_seen_at, last_seen_at) = (c.time()?, c.time()?);
            let sessions_count = c.get::<i64>()?.unsigned_abs();
            let instances = match c.instances()? {
                Some(instances) => instances,
                None => vec![InstanceSight {
                    id: principal.instance_id.clone(),
                    last_seen_at,
                }],
            };
            Ok(Relationship {
                principal,
                first_seen_at,
                last_seen_at,
                sessions_count,
                instances,
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
    let earliest: Option<i64> = db
        .conn
        .prepare_cached("SELECT min(at) FROM due")?
        .query_row([], |row| row.get(0))?;
    Ok(earliest.map(Timestamp::from_millis))
}

pub(crate) fn depths(db: &mut Db) -> Result<Depths> {
    db.conn
        .prepare_cached(
            "SELECT sum(queued), sum(leased), sum(running), sum(succeeded), sum(failed),
                    sum(canceled) FROM tenant",
        )?
        .query_row([], read_depths)
}

/// Counts the receipts about a task, up to a bound.
pub(crate) fn receipts_about(db: &Db, tenant: i64, id: TaskId, most: u64) -> Result<u64> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut select = db.conn.prepare_cached(
        "SELECT receipt FROM receipt INDEXED BY receipt_task WHERE task = ?1 LIMIT ?2",
    )?;
    let mut rows = select.query(params![Key::new(tenant, id.seq()).0, most])?;
    let mut counted = 0;
    while rows.next()?.is_some() {
        counted += 1;
    }
    Ok(counted)
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

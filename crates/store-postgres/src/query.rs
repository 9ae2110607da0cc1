//! Reads of tasks and receipts. Each costs what it returns.

use asyncgate_core::{
    Head, PrincipalKey, PrincipalKind, ReceiptId, ReceiptType, Relationship, Seq, Task, TaskId,
    TenantId, Timestamp, Usage, metering::UsageEvent, task::Status,
};
use asyncgate_store::{
    DeliveredReceipt, Depths, Parties, ReceiptFilter, SeqPage, TaskFilter, TaskPage, fits,
};
use tokio_postgres::{Client, Row, types::Type};

use crate::{
    ledgers::{fixed, read_depths, read_head, read_tally},
    pack::{self, damaged},
    prefetch::{BEHIND_ALL, TASK, TASK_FROM, read_task},
    readers::ReadError,
    session::Statement,
    table::{Order, Stored, Table, Tenant, number_key},
};

type Result<T> = std::result::Result<T, ReadError>;

/// The number of the tenant whose id is the first parameter.
const TENANT: &str = "(SELECT tenant FROM tenant WHERE id = $1)";
/// The most tasks that a list passes over before it answers with what it has: a rare filter costs the caller more pages,
/// never the server a scan.
const MAX_PASSED: usize = 2_000;
/// The number of tasks whose narrow columns are looked at in one step.
const STEP: i64 = 500;
/// The number of tasks that are read whole in one step, so that large ones are not read in vain.
const WHOLE: usize = 16;

/// A statement whose first parameter is the tenant.
fn of_tenant(tenant: TenantId, sql: impl Into<String>) -> Statement {
    Statement::new(sql).with(tenant.as_bytes().to_vec(), Type::BYTEA)
}

fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(crate) async fn task(client: &Client, tenant: TenantId, id: TaskId) -> Result<Option<Task>> {
    let sql = format!("SELECT {TASK} FROM {TASK_FROM} WHERE t.tenant = {TENANT} AND t.seq = $2");
    let statement = of_tenant(tenant, sql).with(id.seq().cast_signed(), Type::INT8);
    let rows = statement.run(client).await?;
    let found = rows.first().map(|row| read_task(row, 0)).transpose()?;
    Ok(found.filter(|task| task.id == id))
}

/// The narrow columns of a task, by which lists choose.
struct Narrow {
    seq: i64,
    id: TaskId,
    matches: bool,
}

pub(crate) async fn tasks(
    client: &Client,
    tenant: TenantId,
    filter: &TaskFilter,
) -> Result<TaskPage> {
    let mut before = filter.before.map_or(i64::MAX, |id| id.seq().cast_signed());
    let (mut page, mut taken, mut passed) = (TaskPage::default(), 0, 0);
    let mut last = filter.before;
    loop {
        let step = narrow(client, tenant, filter, before).await?;
        let is_end = limit(step.len()) < STEP;
        let chosen: Vec<i64> = step
            .iter()
            .filter(|it| it.matches)
            .map(|it| it.seq)
            .collect();
        // One more than wanted tells whether there are more.
        let wanted = filter
            .limit
            .saturating_sub(page.tasks.len())
            .saturating_add(1);
        let mut whole = Whole::new(chosen.into_iter().take(wanted).collect());
        for looked_at in &step {
            if !looked_at.matches {
                passed += 1;
                last = Some(looked_at.id);
                if passed >= MAX_PASSED {
                    page.next = last;
                    return Ok(page);
                }
                continue;
            }
            if page.tasks.len() == filter.limit {
                page.next = page.tasks.last().map(|task| task.id).or(last);
                return Ok(page);
            }
            let Some(found) = whole.next(client, tenant).await? else {
                return Err(damaged("a list names a task that is gone").into());
            };
            // It may have changed since the look at its narrow columns.
            if !filter.matches(&found) {
                last = Some(found.id);
                continue;
            }
            if !fits(&mut taken, &found) {
                page.next = last;
                return Ok(page);
            }
            last = Some(found.id);
            page.tasks.push(found);
        }
        if is_end {
            return Ok(page);
        }
        before = step.last().map_or(0, |it| it.seq);
    }
}

async fn narrow(
    client: &Client,
    tenant: TenantId,
    filter: &TaskFilter,
    before: i64,
) -> Result<Vec<Narrow>> {
    let sql = format!(
        "SELECT t.seq, t.id, t.owner, t.type, coalesce(l.status, e.status) FROM {TASK_FROM}
         WHERE t.tenant = {TENANT} AND t.seq < $2 ORDER BY t.seq DESC LIMIT $3"
    );
    let statement = of_tenant(tenant, sql)
        .with(before, Type::INT8)
        .with(STEP, Type::INT8);
    let rows = statement.run(client).await?;
    let owner = filter.owner.as_ref().map(pack::principal_key);
    let kind = filter.task_type.as_ref().map(String::as_bytes);
    let read = |row: &Row| {
        let status: Option<i16> = row.get(4);
        Ok(Narrow {
            seq: row.get(0),
            id: TaskId::from_bytes(fixed(row, 1)?),
            matches: owner
                .as_ref()
                .is_none_or(|owner| owner == row.get::<_, &[u8]>(2))
                && kind.is_none_or(|kind| kind == row.get::<_, &[u8]>(3))
                && filter
                    .status
                    .is_none_or(|wanted| status == Some(wanted as i16)),
        })
    };
    rows.iter().map(read).collect()
}

/// Tasks that are read whole, a few at a time, in the order of their places.
struct Whole {
    seqs: std::collections::VecDeque<i64>,
    read: std::collections::VecDeque<Task>,
}

impl Whole {
    const fn new(seqs: std::collections::VecDeque<i64>) -> Self {
        Self {
            seqs,
            read: std::collections::VecDeque::new(),
        }
    }

    async fn next(&mut self, client: &Client, tenant: TenantId) -> Result<Option<Task>> {
        if self.read.is_empty() && !self.seqs.is_empty() {
            let step = self.seqs.drain(..self.seqs.len().min(WHOLE)).collect();
            let sql = format!(
                "SELECT {TASK} FROM {TASK_FROM} WHERE t.tenant = {TENANT} AND t.seq = ANY($2) ORDER BY t.seq DESC"
            );
            let rows = of_tenant(tenant, sql).int8s(step).run(client).await?;
            for row in &rows {
                self.read.push_back(read_task(row, 0)?);
            }
        }
        Ok(self.read.pop_front())
    }
}

fn principal(bytes: &[u8]) -> Result<PrincipalKey> {
    let (kind, id) = bytes.split_first().ok_or_else(|| damaged("no principal"))?;
    let kind = PrincipalKind::ALL.get(usize::from(*kind)).copied();
    let id = std::str::from_utf8(id).map_err(|_| damaged("a principal has no name"))?;
    Ok(PrincipalKey {
        kind: kind.ok_or_else(|| damaged("a principal has no known kind"))?,
        id: id.into(),
    })
}

pub(crate) async fn parties(
    client: &Client,
    tenant: TenantId,
    id: TaskId,
) -> Result<Option<Parties>> {
    let sql = format!(
        "SELECT t.owner, coalesce(l.worker, e.worker) FROM {TASK_FROM}
         WHERE t.tenant = {TENANT} AND t.seq = $2 AND t.id = $3"
    );
    let statement = of_tenant(tenant, sql)
        .with(id.seq().cast_signed(), Type::INT8)
        .with(id.as_bytes().to_vec(), Type::BYTEA);
    let rows = statement.run(client).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let worker: Option<&[u8]> = row.get(1);
    Ok(Some(Parties {
        owner: principal(row.get(0))?,
        worker: worker.map(principal).transpose()?,
    }))
}

/// The columns of a receipt that is read, and its tables.
const RECEIPT: &str = "r.body, r.link, d.at";
const RECEIPT_FROM: &str =
    "receipt r LEFT JOIN delivery d ON d.tenant = r.tenant AND d.seq = r.seq";

fn read_receipt(row: &Row) -> Result<DeliveredReceipt> {
    Ok(DeliveredReceipt {
        receipt: pack::unpack_receipt(row.get(0))?,
        link: asyncgate_core::Link::from_bytes(fixed(row, 1)?),
        delivered_at: row.get::<_, Option<i64>>(2).map(Timestamp::from_millis),
    })
}

pub(crate) async fn receipt(
    client: &Client,
    tenant: TenantId,
    id: ReceiptId,
) -> Result<Option<DeliveredReceipt>> {
    let sql =
        format!("SELECT {RECEIPT} FROM {RECEIPT_FROM} WHERE r.tenant = {TENANT} AND r.seq = $2");
    let statement = of_tenant(tenant, sql).with(id.seq().cast_signed(), Type::INT8);
    let rows = statement.run(client).await?;
    let found = rows.first().map(read_receipt).transpose()?;
    Ok(found.filter(|found| found.receipt.id == id))
}

pub(crate) async fn receipts(
    client: &Client,
    tenant: TenantId,
    filter: &ReceiptFilter,
    page: SeqPage,
) -> Result<Vec<DeliveredReceipt>> {
    let chosen = match filter {
        ReceiptFilter::All => "",
        ReceiptFilter::To(_) => "AND r.addressee = $4",
        ReceiptFilter::Task(_) => "AND r.task = $4",
        // An assignment has the place of its task.
        ReceiptFilter::Type(ReceiptType::TaskAssigned) => {
            "AND EXISTS (SELECT 1 FROM task t WHERE t.tenant = r.tenant AND t.seq = r.seq) AND r.type = $4"
        }
        ReceiptFilter::Type(_) => "AND r.type = $4 AND r.type > 0",
    };
    let sql = format!(
        "SELECT {RECEIPT} FROM {RECEIPT_FROM} WHERE r.tenant = {TENANT} AND r.seq > $2 {chosen}
         ORDER BY r.seq LIMIT $3"
    );
    let after = i64::try_from(page.after).unwrap_or(i64::MAX);
    let statement = of_tenant(tenant, sql)
        .with(after, Type::INT8)
        .with(limit(page.limit), Type::INT8);
    let statement = match filter {
        ReceiptFilter::All => statement,
        ReceiptFilter::To(to) => statement.with(pack::principal_key(to), Type::BYTEA),
        ReceiptFilter::Task(id) => statement.with(id.seq().cast_signed(), Type::INT8),
        ReceiptFilter::Type(kind) => statement.with(*kind as i16, Type::INT2),
    };
    let rows = statement.run(client).await?;
    let found = rows.iter().map(read_receipt);
    // The place of a task is not its id.
    let is_meant = |found: &Result<DeliveredReceipt>| match found {
        Ok(found) => filter.matches(&found.receipt),
        Err(_) => true,
    };
    found.filter(is_meant).collect()
}

pub(crate) async fn newest_receipts(
    client: &Client,
    tenant: TenantId,
    to: &PrincipalKey,
    most: usize,
) -> Result<Vec<DeliveredReceipt>> {
    let sql = format!(
        "SELECT {RECEIPT} FROM {RECEIPT_FROM} WHERE r.tenant = {TENANT} AND r.addressee = $2
         ORDER BY r.seq DESC LIMIT $3"
    );
    let statement = of_tenant(tenant, sql)
        .with(pack::principal_key(to), Type::BYTEA)
        .with(limit(most), Type::INT8);
    let rows = statement.run(client).await?;
    rows.iter().rev().map(read_receipt).collect()
}

pub(crate) async fn obligations(
    client: &Client,
    tenant: TenantId,
    owner: &PrincipalKey,
    page: SeqPage,
) -> Result<Vec<DeliveredReceipt>> {
    let sql = format!(
        "SELECT {RECEIPT} FROM obligation o JOIN {RECEIPT_FROM} ON r.tenant = o.tenant AND r.seq = o.seq
         WHERE o.tenant = {TENANT} AND o.owner = $2 AND o.seq > $3 ORDER BY o.seq LIMIT $4"
    );
    let after = i64::try_from(page.after).unwrap_or(i64::MAX);
    let statement = of_tenant(tenant, sql)
        .with(pack::principal_key(owner), Type::BYTEA)
        .with(after, Type::INT8)
        .with(limit(page.limit), Type::INT8);
    let rows = statement.run(client).await?;
    rows.iter().map(read_receipt).collect()
}

pub(crate) async fn head(client: &Client, tenant: TenantId) -> Result<Head> {
    let sql = "SELECT head, link, open FROM tenant WHERE id = $1";
    let rows = of_tenant(tenant, sql).run(client).await?;
    let head = rows.first().map(|row| read_head(row, 0)).transpose()?;
    Ok(head.unwrap_or_default())
}

pub(crate) async fn relationship(
    client: &Client,
    tenant: TenantId,
    principal: &PrincipalKey,
) -> Result<Option<Relationship>> {
    let sql = format!("SELECT body FROM relationship WHERE tenant = {TENANT} AND key = $2");
    let statement = of_tenant(tenant, sql).with(pack::principal_key(principal), Type::BYTEA);
    let rows = statement.run(client).await?;
    let found = rows
        .first()
        .map(|row| pack::unpack_relationship(row.get(0)));
    Ok(found.transpose()?)
}

pub(crate) async fn usage(client: &Client, tenant: TenantId, now: Timestamp) -> Result<Usage> {
    let sql = "SELECT queued, leased, running, succeeded, failed, canceled, tasks_created,
                      receipt_bytes, lease_balance FROM tenant WHERE id = $1";
    let rows = of_tenant(tenant, sql).run(client).await?;
    let usage = rows
        .first()
        .map(|row| read_depths(row).usage(&read_tally(row, 6), now));
    Ok(usage.unwrap_or_default())
}

pub(crate) async fn usage_events(
    client: &Client,
    tenant: TenantId,
    before: Option<Seq>,
    most: usize,
) -> Result<Vec<UsageEvent>> {
    let end = before.map_or_else(|| BEHIND_ALL.to_vec(), number_key);
    let range = (Vec::new(), end);
    let statement = Table::UsageEvent.range(Tenant::Id(&tenant), range, Order::Down, most);
    let rows = statement.run(client).await?;
    let events = rows
        .iter()
        .map(|row| pack::unpack_event(&Stored::of(row).body));
    Ok(events.collect::<std::result::Result<_, _>>()?)
}

pub(crate) async fn depths(client: &Client) -> Result<Depths> {
    let sum = |status: Status| format!("coalesce(sum({}), 0)::int8", status.as_str());
    let sums = Status::ALL.map(sum).join(", ");
    let rows = Statement::new(format!("SELECT {sums} FROM tenant"));
    let rows = rows.run(client).await?;
    Ok(rows.first().map(read_depths).unwrap_or_default())
}

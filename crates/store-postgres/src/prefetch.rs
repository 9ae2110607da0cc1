//! Asking the database for the rows that jobs declare and memory does not have: one round trip for all of them.
//!
//! The questions go the same way as the batches, behind those that were sent. So an answer has everything that was written
//! before, except what the open batch holds.

use asyncgate_core::{ReceiptType, Task, metering::Metered};
use asyncgate_store::{Error, IdempotencyKey};
use bytes::Bytes;
use tokio_postgres::{Row, types::Type};

use crate::{
    ledgers::Key,
    memory::Memory,
    pack,
    recent::Wanted,
    records,
    session::Statement,
    table::{Order, Stored, Table, Tenant, number_key},
    tasks::acknowledges,
};

/// The columns of a task that is read: its two parts.
pub(crate) const TASK: &str = "t.spec, coalesce(l.state, e.state)";
/// The tables that a task is read from.
pub(crate) const TASK_FROM: &str =
    "task t LEFT JOIN task_live l ON l.tenant = t.tenant AND l.seq = t.seq
    LEFT JOIN task_end e ON e.tenant = t.tenant AND e.seq = t.seq";

/// A bound behind every key of a number.
pub(crate) const BEHIND_ALL: [u8; 9] = [0xff; 9];

/// Returns the questions, in the order in which [`learn`] wants the answers.
pub(crate) fn questions(wanted: &Wanted) -> Vec<Statement> {
    let mut all = Vec::new();
    if !wanted.tasks.is_empty() {
        let sql = format!(
            "SELECT t.tenant, t.seq, {TASK} FROM UNNEST($1::int8[], $2::int8[]) AS k (tenant, seq)
             JOIN {TASK_FROM} ON t.tenant = k.tenant AND t.seq = k.seq"
        );
        let (tenants, seqs) = wanted.tasks.iter().map(|key| (key.tenant, key.seq)).unzip();
        all.push(Statement::new(sql).int8s(tenants).int8s(seqs));
    }
    if !wanted.keys.is_empty() {
        all.push(keys(wanted));
    }
    if !wanted.receipts.is_empty() {
        let sql = "SELECT r.tenant, r.body FROM UNNEST($1::int8[], $2::int8[]) AS k (tenant, seq)
                   JOIN receipt r ON r.tenant = k.tenant AND r.seq = k.seq";
        let receipts = wanted.receipts.iter();
        let (tenants, seqs) = receipts
            .map(|(tenant, id)| (*tenant, id.seq().cast_signed()))
            .unzip();
        all.push(Statement::new(sql).int8s(tenants).int8s(seqs));
    }
    for (tenant, id, _) in &wanted.acknowledged {
        all.push(acknowledgements(*tenant, id.seq().cast_signed()));
    }
    if !wanted.relationships.is_empty() {
        let known = wanted.relationships.iter();
        let (tenants, keys) = known
            .map(|(tenant, key)| (*tenant, pack::principal_key(key)))
            .unzip();
        all.push(Table::Relationship.find(tenants, keys));
    }
    if !wanted.about.is_empty() {
        all.push(counts(wanted));
    }
    for (tenant, oldest) in &wanted.metered {
        let range = || (Vec::new(), BEHIND_ALL.to_vec());
        let tenant = Tenant::Number(*tenant);
        all.push(Table::UsageEvent.range(tenant, range(), Order::Down, 1));
        all.push(Table::UsageEvent.range(tenant, range(), Order::Up, *oldest));
    }
    if !wanted.payloads.is_empty() {
        let payloads = wanted.payloads.iter();
        let (tenants, keys) = payloads
            .map(|key| (key.tenant, number_key(key.seq.cast_unsigned())))
            .unzip();
        all.push(Table::Payload.find(tenants, keys));
    }
    for (tenant, limit) in &wanted.oldest {
        all.push(records::oldest_entries(*tenant, *limit));
    }
    all
}

fn keys(wanted: &Wanted) -> Statement {
    let sql = format!(
        "SELECT t.tenant, t.seq, {TASK}
         FROM UNNEST($1::int8[], $2::bytea[], $3::bytea[]) AS k (tenant, owner, key)
         JOIN idempotency i ON i.tenant = k.tenant AND i.owner = k.owner AND i.key = k.key
         JOIN {TASK_FROM} ON t.tenant = i.tenant AND t.seq = i.seq"
    );
    let keys = || wanted.keys.iter();
    Statement::new(sql)
        .int8s(keys().map(|(tenant, _)| *tenant).collect())
        .bytes(
            keys()
                .map(|(_, key)| pack::principal_key(&key.owner))
                .collect(),
        )
        .bytes(
            keys()
                .map(|(_, key)| key.key.clone().into_bytes())
                .collect(),
        )
}

/// Returns the question for the acknowledgements that stand behind a receipt. They are about the same task; those about
/// no task are searched for among all, of which there are few.
fn acknowledgements(tenant: i64, seq: i64) -> Statement {
    let kind = ReceiptType::ReceiptAcknowledged as i16;
    Statement::new(
        "SELECT r.body FROM receipt r WHERE r.tenant = $1 AND r.seq > $2 AND r.type = $3
             AND r.task = (SELECT task FROM receipt WHERE tenant = $1 AND seq = $2)
         UNION ALL
         SELECT r.body FROM receipt r WHERE r.tenant = $1 AND r.seq > $2 AND r.type = $3 AND r.type > 0
             AND r.task IS NULL AND (SELECT task FROM receipt WHERE tenant = $1 AND seq = $2) IS NULL",
    )
    .with(tenant, Type::INT8)
    .with(seq, Type::INT8)
    .with(kind, Type::INT2)
}

fn counts(wanted: &Wanted) -> Statement {
    let about = || wanted.about.iter();
    let most = |most: u64| i64::try_from(most).unwrap_or(i64::MAX);
    Statement::new(
        "SELECT k.tenant, k.task, k.most, (SELECT count(*) FROM (
             SELECT 1 FROM receipt r WHERE r.tenant = k.tenant AND r.task = k.task LIMIT k.most) AS c)
         FROM UNNEST($1::int8[], $2::int8[], $3::int8[]) AS k (tenant, task, most)",
    )
    .int8s(about().map(|(key, _)| key.tenant).collect())
    .int8s(about().map(|(key, _)| key.seq).collect())
    .int8s(about().map(|(_, bound)| most(*bound)).collect())
}

/// Takes the answers in.
pub(crate) fn learn(
    memory: &mut Memory,
    wanted: Wanted,
    answers: Vec<Vec<Row>>,
) -> Result<(), Error> {
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or_default();
    if !wanted.tasks.is_empty() {
        learn_tasks(memory, &next());
        let is_readable = |key: &&Key| !memory.recent.damaged.contains_key(key);
        let absent: Vec<Key> = wanted.tasks.iter().filter(is_readable).copied().collect();
        for key in &absent {
            memory.recent.tasks.entry(*key).or_insert(None);
        }
    }
    if !wanted.keys.is_empty() {
        for (key, task) in learn_tasks(memory, &next()) {
            let known = (key.tenant, task);
            memory.recent.keys.insert(known, Some(key.seq));
        }
        for key in &wanted.keys {
            memory.recent.keys.entry(key.clone()).or_insert(None);
        }
    }
    if !wanted.receipts.is_empty() {
        for row in next() {
            let receipt = pack::unpack_receipt(row.get(1))?;
            let key = (row.get(0), receipt.id);
            memory.recent.receipts.insert(key, Some(receipt));
        }
        for key in &wanted.receipts {
            memory.recent.receipts.entry(*key).or_insert(None);
        }
    }
    for (tenant, id, by) in wanted.acknowledged {
        let mut found = None;
        for row in next() {
            let receipt = pack::unpack_receipt(row.get(0))?;
            let is_first =
                found.is_none_or(|first: asyncgate_core::ReceiptId| receipt.id.seq() < first.seq());
            if is_first && acknowledges(&receipt, id, &by) {
                found = Some(receipt.id);
            }
        }
        memory.recent.acknowledged.insert((tenant, id, by), found);
    }
    if !wanted.relationships.is_empty() {
        for row in next() {
            let stored = Stored::of(&row);
            let seen = pack::unpack_relationship(&stored.body)?;
            let key = (stored.tenant, seen.principal.key());
            memory.recent.relationships.insert(key, Some(seen));
        }
        for key in wanted.relationships {
            memory.recent.relationships.entry(key).or_insert(None);
        }
    }
    if !wanted.about.is_empty() {
        for row in next() {
            let key = Key {
                tenant: row.get(0),
                seq: row.get(1),
            };
            let (most, count): (i64, i64) = (row.get(2), row.get(3));
            let counts = memory.recent.about.entry(key).or_default();
            counts.insert(most.unsigned_abs(), count.unsigned_abs());
        }
    }
    for key in wanted.metered {
        let event = |row: &Row| pack::unpack_event(&Stored::of(row).body);
        let mut last: Vec<_> = next().iter().map(event).collect::<Result<_, _>>()?;
        let oldest = next().iter().map(event).collect::<Result<_, _>>()?;
        let last = last.pop();
        memory.recent.metered.insert(key, Metered { last, oldest });
    }
    if !wanted.payloads.is_empty() {
        for row in next() {
            let stored = Stored::of(&row);
            let key = Key::new(stored.tenant, stored.number());
            let payload = Bytes::from(stored.body);
            memory.payloads.put(key, payload.clone());
            memory.recent.payloads.insert(key, payload);
        }
    }
    for key in wanted.oldest {
        let entries = next()
            .iter()
            .map(records::unpack_entry)
            .collect::<Result<_, _>>()?;
        memory.recent.oldest.insert(key, entries);
    }
    Ok(())
}

/// Reads a task from the columns of [`TASK`], of which the first is number `first`.
pub(crate) fn read_task(row: &Row, first: usize) -> Result<Task, Error> {
    let state: Option<&[u8]> = row.get(first + 1);
    let state = state.ok_or_else(|| pack::damaged("a task has no state"))?;
    pack::unpack_task(row.get(first), state)
}

/// Takes tasks in, unless memory has a newer state of them. Returns those that have an idempotency key.
fn learn_tasks(memory: &mut Memory, rows: &[Row]) -> Vec<(Key, IdempotencyKey)> {
    let mut keyed = Vec::new();
    for row in rows {
        let key = Key {
            tenant: row.get(0),
            seq: row.get(1),
        };
        let task = match read_task(row, 2) {
            Ok(task) => task,
            Err(error) => {
                memory.recent.damaged.insert(key, error);
                continue;
            }
        };
        if let Some(name) = &task.spec.idempotency_key {
            let owner = task.created_by.key();
            let name = name.clone();
            keyed.push((key, IdempotencyKey { owner, key: name }));
        }
        let task = match memory.hot.get(key) {
            Some(newer) => newer,
            None => {
                memory.hot.note(key, &task);
                task
            }
        };
        memory.recent.tasks.insert(key, Some(task));
    }
    keyed
}

//! The rows that the open batch will write, as one set for each table.
//!
//! A row that changes several times in a batch is written once, as it stands at the end. What was added and taken away
//! again within the batch is not written at all.

use std::collections::{BTreeMap, BTreeSet};

use asyncgate_core::{Link, Placement, Receipt, Task, TaskWrite, Timestamp, task::Status};
use asyncgate_store::IdempotencyKey;
use tokio_postgres::types::Type;

use crate::{
    ledgers::{Key, Ledger},
    pack,
    session::Statement,
    table::Table,
};

/// Rows by tenant and key. Those without a body are removed.
type KeyedRows = BTreeMap<(i64, Vec<u8>), Option<Vec<u8>>>;

/// What the open batch will write.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The shards whose rows the batch has looked at or changed.
    shards: BTreeSet<i32>,
    /// Those whose rows it changed.
    changed: BTreeSet<i32>,
    ledgers: BTreeMap<i64, Ledger>,
    specs: Vec<(Key, Task)>,
    states: BTreeMap<Key, State>,
    keys: BTreeMap<(i64, Vec<u8>, Vec<u8>), i64>,
    receipts: Vec<(i64, Receipt, Link)>,
    opened: BTreeSet<(i64, Vec<u8>, i64)>,
    closed: BTreeSet<(i64, Vec<u8>, i64)>,
    delivered: Vec<(i64, i64, i64)>,
    rows: BTreeMap<Table, KeyedRows>,
    cuts: Vec<(Table, i64, Vec<u8>, Vec<u8>)>,
}

/// The last state of a task in the batch.
#[derive(Debug)]
struct State {
    task: Task,
    /// The way in which the task was stored before the batch.
    stored: Stored,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Not,
    Live,
    Ended,
}

impl Outgoing {
    /// Notes a shard whose rows were looked at: the answer is right only while the shard is owned.
    pub(crate) fn look(&mut self, shard: i32) {
        self.shards.insert(shard);
    }

    /// Notes a shard whose rows were changed.
    pub(crate) fn change(&mut self, shard: i32) {
        self.look(shard);
        self.changed.insert(shard);
    }

    /// Returns the shards that were looked at or changed.
    pub(crate) fn shards(&self) -> impl Iterator<Item = i32> + '_ {
        self.shards.iter().copied()
    }

    /// Returns true if there is something to write.
    pub(crate) fn writes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Notes the ledger of a tenant as it stands now.
    pub(crate) fn ledger(&mut self, ledger: &Ledger) {
        self.change(ledger.shard());
        self.ledgers.insert(ledger.tenant, ledger.clone());
    }

    pub(crate) fn task(&mut self, key: Key, write: &TaskWrite) {
        let task = &write.task;
        if write.before.is_none() {
            self.specs.push((key, task.clone()));
            if let Some(name) = &task.spec.idempotency_key {
                let owner = pack::principal_key(&task.created_by.key());
                let name = name.clone().into_bytes();
                self.keys.insert((key.tenant, owner, name), key.seq);
            }
        }
        let stored = match write.before.map(|before| before.placement) {
            None => Stored::Not,
            Some(Placement::Ended) => Stored::Ended,
            Some(Placement::Ready { .. } | Placement::Due { .. }) => Stored::Live,
        };
        let task = task.clone();
        match self.states.get_mut(&key) {
            Some(state) => state.task = task,
            None => drop(self.states.insert(key, State { task, stored })),
        }
    }

    /// Returns a task that the batch has written.
    pub(crate) fn written(&self, key: Key) -> Option<&Task> {
        self.states.get(&key).map(|state| &state.task)
    }

    /// Returns the place of a task with an idempotency key that the batch has created.
    pub(crate) fn keyed(&self, tenant: i64, key: &IdempotencyKey) -> Option<i64> {
        if self.keys.is_empty() {
            return None;
        }
        let (owner, name) = (pack::principal_key(&key.owner), key.key.clone());
        let key = (tenant, owner, name.into_bytes());
        self.keys.get(&key).copied()
    }

    /// Returns the receipts that the batch has appended to the ledger of a tenant.
    pub(crate) fn appended(&self, tenant: i64) -> impl Iterator<Item = &Receipt> {
        let of_tenant = self.receipts.iter().filter(move |(of, ..)| *of == tenant);
        of_tenant.map(|(_, receipt, _)| receipt)
    }

    /// Returns true if the batch has added a usage event of a tenant.
    pub(crate) fn has_metered(&self, tenant: i64) -> bool {
        let events = self.rows.get(&Table::UsageEvent);
        events.is_some_and(|rows| rows.keys().any(|(of, _)| *of == tenant))
    }

    pub(crate) fn receipt(&mut self, tenant: i64, receipt: &Receipt, link: Link) {
        self.receipts.push((tenant, receipt.clone(), link));
    }

    pub(crate) fn open(&mut self, tenant: i64, owner: Vec<u8>, seq: u64) {
        self.opened.insert((tenant, owner, seq.cast_signed()));
    }

    pub(crate) fn close(&mut self, tenant: i64, owner: Vec<u8>, seq: u64) {
        let key = (tenant, owner, seq.cast_signed());
        if !self.opened.remove(&key) {
            self.closed.insert(key);
        }
    }

    pub(crate) fn deliver(&mut self, tenant: i64, seq: u64, at: Timestamp) {
        let row = (tenant, seq.cast_signed(), at.as_millis());
        self.delivered.push(row);
    }

    /// Returns true if the batch has written a row.
    pub(crate) fn has(&self, table: Table, tenant: i64, key: &[u8]) -> bool {
        let rows = self.rows.get(&table);
        rows.is_some_and(|rows| rows.contains_key(&(tenant, key.to_vec())))
    }

    /// Inserts or replaces a row.
    pub(crate) fn put(&mut self, table: Table, tenant: i64, key: Vec<u8>, body: Vec<u8>) {
        let rows = self.rows.entry(table).or_default();
        rows.insert((tenant, key), Some(body));
    }

    /// Removes a row.
    pub(crate) fn remove(&mut self, table: Table, tenant: i64, key: Vec<u8>) {
        let rows = self.rows.entry(table).or_default();
        rows.insert((tenant, key), None);
    }

    /// Removes all rows behind one key, up to and including another.
    pub(crate) fn cut(&mut self, table: Table, tenant: i64, behind: Vec<u8>, through: Vec<u8>) {
        self.cuts.push((table, tenant, behind, through));
    }

    /// Returns the statements that write everything.
    pub(crate) fn statements(self, last_time: Timestamp) -> Vec<Statement> {
        let mut statements = Vec::new();
        if self.changed.is_empty() {
            return statements;
        }
        clock(&mut statements, self.changed, last_time);
        ledgers(&mut statements, self.ledgers);
        specs(&mut statements, self.specs);
        states(&mut statements, self.states);
        keys(&mut statements, self.keys);
        receipts(&mut statements, self.receipts);
        obligations(&mut statements, self.opened, self.closed);
        deliveries(&mut statements, self.delivered);
        for (table, rows) in self.rows {
            let (mut put, mut removed) = (Vec::new(), Vec::new());
            for ((tenant, key), body) in rows {
                match body {
                    Some(body) => put.push((tenant, key, body)),
                    None => removed.push((tenant, key)),
                }
            }
            if !removed.is_empty() {
                statements.push(table.remove(removed));
            }
            if !put.is_empty() {
                statements.push(table.put(put));
            }
        }
        for (table, tenant, behind, through) in self.cuts {
            statements.push(table.cut(tenant, behind, through));
        }
        statements
    }
}

fn clock(to: &mut Vec<Statement>, shards: BTreeSet<i32>, last_time: Timestamp) {
    let sql = "INSERT INTO clock SELECT shard, $2 FROM UNNEST($1::int4[]) AS s (shard)
               ON CONFLICT (shard) DO UPDATE SET last_time = excluded.last_time";
    let shards: Vec<i32> = shards.into_iter().collect();
    let statement = Statement::new(sql).with(shards, Type::INT4_ARRAY);
    to.push(statement.with(last_time.as_millis(), Type::INT8));
}

fn ledgers(to: &mut Vec<Statement>, ledgers: BTreeMap<i64, Ledger>) {
    if ledgers.is_empty() {
        return;
    }
    let ledgers: Vec<Ledger> = ledgers.into_values().collect();
    let numbers = |of: &dyn Fn(&Ledger) -> i64| ledgers.iter().map(of).collect::<Vec<i64>>();
    let mut statement = Statement::new(
        "INSERT INTO tenant SELECT * FROM UNNEST($1::int8[], $2::bytea[], $3::int8[], $4::bytea[], $5::int8[],
             $6::int8[], $7::int8[], $8::int8[], $9::int8[], $10::int8[], $11::int8[], $12::int8[], $13::int8[],
             $14::int8[], $15::int8[])
         ON CONFLICT (tenant) DO UPDATE SET
             head = excluded.head, link = excluded.link, open = excluded.open, queued = excluded.queued,
             leased = excluded.leased, running = excluded.running, succeeded = excluded.succeeded,
             failed = excluded.failed, canceled = excluded.canceled, tasks_created = excluded.tasks_created,
             receipt_bytes = excluded.receipt_bytes, lease_balance = excluded.lease_balance,
             mail_head = excluded.mail_head",
    )
    .int8s(numbers(&|ledger| ledger.tenant))
    .bytes(ledgers.iter().map(|ledger| ledger.id.as_bytes().to_vec()).collect())
    .int8s(numbers(&|ledger| ledger.head.seq.cast_signed()))
    .bytes(ledgers.iter().map(|ledger| ledger.head.link.as_bytes().to_vec()).collect())
    .int8s(numbers(&|ledger| ledger.head.open_obligations.cast_signed()));
    for status in Status::ALL {
        statement = statement.int8s(numbers(&|ledger| ledger.depths.of(status)));
    }
    to.push(
        statement
            .int8s(numbers(&|ledger| ledger.tally.tasks_created.cast_signed()))
            .int8s(numbers(&|ledger| ledger.tally.receipt_bytes.cast_signed()))
            .int8s(numbers(&|ledger| ledger.tally.lease_balance_ms))
            .int8s(numbers(&|ledger| ledger.mail_head.cast_signed())),
    );
}

fn specs(to: &mut Vec<Statement>, specs: Vec<(Key, Task)>) {
    if specs.is_empty() {
        return;
    }
    let bytes = |of: &dyn Fn(&Task) -> Vec<u8>| specs.iter().map(|(_, task)| of(task)).collect();
    let sql =
        "INSERT INTO task SELECT * FROM UNNEST($1::int8[], $2::int8[], $3::bytea[], $4::bytea[],
                   $5::bytea[], $6::bytea[])";
    let statement = Statement::new(sql)
        .int8s(specs.iter().map(|(key, _)| key.tenant).collect())
        .int8s(specs.iter().map(|(key, _)| key.seq).collect())
        .bytes(bytes(&|task| task.id.as_bytes().to_vec()))
        .bytes(bytes(&|task| pack::principal_key(&task.created_by.key())))
        .bytes(bytes(&|task| task.spec.task_type.clone().into_bytes()))
        .bytes(bytes(&pack::pack_spec));
    to.push(statement);
}

/// Returns the worker that holds a task, or that ended it.
fn worker(task: &Task) -> Option<Vec<u8>> {
    let parties = asyncgate_store::Parties::of(task);
    parties.worker.as_ref().map(pack::principal_key)
}

fn states(to: &mut Vec<Statement>, states: BTreeMap<Key, State>) {
    let (mut live, mut ended, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for (key, State { task, stored }) in states {
        if task.placement() != Placement::Ended {
            live.push((key, task));
            continue;
        }
        if stored == Stored::Live {
            gone.push(key);
        }
        ended.push((key, task));
    }
    if !gone.is_empty() {
        let sql =
            "DELETE FROM task_live AS t USING UNNEST($1::int8[], $2::int8[]) AS k (tenant, seq)
                   WHERE t.tenant = k.tenant AND t.seq = k.seq";
        let (tenants, seqs) = gone.iter().map(|key| (key.tenant, key.seq)).unzip();
        to.push(Statement::new(sql).int8s(tenants).int8s(seqs));
    }
    if !ended.is_empty() {
        to.push(ended_states(&ended));
    }
    if !live.is_empty() {
        to.push(live_states(&live));
    }
}

fn ended_states(ended: &[(Key, Task)]) -> Statement {
    let sql = "INSERT INTO task_end SELECT * FROM UNNEST($1::int8[], $2::int8[], $3::int2[], $4::bytea[], $5::bytea[])
               ON CONFLICT (tenant, seq) DO UPDATE SET
                   status = excluded.status, worker = excluded.worker, state = excluded.state";
    let statuses: Vec<i16> = ended.iter().map(|(_, task)| task.status() as i16).collect();
    let workers: Vec<Option<Vec<u8>>> = ended.iter().map(|(_, task)| worker(task)).collect();
    Statement::new(sql)
        .int8s(ended.iter().map(|(key, _)| key.tenant).collect())
        .int8s(ended.iter().map(|(key, _)| key.seq).collect())
        .with(statuses, Type::INT2_ARRAY)
        .with(workers, Type::BYTEA_ARRAY)
        .bytes(
            ended
                .iter()
                .map(|(_, task)| pack::pack_state(task))
                .collect(),
        )
}

fn live_states(live: &[(Key, Task)]) -> Statement {
    let sql = "INSERT INTO task_live SELECT * FROM UNNEST($1::int8[], $2::int8[], $3::bytea[], $4::int2[], $5::int4[],
                   $6::int8[], $7::int8[], $8::bytea[], $9::bytea[], $10::bytea[])
               ON CONFLICT (tenant, seq) DO UPDATE SET
                   status = excluded.status, priority = excluded.priority, due = excluded.due,
                   weight = excluded.weight, worker = excluded.worker, state = excluded.state";
    let tasks = || live.iter().map(|(_, task)| task);
    let statuses: Vec<i16> = tasks().map(|task| task.status() as i16).collect();
    let priorities: Vec<Option<i32>> = tasks()
        .map(|task| match task.placement() {
            Placement::Ready { priority, .. } => Some(priority),
            Placement::Due { .. } | Placement::Ended => None,
        })
        .collect();
    let due = |task: &Task| task.placement().due().map(Timestamp::as_millis);
    let dues: Vec<Option<i64>> = tasks().map(due).collect();
    let weight = |task: &Task| i64::try_from(task.weight()).unwrap_or(i64::MAX);
    let workers: Vec<Option<Vec<u8>>> = tasks().map(worker).collect();
    Statement::new(sql)
        .int8s(live.iter().map(|(key, _)| key.tenant).collect())
        .int8s(live.iter().map(|(key, _)| key.seq).collect())
        .bytes(tasks().map(|task| task.id.as_bytes().to_vec()).collect())
        .with(statuses, Type::INT2_ARRAY)
        .with(priorities, Type::INT4_ARRAY)
        .with(dues, Type::INT8_ARRAY)
        .int8s(tasks().map(weight).collect())
        .bytes(
            tasks()
                .map(|task| pack::pack_class(&task.class()))
                .collect(),
        )
        .with(workers, Type::BYTEA_ARRAY)
        .bytes(tasks().map(pack::pack_state).collect())
}

fn keys(to: &mut Vec<Statement>, keys: BTreeMap<(i64, Vec<u8>, Vec<u8>), i64>) {
    if keys.is_empty() {
        return;
    }
    let sql = "INSERT INTO idempotency (tenant, owner, key, seq)
               SELECT * FROM UNNEST($1::int8[], $2::bytea[], $3::bytea[], $4::int8[])";
    let statement = Statement::new(sql)
        .int8s(keys.keys().map(|(tenant, ..)| *tenant).collect())
        .bytes(keys.keys().map(|(_, owner, _)| owner.clone()).collect())
        .bytes(keys.keys().map(|(.., name)| name.clone()).collect())
        .int8s(keys.values().copied().collect());
    to.push(statement);
}

fn receipts(to: &mut Vec<Statement>, receipts: Vec<(i64, Receipt, Link)>) {
    if receipts.is_empty() {
        return;
    }
    let sql = "INSERT INTO receipt (tenant, seq, type, addressee, task, link, body)
               SELECT * FROM UNNEST($1::int8[], $2::int8[], $3::int2[], $4::bytea[], $5::int8[], $6::bytea[], $7::bytea[])";
    let all = || receipts.iter().map(|(_, receipt, _)| receipt);
    let types: Vec<i16> = all().map(|receipt| receipt.receipt_type as i16).collect();
    let task = |receipt: &Receipt| receipt.task_id.map(|id| id.seq().cast_signed());
    let tasks: Vec<Option<i64>> = all().map(task).collect();
    let statement = Statement::new(sql)
        .int8s(receipts.iter().map(|(tenant, ..)| *tenant).collect())
        .int8s(all().map(|receipt| receipt.seq().cast_signed()).collect())
        .with(types, Type::INT2_ARRAY)
        .bytes(
            all()
                .map(|receipt| pack::principal_key(&receipt.to.key()))
                .collect(),
        )
        .with(tasks, Type::INT8_ARRAY)
        .bytes(
            receipts
                .iter()
                .map(|(.., link)| link.as_bytes().to_vec())
                .collect(),
        )
        .bytes(all().map(pack::pack_receipt).collect());
    to.push(statement);
}

fn obligations(
    to: &mut Vec<Statement>,
    opened: BTreeSet<(i64, Vec<u8>, i64)>,
    closed: BTreeSet<(i64, Vec<u8>, i64)>,
) {
    let columns = |rows: BTreeSet<(i64, Vec<u8>, i64)>, sql: &str| {
        let (mut tenants, mut owners, mut seqs) = (Vec::new(), Vec::new(), Vec::new());
        for (tenant, owner, seq) in rows {
            tenants.push(tenant);
            owners.push(owner);
            seqs.push(seq);
        }
        let statement = Statement::new(sql).int8s(tenants);
        statement.bytes(owners).int8s(seqs)
    };
    if !closed.is_empty() {
        let sql = "DELETE FROM obligation AS o
                   USING UNNEST($1::int8[], $2::bytea[], $3::int8[]) AS k (tenant, owner, seq)
                   WHERE o.tenant = k.tenant AND o.owner = k.owner AND o.seq = k.seq";
        to.push(columns(closed, sql));
    }
    if !opened.is_empty() {
        let sql =
            "INSERT INTO obligation SELECT * FROM UNNEST($1::int8[], $2::bytea[], $3::int8[])";
        to.push(columns(opened, sql));
    }
}

fn deliveries(to: &mut Vec<Statement>, delivered: Vec<(i64, i64, i64)>) {
    if delivered.is_empty() {
        return;
    }
    let sql = "INSERT INTO delivery SELECT * FROM UNNEST($1::int8[], $2::int8[], $3::int8[]) ON CONFLICT DO NOTHING";
    let statement = Statement::new(sql)
        .int8s(delivered.iter().map(|row| row.0).collect())
        .int8s(delivered.iter().map(|row| row.1).collect())
        .int8s(delivered.iter().map(|row| row.2).collect());
    to.push(statement);
}

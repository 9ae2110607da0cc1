//! Reading back what the owner keeps in memory, after it has taken its shards.

use std::collections::BTreeSet;

use asyncgate_core::{TaskId, TenantId, Timestamp};
use asyncgate_store::Error;
use tokio_postgres::Row;

use crate::{
    ledgers::{Key, Ledgers, fixed},
    memory::Memory,
    pack::{self, damaged},
    session::{Deadlines, Session, Statement},
    table::{Stored, Table},
};

/// The deadlines of tasks, earliest first.
pub(crate) type Timers = BTreeSet<(Timestamp, TenantId, TaskId)>;

/// The tables of admission.
const GATE: [Table; 4] = [
    Table::Cell,
    Table::Revocation,
    Table::ClientTier,
    Table::Domain,
];

/// Reads everything into an empty memory. Returns the deadlines of tasks.
pub(crate) async fn restore(
    memory: &mut Memory,
    session: &Session,
    deadlines: Deadlines,
) -> Result<Timers, Error> {
    // All of it in one transaction and one round trip. Nothing changes meanwhile: the shards are taken.
    let mut questions = vec![
        Statement::new("SELECT coalesce(max(last_time), 0) FROM clock"),
        Ledgers::all(),
        Statement::new("SELECT tenant, seq, priority, weight, class, due, id FROM task_live"),
    ];
    let tables = [
        Table::Content,
        Table::Message,
        Table::Chain,
        Table::Record,
        Table::AuditLog,
        Table::Dispatch,
        Table::DispatchBody,
        Table::Counter,
    ];
    questions.extend(tables.into_iter().chain(GATE).map(Table::all));
    let answers = session.transact(deadlines, &questions).await;
    let answers = answers.map_err(|failure| failure.told())?;
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or_default();
    let last_time = next().first().map_or(0, |row| row.get(0));
    memory.last_time = Timestamp::from_millis(last_time);
    for row in next() {
        memory.ledgers.restore(&row)?;
    }
    let timers = restore_tasks(memory, &next())?;
    let (contents, standings, chains) = (next(), next(), next());
    memory.restore_mail(&contents, &standings, &chains)?;
    let (records, logs) = (next(), next());
    memory.restore_records(&records, &logs)?;
    let (states, bodies, counters) = (next(), next(), next());
    memory.restore_dispatches(&states, &bodies, &counters)?;
    for table in GATE {
        for row in next() {
            memory.restore_gate(table, &Stored::of(&row))?;
        }
    }
    Ok(timers)
}

fn restore_tasks(memory: &mut Memory, rows: &[Row]) -> Result<Timers, Error> {
    let mut timers = Timers::new();
    for row in rows {
        let key = Key {
            tenant: row.get(0),
            seq: row.get(1),
        };
        let class = pack::unpack_class(row.get(4))?;
        let weight = usize::try_from(row.get::<_, i64>(3)).unwrap_or_default();
        memory.ready.restore(key, class, row.get(2), weight);
        if let Some(due) = row.get::<_, Option<i64>>(5) {
            let tenant = memory.ledgers.id(key.tenant);
            let tenant = tenant.ok_or_else(|| damaged("a task has no tenant"))?;
            let id = TaskId::from_bytes(fixed(row, 6)?);
            timers.insert((Timestamp::from_millis(due), tenant, id));
        }
    }
    Ok(timers)
}

//! Checks that the indexes and counters of a file agree with its tasks.
//!
//! Each task is looked up where the indexes must have it, and counted. If an index then has another
//! number of rows than were counted, it is read until a row is found that no task confirms. So a good
//! file costs a few lookups a task, and nothing is kept in memory.

use std::result;

use asyncgate_core::{
    Placement, Task, TenantId,
    task::{State, Status},
};
use asyncgate_store::{Depths, Error};
use rusqlite::{Result, params, params_from_iter, types::Value};

use crate::{
    classes::Classes,
    codec::{self, Key, SEQ_BITS},
    db::Db,
    ledgers::{read_depths, read_tally},
    metering,
    reader::read_error,
    rows::task,
    schema,
    tasks::rank,
};

/// The number of tasks between two reports of progress.
const PAGE: usize = 1_000;

/// The first defect of a file, or the reason why it could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum Finding {
    /// The first thing that is not as it must be.
    #[error("{0}")]
    Wrong(String),
    /// The file cannot be read now.
    #[error(transparent)]
    Store(Error),
}

impl Finding {
    fn wrong(what: impl Into<String>) -> Self {
        Self::Wrong(what.into())
    }

    /// Adds the place where it was found.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        match self {
            Self::Wrong(what) => Self::Wrong(format!("{place}: {what}")),
            Self::Store(error) => Self::Store(error),
        }
    }
}

impl From<rusqlite::Error> for Finding {
    fn from(error: rusqlite::Error) -> Self {
        match read_error(&error) {
            Error::Corrupt(what) => Self::Wrong(what),
            error @ (Error::Busy | Error::Unavailable(_) | Error::Unknown(_) | Error::Conflict) => {
                Self::Store(error)
            }
        }
    }
}

/// A task with its place in the file.
struct Placed<'a> {
    tenant: i64,
    key: Key,
    task: &'a Task,
    classes: &'a Classes,
}

/// A table that follows from the tasks.
struct Index {
    name: &'static str,
    /// The table, or a part of one.
    rows: &'static str,
    /// The columns. The one at `task` holds the key of the task.
    columns: &'static [&'static str],
    task: usize,
    /// Returns the row that it must have for a task, if any.
    row: fn(&Placed<'_>) -> Option<Vec<Value>>,
}

const INDEXES: [Index; 5] = [
    Index {
        name: "ready",
        rows: "ready",
        columns: &["class", "rank", "task"],
        task: 2,
        row: |placed| match placed.task.placement() {
            Placement::Ready { priority, .. } => {
                let class = placed.classes.number(placed.tenant, &placed.task.class());
                Some(vec![
                    class.into(),
                    rank(priority).into(),
                    placed.key.0.into(),
                ])
            }
            Placement::Due { .. } | Placement::Ended => None,
        },
    },
    Index {
        name: "due",
        rows: "due",
        columns: &["at", "task"],
        task: 1,
        row: |placed| {
            let at = placed.task.placement().due()?;
            Some(vec![at.as_millis().into(), placed.key.0.into()])
        },
    },
    Index {
        name: "idempotency",
        rows: "idempotency",
        columns: &["tenant", "owner", "key", "task"],
        task: 3,
        row: |placed| {
            let key = placed.task.spec.idempotency_key.clone()?;
            Some(vec![
                placed.tenant.into(),
                owner(placed.task).into(),
                key.into(),
                placed.key.0.into(),
            ])
        },
    },
    // An obligation has the key of its assignment, and so has the task.
    Index {
        name: "obligation",
        rows: "obligation",
        columns: &["owner", "receipt"],
        task: 1,
        row: |placed| {
            let open = match &placed.task.state {
                State::Ended(end) => !end.discharged,
                State::Delayed | State::Ready | State::Leased(_) | State::Running(_) => true,
            };
            open.then(|| vec![owner(placed.task).into(), placed.key.0.into()])
        },
    },
    // Lists find the tasks of an owner by their assignments.
    Index {
        name: "assignments",
        rows: "(SELECT addressee, receipt FROM receipt WHERE type = 0)",
        columns: &["addressee", "receipt"],
        task: 1,
        row: |placed| Some(vec![owner(placed.task).into(), placed.key.0.into()]),
    },
];

fn owner(task: &Task) -> String {
    codec::principal_key(&task.created_by.key())
}

impl Index {
    fn has(&self, db: &Db, row: Vec<Value>) -> Result<bool> {
        let columns = self.columns.iter().zip(1..);
        let terms: Vec<String> = columns.map(|(name, n)| format!("{name} = ?{n}")).collect();
        let sql = format!("SELECT 1 FROM {} WHERE {}", self.rows, terms.join(" AND "));
        db.conn.prepare_cached(&sql)?.exists(params_from_iter(row))
    }

    /// Checks that it has no rows besides those that were counted.
    fn has_only(&self, db: &mut Db, counted: i64) -> result::Result<(), Finding> {
        let sql = format!("SELECT count(*) FROM {}", self.rows);
        let rows: i64 = db.conn.query_row(&sql, [], |row| row.get(0))?;
        if rows == counted {
            return Ok(());
        }
        let classes = Classes::load(db)?;
        for row in self.rows(db)? {
            let Value::Integer(key) = row[self.task] else {
                return Err(self.stray(&row, "it names no task"));
            };
            let (key, tenant) = (Key(key), key >> SEQ_BITS);
            let Some(task) = task::load(db, key)? else {
                return Err(self.stray(&row, "there is no such task"));
            };
            let placed = Placed {
                tenant,
                key,
                task: &task,
                classes: &classes,
            };
            if (self.row)(&placed).as_ref() != Some(&row) {
                let why = format!("the task {} should not have it", task.id);
                return Err(self.stray(&row, &why));
            }
        }
        // Every row is right, and every task has its row: only the number of rows is wrong.
        let what = format!("the index `{}` has {rows} rows, not {counted}", self.name);
        Err(Finding::Wrong(what))
    }

    fn rows(&self, db: &Db) -> Result<Vec<Vec<Value>>> {
        let sql = format!("SELECT {} FROM {}", self.columns.join(", "), self.rows);
        let read = |row: &rusqlite::Row<'_>| (0..self.columns.len()).map(|n| row.get(n)).collect();
        db.conn.prepare(&sql)?.query_map([], read)?.collect()
    }

    fn stray(&self, row: &[Value], why: &str) -> Finding {
        let place = if let Value::Integer(key) = row[self.task] {
            format!("place {}", Key(key).seq())
        } else {
            "no place".to_owned()
        };
        Finding::Wrong(format!("the index `{}`, row for {place}: {why}", self.name))
    }
}

/// The number of rows that each index must have, by the tasks that were seen.
#[derive(Debug, Default)]
pub(crate) struct Counted([i64; INDEXES.len()]);

/// Checks every task of a tenant: its row is whole, the indexes have it, `compare` does not object to it;
/// and the counters of the tenant are right.
pub(crate) fn tenant(
    db: &mut Db,
    counted: &mut Counted,
    id: TenantId,
    mut compare: impl FnMut(&Task) -> result::Result<(), String>,
    mut progress: impl FnMut(u64),
) -> result::Result<(), Finding> {
    let Some(tenant) = db.tenant(id)? else {
        return Ok(());
    };
    let classes = Classes::load(db)?;
    let (mut last, mut tasks) = (Key::new(tenant, 0), 0);
    let mut depths = Depths::default();
    loop {
        let keys = page(db, last, Key::end(tenant))?;
        for key in &keys {
            let unread = |found: Finding| {
                let place = format!("tenant {id}, the task that receipt {} assigned", key.seq());
                found.at(place)
            };
            let found = task::load(db, *key).map_err(|error| unread(error.into()))?;
            let task = found.ok_or_else(|| unread(Finding::wrong("its row is not there again")))?;
            let placed = Placed {
                tenant,
                key: *key,
                task: &task,
                classes: &classes,
            };
            look_up(db, counted, &placed)
                .and_then(|()| compare(&task).map_err(Finding::Wrong))
                .map_err(|found| found.at(format!("tenant {id}, task {}", task.id)))?;
            depths.count(None, task.status());
            tasks += 1;
            last = *key;
        }
        progress(tasks);
        if keys.len() < PAGE {
            break;
        }
    }
    check_counters(db, tenant, &depths).map_err(|found| found.at(format!("tenant {id}")))
}

fn page(db: &Db, after: Key, end: Key) -> Result<Vec<Key>> {
    let sql = "SELECT task FROM task WHERE task > ?1 AND task < ?2 ORDER BY task LIMIT ?3";
    let params = params![after.0, end.0, PAGE as i64];
    let mut select = db.conn.prepare_cached(sql)?;
    let keys = select.query_map(params, |row| row.get(0).map(Key))?;
    keys.collect()
}

fn look_up(db: &Db, counted: &mut Counted, placed: &Placed<'_>) -> result::Result<(), Finding> {
    if Key::new(placed.tenant, placed.task.id.seq()) != placed.key {
        return Err(Finding::wrong(format!(
            "its row stands at place {}",
            placed.key.seq()
        )));
    }
    for (index, counted) in INDEXES.iter().zip(&mut counted.0) {
        let Some(row) = (index.row)(placed) else {
            continue;
        };
        if !index.has(db, row)? {
            return Err(Finding::wrong(format!(
                "the index `{}` does not have it, or not as it stands",
                index.name
            )));
        }
        *counted += 1;
    }
    Ok(())
}

fn check_counters(db: &Db, tenant: i64, depths: &Depths) -> result::Result<(), Finding> {
    let stored = db.conn.query_row(
        "SELECT queued, leased, running, succeeded, failed, canceled FROM tenant WHERE tenant = ?1",
        [tenant],
        read_depths,
    )?;
    for status in Status::ALL {
        let (stored, counted) = (stored.of(status), depths.of(status));
        if stored != counted {
            return Err(Finding::wrong(format!(
                "the counter of {} tasks is {stored}, but there are {counted}",
                status.as_str()
            )));
        }
    }
    Ok(())
}

/// Checks the counts of what a tenant uses against those of whoever read all of its ledger. Of leases that have ended
/// nothing is left to count.
pub(crate) fn tally(
    db: &mut Db,
    id: TenantId,
    tasks_created: u64,
    receipt_bytes: u64,
) -> result::Result<(), Finding> {
    let Some(tenant) = db.tenant(id)? else {
        return Ok(());
    };
    if !schema::has_records(&db.conn)? {
        return Ok(());
    }
    let sql = "SELECT tasks_created, receipt_bytes, lease_balance FROM tenant WHERE tenant = ?1";
    let stored = db.conn.query_row(sql, [tenant], |row| read_tally(row, 0))?;
    for (what, stored, counted) in [
        ("tasks created", stored.tasks_created, tasks_created),
        ("bytes of receipts", stored.receipt_bytes, receipt_bytes),
    ] {
        if stored != counted {
            let what = format!("the counter of {what} is {stored}, but there are {counted}");
            return Err(Finding::Wrong(what).at(format!("tenant {id}")));
        }
    }
    metering::check(db, tenant).map_err(|found| found.at(format!("tenant {id}")))
}

/// Checks, after all tenants, that the indexes have no other rows.
pub(crate) fn nothing_else(db: &mut Db, counted: &Counted) -> result::Result<(), Finding> {
    for (index, counted) in INDEXES.iter().zip(counted.0) {
        index.has_only(db, counted)?;
    }
    Ok(())
}

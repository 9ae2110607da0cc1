//! Lists of tasks and receipts as ranges of indexes.
//!
//! A range is what an index holds together, in the order of the ledger: the tasks of an owner, the tasks of a type,
//! the receipts about a task. Each condition of a list is a range, and a list with several conditions walks along
//! all of them at once. The walk sees keys only: rows are read when it is known that they are returned.

use asyncgate_core::{PrincipalKey, ReceiptType, Seq, TaskId, task::Status};
use asyncgate_store::{ReceiptFilter, SeqPage, TaskFilter};
use rusqlite::{OptionalExtension, Params, Result, params};

use crate::{
    codec::{self, Key},
    db::Db,
    rows::task,
};

/// Indexes tell assignments from other receipts by this number.
const _: () = assert!(ReceiptType::TaskAssigned as i64 == 0);

/// Tasks that an index holds in the order of their creation. A new filter is a new range, or a condition that is checked
/// task by task, like a status that has no index.
#[derive(Debug)]
enum TaskRange {
    /// All tasks of the tenant.
    All,
    /// Those of an owner: they have the keys of the assignments in its inbox.
    Of(String),
    /// Those of an owner whose obligation is open. All tasks that have not ended are among them.
    OpenOf(String),
    /// Those of a type.
    Type(String),
    /// Those that failed or were canceled.
    Unsuccessful(Status),
}

impl TaskRange {
    /// Returns the newest task of the range before a key.
    fn newest(&self, db: &Db, tenant: i64, before: Key) -> Result<Option<Key>> {
        let (first, before) = (Key::new(tenant, 0).0, before.0);
        match self {
            Self::All => one(
                db,
                "SELECT task FROM task WHERE task > ?1 AND task < ?2 ORDER BY task DESC LIMIT 1",
                params![first, before],
            ),
            Self::Of(owner) => one(
                db,
                "SELECT receipt FROM receipt INDEXED BY receipt_addressee
                 WHERE addressee = ?3 AND (type = 0) = 1 AND receipt > ?1 AND receipt < ?2
                 ORDER BY receipt DESC LIMIT 1",
                params![first, before, owner],
            ),
            Self::OpenOf(owner) => one(
                db,
                "SELECT receipt FROM obligation
                 WHERE owner = ?3 AND receipt > ?1 AND receipt < ?2
                 ORDER BY receipt DESC LIMIT 1",
                params![first, before, owner],
            ),
            Self::Type(name) => one(
                db,
                "SELECT task FROM task INDEXED BY task_type
                 WHERE type = ?3 AND task > ?1 AND task < ?2 ORDER BY task DESC LIMIT 1",
                params![first, before, name],
            ),
            Self::Unsuccessful(status) => one(
                db,
                "SELECT task FROM task INDEXED BY task_unsuccessful
                 WHERE state > 4 AND state = ?3 AND task > ?1 AND task < ?2
                 ORDER BY task DESC LIMIT 1",
                params![first, before, task::ended_as(*status)],
            ),
        }
    }
}

fn one(db: &Db, sql: &str, params: impl Params) -> Result<Option<Key>> {
    db.conn
        .prepare_cached(sql)?
        .query_row(params, |row| row.get(0).map(Key))
        .optional()
}

/// A walk along the tasks that match a filter, newest first.
#[derive(Debug)]
pub(crate) struct Walk {
    tenant: i64,
    ranges: Vec<TaskRange>,
    /// The status, if no range has only tasks of this status.
    status: Option<Status>,
    before: Key,
}

/// A step of a walk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// This task matches.
    Found(Key),
    /// This task does not.
    Passed(Key),
    /// No more tasks match.
    End,
}

impl Walk {
    pub(crate) fn new(tenant: i64, filter: &TaskFilter) -> Self {
        let owner = filter.owner.as_ref().map(codec::principal_key);
        let (mut ranges, mut status) = (Vec::new(), filter.status);
        match (owner, status) {
            (Some(owner), Some(Status::Queued | Status::Leased | Status::Running)) => {
                ranges.push(TaskRange::OpenOf(owner));
            }
            (Some(owner), _) => ranges.push(TaskRange::Of(owner)),
            (None, _) => {}
        }
        ranges.extend(filter.task_type.clone().map(TaskRange::Type));
        if let Some(exact @ (Status::Failed | Status::Canceled)) = status {
            ranges.push(TaskRange::Unsuccessful(exact));
            status = None;
        }
        if ranges.is_empty() {
            ranges.push(TaskRange::All);
        }
        let before = filter.before.map(|id| Key::new(tenant, id.seq()));
        Self {
            tenant,
            ranges,
            status,
            before: before.unwrap_or(Key::end(tenant)),
        }
    }

    /// Looks at the next task of the first range. If another range does not have it, the walk goes on at the next task
    /// that this other range has.
    pub(crate) fn step(&mut self, db: &Db) -> Result<Step> {
        let [first, others @ ..] = &*self.ranges else {
            return Ok(Step::End);
        };
        let Some(key) = first.newest(db, self.tenant, self.before)? else {
            return Ok(Step::End);
        };
        for other in others {
            match other.newest(db, self.tenant, key.next())? {
                None => return Ok(Step::End),
                Some(older) if older < key => {
                    self.before = older.next();
                    return Ok(Step::Passed(key));
                }
                Some(_) => {}
            }
        }
        self.before = key;
        if let Some(wanted) = self.status
            && task::status(db, key)? != Some(wanted)
        {
            return Ok(Step::Passed(key));
        }
        Ok(Step::Found(key))
    }
}

/// Returns the keys of the receipts that match, in the order of the ledger.
pub(crate) fn receipts(
    db: &Db,
    tenant: i64,
    filter: &ReceiptFilter,
    page: SeqPage,
) -> Result<Vec<Key>> {
    let (after, end) = bounds(tenant, page.after);
    let limit = page.limit as i64;
    match filter {
        ReceiptFilter::To(principal) => inbox(db, principal, (after, end), page.limit),
        // A task has the key of its assignment.
        ReceiptFilter::Type(ReceiptType::TaskAssigned) => keys(
            db,
            "SELECT task FROM task WHERE task > ?1 AND task < ?2 ORDER BY task LIMIT ?3",
            params![after, end, limit],
        ),
        ReceiptFilter::Type(receipt_type) => keys(
            db,
            "SELECT receipt FROM receipt INDEXED BY receipt_type
             WHERE type > 0 AND type = ?4 AND receipt > ?1 AND receipt < ?2
             ORDER BY receipt LIMIT ?3",
            params![after, end, limit, *receipt_type as i64],
        ),
        ReceiptFilter::Task(id) => about(db, tenant, *id, page),
        ReceiptFilter::All => keys(
            db,
            "SELECT receipt FROM receipt WHERE receipt > ?1 AND receipt < ?2
             ORDER BY receipt LIMIT ?3",
            params![after, end, limit],
        ),
    }
}

/// Merges the two ranges of an inbox: assignments, and the rest.
fn inbox(
    db: &Db,
    principal: &PrincipalKey,
    (after, end): (i64, i64),
    limit: usize,
) -> Result<Vec<Key>> {
    let mut found = both_ranges(
        db,
        "SELECT receipt FROM receipt INDEXED BY receipt_addressee
         WHERE addressee = ?4 AND (type = 0) = ?5 AND receipt > ?1 AND receipt < ?2
         ORDER BY receipt LIMIT ?3",
        principal,
        (after, end),
        limit,
    )?;
    found.truncate(limit);
    Ok(found)
}

/// Returns the keys of the newest receipts of an inbox, in the order of the ledger.
pub(crate) fn newest_of_inbox(
    db: &Db,
    tenant: i64,
    principal: &PrincipalKey,
    limit: usize,
) -> Result<Vec<Key>> {
    let mut found = both_ranges(
        db,
        "SELECT receipt FROM receipt INDEXED BY receipt_addressee
         WHERE addressee = ?4 AND (type = 0) = ?5 AND receipt > ?1 AND receipt < ?2
         ORDER BY receipt DESC LIMIT ?3",
        principal,
        bounds(tenant, 0),
        limit,
    )?;
    found.drain(..found.len().saturating_sub(limit));
    Ok(found)
}

/// Returns the first keys of each range of an inbox, as a statement orders them, all in the order of the ledger.
fn both_ranges(
    db: &Db,
    sql: &str,
    principal: &PrincipalKey,
    (after, end): (i64, i64),
    limit: usize,
) -> Result<Vec<Key>> {
    let addressee = codec::principal_key(principal);
    let mut found = Vec::new();
    for is_assignment in [true, false] {
        let params = params![after, end, limit as i64, addressee, is_assignment];
        found.extend(keys(db, sql, params)?);
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the receipts about a task. Its id is looked at once, before them: another id with the same place is of no task,
/// and must not cost a look at all of them.
fn about(db: &Db, tenant: i64, id: TaskId, page: SeqPage) -> Result<Vec<Key>> {
    let key = Key::new(tenant, id.seq());
    if task::id(db, key)? != Some(id) {
        return Ok(Vec::new());
    }
    let (after, end) = bounds(tenant, page.after);
    keys(
        db,
        "SELECT receipt FROM receipt INDEXED BY receipt_task
         WHERE task = ?4 AND receipt > ?1 AND receipt < ?2 ORDER BY receipt LIMIT ?3",
        params![after, end, page.limit as i64, key.0],
    )
}

/// Returns the keys of a principal's open obligations, in the order of the ledger.
pub(crate) fn obligations(
    db: &Db,
    tenant: i64,
    owner: &PrincipalKey,
    page: SeqPage,
) -> Result<Vec<Key>> {
    let (after, end) = bounds(tenant, page.after);
    keys(
        db,
        "SELECT receipt FROM obligation WHERE owner = ?4 AND receipt > ?1 AND receipt < ?2
         ORDER BY receipt LIMIT ?3",
        params![after, end, page.limit as i64, codec::principal_key(owner)],
    )
}

/// Returns the keys between which the rows of a tenant after a place stand.
fn bounds(tenant: i64, after: Seq) -> (i64, i64) {
    (Key::new(tenant, after).0, Key::end(tenant).0)
}

fn keys(db: &Db, sql: &str, params: impl Params) -> Result<Vec<Key>> {
    db.conn
        .prepare_cached(sql)?
        .query_map(params, |row| row.get(0).map(Key))?
        .collect()
}

//! The outbox in the file. `turn` is 1 for what can be tried and 0 for what waits behind another or is dead.

use asyncgate_core::{
    TenantId, Timestamp,
    outbox::{Changes, Dispatch, NewDispatch, State},
};
use asyncgate_store::{
    Answer, Dispatches, Rows,
    outbox::{DispatchFilter, Outbox, OutboxLoad, Reads, Snapshot, fits},
};
use rusqlite::{OptionalExtension, Params, Result, Row, params};

use crate::{
    Finding, SqliteStore, codec::Columns, db::Db, rows::checksum::damaged, schema,
    transaction::Writable,
};

const SELECT: &str = "
    SELECT dispatch, tenant, destination, order_key, body, created_at, attempts, last_error,
           next_try_at, died_at
    FROM outbox";

fn read(row: &Row<'_>) -> Result<Dispatch> {
    let mut c = Columns::of(row);
    Ok(Dispatch {
        id: c.get::<i64>()?.unsigned_abs(),
        sent: NewDispatch {
            tenant: c.get::<Option<_>>()?.map(TenantId::from_bytes),
            destination: c.get()?,
            order_key: c.get()?,
            body: c.get::<Vec<u8>>()?.into(),
            created_at: c.time()?,
        },
        attempts: c.get()?,
        last_error: c.get()?,
        state: match (c.some_time()?, c.some_time()?) {
            (Some(next_try_at), None) => State::Pending { next_try_at },
            (None, Some(at)) => State::Dead { at },
            _ => return Err(damaged("a dispatch is neither pending nor dead")),
        },
    })
}

/// Reads dispatches, as many as fit into one answer.
fn query(db: &Db, sql: &str, params: impl Params) -> Result<Vec<Dispatch>> {
    let mut select = db.conn.prepare_cached(&format!("{SELECT} {sql}"))?;
    let mut rows = select.query(params)?;
    let (mut found, mut taken) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let dispatch = read(row)?;
        if !fits(&mut taken, &dispatch) {
            break;
        }
        found.push(dispatch);
    }
    Ok(found)
}

/// Adds dispatches, each behind those with its order key.
pub(crate) fn add(db: &Db, new: &[NewDispatch]) -> Result<()> {
    for sent in new {
        db.conn
            .prepare_cached(
                "INSERT INTO outbox (tenant, destination, order_key, body, created_at, attempts,
                                     next_try_at, turn)
                 VALUES (?1, ?2, ?3, ?4, ?5, 0, ?5, NOT EXISTS (
                     SELECT 1 FROM outbox INDEXED BY outbox_line
                     WHERE destination = ?2 AND order_key = ?3 AND died_at IS NULL))",
            )?
            .execute(params![
                sent.tenant.as_ref().map(TenantId::as_bytes),
                sent.destination,
                sent.order_key,
                &*sent.body,
                sent.created_at.as_millis(),
            ])?;
    }
    Ok(())
}

/// Lets the first of those with an order key be tried.
fn pass_on(db: &Db, destination: &str, order_key: Option<&str>) -> Result<()> {
    let Some(order_key) = order_key else {
        return Ok(());
    };
    db.conn
        .prepare_cached(
            "UPDATE outbox SET turn = 1 WHERE dispatch = (
                 SELECT min(dispatch) FROM outbox INDEXED BY outbox_line
                 WHERE destination = ?1 AND order_key = ?2 AND died_at IS NULL)",
        )?
        .execute(params![destination, order_key])?;
    Ok(())
}

fn change(db: &Db, dispatch: &Dispatch) -> Result<()> {
    let (next_try_at, died_at) = match dispatch.state {
        State::Pending { next_try_at } => (Some(next_try_at), None),
        State::Dead { at } => (None, Some(at)),
    };
    let sent = &dispatch.sent;
    db.conn
        .prepare_cached(
            "UPDATE outbox SET attempts = ?2, last_error = ?3, next_try_at = ?4, died_at = ?5, turn = ?6
             WHERE dispatch = ?1",
        )?
        .execute(params![
            dispatch.id as i64,
            dispatch.attempts,
            dispatch.last_error,
            next_try_at.map(Timestamp::as_millis),
            died_at.map(Timestamp::as_millis),
            // One with an order key gets its turn below, if it is the first.
            died_at.is_none() && sent.order_key.is_none(),
        ])?;
    pass_on(db, &sent.destination, sent.order_key.as_deref())
}

fn remove(db: &Db, id: u64) -> Result<()> {
    let line: Option<(String, Option<String>)> = db
        .conn
        .prepare_cached("DELETE FROM outbox WHERE dispatch = ?1 RETURNING destination, order_key")?
        .query_row([id as i64], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match line {
        Some((destination, order_key)) => pass_on(db, &destination, order_key.as_deref()),
        None => Ok(()),
    }
}

impl Rows<Dispatches> for Writable {
    fn load(&mut self, _: TenantId, reads: &Reads, now: Timestamp) -> Result<Snapshot> {
        let sql = "INDEXED BY outbox_due WHERE turn = 1 AND next_try_at <= ?1
                   ORDER BY next_try_at, dispatch LIMIT ?2";
        let mut snapshot = Snapshot {
            due: query(&self.db, sql, params![now.as_millis(), reads.due as i64])?,
            dispatches: Vec::new(),
        };
        for id in &reads.dispatches {
            let found = query(&self.db, "WHERE dispatch = ?1", [*id as i64])?;
            snapshot.dispatches.extend(found);
        }
        Ok(snapshot)
    }

    fn apply(&mut self, _: TenantId, changes: &Changes) -> Result<()> {
        for id in &changes.gone {
            remove(&self.db, *id)?;
        }
        for dispatch in &changes.changed {
            change(&self.db, dispatch)?;
        }
        add(&self.db, &changes.new)
    }
}

impl Outbox for SqliteStore {
    fn next_try(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(|db| {
            let earliest: Option<i64> = db
                .conn
                .prepare_cached("SELECT min(next_try_at) FROM outbox WHERE turn = 1")?
                .query_row([], |row| row.get(0))?;
            Ok(earliest.map(Timestamp::from_millis))
        })
    }

    fn dispatches(&self, filter: DispatchFilter) -> Answer<'_, Vec<Dispatch>> {
        self.read(move |db| {
            let sql = if filter.dead {
                "INDEXED BY outbox_dead WHERE died_at IS NOT NULL AND dispatch > ?1
                 ORDER BY dispatch LIMIT ?2"
            } else {
                "WHERE died_at IS NULL AND dispatch > ?1 ORDER BY dispatch LIMIT ?2"
            };
            query(db, sql, params![filter.after as i64, filter.limit as i64])
        })
    }

    fn outbox_load(&self) -> Answer<'_, OutboxLoad> {
        self.read(|db| {
            let sql = "SELECT count(*), count(died_at) FROM outbox";
            let (all, dead): (i64, i64) = db
                .conn
                .prepare_cached(sql)?
                .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(OutboxLoad {
                pending: (all - dead).unsigned_abs(),
                dead: dead.unsigned_abs(),
            })
        })
    }
}

/// Checks that whatever has the turn should have it, and nothing else.
pub(crate) fn check(db: &Db) -> std::result::Result<(), Finding> {
    if !schema::has_records(&db.conn)? {
        return Ok(());
    }
    let wrong: Option<i64> = db
        .conn
        .prepare(
            "SELECT dispatch FROM outbox o WHERE turn <> (died_at IS NULL AND (order_key IS NULL
                 OR dispatch = (SELECT min(l.dispatch) FROM outbox l
                     WHERE l.destination = o.destination AND l.order_key = o.order_key
                         AND l.died_at IS NULL)))
             LIMIT 1",
        )?
        .query_row([], |row| row.get(0))
        .optional()?;
    match wrong {
        Some(dispatch) => Err(Finding::Wrong(format!(
            "dispatch {dispatch} of the outbox is not where its turn says"
        ))),
        None => Ok(()),
    }
}

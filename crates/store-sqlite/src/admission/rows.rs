//! The cells: rows from which admission decides.
//!
//! `until` says how long a row matters, and changes with almost every decision. `look` says when to check whether the row
//! may go; only that is indexed, and it changes only by such a check. So a decision about a known row writes one row and no
//! index.

use asyncgate_core::{
    Timestamp,
    admission::{Cell, Name, Row},
};
use rusqlite::{OptionalExtension, Result, params};

use crate::{db::Db, rows::checksum::damaged};

pub(super) fn find(db: &Db, tenant: i64, name: Name) -> Result<Option<Row>> {
    db.conn
        .prepare_cached("SELECT sort, a, b, c, until FROM cell WHERE tenant = ?1 AND name = ?2")?
        .query_row(params![tenant, name.to_bytes()], |row| {
            Ok(Row {
                cell: cell(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)?,
                until: Timestamp::from_millis(row.get(4)?),
            })
        })
        .optional()
}

/// Returns true if there is such a row, whatever it holds.
pub(super) fn is_known(db: &Db, tenant: i64, name: Name) -> Result<bool> {
    db.conn
        .prepare_cached("SELECT 1 FROM cell WHERE tenant = ?1 AND name = ?2")?
        .exists(params![tenant, name.to_bytes()])
}

pub(super) fn write(db: &Db, tenant: i64, name: Name, row: &Row) -> Result<()> {
    let (sort, a, b, c) = columns(row.cell);
    let until = row.until.as_millis();
    let look = (until != i64::MAX).then_some(until);
    db.conn
        .prepare_cached(
            "INSERT INTO cell (tenant, name, sort, a, b, c, until, look)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT DO UPDATE SET sort = ?3, a = ?4, b = ?5, c = ?6, until = ?7",
        )?
        .execute(params![tenant, name.to_bytes(), sort, a, b, c, until, look])?;
    Ok(())
}

/// Looks at up to `limit` rows that may go by now. Those that still matter are looked at again later. Returns how many went.
pub(super) fn forget(db: &Db, now: Timestamp, limit: usize) -> Result<i64> {
    let now = now.as_millis();
    let due: Vec<(i64, [u8; 16], i64)> = db
        .conn
        .prepare_cached(
            "SELECT tenant, name, until FROM cell WHERE look <= ?1 ORDER BY look LIMIT ?2",
        )?
        .query_map(params![now, limit as i64], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<Result<_>>()?;
    let mut gone = 0;
    for (tenant, name, until) in due {
        if until <= now {
            gone += 1;
            db.conn
                .prepare_cached("DELETE FROM cell WHERE tenant = ?1 AND name = ?2")?
                .execute(params![tenant, name])?;
        } else {
            db.conn
                .prepare_cached("UPDATE cell SET look = until WHERE tenant = ?1 AND name = ?2")?
                .execute(params![tenant, name])?;
        }
    }
    Ok(gone)
}

/// Returns how many rows there are. The number is kept up to date with each commit.
pub(super) fn count(db: &mut Db) -> Result<u64> {
    let count: i64 = db
        .conn
        .prepare_cached("SELECT cells FROM clock")?
        .query_row([], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

const fn columns(cell: Cell) -> (i64, i64, i64, i64) {
    match cell {
        Cell::Nonce { first_seen } => (1, first_seen, 0, 0),
        Cell::Window { count } => (2, count.cast_signed(), 0, 0),
        Cell::Bucket { level, unit, at } => (3, level, unit.cast_signed(), at),
        Cell::Delay { counter, timer } => (4, counter.cast_signed(), timer, 0),
    }
}

fn cell(sort: i64, a: i64, b: i64, c: i64) -> Result<Cell> {
    match sort {
        1 => Ok(Cell::Nonce { first_seen: a }),
        2 => Ok(Cell::Window {
            count: a.cast_unsigned(),
        }),
        3 => Ok(Cell::Bucket {
            level: a,
            unit: b.cast_unsigned(),
            at: c,
        }),
        4 => Ok(Cell::Delay {
            counter: a.cast_unsigned(),
            timer: b,
        }),
        _ => Err(damaged("a row of admission has no known sort")),
    }
}

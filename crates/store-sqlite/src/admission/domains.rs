//! The rows of domains.

use asyncgate_core::admission::{DomainState, Progress};
use rusqlite::{OptionalExtension, Result, params};

use crate::db::Db;

pub(super) fn find(db: &Db, hash: &[u8; 32]) -> Result<Option<DomainState>> {
    db.conn
        .prepare_cached("SELECT counter, timer, disabled FROM domain WHERE hash = ?1")?
        .query_row([hash], |row| {
            Ok(DomainState {
                progress: Progress {
                    counter: row.get::<_, i64>(0)?.cast_unsigned(),
                    timer: row.get(1)?,
                },
                disabled: row.get(2)?,
            })
        })
        .optional()
}

pub(super) fn write(db: &Db, hash: &[u8; 32], state: DomainState) -> Result<()> {
    let Progress { counter, timer } = state.progress;
    db.conn
        .prepare_cached("INSERT OR REPLACE INTO domain VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![hash, counter.cast_signed(), timer, state.disabled])?;
    Ok(())
}

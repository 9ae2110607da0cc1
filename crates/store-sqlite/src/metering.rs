//! Usage events in the file. Their keys pack the tenant and the event's place.

use std::result;

use asyncgate_core::{
    Seq, UsageEventId,
    metering::{Metered, Metering, UsageEvent, Used},
};
use rusqlite::{Params, Result, Row, params};

use crate::{
    Finding,
    codec::{Columns, Key},
    db::Db,
    rows::checksum::{Cells, Checksum},
    schema,
};

const SELECT: &str = "
    SELECT event, event_id, since, until, receipt_bytes,
           tasks_created, lease_seconds, byte_seconds, api_calls,
           total_tasks_created, total_lease_seconds, total_byte_seconds, total_api_calls, sum
    FROM usage_event";

fn read(row: &Row<'_>) -> Result<UsageEvent> {
    let mut c = Columns::of(row);
    let key = Key(c.get()?);
    c.begin_checksum(Checksum::new(key));
    let event = UsageEvent {
        id: UsageEventId::from_bytes(c.get()?),
        seq: key.seq(),
        since: c.some_time()?,
        until: c.time()?,
        receipt_bytes: number(&mut c)?,
        used: read_used(&mut c)?,
        total: read_used(&mut c)?,
    };
    let (sum, stored) = c.end_checksum()?;
    sum.check(stored)?;
    Ok(event)
}

fn read_used(c: &mut Columns<'_>) -> Result<Used> {
    Ok(Used {
        tasks_created: number(c)?,
        lease_seconds: number(c)?,
        receipt_byte_seconds: number(c)?,
        api_calls: number(c)?,
    })
}

/// Columns hold the bits of numbers without a sign.
fn number(c: &mut Columns<'_>) -> Result<u64> {
    Ok(c.get::<i64>()?.cast_unsigned())
}

fn query(db: &Db, sql: &str, params: impl Params) -> Result<Vec<UsageEvent>> {
    let mut select = db.conn.prepare_cached(&format!("{SELECT} {sql}"))?;
    select.query_map(params, read)?.collect()
}

/// Returns events before a place, the newest first.
pub(crate) fn newest(
    db: &Db,
    tenant: i64,
    before: Option<Seq>,
    limit: usize,
) -> Result<Vec<UsageEvent>> {
    let end = before.map_or(Key::end(tenant), |before| Key::new(tenant, before));
    let sql = "WHERE event > ?1 AND event < ?2 ORDER BY event DESC LIMIT ?3";
    query(db, sql, params![Key::new(tenant, 0).0, end.0, limit as i64])
}

fn after(db: &Db, tenant: i64, seq: Seq, limit: usize) -> Result<Vec<UsageEvent>> {
    let sql = "WHERE event > ?1 AND event < ?2 ORDER BY event LIMIT ?3";
    let (from, end) = (Key::new(tenant, seq), Key::end(tenant));
    query(db, sql, params![from.0, end.0, limit as i64])
}

/// Returns the last event, and some of the oldest.
pub(crate) fn metered(db: &Db, tenant: i64, oldest: usize) -> Result<Metered> {
    Ok(Metered {
        last: newest(db, tenant, None, 1)?.pop(),
        oldest: after(db, tenant, 0, oldest)?,
    })
}

/// Adds an event, and forgets the oldest.
pub(crate) fn add(db: &Db, tenant: i64, metering: &Metering) -> Result<()> {
    if metering.forget_through > 0 {
        let through = Key::new(tenant, metering.forget_through);
        db.conn
            .prepare_cached("DELETE FROM usage_event WHERE event > ?1 AND event <= ?2")?
            .execute([Key::new(tenant, 0).0, through.0])?;
    }
    let event = &metering.event;
    let mut insert = db.conn.prepare_cached(
        "INSERT INTO usage_event VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    let mut cells = Cells::new(&mut insert, Key::new(tenant, event.seq))?;
    cells.put(event.id.as_bytes())?;
    cells.put(event.since.map(asyncgate_core::Timestamp::as_millis))?;
    cells.put_time(event.until)?;
    cells.put(event.receipt_bytes.cast_signed())?;
    for used in [&event.used, &event.total] {
        cells.put(used.tasks_created.cast_signed())?;
        cells.put(used.lease_seconds.cast_signed())?;
        cells.put(used.receipt_byte_seconds.cast_signed())?;
        cells.put(used.api_calls.cast_signed())?;
    }
    cells.seal()?;
    cells.execute()
}

/// Checks that the events of a tenant follow one another without a gap, each with the total of the one before it and
/// what was used since.
pub(crate) fn check(db: &Db, tenant: i64) -> result::Result<(), Finding> {
    const PAGE: usize = 1_000;
    if !schema::has_usage_events(&db.conn)? {
        return Ok(());
    }
    let mut last: Option<UsageEvent> = None;
    loop {
        let page = after(db, tenant, last.map_or(0, |last| last.seq), PAGE)?;
        for event in &page {
            let follows = last.is_none_or(|last| {
                event.seq == last.seq + 1
                    && event.since == Some(last.until)
                    && event.total == last.total.plus(&event.used)
            });
            if !follows {
                let what = format!(
                    "usage event {} does not follow from the one before it",
                    event.seq
                );
                return Err(Finding::Wrong(what));
            }
            last = Some(*event);
        }
        if page.len() < PAGE {
            return Ok(());
        }
    }
}

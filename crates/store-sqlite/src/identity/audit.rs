//! The rows of audit logs.

use std::net::IpAddr;

use asyncgate_core::{
    AuditId, Link, PrincipalKey, Seq, TenantId, Timestamp,
    identity::audit::{Draft, Entry, Event, Log, Place, Severity},
};
use asyncgate_store::identity::{AuditFilter, AuditPage};
use rusqlite::{OptionalExtension, Result, Row, params};

use super::SERVER;
use crate::{
    codec::{self, Columns, Key},
    db::Db,
    rows::checksum::damaged,
};

/// Returns a log; an empty one if nothing was ever written to it.
pub(super) fn log(db: &Db, number: i64) -> Result<Log> {
    let found = db
        .conn
        .prepare_cached(
            "SELECT seq, link, at, cut_seq, cut_link, cut_at FROM audit_log WHERE tenant = ?1",
        )?
        .query_row([number], |row| read_log(row, 0))
        .optional()?;
    Ok(found.unwrap_or_default())
}

/// Reads a log from six columns, of which the first is number `first`.
fn read_log(row: &Row<'_>, first: usize) -> Result<Log> {
    let place = |first: usize| -> Result<Place> {
        Ok(Place {
            seq: row.get::<_, i64>(first)?.unsigned_abs(),
            link: Link::from_bytes(row.get(first + 1)?),
            at: Timestamp::from_millis(row.get(first + 2)?),
        })
    };
    Ok(Log {
        head: place(first)?,
        cut: place(first + 3)?,
    })
}

/// Writes where a log ends and begins.
pub(super) fn save(db: &Db, number: i64, log: &Log) -> Result<()> {
    let Log { head, cut } = log;
    db.conn
        .prepare_cached(
            "INSERT OR REPLACE INTO audit_log
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, (SELECT at FROM audit WHERE audit = ?8))",
        )?
        .execute(params![
            number,
            head.seq as i64,
            head.link.as_bytes(),
            head.at.as_millis(),
            cut.seq as i64,
            cut.link.as_bytes(),
            cut.at.as_millis(),
            Key::new(number, cut.seq + 1).0,
        ])?;
    Ok(())
}

pub(super) fn insert(db: &Db, number: i64, entry: &Entry) -> Result<()> {
    let said = &entry.said;
    let principal = said.principal.as_ref();
    db.conn
        .prepare_cached(
            "INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            Key::new(number, entry.seq).0,
            said.id.as_bytes(),
            said.at.as_millis(),
            said.event as i64,
            said.severity as i64,
            principal.map(|principal| codec::kind_letter(principal.kind).to_string()),
            principal.map(|principal| &*principal.id),
            said.ip.map(|ip| ip.to_string()),
            said.user_agent,
            said.reason,
            said.corr_id,
            said.details.text(),
            entry.link.as_bytes(),
        ])?;
    Ok(())
}

const SELECT: &str = "
    SELECT audit, audit_id, at, event, severity, principal_kind, principal_id, ip, user_agent,
           reason, corr_id, details, link
    FROM audit";

fn read(row: &Row<'_>, tenant: Option<TenantId>) -> Result<Entry> {
    let mut c = Columns::of(row);
    let seq = c.get().map(Key)?.seq();
    let id = c.get().map(AuditId::from_bytes)?;
    let at = c.time()?;
    let event = Event::ALL.get(usize::from(c.get::<u8>()?)).copied();
    let severity = Severity::ALL.get(usize::from(c.get::<u8>()?)).copied();
    let principal = match (c.get::<Option<String>>()?, c.get::<Option<String>>()?) {
        (Some(kind), Some(id)) => {
            let kind = kind.chars().next().and_then(codec::read_kind);
            Some(PrincipalKey {
                kind: kind.ok_or_else(|| damaged("a principal is of no known kind"))?,
                id: id.into(),
            })
        }
        (None, None) => None,
        _ => return Err(damaged("half of a principal is missing")),
    };
    let ip: Option<String> = c.get()?;
    let ip: Option<std::result::Result<IpAddr, _>> = ip.map(|ip| ip.parse());
    Ok(Entry {
        seq,
        said: Draft {
            id,
            tenant,
            at,
            event: event.ok_or_else(|| damaged("an event is of no known kind"))?,
            severity: severity.ok_or_else(|| damaged("a severity is none that is known"))?,
            principal,
            ip: ip
                .transpose()
                .map_err(|_| damaged("an address cannot be read"))?,
            user_agent: c.get()?,
            reason: c.get()?,
            corr_id: c.get()?,
            details: {
                let details = c.json()?;
                c.must(details)?
            },
        },
        link: Link::from_bytes(c.get()?),
    })
}

/// Returns entries after a place, the oldest first.
pub(super) fn after(
    db: &Db,
    (tenant, number): (Option<TenantId>, i64),
    after: Seq,
    limit: usize,
) -> Result<Vec<Entry>> {
    let sql = format!("{SELECT} WHERE audit > ?1 AND audit < ?2 ORDER BY audit LIMIT ?3");
    let params = params![Key::new(number, after).0, Key::end(number).0, limit as i64];
    let mut select = db.conn.prepare_cached(&sql)?;
    let entries = select.query_map(params, |row| read(row, tenant))?;
    entries.collect()
}

/// Removes the entries after one place, up to and including another.
pub(super) fn forget(db: &Db, number: i64, (after, through): (Seq, Seq)) -> Result<()> {
    db.conn
        .prepare_cached("DELETE FROM audit WHERE audit > ?1 AND audit <= ?2")?
        .execute([Key::new(number, after).0, Key::new(number, through).0])?;
    Ok(())
}

/// Returns entries that match, newest first.
pub(super) fn page(db: &Db, number: i64, filter: &AuditFilter) -> Result<AuditPage> {
    let log = log(db, number)?;
    let mut end = log.head.seq + 1;
    if let Some(until) = filter.until {
        end = first_from(db, number, &log, until.plus_millis(1))?;
    }
    let end = filter.before.map_or(end, |before| before.min(end));
    let begin = match filter.since {
        Some(since) => first_from(db, number, &log, since)?,
        None => log.cut.seq + 1,
    };
    let looks_at = filter.looks_at();
    let entries = look(db, number, filter, (begin, end), looks_at)?;
    let exhausted = entries.len() < looks_at;
    let (mut page, mut last) = (AuditPage::default(), None);
    for entry in entries {
        if page.entries.len() == filter.limit {
            page.next = page.entries.last().map(|entry| entry.seq);
            return Ok(page);
        }
        last = Some(entry.seq);
        if filter.matches(&entry) {
            page.entries.push(entry);
        }
    }
    page.next = last.filter(|_| !exhausted);
    Ok(page)
}

/// Looks at entries between two places, newest first, by the index that leaves the fewest.
fn look(
    db: &Db,
    number: i64,
    filter: &AuditFilter,
    (begin, end): (Seq, Seq),
    limit: usize,
) -> Result<Vec<Entry>> {
    let (from, to) = (Key::new(number, begin).0, Key::new(number, end).0);
    let limit = limit as i64;
    let query = |index: &str, term: &str, value: &dyn rusqlite::ToSql| {
        let sql = format!(
            "{SELECT} {index} WHERE audit >= ?1 AND audit < ?2 AND {term} ORDER BY audit DESC LIMIT ?3"
        );
        let mut select = db.conn.prepare_cached(&sql)?;
        let params = params![from, to, limit, value];
        let entries = select.query_map(params, |row| read(row, filter.tenant))?;
        entries.collect()
    };
    if let Some(principal) = &filter.principal_id {
        return query("INDEXED BY audit_principal", "principal_id = ?4", principal);
    }
    if let Some(event) = filter.event {
        return query("INDEXED BY audit_event", "event = ?4", &(event as i64));
    }
    match filter.severity {
        // Most entries are of the least severity, so an index of those would find nothing quicker.
        None | Some(Severity::Info) => query("NOT INDEXED", "?4 IS NULL", &rusqlite::types::Null),
        Some(severity) => {
            let term = "severity = ?4 AND severity > 0";
            query("INDEXED BY audit_severity", term, &(severity as i64))
        }
    }
}

/// Returns the place of the first entry at or after a time. Times never run back in a log, so it is found by halves.
fn first_from(db: &Db, number: i64, log: &Log, time: Timestamp) -> Result<Seq> {
    let (mut low, mut high) = (log.cut.seq + 1, log.head.seq + 1);
    let mut select = db
        .conn
        .prepare_cached("SELECT at FROM audit WHERE audit = ?1")?;
    while low < high {
        let middle = low + (high - low) / 2;
        let at = select.query_row([Key::new(number, middle).0], |row| row.get(0));
        if at.map(Timestamp::from_millis)? < time {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Returns the logs that have entries from before a time.
pub(super) fn from_before(db: &Db, time: Timestamp, limit: usize) -> Result<Vec<Option<TenantId>>> {
    db.conn
        .prepare_cached(
            "SELECT t.tenant_id FROM audit_log l LEFT JOIN tenant t ON t.tenant = l.tenant
             WHERE l.oldest_at < ?1 ORDER BY l.oldest_at LIMIT ?2",
        )?
        .query_map(params![time.as_millis(), limit as i64], |row| {
            Ok(row.get::<_, Option<[u8; 16]>>(0)?.map(TenantId::from_bytes))
        })?
        .collect()
}

/// A log as the file has it.
pub(super) struct Stored {
    pub(super) number: i64,
    pub(super) tenant: Option<TenantId>,
    pub(super) log: Log,
    pub(super) oldest_at: Option<Timestamp>,
}

/// Returns all logs.
pub(super) fn logs(db: &Db) -> Result<Vec<Stored>> {
    let mut select = db.conn.prepare(
        "SELECT l.seq, l.link, l.at, l.cut_seq, l.cut_link, l.cut_at, l.tenant, l.oldest_at, t.tenant_id
         FROM audit_log l LEFT JOIN tenant t ON t.tenant = l.tenant ORDER BY l.tenant",
    )?;
    let logs = select.query_map([], |row| {
        let number = row.get(6)?;
        let tenant: Option<[u8; 16]> = row.get(8)?;
        if tenant.is_none() && number != SERVER {
            return Err(damaged("the tenant of an audit log is not there"));
        }
        Ok(Stored {
            number,
            tenant: tenant.map(TenantId::from_bytes),
            log: read_log(row, 0)?,
            oldest_at: row.get::<_, Option<i64>>(7)?.map(Timestamp::from_millis),
        })
    })?;
    logs.collect()
}

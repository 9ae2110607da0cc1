//! The check that records are found by what they say, and that audit logs are whole.

use std::result;

use asyncgate_core::identity::audit::LogCheck;

use super::{audit, records};
use crate::{Finding, db::Db, schema};

/// The number of rows that are read at a time.
const PAGE: usize = 1_000;

/// The number of rows of identity that were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identities {
    /// Records.
    pub records: u64,
    /// Entries of audit logs.
    pub entries: u64,
}

/// Checks every record and every audit log. `progress` is given the number of rows so far.
pub(crate) fn all(db: &Db, mut progress: impl FnMut(u64)) -> result::Result<Identities, Finding> {
    let mut checked = Identities::default();
    if !schema::has_records(&db.conn)? {
        return Ok(checked);
    }
    let mut after = None;
    loop {
        // A record that is not whole, or is not found by what it says, cannot be read.
        let page = records::all(db, after, PAGE)?;
        checked.records += page.len() as u64;
        progress(checked.records);
        after = page.last().map(|record| record.key());
        if page.len() < PAGE {
            break;
        }
    }
    for stored in audit::logs(db)? {
        let name = match stored.tenant {
            Some(tenant) => format!("the audit log of tenant {tenant}"),
            None => "the audit log of the server".to_owned(),
        };
        log(db, &stored, &mut checked, &mut progress).map_err(|found| found.at(name))?;
    }
    let sql = "SELECT count(*) FROM audit";
    let rows: i64 = db.conn.query_row(sql, [], |row| row.get(0))?;
    if rows.unsigned_abs() != checked.entries {
        let what = format!(
            "{rows} audit entries are stored, {} of them in logs",
            checked.entries
        );
        return Err(Finding::Wrong(what));
    }
    Ok(checked)
}

fn log(
    db: &Db,
    stored: &audit::Stored,
    checked: &mut Identities,
    progress: &mut impl FnMut(u64),
) -> result::Result<(), Finding> {
    let wrong = |what: &str| Finding::Wrong(what.to_owned());
    let mut check = LogCheck::new(stored.log);
    let mut after = stored.log.cut.seq;
    let mut oldest_at = None;
    loop {
        let log = (stored.tenant, stored.number);
        let page = audit::after(db, log, after, PAGE)?;
        for entry in &page {
            let broken = |what| wrong(what).at(format!("entry {}", entry.seq));
            check.push(entry).map_err(broken)?;
            oldest_at = oldest_at.or(Some(entry.said.at));
            after = entry.seq;
        }
        checked.entries += page.len() as u64;
        progress(checked.records + checked.entries);
        if page.len() < PAGE {
            break;
        }
    }
    check.finish().map_err(wrong)?;
    if stored.oldest_at != oldest_at {
        return Err(wrong("the time of its oldest entry is not as it stands"));
    }
    Ok(())
}

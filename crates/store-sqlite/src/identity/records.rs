//! The rows of records: their text, and beside it what they are looked for by.

use asyncgate_core::{
    RecordId, TenantId, Timestamp,
    identity::{ApiKey, Find, Record, RecordKey, RecordKind},
};
use asyncgate_store::identity::{Owner, PLATFORM_KEYS, RecordFilter};
use rusqlite::{OptionalExtension, Params, Result, Row, params};

use crate::{
    codec::{self, Columns, Key},
    db::Db,
    rows::checksum::{Cells, Checksum, damaged},
};

/// The columns by which a record is found. They follow from the record.
#[derive(Debug, PartialEq, Eq)]
struct FoundBy {
    id: [u8; 16],
    tenant: [u8; 16],
    name: Option<String>,
    principal: Option<String>,
    forget_at: Option<i64>,
    platform_until: Option<i64>,
}

impl FoundBy {
    fn of(record: &Record) -> Self {
        Self {
            id: *record.key().id.as_bytes(),
            tenant: *record.tenant().as_bytes(),
            name: record.name(),
            principal: record.principal().map(codec::principal_key),
            forget_at: record.forget_at().map(Timestamp::as_millis),
            platform_until: record.platform_until().map(Timestamp::as_millis),
        }
    }
}

const SELECT: &str =
    "SELECT kind, id, tenant, name, principal, forget_at, platform_until, body, sum FROM record";

/// The checksum covers the id, and begins with the kind, so that no row can stand for another.
const fn checksum_key(kind: RecordKind) -> Key {
    Key(kind as i64)
}

fn read(row: &Row<'_>) -> Result<Record> {
    let mut c = Columns::of(row);
    let kind = RecordKind::ALL.get(usize::from(c.get::<u8>()?)).copied();
    let kind = kind.ok_or_else(|| damaged("a record is of no known kind"))?;
    c.begin_checksum(Checksum::new(checksum_key(kind)));
    let found_by = FoundBy {
        id: c.get()?,
        tenant: c.get()?,
        name: c.get()?,
        principal: c.get()?,
        forget_at: c.get()?,
        platform_until: c.get()?,
    };
    let body: String = c.get()?;
    let (sum, stored) = c.end_checksum()?;
    sum.check(stored)?;
    let record = Record::from_text(&body).map_err(|_| damaged("a record cannot be read"))?;
    if record.key().kind != kind || FoundBy::of(&record) != found_by {
        return Err(damaged("a record is found by what it does not say"));
    }
    Ok(record)
}

pub(super) fn put(db: &Db, record: &Record) -> Result<()> {
    let found_by = FoundBy::of(record);
    let body = record
        .to_text()
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    // A name that another record has is an error, not a reason to replace that record.
    let mut insert = db.conn.prepare_cached(
        "INSERT INTO record (kind, id, tenant, name, principal, forget_at, platform_until, body, sum)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (kind, id) DO UPDATE SET
             tenant = excluded.tenant, name = excluded.name, principal = excluded.principal,
             forget_at = excluded.forget_at, platform_until = excluded.platform_until,
             body = excluded.body, sum = excluded.sum",
    )?;
    let mut cells = Cells::new(&mut insert, checksum_key(record.key().kind))?;
    cells.put(found_by.id)?;
    cells.put(found_by.tenant)?;
    cells.put(found_by.name)?;
    cells.put(found_by.principal)?;
    cells.put(found_by.forget_at)?;
    cells.put(found_by.platform_until)?;
    cells.put(body)?;
    cells.seal()?;
    cells.execute()
}

pub(super) fn remove(db: &Db, key: RecordKey) -> Result<()> {
    db.conn
        .prepare_cached("DELETE FROM record WHERE kind = ?1 AND id = ?2")?
        .execute(params![key.kind as i64, key.id.as_bytes()])?;
    Ok(())
}

pub(super) fn find(db: &Db, find: &Find) -> Result<Option<Record>> {
    match find {
        Find::Id { key, within } => {
            let found = get(db, *key)?;
            let is_there =
                |record: &Record| within.is_none_or(|tenant: TenantId| tenant == record.tenant());
            Ok(found.filter(is_there))
        }
        Find::Name { kind, name } => {
            let sql = format!("{SELECT} INDEXED BY record_name WHERE kind = ?1 AND name = ?2");
            let params = params![*kind as i64, name];
            db.conn
                .prepare_cached(&sql)?
                .query_row(params, read)
                .optional()
        }
    }
}

pub(super) fn get(db: &Db, key: RecordKey) -> Result<Option<Record>> {
    let sql = format!("{SELECT} WHERE kind = ?1 AND id = ?2");
    let params = params![key.kind as i64, key.id.as_bytes()];
    db.conn
        .prepare_cached(&sql)?
        .query_row(params, read)
        .optional()
}

fn query(db: &Db, sql: &str, params: impl Params) -> Result<Vec<Record>> {
    let mut select = db.conn.prepare_cached(&format!("{SELECT} {sql}"))?;
    select.query_map(params, read)?.collect()
}

pub(super) fn list(db: &Db, filter: &RecordFilter) -> Result<Vec<Record>> {
    let (kind, limit) = (filter.kind as i64, filter.limit as i64);
    // No record has an id of zeros alone.
    let after = filter.after.unwrap_or(RecordId::from_bytes([0; 16]));
    let after = after.as_bytes();
    match &filter.owner {
        Owner::Anyone => {
            let sql = "WHERE kind = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
            query(db, sql, params![kind, after, limit])
        }
        Owner::Tenant(tenant) => {
            let sql = "INDEXED BY record_tenant
                       WHERE kind = ?1 AND id > ?2 AND tenant = ?4 ORDER BY id LIMIT ?3";
            query(db, sql, params![kind, after, limit, tenant.as_bytes()])
        }
        Owner::Principal(tenant, principal) => {
            let sql = "INDEXED BY record_principal
                       WHERE kind = ?1 AND id > ?2 AND tenant = ?4 AND principal = ?5
                       ORDER BY id LIMIT ?3";
            let principal = codec::principal_key(principal);
            let params = params![kind, after, limit, tenant.as_bytes(), principal];
            query(db, sql, params)
        }
    }
}

pub(super) fn over(db: &Db, now: Timestamp, limit: usize) -> Result<Vec<Record>> {
    let sql =
        "INDEXED BY record_forget WHERE forget_at <= ?1 ORDER BY forget_at, kind, id LIMIT ?2";
    query(db, sql, params![now.as_millis(), limit as i64])
}

pub(super) fn platform_keys(db: &Db, now: Timestamp) -> Result<Vec<ApiKey>> {
    let sql = "INDEXED BY record_platform WHERE platform_until > ?1
               ORDER BY platform_until DESC, kind DESC, id DESC LIMIT ?2";
    let found = query(db, sql, params![now.as_millis(), PLATFORM_KEYS as i64])?;
    let keys = found.into_iter().filter_map(|record| match record {
        Record::ApiKey(key) => Some(key),
        Record::Tenant(_)
        | Record::Macaroon(_)
        | Record::OauthClient(_)
        | Record::IdentityLink(_)
        | Record::AuthorizationCode(_)
        | Record::TokenFamily(_)
        | Record::RefreshToken(_) => None,
    });
    Ok(keys.collect())
}

/// Reads a page of all records, which checks them.
pub(super) fn all(db: &Db, after: Option<RecordKey>, limit: usize) -> Result<Vec<Record>> {
    let (kind, id) = match after {
        Some(after) => (after.kind as i64, *after.id.as_bytes()),
        None => (-1, [0; 16]),
    };
    let sql = "WHERE (kind, id) > (?1, ?2) ORDER BY kind, id LIMIT ?3";
    query(db, sql, params![kind, id, limit as i64])
}

//! The rows of revocations and of clients that have a tier of their own.

use asyncgate_core::{
    Timestamp,
    admission::{ClientTier, Revocation, Subject, SubjectKind, Tier},
};
use rusqlite::{OptionalExtension, Result, Row, params};

use crate::{db::Db, rows::checksum::damaged};

pub(super) fn revocation(db: &Db, tenant: i64, subject: Subject) -> Result<Option<Revocation>> {
    db.conn
        .prepare_cached(
            "SELECT kind, hash, reason, revoked_at FROM revocation
             WHERE tenant = ?1 AND kind = ?2 AND hash = ?3",
        )?
        .query_row(
            params![tenant, subject.kind as i64, subject.hash],
            read_revocation,
        )
        .optional()
}

pub(super) fn revoke(db: &Db, tenant: i64, revocation: &Revocation) -> Result<()> {
    let Subject { kind, hash } = revocation.subject;
    db.conn
        .prepare_cached("INSERT INTO revocation VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            tenant,
            kind as i64,
            hash,
            revocation.reason,
            revocation.revoked_at.as_millis()
        ])?;
    Ok(())
}

pub(super) fn unrevoke(db: &Db, tenant: i64, subject: Subject) -> Result<bool> {
    let gone = db
        .conn
        .prepare_cached("DELETE FROM revocation WHERE tenant = ?1 AND kind = ?2 AND hash = ?3")?
        .execute(params![tenant, subject.kind as i64, subject.hash])?;
    Ok(gone > 0)
}

pub(super) fn revocations(
    db: &Db,
    tenant: i64,
    after: Option<Subject>,
    limit: usize,
) -> Result<Vec<Revocation>> {
    let (kind, hash) = after.map_or((-1, [0; 32]), |after| (after.kind as i64, after.hash));
    db.conn
        .prepare_cached(
            "SELECT kind, hash, reason, revoked_at FROM revocation
             WHERE tenant = ?1 AND (kind, hash) > (?2, ?3) ORDER BY kind, hash LIMIT ?4",
        )?
        .query_map(params![tenant, kind, hash, limit as i64], read_revocation)?
        .collect()
}

fn read_revocation(row: &Row<'_>) -> Result<Revocation> {
    let kind = usize::from(row.get::<_, u8>(0)?);
    let kind = SubjectKind::ALL.get(kind).copied();
    Ok(Revocation {
        subject: Subject {
            kind: kind.ok_or_else(|| damaged("a revocation is of no known kind"))?,
            hash: row.get(1)?,
        },
        reason: row.get(2)?,
        revoked_at: Timestamp::from_millis(row.get(3)?),
    })
}

pub(super) fn set_tier(db: &Db, tenant: i64, tier: &ClientTier) -> Result<()> {
    db.conn
        .prepare_cached("INSERT OR REPLACE INTO client_tier VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            tenant,
            tier.client,
            tier.tier as i64,
            tier.reason,
            tier.until.map(Timestamp::as_millis)
        ])?;
    Ok(())
}

pub(super) fn clear_tier(db: &Db, tenant: i64, client: &str) -> Result<bool> {
    let gone = db
        .conn
        .prepare_cached("DELETE FROM client_tier WHERE tenant = ?1 AND client = ?2")?
        .execute(params![tenant, client])?;
    Ok(gone > 0)
}

pub(super) fn tier(db: &Db, tenant: i64, client: &str) -> Result<Option<ClientTier>> {
    db.conn
        .prepare_cached(
            "SELECT client, tier, reason, until FROM client_tier
             WHERE tenant = ?1 AND client = ?2",
        )?
        .query_row(params![tenant, client], read_tier)
        .optional()
}

pub(super) fn tiers(
    db: &Db,
    tenant: i64,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<ClientTier>> {
    db.conn
        .prepare_cached(
            "SELECT client, tier, reason, until FROM client_tier
             WHERE tenant = ?1 AND client > ?2 ORDER BY client LIMIT ?3",
        )?
        .query_map(
            // No client has an empty name.
            params![tenant, after.unwrap_or_default(), limit as i64],
            read_tier,
        )?
        .collect()
}

fn read_tier(row: &Row<'_>) -> Result<ClientTier> {
    let tier = usize::from(row.get::<_, u8>(1)?);
    let tier = Tier::ALL.get(tier).copied();
    Ok(ClientTier {
        client: row.get(0)?,
        tier: tier.ok_or_else(|| damaged("a client has no known tier"))?,
        reason: row.get(2)?,
        until: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
    })
}

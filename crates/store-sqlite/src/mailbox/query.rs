//! Reads of messages. Each costs what it returns.

use std::collections::{BTreeMap, HashMap};

use asyncgate_core::{
    Link, MessageId, TenantId, Timestamp,
    mailbox::{ChainHead, Kind, Line, Message},
};
use asyncgate_store::mailbox::{DeadFilter, DeadPage, Load, Take, Topic};
use rusqlite::{OptionalExtension, Params, Result, Row, params};

use super::{
    counters::read_counts,
    row::{self, Read, bytes, id_at, select, some_number},
};
use crate::{
    codec::{Key, SEQ_BITS},
    db::Db,
};

/// Returns the message at `key`, if there is one.
pub(super) fn at(db: &mut Db, key: Key, read: Read) -> Result<Option<Message>> {
    let found = db
        .conn
        .prepare_cached(&select(read, "WHERE m.message = ?1"))?
        .query_row([key.0], row::read)
        .optional()?;
    found.map(|found| name(db, found)).transpose()
}

/// Returns the message with this id, if there is one.
pub(super) fn find(db: &mut Db, tenant: i64, id: MessageId, read: Read) -> Result<Option<Message>> {
    let at_place = at(db, Key::new(tenant, id.seq()), read)?;
    Ok(at_place.filter(|message| message.id == id))
}

/// Gives a message the name of its topic.
fn name(db: &mut Db, (message, topic): (Message, i64)) -> Result<Message> {
    let topic = db.topic(topic)?;
    Ok(Message { topic, ..message })
}

fn list(db: &mut Db, sql: &str, params: impl Params) -> Result<Vec<Message>> {
    let found: Vec<_> = db
        .conn
        .prepare_cached(sql)?
        .query_map(params, row::read)?
        .collect::<Result<_>>()?;
    found.into_iter().map(|found| name(db, found)).collect()
}

/// Returns the next ready messages of a topic.
pub(super) fn ready(db: &mut Db, topic: i64, take: &Take) -> Result<Vec<Message>> {
    let sql = select(
        Read::Whole,
        "WHERE m.topic = ?1 AND m.state = 0 ORDER BY m.rank, m.message LIMIT ?2",
    );
    let mut query = db.conn.prepare_cached(&sql)?;
    let mut rows = query.query(params![topic, take.max_messages as i64])?;
    let (mut found, mut taken) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        let message = row::read(row)?;
        if !take.fits(&mut taken, &message.0) {
            break;
        }
        found.push(message);
    }
    drop(rows);
    drop(query);
    found.into_iter().map(|found| name(db, found)).collect()
}

/// Returns waiting messages of a topic: ready ones in the order of delivery, then delayed ones.
pub(super) fn waiting(db: &mut Db, topic: i64, limit: usize) -> Result<Vec<Message>> {
    let mut all = Vec::new();
    for state in ["0", "1"] {
        let rest =
            format!("WHERE m.topic = ?1 AND m.state = {state} ORDER BY m.rank, m.message LIMIT ?2");
        let sql = select(Read::WithoutPayload, &rest);
        let left = limit - all.len();
        all.extend(list(db, &sql, params![topic, left as i64])?);
    }
    Ok(all)
}

/// Returns the first live messages of a partition, one more than `shown`.
pub(super) fn line(db: &mut Db, topic: i64, key: &str, shown: usize) -> Result<Line> {
    let members: Vec<(Key, bool)> = db
        .conn
        .prepare_cached(
            "SELECT message, blocked FROM message
             WHERE topic = ?1 AND partition_key = ?2 AND blocked >= 0
             ORDER BY blocked, message LIMIT ?3",
        )?
        .query_map(params![topic, key, shown as i64 + 1], |row| {
            Ok((Key(row.get(0)?), row.get(1)?))
        })?
        .collect::<Result<_>>()?;
    let mut line = Line::default();
    for (key, blocked) in members {
        match blocked {
            false => line.turns.push(key.seq()),
            true => line.blocked.extend(at(db, key, Read::WithoutPayload)?),
        }
    }
    Ok(line)
}

/// Returns true if a partition has a live message.
pub(super) fn is_occupied(db: &Db, topic: i64, key: &str) -> Result<bool> {
    db.conn
        .prepare_cached(
            "SELECT 1 FROM message
             WHERE topic = ?1 AND partition_key = ?2 AND blocked >= 0 LIMIT 1",
        )?
        .exists(params![topic, key])
}

pub(super) fn peek(db: &mut Db, tenant: i64, take: &Take) -> Result<Vec<Message>> {
    match topic_number(db, tenant, &take.topic)? {
        Some(topic) => ready(db, topic, take),
        None => Ok(Vec::new()),
    }
}

fn topic_number(db: &Db, tenant: i64, name: &str) -> Result<Option<i64>> {
    db.conn
        .prepare_cached("SELECT topic FROM topic WHERE tenant = ?1 AND name = ?2")?
        .query_row(params![tenant, name], |row| row.get(0))
        .optional()
}

/// Returns dead letters. It looks through the columns that the filter needs, and reads only messages that match.
pub(super) fn dead(db: &mut Db, tenant: i64, filter: &DeadFilter, read: Read) -> Result<DeadPage> {
    let looked_at = look_at_dead(db, tenant, filter)?;
    let mut page = DeadPage::default();
    let exhausted = looked_at.len() < filter.looks_at();
    for (key, _) in looked_at.iter().filter(|(_, matches)| *matches) {
        if page.letters.len() == filter.limit {
            page.next = page.letters.last().map(|message| message.id);
            return Ok(page);
        }
        page.letters.extend(at(db, *key, read)?);
    }
    if let Some((last, _)) = looked_at.last().filter(|_| !exhausted) {
        page.next = at(db, *last, Read::WithoutPayload)?.map(|message| message.id);
    }
    Ok(page)
}

/// Returns the keys of the next dead letters, each with whether it matches.
fn look_at_dead(db: &Db, tenant: i64, filter: &DeadFilter) -> Result<Vec<(Key, bool)>> {
    let after = Key::new(tenant, filter.after.map_or(0, |id| id.seq())).0;
    let end = Key::end(tenant).0;
    let by = filter.died_by.map_or(i64::MAX, Timestamp::as_millis);
    let (reason, limit) = (filter.reason.as_deref(), filter.looks_at() as i64);
    let topic = match &filter.topic {
        None => None,
        Some(name) => match topic_number(db, tenant, name)? {
            None => return Ok(Vec::new()),
            topic => topic,
        },
    };
    let of_topic = topic.map_or("", |_| "m.topic = ?6 AND");
    let sql = format!(
        "SELECT m.message, m.died_at <= ?3 AND (?4 IS NULL OR m.reason = ?4) FROM message m
         WHERE {of_topic} m.state = 3 AND m.message > ?1 AND m.message < ?2
         ORDER BY m.message LIMIT ?5"
    );
    let read = |row: &Row<'_>| {
        let matches: Option<bool> = row.get(1)?;
        Ok((Key(row.get(0)?), matches.unwrap_or(false)))
    };
    let mut query = db.conn.prepare_cached(&sql)?;
    let rows = match topic {
        None => query.query_map(params![after, end, by, reason, limit], read)?,
        Some(topic) => query.query_map(params![after, end, by, reason, limit, topic], read)?,
    };
    rows.collect()
}

pub(super) fn all(
    db: &mut Db,
    tenant: i64,
    after: Option<MessageId>,
    limit: usize,
) -> Result<Vec<Message>> {
    let after = Key::new(tenant, after.map_or(0, |id| id.seq())).0;
    let sql = select(
        Read::Whole,
        "WHERE m.message > ?1 AND m.message < ?2 ORDER BY m.message LIMIT ?3",
    );
    list(db, &sql, params![after, Key::end(tenant).0, limit as i64])
}

pub(super) fn topics(
    db: &mut Db,
    tenant: i64,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Topic>> {
    let mut query = db.conn.prepare_cached(
        "SELECT t.ready, t.delayed, t.leased, t.dead, t.gone, t.name, coalesce(
                    (SELECT since FROM message WHERE topic = t.topic AND state = 0
                     ORDER BY rank, message LIMIT 1),
                    (SELECT since FROM message WHERE topic = t.topic AND state = 1
                     ORDER BY rank, message LIMIT 1))
         FROM topic t INDEXED BY topic_shown WHERE t.tenant = ?1 AND t.name > ?2
             AND t.ready + t.delayed + t.leased + t.dead > 0 ORDER BY t.name LIMIT ?3",
    )?;
    let rows = query.query_map(
        params![tenant, after.unwrap_or_default(), limit as i64],
        |row| {
            let oldest: Option<i64> = row.get(6)?;
            Ok(Topic {
                counts: read_counts(row)?,
                name: row.get(5)?,
                oldest: oldest.map(Timestamp::from_millis),
            })
        },
    )?;
    rows.collect()
}

pub(crate) fn chains(db: &mut Db, tenant: i64) -> Result<BTreeMap<u16, ChainHead>> {
    let mut query = db
        .conn
        .prepare_cached("SELECT shard, seq, link FROM shard WHERE tenant = ?1")?;
    let rows = query.query_map([tenant], |row| {
        let head = ChainHead {
            seq: row.get::<_, i64>(1)?.unsigned_abs(),
            link: Link::from_bytes(row.get(2)?),
        };
        Ok((row.get(0)?, head))
    })?;
    rows.filter(|row| !matches!(row, Ok((_, head)) if head.seq == 0))
        .collect()
}

pub(super) fn due(db: &mut Db, now: Timestamp, limit: usize) -> Result<Vec<(TenantId, MessageId)>> {
    let mut query = db.conn.prepare_cached(
        "SELECT t.tenant_id, c.msg_id, m.message FROM message m JOIN content c USING (message)
         JOIN tenant t ON t.tenant = m.message >> ?3
         WHERE m.due <= ?1 ORDER BY m.due, m.message LIMIT ?2",
    )?;
    let rows = query.query_map(params![now.as_millis(), limit as i64, SEQ_BITS], |row| {
        let tenant = TenantId::from_bytes(row.get(0)?);
        Ok((tenant, id_at(Key(row.get(2)?), bytes(row, 1)?)))
    })?;
    rows.collect()
}

pub(super) fn next_due(db: &mut Db) -> Result<Option<Timestamp>> {
    let earliest: Option<i64> = db
        .conn
        .prepare_cached("SELECT min(due) FROM message WHERE due IS NOT NULL")?
        .query_row([], |row| row.get(0))?;
    Ok(earliest.map(Timestamp::from_millis))
}

/// Returns messages that have waited since `since` or longer. Rows lie in the order in which messages were sent, and none
/// waits since before it was sent. So each tenant is looked through up to the first message that was sent too late, and
/// costs no more than its old messages.
pub(super) fn waiting_since(
    db: &mut Db,
    since: Timestamp,
    after: Option<(TenantId, MessageId)>,
    limit: usize,
) -> Result<Vec<(TenantId, MessageId)>> {
    let after = match after {
        None => Key(0),
        Some((tenant, id)) => match db.tenant(tenant)? {
            Some(tenant) => Key::new(tenant, id.seq()),
            None => Key(0),
        },
    };
    let tenants: Vec<(i64, [u8; 16])> = db
        .conn
        .prepare_cached("SELECT tenant, tenant_id FROM tenant WHERE tenant >= ?1 ORDER BY tenant")?
        .query_map([after.0 >> SEQ_BITS], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_>>()?;
    let mut query = db.conn.prepare_cached(OLDEST)?;
    let mut found = Vec::new();
    for (tenant, tenant_id) in tenants {
        let first = Key::new(tenant, 0).max(after);
        let mut rows = query.query([first.0, Key::end(tenant).0])?;
        while let Some(row) = rows.next()? {
            let sent_at = some_number(row, 1)?.unwrap_or_default();
            if found.len() >= limit {
                return Ok(found);
            }
            if sent_at > since.as_millis() {
                break;
            }
            let (waits_since, state): (i64, u8) = (row.get(2)?, row.get(3)?);
            if waits_since <= since.as_millis() && [0, 1].contains(&state) {
                let id = id_at(Key(row.get(4)?), bytes(row, 0)?);
                found.push((TenantId::from_bytes(tenant_id), id));
            }
        }
    }
    Ok(found)
}

const OLDEST: &str = "SELECT c.msg_id, c.sent_at, m.since, m.state, m.message
     FROM message m JOIN content c USING (message)
     WHERE m.message > ?1 AND m.message < ?2 ORDER BY m.message";

/// Returns the number of messages of each kind by shard, and what tenants hold. `remembered` has the sends of
/// each tenant's number.
pub(super) fn load(db: &mut Db, remembered: &HashMap<i64, u64>) -> Result<Load> {
    let mut load = Load::default();
    let mut query = db.conn.prepare_cached(
        "SELECT s.ready, s.delayed, s.leased, s.dead, s.gone, s.shard, s.tenant, t.tenant_id
         FROM shard s JOIN tenant t USING (tenant)",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let counts = read_counts(row)?;
        let total = load.shards.entry(row.get(5)?).or_default();
        for kind in Kind::ALL {
            total.set(kind, total.of(kind) + counts.of(kind));
        }
        let tenant = TenantId::from_bytes(row.get(7)?);
        let used = load.tenants.entry(tenant).or_default();
        used.inflight += counts.of(Kind::Leased);
        used.remembered = remembered.get(&row.get(6)?).copied().unwrap_or_default();
    }
    Ok(load)
}

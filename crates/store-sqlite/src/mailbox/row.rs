//! The rows of messages: `content` holds what never changes, `message` what does.
//!
//! A message is handed over, extended and acknowledged by rewriting a small row; its content is written once and left alone
//! until the message is forgotten.
//!
//! Content is read leniently: whatever the bytes became, they are given to the rules, which compare hashes. A message that
//! could not be read at all would block the ones behind it.

use std::{collections::BTreeMap, sync::Arc};

use asyncgate_core::{
    LeaseId, Link, MessageId, Timestamp,
    mailbox::{Cause, Delivery, Digest, Kind, Message, State},
};
use rusqlite::{
    Result, Row, params,
    types::{ToSqlOutput, ValueRef},
};

use crate::{codec::Key, db::Db};

/// The columns of both tables without the payload, in the order that [`read`] wants.
const COLUMNS: &str = "
    m.message, m.state, m.until, m.attempt, m.lease, m.leased_at, m.visibility, m.since,
    m.expires_at, m.died_at, m.cause, m.reason, m.last_error, m.rank,
    c.msg_id, c.shard, c.chain_seq, c.sent_at, c.idem_key, m.partition_key, c.attrs, c.corr_id,
    c.payload_hash, c.hash_chain, c.prev, m.topic, m.blocked, typeof(c.payload)";

/// The part of a message that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Whole,
    WithoutPayload,
}

/// Returns a query for messages. `rest` says which, over `m` (message) and `c` (content).
pub(super) fn select(read: Read, rest: &str) -> String {
    let payload = match read {
        Read::Whole => ", c.payload",
        Read::WithoutPayload => "",
    };
    format!("SELECT {COLUMNS}{payload} FROM message m JOIN content c USING (message) {rest}")
}

/// Reads a message from a row of [`select`], still without the name of its topic, and the topic's number.
pub(super) fn read(row: &Row<'_>) -> Result<(Message, i64)> {
    let key: i64 = row.get(0)?;
    let time = |column| -> Result<Option<Timestamp>> {
        Ok(row
            .get::<_, Option<i64>>(column)?
            .map(Timestamp::from_millis))
    };
    let some = |time: Option<Timestamp>| time.unwrap_or_default();
    let until = some(time(2)?);
    let kind: u8 = row.get(1)?;
    let state = match Kind::ALL.get(usize::from(kind)) {
        Some(Kind::Ready) => State::Ready,
        Some(Kind::Delayed) if row.get::<_, Option<bool>>(26)? == Some(true) => {
            State::Blocked { until }
        }
        Some(Kind::Delayed) => State::Delayed { until },
        Some(Kind::Leased) => State::Leased { until },
        Some(Kind::Dead) => State::Dead {
            cause: read_cause(row.get(10)?),
            at: some(time(9)?),
            until,
        },
        Some(Kind::Gone) => State::Gone { until },
        None => return Err(rusqlite::Error::IntegralValueOutOfRange(1, kind.into())),
    };
    let lease: Option<[u8; 16]> = row.get(4)?;
    let gone = matches!(state, State::Gone { .. });
    let message = Message {
        id: id_at(Key(key), bytes(row, 14)?),
        topic: "".into(),
        partition_key: some_text(row, 19)?.map(Into::into),
        shard: some_number(row, 15)?.unwrap_or_default() as u16,
        sent_at: Timestamp::from_millis(some_number(row, 17)?.unwrap_or_default()),
        idem_key: some_text(row, 18)?.unwrap_or_default().into(),
        attrs: if gone {
            Arc::default()
        } else {
            Arc::new(attrs(row, 20)?)
        },
        payload: if gone { Vec::new() } else { payload(row)? }.into(),
        // The column has no type of its own: a value keeps the type that it was written with.
        is_text: row.get_ref(27)? == ValueRef::Text(b"text"),
        payload_hash: Digest::from_bytes(bytes(row, 22)?),
        hash_chain: Digest::from_bytes(bytes(row, 23)?),
        prev: Link::from_bytes(bytes(row, 24)?),
        chain_seq: some_number(row, 16)?.unwrap_or_default().unsigned_abs(),
        corr_id: bytes(row, 21)?,
        priority: i32::try_from(-row.get::<_, i64>(13)?).unwrap_or_default(),
        expires_at: time(8)?,
        since: some(time(7)?),
        state,
        attempt: row.get(3)?,
        delivery: match lease {
            Some(lease) => Some(Delivery {
                lease: LeaseId::from_bytes(lease),
                at: some(time(5)?),
                visibility_ms: row.get::<_, Option<i64>>(6)?.unwrap_or_default(),
            }),
            None => None,
        },
        reason: row.get(11)?,
        last_error: row.get(12)?,
    };
    Ok((message, row.get(25)?))
}

/// Returns the id in the row, moved to the row's place if it names another: a damaged id must not lead a write elsewhere.
pub(super) fn id_at(key: Key, stored: [u8; 16]) -> MessageId {
    let id = MessageId::from_bytes(stored);
    if id.seq() == key.seq() {
        return id;
    }
    id.moved_to(key.seq())
}

pub(super) fn bytes<const N: usize>(row: &Row<'_>, column: usize) -> Result<[u8; N]> {
    let found = match row.get_ref(column)? {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => <[u8; N]>::try_from(bytes).ok(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
    };
    Ok(found.unwrap_or([0; N]))
}

pub(super) fn some_text(row: &Row<'_>, column: usize) -> Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
    })
}

pub(super) fn some_number(row: &Row<'_>, column: usize) -> Result<Option<i64>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => None,
    })
}

fn attrs(row: &Row<'_>, column: usize) -> Result<BTreeMap<String, String>> {
    let Some(text) = some_text(row, column)? else {
        return Ok(BTreeMap::new());
    };
    let damaged = || BTreeMap::from([("damaged".to_owned(), text.clone())]);
    Ok(serde_json::from_str(&text).unwrap_or_else(|_| damaged()))
}

/// Reads the payload, if it was asked for.
fn payload(row: &Row<'_>) -> Result<Vec<u8>> {
    let column = 28;
    if row.as_ref().column_count() <= column {
        return Ok(Vec::new());
    }
    Ok(match row.get_ref(column)? {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes.to_vec(),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => Vec::new(),
    })
}

pub(super) fn insert(db: &Db, key: Key, topic: i64, message: &Message) -> Result<()> {
    let attrs = (!message.attrs.is_empty())
        .then(|| serde_json::to_string(&*message.attrs))
        .transpose()
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let payload = match message.is_text {
        true => ValueRef::Text(&message.payload),
        false => ValueRef::Blob(&message.payload),
    };
    db.conn
        .prepare_cached(
            "INSERT INTO content (message, msg_id, shard, chain_seq, sent_at, idem_key, attrs,
                                  corr_id, payload_hash, hash_chain, prev, payload)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            key.0,
            message.id.to_bytes(),
            message.shard,
            message.chain_seq as i64,
            message.sent_at.as_millis(),
            message.idem_key,
            attrs,
            message.corr_id,
            message.payload_hash.as_bytes(),
            message.hash_chain.as_bytes(),
            message.prev.as_bytes(),
            ToSqlOutput::Borrowed(payload),
        ])?;
    let standing = message.standing();
    db.conn
        .prepare_cached(
            "INSERT INTO message (message, topic, rank, state, due, until, attempt, since,
                                  expires_at, partition_key, blocked)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            key.0,
            topic,
            -i64::from(message.priority),
            standing.kind as u8,
            standing.due.map(Timestamp::as_millis),
            until(message),
            message.attempt,
            message.since.as_millis(),
            message.expires_at.map(Timestamp::as_millis),
            message.partition_key,
            blocked(message),
        ])?;
    Ok(())
}

/// Writes the columns of a message that can change.
pub(super) fn update(db: &Db, key: Key, message: &Message) -> Result<()> {
    let standing = message.standing();
    let delivery = message.delivery.as_ref();
    let (cause, died_at) = match message.state {
        State::Dead { cause, at, .. } => (Some(cause as u8), Some(at.as_millis())),
        State::Ready
        | State::Delayed { .. }
        | State::Blocked { .. }
        | State::Leased { .. }
        | State::Gone { .. } => (None, None),
    };
    db.conn
        .prepare_cached(
            "UPDATE message SET state = ?2, due = ?3, until = ?4, attempt = ?5, lease = ?6,
                                leased_at = ?7, visibility = ?8, since = ?9, expires_at = ?10,
                                died_at = ?11, cause = ?12, reason = ?13, last_error = ?14
             WHERE message = ?1",
        )?
        .execute(params![
            key.0,
            standing.kind as u8,
            standing.due.map(Timestamp::as_millis),
            until(message),
            message.attempt,
            delivery.map(|delivery| delivery.lease.as_bytes()),
            delivery.map(|delivery| delivery.at.as_millis()),
            delivery.map(|delivery| delivery.visibility_ms),
            message.since.as_millis(),
            message.expires_at.map(Timestamp::as_millis),
            died_at,
            cause,
            message.reason,
            message.last_error,
        ])?;
    if message.partition_key.is_some() {
        // A statement of its own, so that messages without a key do not pay for the index.
        db.conn
            .prepare_cached("UPDATE message SET blocked = ?2 WHERE message = ?1")?
            .execute(params![key.0, blocked(message)])?;
    }
    Ok(())
}

pub(super) fn delete(db: &Db, key: Key) -> Result<()> {
    for sql in [
        "DELETE FROM message WHERE message = ?1",
        "DELETE FROM content WHERE message = ?1",
    ] {
        db.conn.prepare_cached(sql)?.execute([key.0])?;
    }
    Ok(())
}

/// Returns true for a message that waits behind others, false for the one that has the turn, and nothing
/// for one that stands in no line.
fn blocked(message: &Message) -> Option<bool> {
    let in_line = message.partition_key.is_some() && message.is_live();
    in_line.then(|| message.is_blocked())
}

fn until(message: &Message) -> Option<i64> {
    match message.state {
        State::Ready => None,
        State::Delayed { until }
        | State::Blocked { until }
        | State::Leased { until }
        | State::Dead { until, .. }
        | State::Gone { until } => Some(until.as_millis()),
    }
}

fn read_cause(number: Option<u8>) -> Cause {
    let cause = number.and_then(|number| Cause::ALL.get(usize::from(number)));
    cause.copied().unwrap_or(Cause::MaxAttempts)
}

//! The check that the counters of topics and shards say what the messages say, and that no message waits for a turn that
//! nobody has.

use std::{
    collections::{BTreeMap, BTreeSet},
    result,
};

use asyncgate_core::{TenantId, mailbox::Message};
use asyncgate_store::mailbox::Counts;
use rusqlite::{Result, params};

use super::{counters::read_counts, query};
use crate::{Finding, codec::Key, db::Db};

/// The number of messages that are read at a time.
const PAGE: usize = 1_000;

/// Gives every message of a tenant to `told`, in the order in which they were sent, and checks that each has a row in both
/// tables and that the counters are right. `progress` is given the number of messages that were checked.
pub(crate) fn tenant(
    db: &mut Db,
    id: TenantId,
    mut told: impl FnMut(&Message) -> result::Result<(), String>,
    mut progress: impl FnMut(u64),
) -> result::Result<(), Finding> {
    let Some(tenant) = db.tenant(id)? else {
        return Ok(());
    };
    let (mut topics, mut shards) = (BTreeMap::new(), BTreeMap::new());
    // The last blocked message of each partition, and the partitions in which a message has the turn.
    let (mut blocked, mut turns) = (BTreeMap::new(), BTreeSet::new());
    let (mut after, mut messages) = (None, 0);
    loop {
        let page = query::all(db, tenant, after, PAGE)?;
        for message in &page {
            told(message)
                .map_err(|what| Finding::Wrong(what).at(format!("tenant {id}, {}", message.id)))?;
            let kind = Some(message.standing().kind);
            let of_topic: &mut Counts = topics.entry(message.topic.clone()).or_default();
            of_topic.count(None, kind);
            let of_shard: &mut Counts = shards.entry(message.shard).or_default();
            of_shard.count(None, kind);
            match message.partition().filter(|_| message.is_live()) {
                Some(partition) if message.is_blocked() => {
                    blocked.insert(partition, message.id);
                }
                Some(partition) => {
                    turns.insert(partition);
                }
                None => {}
            }
            after = Some(message.id);
            messages += 1;
        }
        progress(messages);
        if page.len() < PAGE {
            break;
        }
    }
    let mut blocked = blocked.into_iter();
    if let Some((_, message)) = blocked.find(|(partition, _)| !turns.contains(partition)) {
        let what = "it waits behind others with its partition key, but there are none";
        return Err(Finding::Wrong(what.to_owned()).at(format!("tenant {id}, {message}")));
    }
    let found = halves(db, tenant, messages)
        .and_then(|()| counters(db, tenant, "topic", "name", &topics))
        .and_then(|()| counters(db, tenant, "shard", "shard", &shards));
    found.map_err(|found| found.at(format!("tenant {id}")))
}

/// Checks that both tables have a row for every message, and no other rows.
fn halves(db: &Db, tenant: i64, messages: u64) -> result::Result<(), Finding> {
    for table in ["message", "content"] {
        let sql = format!("SELECT count(*) FROM {table} WHERE message > ?1 AND message < ?2");
        let range = params![Key::new(tenant, 0).0, Key::end(tenant).0];
        let rows: i64 = db.conn.query_row(&sql, range, |row| row.get(0))?;
        if rows.unsigned_abs() != messages {
            return Err(Finding::Wrong(format!(
                "`{table}` has {rows} rows, but there are {messages} whole messages"
            )));
        }
    }
    Ok(())
}

/// Checks the counters of a table against what was `counted`, by the column `name`.
fn counters<T>(
    db: &Db,
    tenant: i64,
    table: &str,
    name: &str,
    counted: &BTreeMap<T, Counts>,
) -> result::Result<(), Finding>
where
    T: Ord + rusqlite::types::FromSql + std::fmt::Display,
{
    let sql =
        format!("SELECT ready, delayed, leased, dead, gone, {name} FROM {table} WHERE tenant = ?1");
    let mut query = db.conn.prepare(&sql)?;
    let rows = query.query_map([tenant], |row| Ok((row.get::<_, T>(5)?, read_counts(row)?)))?;
    let stored: BTreeMap<T, Counts> = rows.collect::<Result<_>>()?;
    let counts = |of: &BTreeMap<T, Counts>, key| of.get(key).copied().unwrap_or_default();
    let mut keys = stored.keys().chain(counted.keys());
    match keys.find(|key| counts(&stored, key) != counts(counted, key)) {
        Some(key) => Err(Finding::Wrong(format!(
            "the counters of {table} {key} do not say what its messages say"
        ))),
        None => Ok(()),
    }
}

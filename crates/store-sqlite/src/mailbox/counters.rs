//! The numbers, counts and chains of topics and shards, which the writer keeps in memory between commits.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use asyncgate_core::{
    Link,
    mailbox::{ChainHead, Kind, Share},
};
use asyncgate_store::{Shares, mailbox::Counts};
use rusqlite::{OptionalExtension, Result, Row, params};

use crate::db::Db;

/// The most topics that are kept in memory between commits.
const MAX_TOPICS: usize = 50_000;

#[derive(Debug, Clone, Copy)]
struct Topic {
    number: i64,
    counts: Counts,
    /// True if the open transaction changed the counts.
    changed: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Shard {
    chain: ChainHead,
    counts: Counts,
}

/// The counters of the topics that were needed lately, and of every shard.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// The topics by tenant and name.
    topics: HashMap<i64, HashMap<Arc<str>, Topic>>,
    shards: BTreeMap<(i64, u16), Shard>,
    /// The messages that receivers hold.
    inflight: Shares<i64>,
    /// The topics that the open transaction changed: a commit costs no more because more is known.
    changed_topics: Vec<(i64, Arc<str>)>,
    /// The shards that it changed.
    changed_shards: BTreeSet<(i64, u16)>,
}

impl Counters {
    pub(super) fn load(db: &Db) -> Result<Self> {
        let mut counters = Self::default();
        let mut query = db.conn.prepare(
            "SELECT ready, delayed, leased, dead, gone, tenant, shard, seq, link FROM shard",
        )?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let number: u16 = row.get(6)?;
            let shard = Shard {
                counts: read_counts(row)?,
                chain: ChainHead {
                    seq: row.get::<_, i64>(7)?.unsigned_abs(),
                    link: Link::from_bytes(row.get(8)?),
                },
            };
            let tenant = row.get(5)?;
            counters.inflight.add(tenant, shard.counts.of(Kind::Leased));
            counters.shards.insert((tenant, number), shard);
        }
        Ok(counters)
    }

    /// Returns the number of a topic, if it has messages.
    pub(super) fn topic(&mut self, db: &Db, tenant: i64, name: &str) -> Result<Option<i64>> {
        let topic = self.find(db, tenant, name)?;
        Ok(topic.map(|topic| topic.number))
    }

    /// Returns how many messages wait in a topic.
    pub(super) fn waiting(&mut self, db: &Db, tenant: i64, name: &str) -> Result<u64> {
        let topic = self.find(db, tenant, name)?;
        Ok(topic.map_or(0, |topic| topic.counts.waiting()))
    }

    fn find(&mut self, db: &Db, tenant: i64, name: &str) -> Result<Option<Topic>> {
        let topics = self.topics.entry(tenant).or_default();
        if let Some(topic) = topics.get(name) {
            return Ok(Some(*topic));
        }
        let found = db
            .conn
            .prepare_cached(
                "SELECT ready, delayed, leased, dead, gone, topic FROM topic
                 WHERE tenant = ?1 AND name = ?2",
            )?
            .query_row(params![tenant, name], |row| {
                Ok(Topic {
                    counts: read_counts(row)?,
                    number: row.get(5)?,
                    changed: false,
                })
            })
            .optional()?;
        topics.extend(found.map(|topic| (name.into(), topic)));
        Ok(found)
    }

    /// Returns the number of a topic, which is written if it is new.
    pub(super) fn intern(&mut self, db: &Db, tenant: i64, name: &str) -> Result<i64> {
        if let Some(number) = self.topic(db, tenant, name)? {
            return Ok(number);
        }
        db.conn
            .prepare_cached("INSERT INTO topic (tenant, name) VALUES (?1, ?2)")?
            .execute(params![tenant, name])?;
        let topic = Topic {
            number: db.conn.last_insert_rowid(),
            counts: Counts::default(),
            changed: false,
        };
        let topics = self.topics.entry(tenant).or_default();
        topics.insert(name.into(), topic);
        Ok(topic.number)
    }

    /// Counts a change of one message. The topic must have been asked for before.
    pub(super) fn count(
        &mut self,
        tenant: i64,
        (topic, shard): (&Arc<str>, u16),
        before: Option<Kind>,
        after: Option<Kind>,
    ) {
        let topics = self.topics.get_mut(&tenant);
        if let Some(counted) = topics.and_then(|topics| topics.get_mut(topic)) {
            counted.counts.count(before, after);
            if !counted.changed {
                counted.changed = true;
                self.changed_topics.push((tenant, Arc::clone(topic)));
            }
        }
        if before == Some(Kind::Leased) {
            self.inflight.take_one(tenant);
        }
        self.inflight
            .add(tenant, u64::from(after == Some(Kind::Leased)));
        let counts = &mut self.shards.entry((tenant, shard)).or_default().counts;
        counts.count(before, after);
        self.changed_shards.insert((tenant, shard));
    }

    pub(super) fn chain(&self, tenant: i64, shard: u16) -> ChainHead {
        let shard = self.shards.get(&(tenant, shard));
        shard.map(|shard| shard.chain).unwrap_or_default()
    }

    pub(super) fn set_chain(&mut self, tenant: i64, shard: u16, chain: ChainHead) {
        self.shards.entry((tenant, shard)).or_default().chain = chain;
        self.changed_shards.insert((tenant, shard));
    }

    /// Returns the place of the tenant's last message. Every message is part of one chain, so it is the sum of them all.
    pub(super) fn head(&self, tenant: i64) -> u64 {
        let shards = self.shards.range((tenant, 0)..=(tenant, u16::MAX));
        shards.map(|(_, shard)| shard.chain.seq).sum()
    }

    /// Returns the part of the messages with receivers that a tenant's receivers hold.
    pub(super) fn inflight(&self, tenant: i64) -> Share {
        self.inflight.share(tenant)
    }

    /// Writes what changed, for the commit that is about to be made.
    pub(super) fn save(&mut self, db: &Db) -> Result<()> {
        for (tenant, name) in std::mem::take(&mut self.changed_topics) {
            self.save_topic(db, tenant, &name)?;
        }
        if self.topics.values().map(HashMap::len).sum::<usize>() > MAX_TOPICS {
            self.topics.clear();
        }
        for (tenant, number) in std::mem::take(&mut self.changed_shards) {
            let Shard { chain, counts } = self.shards[&(tenant, number)];
            let count = |kind| counts.of(kind) as i64;
            db.conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO shard VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                )?
                .execute(params![
                    tenant,
                    number,
                    chain.seq as i64,
                    chain.link.as_bytes(),
                    count(Kind::Ready),
                    count(Kind::Delayed),
                    count(Kind::Leased),
                    count(Kind::Dead),
                    count(Kind::Gone),
                ])?;
        }
        Ok(())
    }

    /// Writes the counts of a topic. One without messages is deleted.
    fn save_topic(&mut self, db: &Db, tenant: i64, name: &str) -> Result<()> {
        let topics = self.topics.entry(tenant).or_default();
        let Some(topic) = topics.get_mut(name) else {
            return Ok(());
        };
        topic.changed = false;
        let Topic { number, counts, .. } = *topic;
        if counts == Counts::default() {
            topics.remove(name);
            let mut delete = db
                .conn
                .prepare_cached("DELETE FROM topic WHERE topic = ?1")?;
            delete.execute([number])?;
            return Ok(());
        }
        let count = |kind| counts.of(kind) as i64;
        db.conn
            .prepare_cached(
                "UPDATE topic SET ready = ?2, delayed = ?3, leased = ?4, dead = ?5, gone = ?6
                 WHERE topic = ?1",
            )?
            .execute(params![
                number,
                count(Kind::Ready),
                count(Kind::Delayed),
                count(Kind::Leased),
                count(Kind::Dead),
                count(Kind::Gone),
            ])?;
        Ok(())
    }
}

/// Reads counts from the first five columns, in the order of [`Kind::ALL`].
pub(super) fn read_counts(row: &Row<'_>) -> Result<Counts> {
    let mut counts = Counts::default();
    for (column, kind) in Kind::ALL.into_iter().enumerate() {
        counts.set(kind, row.get::<_, i64>(column)?.unsigned_abs());
    }
    Ok(counts)
}

//! The numbers, counts and chains of topics and shards, which the writer keeps in memory between commits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use asyncgate_core::{
    Link,
    mailbox::{ChainHead, Kind},
};
use asyncgate_store::mailbox::Counts;
use rusqlite::{OptionalExtension, Result, Row, params};

use crate::db::Db;

/// The most topics that are kept in memory between commits.
const MAX_TOPICS: usize = 50_000;

#[derive(Debug, Clone, Copy)]
struct Topic {
    number: i64,
    counts: Counts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Shard {
    chain: ChainHead,
    counts: Counts,
}

/// The counters of the topics that were needed lately, and of every shard.
#[derive(Debug, Default)]
pub(super) struct Counters {
    topics: HashMap<(i64, String), Topic>,
    shards: BTreeMap<(i64, u16), Shard>,
    /// The counts of each shard over all tenants.
    totals: BTreeMap<u16, Counts>,
    /// The topics that the open transaction changed: a commit costs no more because more is known.
    changed_topics: BTreeSet<(i64, String)>,
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
            let total = counters.totals.entry(number).or_default();
            for kind in Kind::ALL {
                total.set(kind, total.of(kind) + shard.counts.of(kind));
            }
            counters.shards.insert((row.get(5)?, number), shard);
        }
        Ok(counters)
    }

    /// Returns the number of a topic, if it has messages.
    pub(super) fn topic(&mut self, db: &Db, tenant: i64, name: &str) -> Result<Option<i64>> {
        let key = (tenant, name.to_owned());
        if let Some(topic) = self.topics.get(&key) {
            return Ok(Some(topic.number));
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
                })
            })
            .optional()?;
        let number = found.map(|topic| topic.number);
        self.topics.extend(found.map(|topic| (key, topic)));
        Ok(number)
    }

    /// Returns the number of a topic, which is written if it is new.
    pub(super) fn intern(&mut self, db: &Db, tenant: i64, name: &str) -> Result<i64> {
        if let Some(number) = self.topic(db, tenant, name)? {
            return Ok(number);
        }
        db.conn
            .prepare_cached("INSERT INTO topic (tenant, name) VALUES (?1, ?2)")?
            .execute(params![tenant, name])?;
        let number = db.conn.last_insert_rowid();
        let topic = Topic {
            number,
            counts: Counts::default(),
        };
        self.topics.insert((tenant, name.to_owned()), topic);
        Ok(number)
    }

    /// Counts a change of one message. The topic must have been asked for before.
    pub(super) fn count(
        &mut self,
        tenant: i64,
        (topic, shard): (&str, u16),
        before: Option<Kind>,
        after: Option<Kind>,
    ) {
        let key = (tenant, topic.to_owned());
        if let Some(topic) = self.topics.get_mut(&key) {
            topic.counts.count(before, after);
            self.changed_topics.insert(key);
        }
        self.totals.entry(shard).or_default().count(before, after);
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

    /// Returns how many messages wait in a shard, over all tenants.
    pub(super) fn waiting(&self, shard: u16) -> u64 {
        self.totals.get(&shard).map_or(0, Counts::waiting)
    }

    /// Returns how many messages receivers hold, over all tenants.
    pub(super) fn inflight(&self) -> u64 {
        let totals = self.totals.values();
        totals.map(|counts| counts.of(Kind::Leased)).sum()
    }

    /// Writes what changed, for the commit that is about to be made.
    pub(super) fn save(&mut self, db: &Db) -> Result<()> {
        for key in std::mem::take(&mut self.changed_topics) {
            self.save_topic(db, &key)?;
        }
        if self.topics.len() > MAX_TOPICS {
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
    fn save_topic(&mut self, db: &Db, key: &(i64, String)) -> Result<()> {
        let Some(Topic { number, counts }) = self.topics.get(key).copied() else {
            return Ok(());
        };
        if counts == Counts::default() {
            self.topics.remove(key);
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

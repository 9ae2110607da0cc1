//! Shards: the tenants belong to a fixed number of them, and one instance at a time owns a shard.
//!
//! An instance takes a shard by raising its epoch. Every transaction of the owner reads the shard's row with that epoch and
//! locks it against being taken meanwhile; if the epoch is another one, the transaction fails whole. So safety does not
//! depend on time. A lease only says when others may take: an instance counts up its beat, and whoever sees a beat stand
//! still for as long as a lease, by its own clock, may take over. No two clocks are compared.
//!
//! What belongs to no tenant belongs to shard 0.

use std::{collections::HashMap, time::Duration};

use asyncgate_core::TenantId;
use asyncgate_store::{Error, Stopwatch};
use tokio_postgres::types::Type;

use crate::session::{Deadlines, Failure, Session, Statement};

/// The shard of what belongs to no tenant.
pub(crate) const SERVER: i32 = 0;

/// Returns the shard of a tenant, which must never change.
pub(crate) fn shard_of(tenant: TenantId, shards: i32) -> i32 {
    // FNV-1a over the id: stable over versions, and ids are random enough.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in tenant.as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The upper bits are mixed better than the lower ones.
    let hash = hash ^ (hash >> 32);
    i32::try_from(hash % u64::from(shards.unsigned_abs().max(1))).unwrap_or_default()
}

/// The shards that this instance owns, with their epochs.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    pub(crate) instance: i64,
    /// The epoch of each shard.
    epochs: Vec<i64>,
}

impl Owned {
    /// Returns the statement that fails unless all of these shards are still owned with their epochs. It also keeps them
    /// from being taken until its transaction has ended.
    pub(crate) fn fence(&self, shards: impl Iterator<Item = i32>) -> Statement {
        let shards: Vec<i32> = shards.collect();
        let epoch = |shard: &i32| {
            let at = usize::try_from(*shard).unwrap_or_default();
            self.epochs.get(at).copied().unwrap_or(-1)
        };
        let epochs: Vec<i64> = shards.iter().map(epoch).collect();
        let count = i64::try_from(shards.len()).unwrap_or(-1);
        // A row less is a division by zero: an answer that is only read later would let the commit pass.
        Statement::new(
            "SELECT 1 / (count(*) = $3)::int4 FROM (
                 SELECT 1 FROM UNNEST($1::int4[], $2::int8[]) AS f (shard, epoch)
                 JOIN shard s ON s.shard = f.shard AND s.epoch = f.epoch FOR SHARE OF s) AS held",
        )
        .with(shards, Type::INT4_ARRAY)
        .int8s(epochs)
        .with(count, Type::INT8)
    }

    /// Returns the statement that shows the others that this instance lives.
    pub(crate) fn beat(&self) -> Statement {
        let sql = "UPDATE instance SET beat = beat + 1 WHERE instance = $1 RETURNING beat";
        Statement::new(sql).with(self.instance, Type::INT8)
    }

    /// Returns the statements that give all shards back.
    pub(crate) fn give_back(&self) -> [Statement; 2] {
        [
            "UPDATE shard SET instance = NULL WHERE instance = $1",
            "DELETE FROM instance WHERE instance = $1",
        ]
        .map(|sql| Statement::new(sql).with(self.instance, Type::INT8))
    }
}

/// An instance that wants to own all shards.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) lease: Duration,
    pub(crate) instance: Option<i64>,
    /// The beats of other instances, and since when they stand there.
    seen: HashMap<i64, (i64, Stopwatch)>,
}

impl Contender {
    pub(crate) fn new(name: String, lease: Duration) -> Self {
        Self {
            name,
            lease,
            instance: None,
            seen: HashMap::new(),
        }
    }

    /// Tries to take all shards. Returns nothing while another instance lives that owns one.
    pub(crate) async fn take(
        &mut self,
        session: &Session,
        deadlines: Deadlines,
    ) -> Result<Option<Owned>, Error> {
        let instance = self.enlist(session, deadlines).await?;
        let look = [
            Statement::new("SELECT shard, instance, epoch FROM shard ORDER BY shard"),
            Statement::new("SELECT instance, beat FROM instance"),
        ];
        let looked = session.transact(deadlines, &look).await;
        let rows = looked.map_err(|failure| failure.told())?;
        let [shards, beats] = &rows[..] else {
            return Ok(None);
        };
        let beats: HashMap<i64, i64> = beats.iter().map(|row| (row.get(0), row.get(1))).collect();
        if !beats.contains_key(&instance) {
            // Whoever took over has removed it. Without a beat this instance would count as dead.
            self.instance = None;
            return Ok(None);
        }
        let epochs: Vec<i64> = shards.iter().map(|row| row.get(2)).collect();
        let owners = shards.iter().filter_map(|row| row.get::<_, Option<i64>>(1));
        let others: Vec<i64> = owners.filter(|owner| *owner != instance).collect();
        self.seen.retain(|other, _| others.contains(other));
        let mut lives = false;
        for other in others {
            lives |= self.lives(other, beats.get(&other).copied());
        }
        if lives {
            return Ok(None);
        }
        self.raise(session, deadlines, instance, epochs).await
    }

    /// Gives this instance a row, once.
    async fn enlist(&mut self, session: &Session, deadlines: Deadlines) -> Result<i64, Error> {
        if let Some(instance) = self.instance {
            return Ok(instance);
        }
        let name = self.name.clone().into_bytes();
        let insert = "INSERT INTO instance (name, beat) VALUES ($1, 0) RETURNING instance";
        let insert = Statement::new(insert).with(name, Type::BYTEA);
        let made = session.transact(deadlines, &[insert]).await;
        let made = made.map_err(|failure| failure.told())?;
        let instance = made.iter().flatten().next().map(|row| row.get(0));
        let none = || Error::Unavailable("the database gave this instance no number".to_owned());
        self.instance = instance;
        instance.ok_or_else(none)
    }

    /// Returns true if another instance may still live.
    fn lives(&mut self, other: i64, beat: Option<i64>) -> bool {
        let Some(beat) = beat else {
            return false;
        };
        let (last, since) = self
            .seen
            .entry(other)
            .or_insert_with(|| (beat, Stopwatch::start()));
        if *last != beat {
            (*last, *since) = (beat, Stopwatch::start());
        }
        since.elapsed() < self.lease
    }

    /// Raises the epochs of all shards, if they are still those that were seen.
    async fn raise(
        &self,
        session: &Session,
        deadlines: Deadlines,
        instance: i64,
        epochs: Vec<i64>,
    ) -> Result<Option<Owned>, Error> {
        let count = i64::try_from(epochs.len()).unwrap_or(-1);
        let shards: Vec<i32> = (0..).take(epochs.len()).collect();
        // The rows are locked in their order, so that two who want all of them do not hold each other up. What an owner
        // has begun ends first.
        let raise = Statement::new(
            "WITH seen AS MATERIALIZED (
                 SELECT s.shard FROM UNNEST($1::int4[], $2::int8[]) AS f (shard, epoch)
                 JOIN shard s ON s.shard = f.shard AND s.epoch = f.epoch ORDER BY s.shard FOR UPDATE OF s),
             raised AS (
                 UPDATE shard SET instance = $3, epoch = epoch + 1
                 WHERE shard IN (SELECT shard FROM seen) RETURNING epoch)
             SELECT 1 / (count(*) = $4)::int4 FROM raised",
        )
        .with(shards, Type::INT4_ARRAY)
        .int8s(epochs.clone())
        .with(instance, Type::INT8)
        .with(count, Type::INT8);
        let forget = "DELETE FROM instance WHERE instance <> $1
                      AND NOT EXISTS (SELECT 1 FROM shard WHERE shard.instance = instance.instance)
                      AND instance.instance = ANY($2)";
        let dead: Vec<i64> = self.seen.keys().copied().collect();
        let forget = Statement::new(forget)
            .with(instance, Type::INT8)
            .int8s(dead);
        match session.transact(deadlines, &[raise, forget]).await {
            Ok(_) => Ok(Some(Owned {
                instance,
                epochs: epochs.iter().map(|epoch| epoch + 1).collect(),
            })),
            // Another one was quicker.
            Err(Failure::Fenced) => Ok(None),
            // If it was done after all, the next try finds this instance as the owner.
            Err(failure) => Err(failure.told()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_of_a_tenant_never_changes() {
        let shard = |byte| shard_of(TenantId::from_bytes([byte; 16]), 1_024);
        assert_eq!([0, 1, 2, 255].map(shard), [988, 414, 312, 349]);
    }

    #[test]
    fn tenants_are_spread_over_all_shards() {
        let mut counts = [0; 64];
        for n in 0..64_000_u64 {
            let mut id = [0; 16];
            id[8..].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            let shard = shard_of(TenantId::from_bytes(id), 64);
            counts[usize::try_from(shard).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)));
    }
}

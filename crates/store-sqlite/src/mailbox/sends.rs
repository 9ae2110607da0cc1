//! The sends that are remembered, so that repetitions are recognised.
//!
//! The rows are the truth; this is an index of the newest of them. It is kept in memory because its entries arrive in no
//! order and leave after minutes: on disk, each would cost a page of its own. It is read back from the rows before the
//! first transaction, and the store is not ready meanwhile.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hash, Hasher},
};

use asyncgate_core::{
    Timestamp,
    mailbox::{Share, payload_hash},
};
use asyncgate_store::Remembered;
use rusqlite::Result;

use super::row::{some_number, some_text};
use crate::{codec::Key, db::Db};

/// The number of parts of the index. Each grows by itself, so that no send waits until all names have been moved.
const PARTS: usize = 64;

/// The name by which a send is remembered: 128 bits of a hash over tenant, topic and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name([u64; 2]);

impl Name {
    pub(super) fn new(tenant: i64, topic: &str, idem_key: &str) -> Self {
        let mut bytes = Vec::with_capacity(16 + topic.len() + idem_key.len());
        bytes.extend_from_slice(&tenant.to_be_bytes());
        bytes.extend_from_slice(&(topic.len() as u64).to_be_bytes());
        bytes.extend_from_slice(topic.as_bytes());
        bytes.extend_from_slice(idem_key.as_bytes());
        let hash = payload_hash(&bytes);
        let (halves, _) = hash.as_bytes().as_chunks();
        Self([0, 1].map(|half: usize| u64::from_be_bytes(halves[half])))
    }

    /// Returns the part of the index that the name stands in.
    const fn part(self) -> usize {
        self.0[1] as usize % PARTS
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
    }
}

/// Takes a half of a name as it is: it comes from a hash already.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _: &[u8]) {
        // A name writes a number and nothing else.
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A part of the index: the messages that names stand for.
type Part = HashMap<Name, Key, BuildHasherDefault<AsItIs>>;

/// Remembered sends.
#[derive(Debug)]
pub(super) struct Sends {
    by_name: Vec<Part>,
    remembered: Remembered<i64, (Name, Key)>,
    /// The sends that the open transaction added, in order: the tenant, the name, and the message that the name stood
    /// for before.
    undo: Vec<(i64, Name, Option<Key>)>,
}

impl Sends {
    /// Reads back the sends that were made at or after `since`.
    pub(super) fn load(db: &Db, since: Timestamp) -> Result<Self> {
        let mut found: Vec<(Timestamp, i64, Name, Key)> = Vec::new();
        let tenants: Vec<i64> = db
            .conn
            .prepare_cached("SELECT tenant FROM tenant")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_>>()?;
        for tenant in tenants {
            let mut newest = db.conn.prepare_cached(
                "SELECT c.message, c.sent_at, c.idem_key, t.name
                 FROM content c JOIN message m USING (message) JOIN topic t USING (topic)
                 WHERE c.message > ?1 AND c.message < ?2 ORDER BY c.message DESC",
            )?;
            let mut rows = newest.query([Key::new(tenant, 0).0, Key::end(tenant).0])?;
            while let Some(row) = rows.next()? {
                // A damaged row must not keep the others from being known.
                let Some(sent_at) = some_number(row, 1)?.map(Timestamp::from_millis) else {
                    continue;
                };
                if sent_at < since {
                    break;
                }
                let idem_key = some_text(row, 2)?.unwrap_or_default();
                let topic: String = row.get(3)?;
                let name = Name::new(tenant, &topic, &idem_key);
                found.push((sent_at, tenant, name, Key(row.get(0)?)));
            }
        }
        found.sort_by_key(|(at, _, _, key)| (*at, *key));
        let mut sends = Self {
            by_name: vec![Part::default(); PARTS],
            remembered: Remembered::default(),
            undo: Vec::new(),
        };
        for (at, tenant, name, key) in found {
            sends.add(at, tenant, name, key);
        }
        sends.keep();
        Ok(sends)
    }

    pub(super) fn find(&self, name: Name) -> Option<Key> {
        self.by_name[name.part()].get(&name).copied()
    }

    pub(super) fn add(&mut self, at: Timestamp, tenant: i64, name: Name, key: Key) {
        let before = self.by_name[name.part()].insert(name, key);
        self.undo.push((tenant, name, before));
        self.remembered.add(tenant, at, (name, key));
    }

    /// Forgets sends that were made at or before `since`.
    pub(super) fn forget(&mut self, since: Timestamp) {
        let by_name = &mut self.by_name;
        self.remembered.forget(since, |_, (name, key)| {
            let part = &mut by_name[name.part()];
            // A newer message may have the name by now.
            if part.get(&name) == Some(&key) {
                part.remove(&name);
            }
        });
    }

    /// Keeps what the open transaction added: it was committed.
    pub(super) fn keep(&mut self) {
        self.undo.clear();
    }

    /// Takes back what the open transaction added: it was rolled back.
    pub(super) fn roll_back(&mut self) {
        for (tenant, name, before) in self.undo.drain(..).rev() {
            self.remembered.take_back(tenant);
            let part = &mut self.by_name[name.part()];
            match before {
                Some(key) => part.insert(name, key),
                None => part.remove(&name),
            };
        }
    }

    /// Returns the part of all remembered sends that a tenant has.
    pub(super) fn share(&self, tenant: i64) -> Share {
        self.remembered.share(tenant)
    }

    /// Returns the time of a tenant's oldest send.
    pub(super) fn oldest(&self, tenant: i64) -> Option<Timestamp> {
        self.remembered.oldest(tenant)
    }

    /// Returns the tenants whose numbers of sends have changed since the last call, with their numbers.
    pub(super) fn take_changed(&mut self) -> Vec<(i64, u64)> {
        self.remembered.take_changed()
    }
}

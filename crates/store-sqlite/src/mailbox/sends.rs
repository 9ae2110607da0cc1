//! The sends that are remembered, so that repetitions are recognised.
//!
//! The rows are the truth; this is an index of the newest of them. It is kept in memory because its entries arrive in no
//! order and leave after minutes: on disk, each would cost a page of its own. It is read back from the rows before the
//! first transaction over messages.

use std::collections::{HashMap, VecDeque};

use asyncgate_core::{Timestamp, mailbox::payload_hash};
use rusqlite::Result;

use super::row::{some_number, some_text};
use crate::{codec::Key, db::Db};

/// The name by which a send is remembered: 128 bits of a hash over tenant, topic and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Name(u128);

impl Name {
    pub(super) fn new(tenant: i64, topic: &str, idem_key: &str) -> Self {
        let mut bytes = Vec::with_capacity(16 + topic.len() + idem_key.len());
        bytes.extend_from_slice(&tenant.to_be_bytes());
        bytes.extend_from_slice(&(topic.len() as u64).to_be_bytes());
        bytes.extend_from_slice(topic.as_bytes());
        bytes.extend_from_slice(idem_key.as_bytes());
        let mut head = [0; 16];
        head.copy_from_slice(&payload_hash(&bytes).as_bytes()[..16]);
        Self(u128::from_be_bytes(head))
    }
}

/// Remembered sends, oldest first.
#[derive(Debug, Default)]
pub(super) struct Sends {
    by_name: HashMap<Name, Key>,
    order: VecDeque<(Timestamp, Name, Key)>,
    /// The names that the open transaction set, in order, with the messages that they stood for before.
    undo: Vec<(Name, Option<Key>)>,
}

impl Sends {
    /// Reads back the sends that were made at or after `since`.
    pub(super) fn load(db: &Db, since: Timestamp) -> Result<Self> {
        let mut found: Vec<(Timestamp, Name, Key)> = Vec::new();
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
                found.push((sent_at, name, Key(row.get(0)?)));
            }
        }
        found.sort_by_key(|(at, _, key)| (*at, *key));
        let mut sends = Self::default();
        for (at, name, key) in found {
            sends.add(at, name, key);
        }
        sends.keep();
        Ok(sends)
    }

    pub(super) fn find(&self, name: Name) -> Option<Key> {
        self.by_name.get(&name).copied()
    }

    pub(super) fn add(&mut self, at: Timestamp, name: Name, key: Key) {
        let before = self.by_name.insert(name, key);
        self.undo.push((name, before));
        self.order.push_back((at, name, key));
    }

    /// Forgets sends that were made before `since`.
    pub(super) fn forget(&mut self, since: Timestamp) {
        while self.order.front().is_some_and(|(at, ..)| *at <= since) {
            if let Some((_, name, key)) = self.order.pop_front()
                && self.by_name.get(&name) == Some(&key)
            {
                self.by_name.remove(&name);
            }
        }
    }

    /// Keeps what the open transaction added: it was committed.
    pub(super) fn keep(&mut self) {
        self.undo.clear();
    }

    /// Takes back what the open transaction added: it was rolled back.
    pub(super) fn roll_back(&mut self) {
        for (name, before) in self.undo.drain(..).rev() {
            self.order.pop_back();
            match before {
                Some(key) => self.by_name.insert(name, key),
                None => self.by_name.remove(&name),
            };
        }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.order.front().map(|(at, ..)| *at)
    }
}

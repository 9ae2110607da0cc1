//! The plane of messages inside a transaction: how to load what a job declared, and how to write what it decided.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use asyncgate_core::{
    MessageId, TenantId, Timestamp,
    mailbox::{Changes, Message, MessageWrite, Occupied, Partition, SendContext},
};
use asyncgate_store::{
    Messages, Rows,
    mailbox::{Reads, SendKey, Snapshot},
};
use rusqlite::Result;

use super::{
    counters::Counters,
    query,
    row::{self, Read},
    sends::{Name, Sends},
};
use crate::{codec::Key, db::Db, transaction::Writable};

impl Rows<Messages> for Writable {
    fn load(&mut self, tenant: TenantId, reads: &Reads, now: Timestamp) -> Result<Snapshot> {
        let tenant = self.number(tenant)?;
        self.mailbox.load(&mut self.db, tenant, reads, now)
    }

    fn apply(&mut self, tenant: TenantId, changes: &Changes) -> Result<()> {
        let tenant = self.number(tenant)?;
        self.mailbox.write(&mut self.db, tenant, changes)
    }
}

/// The part of the mailbox that the writer keeps in memory beside the file.
#[derive(Debug)]
pub(crate) struct MailboxState {
    /// Absent after a rollback, until the next transaction reads them again.
    counters: Option<Counters>,
    /// Absent until they were read back.
    sends: Option<Sends>,
    /// True until the numbers of all tenants' sends have been told.
    is_untold: bool,
    window_ms: i64,
}

impl MailboxState {
    pub(crate) const fn new(window_ms: i64) -> Self {
        Self {
            counters: None,
            sends: None,
            is_untold: true,
            window_ms,
        }
    }

    /// Sets for how long sends are remembered. A longer window brings back the sends that it covers: they are read
    /// again from the file.
    pub(crate) fn set_window(&mut self, millis: i64) {
        if millis > self.window_ms {
            self.sends = None;
            self.is_untold = true;
        }
        self.window_ms = millis;
    }

    /// Returns true if the sends of the window have been read back.
    pub(crate) const fn knows_sends(&self) -> bool {
        self.sends.is_some()
    }

    /// Brings the numbers of the tenants' remembered sends up to date, once they were read back.
    pub(crate) fn tell_remembered(&mut self, told: &mut Option<HashMap<i64, u64>>) {
        let Some(sends) = &mut self.sends else {
            return;
        };
        if std::mem::take(&mut self.is_untold) {
            *told = None;
        }
        let told = told.get_or_insert_default();
        for (tenant, count) in sends.take_changed() {
            match count {
                0 => told.remove(&tenant),
                count => told.insert(tenant, count),
            };
        }
    }

    /// Forgets sends whose window is over, so that they are not counted although nobody sends anything.
    pub(crate) fn forget(&mut self, db: &Db, now: Timestamp) -> Result<()> {
        let window_ms = self.window_ms;
        let (_, sends) = self.open(db, now)?;
        sends.forget(now.plus_millis(-window_ms));
        Ok(())
    }

    pub(crate) fn load(
        &mut self,
        db: &mut Db,
        tenant: i64,
        reads: &Reads,
        now: Timestamp,
    ) -> Result<Snapshot> {
        let window_ms = self.window_ms;
        let (counters, sends) = self.open(db, now)?;
        sends.forget(now.plus_millis(-window_ms));
        let mut snapshot = Snapshot {
            inflight: counters.inflight(tenant),
            send_context: SendContext {
                head: counters.head(tenant),
                remembered: sends.share(tenant),
                oldest_remembered: sends.oldest(tenant),
                ..SendContext::default()
            },
            ..Snapshot::default()
        };
        for send in &reads.sends {
            let context = &mut snapshot.send_context;
            let chain = || counters.chain(tenant, send.shard);
            context.chains.entry(send.shard).or_insert_with(chain);
            if !context.depths.contains_key(&send.topic) {
                let depth = counters.waiting(db, tenant, &send.topic)?;
                context.depths.insert(Arc::clone(&send.topic), depth);
            }
            if let Some(partition) = send.partition()
                && is_occupied(db, counters, tenant, &partition)?
            {
                context.occupied.insert(partition);
            }
            context.keyed.push(keyed(db, sends, tenant, send)?);
        }
        for id in &reads.messages {
            let found = query::find(db, tenant, *id, Read::WithoutPayload)?;
            snapshot.messages.extend(found);
        }
        if let Some(take) = &reads.ready
            && let Some(topic) = counters.topic(db, tenant, &take.topic)?
        {
            snapshot.ready = query::ready(db, topic, take)?;
        }
        if let Some(filter) = &reads.dead {
            let page = query::dead(db, tenant, filter, Read::WithoutPayload)?;
            (snapshot.dead, snapshot.dead_next) = (page.letters, page.next);
        }
        if let Some((topic, limit)) = &reads.waiting
            && let Some(number) = counters.topic(db, tenant, topic)?
        {
            snapshot.waiting = query::waiting(db, number, *limit)?;
        }
        load_letters(db, counters, tenant, &mut snapshot)?;
        for (partition, shown) in snapshot.partitions() {
            if let Some(topic) = counters.topic(db, tenant, &partition.0)? {
                let line = query::line(db, topic, &partition.1, shown)?;
                snapshot.lines.insert(partition, line);
            }
        }
        Ok(snapshot)
    }

    /// Returns what is kept in memory, which is read from the file first if it is not there.
    fn open(&mut self, db: &Db, now: Timestamp) -> Result<(&mut Counters, &mut Sends)> {
        let counters = match &mut self.counters {
            Some(counters) => counters,
            absent => absent.insert(Counters::load(db)?),
        };
        let sends = match &mut self.sends {
            Some(sends) => sends,
            absent => absent.insert(Sends::load(db, now.plus_millis(-self.window_ms))?),
        };
        Ok((counters, sends))
    }

    pub(crate) fn write(&mut self, db: &mut Db, tenant: i64, changes: &Changes) -> Result<()> {
        // A write follows a load in the same transaction, which has opened both.
        let (Some(counters), Some(sends)) = (&mut self.counters, &mut self.sends) else {
            return Ok(());
        };
        for (shard, chain) in &changes.chains {
            counters.set_chain(tenant, *shard, *chain);
        }
        for MessageWrite { message, before } in &changes.messages {
            let key = key(tenant, message.id);
            match before {
                None => {
                    let topic = counters.intern(db, tenant, &message.topic)?;
                    row::insert(db, key, topic, message)?;
                    let name = Name::new(tenant, &message.topic, &message.idem_key);
                    sends.add(message.sent_at, tenant, name, key);
                }
                Some(_) => {
                    // The counters below must know the topic.
                    counters.topic(db, tenant, &message.topic)?;
                    row::update(db, key, message)?;
                }
            }
            let before = before.map(|before| before.kind);
            let after = Some(message.standing().kind);
            counters.count(tenant, (&message.topic, message.shard), before, after);
        }
        for MessageWrite { message, before } in &changes.forgotten {
            counters.topic(db, tenant, &message.topic)?;
            row::delete(db, key(tenant, message.id))?;
            let before = before.map(|before| before.kind);
            counters.count(tenant, (&message.topic, message.shard), before, None);
        }
        Ok(())
    }

    /// Writes the counters that changed, for the commit that is about to be made.
    pub(crate) fn save(&mut self, db: &Db) -> Result<()> {
        match &mut self.counters {
            Some(counters) => counters.save(db),
            None => Ok(()),
        }
    }

    /// Keeps what the open transaction changed: it was committed.
    pub(crate) fn keep(&mut self) {
        if let Some(sends) = &mut self.sends {
            sends.keep();
        }
    }

    /// Forgets what the open transaction changed: it was rolled back.
    pub(crate) fn roll_back(&mut self) {
        self.counters = None;
        if let Some(sends) = &mut self.sends {
            sends.roll_back();
        }
    }
}

/// Loads what the dead letters that are shown would meet if they came back.
fn load_letters(
    db: &Db,
    counters: &mut Counters,
    tenant: i64,
    snapshot: &mut Snapshot,
) -> Result<()> {
    let letters = snapshot.letters();
    let (mut depths, mut occupied) = (BTreeMap::new(), Occupied::new());
    for letter in letters {
        if !depths.contains_key(&letter.topic) {
            let depth = counters.waiting(db, tenant, &letter.topic)?;
            depths.insert(Arc::clone(&letter.topic), depth);
        }
        if let Some(partition) = letter.partition()
            && !occupied.contains(&partition)
            && is_occupied(db, counters, tenant, &partition)?
        {
            occupied.insert(partition);
        }
    }
    (snapshot.depths, snapshot.occupied) = (depths, occupied);
    Ok(())
}

fn is_occupied(
    db: &Db,
    counters: &mut Counters,
    tenant: i64,
    (topic, key): &Partition,
) -> Result<bool> {
    match counters.topic(db, tenant, topic)? {
        Some(topic) => query::is_occupied(db, topic, key),
        None => Ok(false),
    }
}

/// Returns the message that a send's name stands for.
fn keyed(db: &mut Db, sends: &Sends, tenant: i64, send: &SendKey) -> Result<Option<Message>> {
    let name = Name::new(tenant, &send.topic, &send.idem_key);
    let Some(key) = sends.find(name) else {
        return Ok(None);
    };
    query::at(db, key, Read::WithoutPayload)
}

fn key(tenant: i64, id: MessageId) -> Key {
    Key::new(tenant, id.seq())
}

//! The plane of messages inside a transaction: how to load what a job declared, and how to write what it decided.

use asyncgate_core::{
    MessageId, TenantId, Timestamp,
    mailbox::{Changes, Message, MessageWrite, SendContext},
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
    /// Absent until the first transaction.
    sends: Option<Sends>,
    window_ms: i64,
}

impl MailboxState {
    pub(crate) const fn new(window_ms: i64) -> Self {
        Self {
            counters: None,
            sends: None,
            window_ms,
        }
    }

    /// Sets for how long sends are remembered. A longer window brings back the sends that it covers: they are read
    /// again from the file.
    pub(crate) fn set_window(&mut self, millis: i64) {
        if millis > self.window_ms {
            self.sends = None;
        }
        self.window_ms = millis;
    }

    /// Returns how many sends are remembered, once they were read back.
    pub(crate) fn remembered(&self) -> Option<usize> {
        self.sends.as_ref().map(Sends::len)
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
            inflight: counters.inflight(),
            send_context: SendContext {
                head: counters.head(tenant),
                remembered: sends.len() as u64,
                oldest_remembered: sends.oldest(),
                ..SendContext::default()
            },
            ..Snapshot::default()
        };
        for send in &reads.sends {
            let context = &mut snapshot.send_context;
            let state = || {
                (
                    counters.chain(tenant, send.shard),
                    counters.waiting(send.shard),
                )
            };
            context.shards.entry(send.shard).or_insert_with(state);
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
            let shards = snapshot.dead.iter().map(|message| message.shard);
            snapshot.depths = shards
                .map(|shard| (shard, counters.waiting(shard)))
                .collect();
        }
        if let Some((topic, limit)) = &reads.waiting
            && let Some(number) = counters.topic(db, tenant, topic)?
        {
            snapshot.waiting = query::waiting(db, number, *limit)?;
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
                    sends.add(message.sent_at, name, key);
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

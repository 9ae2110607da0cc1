//! Inside a transaction: load what a job of the mailbox declared, write what it decided.

use asyncgate_core::{
    MessageId, Timestamp,
    mailbox::{Changes, Message, MessageWrite, Shelf},
};
use asyncgate_store::mailbox::{Reads, SendKey, Snapshot};
use rusqlite::Result;

use super::{
    books::Books,
    query,
    row::{self, Read},
    sends::{Name, Sends},
};
use crate::{codec::Key, db::Db};

/// What the writer keeps of the mailbox beside the file.
#[derive(Debug)]
pub(crate) struct Post {
    /// Absent after a rollback, until the next transaction reads them again.
    books: Option<Books>,
    /// Absent until the first transaction.
    sends: Option<Sends>,
    window_ms: i64,
}

impl Post {
    pub(crate) const fn new(window_ms: i64) -> Self {
        Self {
            books: None,
            sends: None,
            window_ms,
        }
    }

    /// Sets for how long sends are remembered. A longer window brings back what it covers.
    pub(crate) fn set_window(&mut self, millis: i64) {
        if millis > self.window_ms {
            self.sends = None;
        }
        self.window_ms = millis;
    }

    /// How many sends are remembered, once they were read back.
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
        self.open(db, now)?;
        let (Some(books), Some(sends)) = (&mut self.books, &mut self.sends) else {
            return Ok(Snapshot::default());
        };
        sends.forget(now.plus_millis(-self.window_ms));
        let mut snapshot = Snapshot {
            inflight: books.inflight(),
            shelf: Shelf {
                head: books.head(tenant),
                remembered: sends.len() as u64,
                oldest_remembered: sends.oldest(),
                ..Shelf::default()
            },
            ..Snapshot::default()
        };
        for send in &reads.sends {
            let shelf = &mut snapshot.shelf;
            let state = || (books.chain(tenant, send.shard), books.waiting(send.shard));
            shelf.shards.entry(send.shard).or_insert_with(state);
            shelf.keyed.push(keyed(db, sends, tenant, send)?);
        }
        for id in &reads.messages {
            let found = query::find(db, tenant, *id, Read::WithoutPayload)?;
            snapshot.messages.extend(found);
        }
        if let Some(take) = &reads.ready
            && let Some(topic) = books.topic(db, tenant, &take.topic)?
        {
            snapshot.ready = query::ready(db, topic, take)?;
        }
        if let Some(filter) = &reads.dead {
            let page = query::dead(db, tenant, filter, Read::WithoutPayload)?;
            (snapshot.dead, snapshot.dead_next) = (page.letters, page.next);
            let shards = snapshot.dead.iter().map(|message| message.shard);
            snapshot.depths = shards.map(|shard| (shard, books.waiting(shard))).collect();
        }
        if let Some((topic, limit)) = &reads.waiting
            && let Some(number) = books.topic(db, tenant, topic)?
        {
            snapshot.waiting = query::waiting(db, number, *limit)?;
        }
        Ok(snapshot)
    }

    fn open(&mut self, db: &Db, now: Timestamp) -> Result<()> {
        if self.books.is_none() {
            self.books = Some(Books::load(db)?);
        }
        if self.sends.is_none() {
            let since = now.plus_millis(-self.window_ms);
            self.sends = Some(Sends::load(db, since)?);
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, db: &mut Db, tenant: i64, changes: &Changes) -> Result<()> {
        let (Some(books), Some(sends)) = (&mut self.books, &mut self.sends) else {
            return Ok(());
        };
        for (shard, chain) in &changes.chains {
            books.set_chain(tenant, *shard, *chain);
        }
        for MessageWrite { message, before } in &changes.messages {
            let key = key(tenant, message.id);
            match before {
                None => {
                    let topic = books.intern(db, tenant, &message.topic)?;
                    row::insert(db, key, topic, message)?;
                    let name = Name::new(tenant, &message.topic, &message.idem_key);
                    sends.add(message.sent_at, name, key);
                }
                Some(_) => {
                    books.topic(db, tenant, &message.topic)?;
                    row::update(db, key, message)?;
                }
            }
            let before = before.map(|before| before.kind);
            let after = Some(message.standing().kind);
            books.count(tenant, (&message.topic, message.shard), before, after);
        }
        for MessageWrite { message, before } in &changes.forgotten {
            books.topic(db, tenant, &message.topic)?;
            row::delete(db, key(tenant, message.id))?;
            let before = before.map(|before| before.kind);
            books.count(tenant, (&message.topic, message.shard), before, None);
        }
        Ok(())
    }

    /// Writes the books, for the commit that is about to be made.
    pub(crate) fn save(&mut self, db: &Db) -> Result<()> {
        match &mut self.books {
            Some(books) => books.save(db),
            None => Ok(()),
        }
    }

    /// The open transaction was committed.
    pub(crate) fn keep(&mut self) {
        if let Some(sends) = &mut self.sends {
            sends.keep();
        }
    }

    /// The open transaction was rolled back.
    pub(crate) fn roll_back(&mut self) {
        self.books = None;
        if let Some(sends) = &mut self.sends {
            sends.roll_back();
        }
    }
}

/// The message that a send's name stands for.
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

//! The plane of messages in the owner's memory, which holds all messages that are stored, and of their payloads those that
//! were sent or read lately.

use std::collections::BTreeMap;

use asyncgate_core::{
    Link, MessageId, TenantId, Timestamp,
    mailbox::{ChainHead, Changes, Message, State},
};
use asyncgate_store::{
    Answer, Error, Messages, Rows,
    fair::Weights,
    mailbox::{DeadFilter, DeadPage, Load, Mailbox, Reads, Snapshot, Take, Topic},
};
use bytes::Bytes;
use foldhash::HashMap;
use tokio_postgres::{Row, types::Type};

use crate::{
    PostgresStore,
    ledgers::Key,
    memory::{Memory, Stop},
    pack::{self, damaged},
    recent::Wanted,
    session::Statement,
    table::{Stored, Table, number_key},
};

impl Rows<Messages> for Memory {
    fn load(&mut self, tenant: TenantId, reads: &Reads, now: Timestamp) -> Result<Snapshot, Stop> {
        let mut snapshot = self.mail.load(tenant, reads, now);
        // Only what is handed over is needed with its payload.
        let number = self.ledgers.of(tenant).tenant;
        for message in &mut snapshot.ready {
            let seq = message.id.seq();
            if self.mail.length(tenant, seq) > 0 {
                message.payload = self.payload(Key::new(number, seq))?;
            }
        }
        Ok(snapshot)
    }

    fn apply(&mut self, id: TenantId, changes: &Changes) -> Result<(), Stop> {
        self.mail.apply(id, changes);
        let ledger = self.ledgers.of(id);
        let tenant = ledger.tenant;
        self.out.change(ledger.shard());
        let head = self.mail.head(id);
        if head != ledger.mail_head {
            ledger.mail_head = head;
            self.out.ledger(ledger);
        }
        for write in &changes.messages {
            let message = &write.message;
            let key = || number_key(message.id.seq());
            if write.before.is_none() {
                let content = pack::pack_content(message);
                self.out.put(Table::Content, tenant, key(), content);
                if !message.payload.is_empty() {
                    let payload = message.payload.to_vec();
                    self.out.put(Table::Payload, tenant, key(), payload);
                    let place = Key::new(tenant, message.id.seq());
                    self.payloads.put(place, message.payload.clone());
                }
            }
            if matches!(message.state, State::Gone { .. }) {
                self.forget_payload(tenant, message.id.seq());
            }
            let standing = pack::pack_standing(message);
            self.out.put(Table::Message, tenant, key(), standing);
        }
        for write in &changes.forgotten {
            let key = || number_key(write.message.id.seq());
            self.out.remove(Table::Message, tenant, key());
            self.out.remove(Table::Content, tenant, key());
            self.forget_payload(tenant, write.message.id.seq());
        }
        for (shard, head) in &changes.chains {
            let mut body = head.seq.to_be_bytes().to_vec();
            body.extend_from_slice(head.link.as_bytes());
            let key = number_key((*shard).into());
            self.out.put(Table::Chain, tenant, key, body);
        }
        Ok(())
    }
}

impl Memory {
    fn payload(&mut self, key: Key) -> Result<Bytes, Stop> {
        if let Some(asked) = self.recent.payloads.get(&key) {
            return Ok(asked.clone());
        }
        self.payloads.get(key).ok_or(Stop::Missing)
    }

    fn forget_payload(&mut self, tenant: i64, seq: u64) {
        self.out.remove(Table::Payload, tenant, number_key(seq));
        self.payloads.forget(Key::new(tenant, seq));
    }

    /// Adds to `wanted` the payloads of the messages that all its wishes together may take.
    pub(crate) fn want_payloads(&mut self, wanted: &mut Wanted) {
        for (tenant, take) in std::mem::take(&mut wanted.takes) {
            let number = self.ledgers.of(tenant).tenant;
            for seq in self.mail.next_places(tenant, &take) {
                let key = Key::new(number, seq);
                let has_payload = self.mail.length(tenant, seq) > 0;
                if !has_payload {
                    continue;
                }
                // A hot payload could be forgotten before the job that needs it is decided.
                match self.payload(key) {
                    Ok(payload) => drop(self.recent.payloads.insert(key, payload)),
                    Err(_) => drop(wanted.payloads.insert(key)),
                }
            }
        }
    }

    /// Takes back all messages, which come in the order of tenants and places, and the heads of their chains. The rows of
    /// both tables have the same keys in the same order.
    pub(crate) fn restore_mail(
        &mut self,
        contents: &[Row],
        standings: &[Row],
        chains: &[Row],
    ) -> Result<(), Error> {
        let mut messages: BTreeMap<i64, Vec<(Message, usize)>> = BTreeMap::new();
        if contents.len() != standings.len() {
            return Err(damaged("a message has lost a part"));
        }
        for (content, standing) in contents.iter().zip(standings) {
            let (content, standing) = (Stored::of(content), Stored::of(standing));
            if (content.tenant, &content.key) != (standing.tenant, &standing.key) {
                return Err(damaged("a message has lost a part"));
            }
            let message = pack::unpack_message(&content.body, &standing.body)?;
            messages.entry(content.tenant).or_default().push(message);
        }
        let mut heads: BTreeMap<i64, BTreeMap<u16, ChainHead>> = BTreeMap::new();
        for row in chains {
            let stored = Stored::of(row);
            let (seq, link) = stored
                .body
                .split_first_chunk()
                .ok_or_else(|| damaged("a chain has no head"))?;
            let link = <[u8; 32]>::try_from(link).map_err(|_| damaged("a chain has no link"))?;
            let head = ChainHead {
                seq: u64::from_be_bytes(*seq),
                link: Link::from_bytes(link),
            };
            let shard = u16::try_from(stored.number()).map_err(|_| damaged("no such shard"))?;
            heads.entry(stored.tenant).or_default().insert(shard, head);
        }
        let Self { ledgers, mail, .. } = self;
        for ledger in ledgers.iter() {
            let of_tenant = messages.remove(&ledger.tenant).unwrap_or_default();
            let chains = heads.remove(&ledger.tenant).unwrap_or_default();
            if ledger.mail_head > 0 {
                mail.restore(ledger.id, ledger.mail_head, chains, of_tenant);
            }
        }
        Ok(())
    }
}

impl PostgresStore {
    /// Reads the payloads of messages. One that was forgotten meanwhile has none left.
    async fn with_payloads(
        &self,
        tenant: TenantId,
        mut messages: Vec<Message>,
    ) -> Result<Vec<Message>, Error> {
        let live = messages.iter();
        let live = live.filter(|message| !matches!(message.state, State::Gone { .. }));
        let keys: Vec<Vec<u8>> = live.map(|message| number_key(message.id.seq())).collect();
        if keys.is_empty() {
            return Ok(messages);
        }
        let rows = self.read(move |session| {
            let sql = "SELECT tenant, key, body FROM payload
                       WHERE tenant = (SELECT tenant FROM tenant WHERE id = $1) AND key = ANY($2)";
            let statement = Statement::new(sql).with(tenant.as_bytes().to_vec(), Type::BYTEA);
            let statement = statement.bytes(keys.clone());
            async move { Ok(statement.run(&session.client).await?) }
        });
        let rows = rows.await?;
        let read = rows.iter().map(Stored::of);
        let mut payloads: HashMap<u64, Bytes> = read
            .map(|stored| (stored.number(), Bytes::from(stored.body)))
            .collect();
        for message in &mut messages {
            message.payload = payloads.remove(&message.id.seq()).unwrap_or_default();
        }
        Ok(messages)
    }
}

impl Mailbox for PostgresStore {
    fn set_replay_window(&self, millis: i64) {
        self.owner.set_replay_window(millis);
    }

    fn set_weights(&self, weights: Weights) {
        self.owner.set_weights(weights);
    }

    fn message(&self, tenant: TenantId, id: MessageId) -> Answer<'_, Option<Message>> {
        let looked = self.look(tenant, move |memory| memory.mail.message(tenant, id));
        Box::pin(async move {
            let found = looked.await?.into_iter().collect();
            Ok(self.with_payloads(tenant, found).await?.pop())
        })
    }

    fn messages(
        &self,
        tenant: TenantId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Answer<'_, Vec<Message>> {
        let looked = self.look(tenant, move |memory| {
            memory.mail.messages(tenant, after, limit)
        });
        Box::pin(async move { self.with_payloads(tenant, looked.await?).await })
    }

    fn peek(&self, tenant: TenantId, take: Take) -> Answer<'_, Vec<Message>> {
        let looked = self.look(tenant, move |memory| memory.mail.peek(tenant, &take));
        Box::pin(async move { self.with_payloads(tenant, looked.await?).await })
    }

    fn dead_letters(&self, tenant: TenantId, filter: DeadFilter) -> Answer<'_, DeadPage> {
        let looked = self.look(tenant, move |memory| {
            memory.mail.dead_letters(tenant, &filter)
        });
        Box::pin(async move {
            let DeadPage { letters, next } = looked.await?;
            let letters = self.with_payloads(tenant, letters).await?;
            Ok(DeadPage { letters, next })
        })
    }

    fn topics(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<Topic>> {
        self.look(tenant, move |memory| {
            memory.mail.topics(tenant, after.as_deref(), limit)
        })
    }

    fn chains(&self, tenant: TenantId) -> Answer<'_, BTreeMap<u16, ChainHead>> {
        self.look(tenant, move |memory| memory.mail.chains(tenant))
    }

    fn messages_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        self.look(None, move |memory| memory.mail.due(now, limit))
    }

    fn next_message_due(&self) -> Answer<'_, Option<Timestamp>> {
        self.look(None, |memory| memory.mail.next_due())
    }

    fn waiting_since(
        &self,
        since: Timestamp,
        after: Option<(TenantId, MessageId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        self.look(None, move |memory| {
            memory.mail.waiting_since(since, after, limit)
        })
    }

    fn load(&self, now: Timestamp) -> Answer<'_, Load> {
        self.look(None, move |memory| memory.mail.total(now))
    }
}

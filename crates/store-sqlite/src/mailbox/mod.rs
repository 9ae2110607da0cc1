//! The mailbox in the file.

mod check;
mod counters;
#[cfg(test)]
mod plans;
mod query;
#[cfg(test)]
mod restart;
mod row;
mod sends;
mod state;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
};

use asyncgate_core::{
    MessageId, TenantId, Timestamp,
    mailbox::{ChainHead, Message},
};
use asyncgate_store::{
    Answer,
    fair::Weights,
    mailbox::{DeadFilter, DeadPage, Load, Mailbox, Take, Topic},
};

pub(crate) use self::{check::tenant as check, query::chains, state::MailboxState};
use self::{row::Read, sends::Sends};
use crate::SqliteStore;

impl Mailbox for SqliteStore {
    fn set_replay_window(&self, millis: i64) {
        let shared = &self.writer.shared;
        shared.replay_window_ms.store(millis, Ordering::Relaxed);
    }

    fn set_weights(&self, weights: Weights) {
        self.writer.set_weights(weights);
    }

    fn message(&self, tenant: TenantId, id: MessageId) -> Answer<'_, Option<Message>> {
        self.read_of(tenant, move |db, tenant| {
            query::find(db, tenant, id, Read::Whole)
        })
    }

    fn messages(
        &self,
        tenant: TenantId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Answer<'_, Vec<Message>> {
        self.read_of(tenant, move |db, tenant| {
            query::all(db, tenant, after, limit)
        })
    }

    fn peek(&self, tenant: TenantId, take: Take) -> Answer<'_, Vec<Message>> {
        self.read_of(tenant, move |db, tenant| query::peek(db, tenant, &take))
    }

    fn dead_letters(&self, tenant: TenantId, filter: DeadFilter) -> Answer<'_, DeadPage> {
        self.read_of(tenant, move |db, tenant| {
            query::dead(db, tenant, &filter, Read::Whole)
        })
    }

    fn topics(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<Topic>> {
        self.read_of(tenant, move |db, tenant| {
            query::topics(db, tenant, after.as_deref(), limit)
        })
    }

    fn chains(&self, tenant: TenantId) -> Answer<'_, BTreeMap<u16, ChainHead>> {
        self.read_of(tenant, query::chains)
    }

    fn messages_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        self.read(move |db| query::due(db, now, limit))
    }

    fn next_message_due(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(query::next_due)
    }

    fn waiting_since(
        &self,
        since: Timestamp,
        after: Option<(TenantId, MessageId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        self.read(move |db| query::waiting_since(db, since, after, limit))
    }

    fn load(&self, now: Timestamp) -> Answer<'_, Load> {
        let shared = Arc::clone(&self.writer.shared);
        // Nobody waits for the writer here. It forgets what is over when it comes to that.
        shared
            .asked_at
            .fetch_max(now.as_millis(), Ordering::Relaxed);
        self.read(move |db| {
            // Copied, so that the writer does not wait for the query.
            let counted = shared.remembered().clone();
            if let Some(remembered) = counted {
                return query::load(db, &remembered);
            }
            // The writer counts before its first transaction over messages; until then somebody else must.
            let last_time = Timestamp::from_millis(shared.last_time.load(Ordering::Relaxed));
            let window_ms = shared.replay_window_ms.load(Ordering::Relaxed);
            let mut sends = Sends::load(db, last_time.plus_millis(-window_ms))?;
            let counted: HashMap<i64, u64> = sends.take_changed().into_iter().collect();
            let remembered = shared.remembered().get_or_insert(counted).clone();
            query::load(db, &remembered)
        })
    }
}

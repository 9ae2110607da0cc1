//! The mailbox's side of the simulated store: the same queue, faults and tape.

use std::collections::BTreeMap;

use asyncgate_core::{
    MessageId, TenantId, Timestamp,
    mailbox::{ChainHead, Message},
};
use asyncgate_store::{
    Answer,
    fair::Weights,
    mailbox::{DeadFilter, DeadPage, Load, Mailbox, Take, Topic},
};

use super::SimStore;

impl SimStore {
    fn look<'a, T: Send + 'a>(
        &'a self,
        ask: impl FnOnce(&'a dyn Mailbox) -> Answer<'a, T>,
    ) -> Answer<'a, T> {
        self.read(|below| ask(below.mailbox()))
    }
}

impl Mailbox for SimStore {
    fn set_replay_window(&self, millis: i64) {
        self.below.mailbox().set_replay_window(millis);
    }

    fn set_weights(&self, weights: Weights) {
        self.below.mailbox().set_weights(weights);
    }

    fn message(&self, tenant: TenantId, id: MessageId) -> Answer<'_, Option<Message>> {
        self.look(|below| below.message(tenant, id))
    }

    fn messages(
        &self,
        tenant: TenantId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Answer<'_, Vec<Message>> {
        self.look(|below| below.messages(tenant, after, limit))
    }

    fn peek(&self, tenant: TenantId, take: Take) -> Answer<'_, Vec<Message>> {
        self.look(|below| below.peek(tenant, take))
    }

    fn dead_letters(&self, tenant: TenantId, filter: DeadFilter) -> Answer<'_, DeadPage> {
        self.look(|below| below.dead_letters(tenant, filter))
    }

    fn topics(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<Topic>> {
        self.look(|below| below.topics(tenant, after, limit))
    }

    fn chains(&self, tenant: TenantId) -> Answer<'_, BTreeMap<u16, ChainHead>> {
        self.look(|below| below.chains(tenant))
    }

    fn messages_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        self.look(|below| below.messages_due(now, limit))
    }

    fn next_message_due(&self) -> Answer<'_, Option<Timestamp>> {
        self.look(Mailbox::next_message_due)
    }

    fn waiting_since(
        &self,
        since: Timestamp,
        after: Option<(TenantId, MessageId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        self.look(|below| below.waiting_since(since, after, limit))
    }

    fn load(&self, now: Timestamp) -> Answer<'_, Load> {
        self.look(|below| below.load(now))
    }
}

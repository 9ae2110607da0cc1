//! Comparing messages with the store: every row, count, deadline and chain.

use std::collections::BTreeMap;

use asyncgate_core::{
    MessageId, Timestamp,
    mailbox::{ChainHead, Kind, Message},
};
use asyncgate_store::{
    Store,
    mailbox::{Counts, Mailbox, Topic},
};

use super::{Mail, TenantMail};
use crate::{
    cast::tenant_id,
    store::at_once,
    violation::{Checked, hold},
};

impl Mail {
    /// Compares everything that changed since the last audit with the store; a `whole` audit compares
    /// everything.
    pub fn audit(&mut self, store: &dyn Store, whole: bool) -> Checked {
        let mailbox = store.mailbox();
        let mut shards: BTreeMap<u16, Counts> = BTreeMap::new();
        for (number, mail) in self.tenants.iter_mut().enumerate() {
            if whole {
                mail.audit_all(number, mailbox)?;
            }
            mail.audit(number, mailbox)?;
            for message in mail.messages.values() {
                let counts = shards.entry(message.shard).or_default();
                counts.count(None, Some(message.standing().kind));
            }
        }
        let load = at_once(mailbox.load(Timestamp::default())).unwrap_or_default();
        let full = load.shards.iter();
        let full = full.filter(|(_, counts)| **counts != Counts::default());
        hold(full.eq(&shards), "messages are conserved", || {
            format!("{:?}, should be {shards:?}", load.shards)
        })?;
        let end = Timestamp::from_millis(i64::MAX);
        let due = at_once(mailbox.messages_due(end, usize::MAX)).unwrap_or_default();
        let known = self.due.iter();
        let known = known.map(|(_, number, id)| (tenant_id(*number), *id));
        hold(
            due.iter().copied().eq(known),
            "deadlines of messages",
            || format!("{} stored, {} known", due.len(), self.due.len()),
        )
    }

    /// Returns true if a message that a sender was told of is stored, or was ended by somebody.
    pub fn keeps(&self, number: usize, id: MessageId, stored: Option<&Message>) -> bool {
        let lives = stored.is_some_and(|message| message.standing().kind != Kind::Gone);
        lives || self.tenants[number].over.contains(&id.seq())
    }

    /// Checks that nothing is overdue at `now`.
    pub fn check_deadlines_met(&self, now: Timestamp) -> Checked {
        let first = self.due.first().filter(|(at, ..)| *at <= now);
        hold(first.is_none(), "deadlines are met", || {
            format!("message {first:?} was due, it is {now}")
        })
    }
}

impl TenantMail {
    /// Returns the counts of each topic, except for topics whose messages are all gone.
    pub(super) fn topics(&self) -> Vec<Topic> {
        let mut topics: BTreeMap<&str, Counts> = BTreeMap::new();
        for message in self.messages.values() {
            let counts = topics.entry(&message.topic).or_default();
            counts.count(None, Some(message.standing().kind));
        }
        topics.retain(|_, counts| counts.any());
        let topics = topics.into_iter().map(|(name, counts)| Topic {
            name: name.to_owned(),
            counts,
            oldest: self.first_in_queue(name),
        });
        topics.collect()
    }

    fn first_in_queue(&self, topic: &str) -> Option<Timestamp> {
        let ready = self.queue(topic, Kind::Ready).next();
        let first = ready.or_else(|| self.queue(topic, Kind::Delayed).next());
        first.map(|message| message.since)
    }

    fn audit(&mut self, number: usize, mailbox: &dyn Mailbox) -> Checked {
        let tenant = tenant_id(number);
        for seq in std::mem::take(&mut self.changed) {
            let Some(known) = self.messages.get(&seq) else {
                continue;
            };
            let stored = at_once(mailbox.message(tenant, known.id)).ok().flatten();
            hold(stored.as_ref() == Some(known), "messages", || {
                format!("stored {stored:?}, should be {known:?}")
            })?;
        }
        let topics = self.topics();
        let stored = at_once(mailbox.topics(tenant, None, usize::MAX)).unwrap_or_default();
        hold(stored == topics, "messages are conserved", || {
            format!("{stored:?}, should be {topics:?}")
        })?;
        let chains = at_once(mailbox.chains(tenant)).unwrap_or_default();
        hold(chains == self.chains, "chain of messages", || {
            format!("{chains:?}, should be {:?}", self.chains)
        })
    }

    /// Compares every message, and checks that the rest of each chain still fits together.
    fn audit_all(&self, number: usize, mailbox: &dyn Mailbox) -> Checked {
        let stored = at_once(mailbox.messages(tenant_id(number), None, usize::MAX));
        let stored = stored.unwrap_or_default();
        hold(stored.iter().eq(self.messages.values()), "messages", || {
            let (stored, known) = (stored.len(), self.messages.len());
            format!("{stored} stored, {known} known, or some differ")
        })?;
        let mut ends: BTreeMap<u16, ChainHead> = BTreeMap::new();
        for message in &stored {
            let end = ends.entry(message.shard).or_default();
            // Forgotten messages leave gaps; only neighbours can be compared.
            let follows = end.seq + 1 != message.chain_seq || end.link == message.prev;
            hold(
                follows && end.seq < message.chain_seq,
                "chain of messages",
                || format!("message {} of tenant {number}", message.id),
            )?;
            *end = message.chain_head();
        }
        let beyond = |(shard, end): (&u16, &ChainHead)| {
            let head = self.chains.get(shard).copied().unwrap_or_default();
            end.seq > head.seq || end.seq == head.seq && *end != head
        };
        hold(!ends.iter().any(beyond), "chain of messages", || {
            format!("{ends:?} of tenant {number}, heads {:?}", self.chains)
        })
    }
}

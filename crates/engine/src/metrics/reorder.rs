//! How far messages are delivered out of the order in which they were sent.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::{MessageId, TenantId, mailbox::Message};

/// How many first deliveries of a topic are remembered. Deeper disorder is not told apart.
const REMEMBERED: usize = 64;
/// For how many topics. Beyond that all are forgotten and watched anew.
const MAX_TOPICS: usize = 1_024;
/// How many messages that their senders held back may wait for their delivery. Beyond that all are
/// forgotten.
const MAX_HELD_BACK: usize = 65_536;

/// The last first deliveries of each tenant's topics, shard by shard.
#[derive(Debug, Default)]
pub(super) struct Reorder {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    recent: HashMap<(TenantId, Arc<str>, u16), VecDeque<u64>>,
    held_back: HashSet<(TenantId, MessageId)>,
}

impl Reorder {
    /// The sender of a message had it wait: others go before it by its will.
    pub(super) fn held_back(&self, tenant: TenantId, id: MessageId) {
        let held_back = &mut self.seen().held_back;
        if held_back.len() >= MAX_HELD_BACK {
            held_back.clear();
        }
        held_back.insert((tenant, id));
    }

    /// How many messages were delivered before this one although they were sent later. Not those that
    /// were meant to: the message was held back, or came back from the dead.
    pub(super) fn depth(&self, tenant: TenantId, message: &Message) -> Option<i64> {
        let Seen { recent, held_back } = &mut *self.seen();
        if held_back.remove(&(tenant, message.id)) || message.since != message.sent_at {
            return None;
        }
        if recent.len() >= MAX_TOPICS {
            recent.clear();
        }
        let seq = message.chain_seq;
        let line = recent.entry((tenant, Arc::clone(&message.topic), message.shard));
        let line = line.or_default();
        let earlier = line.iter().filter(|delivered| **delivered > seq).count();
        line.push_back(seq);
        if line.len() > REMEMBERED {
            line.pop_front();
        }
        Some(earlier as i64)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

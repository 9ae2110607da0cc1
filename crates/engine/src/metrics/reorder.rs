//! Measures the disorder of deliveries: messages that overtake others of their topic, or of their key in it.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::{MessageId, TenantId, mailbox::Message};

/// The number of first deliveries that are remembered for each topic. Deeper disorder is not measured.
const REMEMBERED: usize = 64;
/// The most topics that are remembered. Beyond that, all are forgotten and begin anew.
const MAX_TOPICS: usize = 1_024;
/// The most delayed messages that are remembered until their delivery. Beyond that, all are forgotten.
const MAX_HELD_BACK: usize = 65_536;

/// The last first deliveries of each tenant's topics, key by key: others may overtake a message that waits
/// for its turn.
#[derive(Debug, Default)]
pub(super) struct Reorder {
    seen: Mutex<Seen>,
}

/// Messages that are delivered in the order in which they were sent: of a tenant, a topic and a partition key.
type Line = (TenantId, Arc<str>, Option<Arc<str>>);

#[derive(Debug, Default)]
struct Seen {
    recent: HashMap<Line, VecDeque<u64>>,
    held_back: HashSet<(TenantId, MessageId)>,
}

impl Reorder {
    /// Notes a message that its sender delayed: others may overtake it.
    pub(super) fn held_back(&self, tenant: TenantId, id: MessageId) {
        let held_back = &mut self.seen().held_back;
        if held_back.len() >= MAX_HELD_BACK {
            held_back.clear();
        }
        held_back.insert((tenant, id));
    }

    /// Returns the number of messages that were delivered before this one although they were sent later.
    /// Returns nothing if that was intended: the message was delayed, or is a dead letter that came back.
    pub(super) fn depth(&self, tenant: TenantId, message: &Message) -> Option<i64> {
        let Seen { recent, held_back } = &mut *self.seen();
        if held_back.remove(&(tenant, message.id)) || message.since != message.sent_at {
            return None;
        }
        if recent.len() >= MAX_TOPICS {
            recent.clear();
        }
        let seq = message.chain_seq;
        let (topic, key) = (Arc::clone(&message.topic), message.partition_key.clone());
        let line = recent.entry((tenant, topic, key)).or_default();
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

//! How far messages are delivered out of the order in which they were sent.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use asyncgate_core::{TenantId, mailbox::Message};

/// How many first deliveries of a topic are remembered. Deeper disorder is not told apart.
const REMEMBERED: usize = 64;
/// For how many topics. Beyond that all are forgotten and watched anew.
const MAX_TOPICS: usize = 1_024;

/// The last first deliveries of each tenant's topics, shard by shard.
#[derive(Debug, Default)]
pub(super) struct Reorder {
    recent: Mutex<HashMap<(TenantId, String, u16), VecDeque<u64>>>,
}

impl Reorder {
    /// How many messages were delivered before this one although they were sent later.
    pub(super) fn depth(&self, tenant: TenantId, message: &Message) -> i64 {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= MAX_TOPICS {
            recent.clear();
        }
        let seq = message.chain_seq;
        let line = recent.entry((tenant, message.topic.clone(), message.shard));
        let line = line.or_default();
        let earlier = line.iter().filter(|delivered| **delivered > seq).count();
        line.push_back(seq);
        if line.len() > REMEMBERED {
            line.pop_front();
        }
        earlier as i64
    }
}

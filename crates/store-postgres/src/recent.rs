//! The rows that the jobs of the open batch asked for and that were not in memory.
//!
//! A job that is about to be decided finds everything in memory, or it is not decided yet. What a job of the open batch
//! wrote counts more than what the database answered.

use std::collections::{BTreeMap, BTreeSet};

use asyncgate_core::{
    PrincipalKey, Reach, Receipt, ReceiptId, Relationship, Task, TenantId, identity::audit::Entry,
    metering::Metered,
};
use asyncgate_store::{
    Error, IdempotencyKey,
    mailbox::{self, Take},
};
use bytes::Bytes;
use foldhash::HashMap;

use crate::ledgers::Key;

/// A question about a receipt: its acknowledgement by a principal.
pub(crate) type Acknowledged = (i64, ReceiptId, PrincipalKey);

/// The rows that the open batch asked for.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    pub(crate) tasks: HashMap<Key, Option<Task>>,
    /// Tasks whose rows cannot be read, and why.
    pub(crate) damaged: HashMap<Key, Error>,
    pub(crate) keys: HashMap<(i64, IdempotencyKey), Option<i64>>,
    pub(crate) receipts: HashMap<(i64, ReceiptId), Option<Receipt>>,
    pub(crate) acknowledged: HashMap<Acknowledged, Option<ReceiptId>>,
    pub(crate) relationships: HashMap<(i64, PrincipalKey), Option<Relationship>>,
    /// The numbers of receipts about a task, each counted up to a bound.
    pub(crate) about: HashMap<Key, BTreeMap<u64, u64>>,
    pub(crate) metered: HashMap<(i64, usize), Metered>,
    pub(crate) payloads: HashMap<Key, Bytes>,
    /// The oldest entries of audit logs.
    pub(crate) oldest: HashMap<(Option<TenantId>, usize), Vec<Entry>>,
}

/// The rows that jobs need and that are not in memory.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) tasks: BTreeSet<Key>,
    pub(crate) keys: BTreeSet<(i64, IdempotencyKey)>,
    pub(crate) receipts: BTreeSet<(i64, ReceiptId)>,
    pub(crate) acknowledged: BTreeSet<Acknowledged>,
    pub(crate) relationships: BTreeSet<(i64, PrincipalKey)>,
    pub(crate) about: BTreeSet<(Key, u64)>,
    pub(crate) metered: BTreeSet<(i64, usize)>,
    pub(crate) payloads: BTreeSet<Key>,
    /// The wishes for ready messages, those for one topic together.
    pub(crate) takes: Vec<(TenantId, Take)>,
    pub(crate) oldest: BTreeSet<(Option<TenantId>, usize)>,
    /// The claims: a tenant, what a worker can serve, and how many tasks all claims alike want together.
    pub(crate) claims: Vec<(i64, Reach, usize)>,
}

impl Wanted {
    /// Adds the wish of a job for ready messages.
    pub(crate) fn take(&mut self, tenant: TenantId, reads: &mailbox::Reads) {
        let Some(take) = &reads.ready else {
            return;
        };
        let mut takes = self.takes.iter_mut();
        match takes.find(|(of, known)| *of == tenant && known.topic == take.topic) {
            Some((_, known)) => {
                known.max_messages = known.max_messages.saturating_add(take.max_messages);
                known.max_bytes = known.max_bytes.saturating_add(take.max_bytes);
            }
            None => self.takes.push((tenant, take.clone())),
        }
    }

    /// Returns true if everything is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
            && self.keys.is_empty()
            && self.receipts.is_empty()
            && self.acknowledged.is_empty()
            && self.relationships.is_empty()
            && self.about.is_empty()
            && self.metered.is_empty()
            && self.payloads.is_empty()
            && self.oldest.is_empty()
    }
}

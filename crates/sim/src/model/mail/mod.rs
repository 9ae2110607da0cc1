//! The messages that should be stored, learnt commit by commit.
//!
//! For each transaction the model predicts every message that it writes (`foresee`, for settling
//! `settle`), from the call behind it and everything before it. Laws that no call may break are checked
//! separately (`laws`), answers are compared with the prediction (`answers`), and the store is compared
//! from time to time (`audit`).

mod answers;
mod audit;
mod foresee;
mod laws;
mod lines;
mod settle;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use asyncgate_api::Code;
use asyncgate_core::{
    LeaseId, MessageId, Timestamp,
    mailbox::{ChainHead, Changes, Kind, Message, Partition, Policy, Standing},
};

use super::oracle::Question;
use crate::{
    cast::{TENANTS, tenant_number},
    hash::{Map, Set},
    step::Op,
    store::{Commit, MailWrote, Origin},
    violation::Checked,
};

pub use answers::AnsweredMail;
use foresee::Foreseen;

/// The messages of all tenants.
#[derive(Debug)]
pub struct Mail {
    policy: Policy,
    tenants: [TenantMail; TENANTS],
    due: BTreeSet<(Timestamp, usize, MessageId)>,
}

/// The messages of one tenant.
#[derive(Debug, Default)]
struct TenantMail {
    /// The place of the last message.
    head: u64,
    messages: BTreeMap<u64, Message>,
    /// The place of the last message with each name, by topic and key.
    names: Map<(Arc<str>, Arc<str>), u64>,
    /// The ready and the delayed messages of each topic, in the order of delivery.
    queues: BTreeMap<Arc<str>, [Queue; 2]>,
    /// The places of the live messages of each topic and partition key.
    lines: BTreeMap<Partition, BTreeSet<u64>>,
    inflight: u64,
    /// The times of the remembered sends.
    sends: VecDeque<Timestamp>,
    dead: BTreeSet<u64>,
    chains: BTreeMap<u16, ChainHead>,
    leases: Set<LeaseId>,
    /// Messages that were acknowledged, purged, or kept long enough as dead letters.
    over: Set<u64>,
    changed: BTreeSet<u64>,
}

type Queue = BTreeSet<(Reverse<i32>, u64)>;

/// The expected outcome of one item of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is done.
    Done,
    /// It is a new message.
    New,
    /// It was sent before.
    Again(MessageId),
    /// It repeats the item with this number of the same call.
    AgainOf(usize),
    /// It is refused.
    Refused(Code),
}

/// The model's notes on the transactions of a call.
#[derive(Debug, Default)]
pub struct Notes {
    /// The expected outcome of each item of the last transaction; empty if there was none.
    pub fates: Vec<Fate>,
    /// The messages that it sent or handed over.
    given: Vec<Message>,
    /// The number of messages that all of them wrote.
    pub wrote: usize,
    /// The number of messages that all of them ended.
    ended: usize,
    /// The number of messages that all of them handed over.
    pub handed: usize,
}

impl Notes {
    fn note(&mut self, foreseen: Foreseen, changes: Option<&Changes>) {
        self.fates = foreseen.fates;
        self.given.clear();
        if let Some(changes) = changes {
            self.wrote += changes.messages.len();
            let given = changes.messages.iter().map(|write| &write.message);
            let ended = given.clone();
            let ended = ended.filter(|message| message.standing().kind == Kind::Gone);
            self.ended += ended.count();
            let handed = given.clone();
            let handed = handed.filter(|message| message.standing().kind == Kind::Leased);
            self.handed += handed.count();
            self.given.extend(given.cloned());
        }
    }
}

impl Mail {
    /// Creates the model of an empty store.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            tenants: Default::default(),
            due: BTreeSet::new(),
        }
    }

    /// Checks a commit against the call behind it and everything before it, and learns it.
    pub fn learn(
        &mut self,
        call: Option<&Question<'_>>,
        commit: &Commit,
        wrote: &MailWrote,
        notes: Option<&mut Notes>,
    ) -> Checked {
        self.forget_sends(wrote.asked_at);
        let number = tenant_number(commit.tenant);
        let nothing = Changes::default();
        let changes = wrote.changes.as_ref().unwrap_or(&nothing);
        let op = match commit.origin {
            Origin::Call(_, op) => Some(op),
            Origin::Server | Origin::Operator(_) => None,
        };
        self.check_laws(number, op, commit.now, changes)?;
        let foreseen = self.foresee(number, op, call, commit.now, wrote);
        foreseen.check(commit.now, changes)?;
        if let Some(notes) = notes {
            notes.note(foreseen, wrote.changes.as_ref());
        }
        self.write(number, changes);
        Ok(())
    }

    fn forget_sends(&mut self, now: Timestamp) {
        let window = self.policy.t_replay_ms;
        for mail in &mut self.tenants {
            let over = |at: &Timestamp| at.plus_millis(window) <= now;
            while mail.sends.front().is_some_and(over) {
                mail.sends.pop_front();
            }
        }
    }

    /// Restarts the process: it knows only those sends whose messages are still stored.
    pub fn restart(&mut self) {
        for mail in &mut self.tenants {
            // Places are given in the order of time.
            let messages = mail.messages.values();
            mail.sends = messages.map(|message| message.sent_at).collect();
        }
    }

    fn write(&mut self, number: usize, changes: &Changes) {
        for write in &changes.messages {
            let message = &write.message;
            if write.before.is_none() {
                let mail = &mut self.tenants[number];
                // The model keeps its own chain and never copies the store's.
                let chain = mail.chains.entry(message.shard).or_default();
                *chain = chain.then(&message.hash_chain);
                mail.head = message.id.seq();
                let name = (Arc::clone(&message.topic), Arc::clone(&message.idem_key));
                mail.names.insert(name, message.id.seq());
                mail.sends.push_back(message.sent_at);
            }
            self.place(number, message, Some(message.standing()));
            let mail = &mut self.tenants[number];
            mail.leases
                .extend(message.delivery.map(|given| given.lease));
            if message.standing().kind == Kind::Gone {
                mail.over.insert(message.id.seq());
            }
            mail.messages.insert(message.id.seq(), message.clone());
        }
        for write in &changes.forgotten {
            self.place(number, &write.message, None);
            let mail = &mut self.tenants[number];
            mail.messages.remove(&write.message.id.seq());
            mail.over.insert(write.message.id.seq());
        }
    }

    /// Moves a message from its old place in the indexes to its new one.
    fn place(&mut self, number: usize, message: &Message, after: Option<Standing>) {
        let mail = &mut self.tenants[number];
        let seq = message.id.seq();
        let before = mail.messages.get(&seq).map(Message::standing);
        for (standing, comes) in [(before, false), (after, true)] {
            let Some(Standing { kind, due }) = standing else {
                continue;
            };
            if let Some(at) = due {
                put(&mut self.due, (at, number, message.id), comes);
            }
            match kind {
                Kind::Ready | Kind::Delayed => {
                    let place = (Reverse(message.priority), seq);
                    let queues = mail.queues.entry(Arc::clone(&message.topic)).or_default();
                    put(&mut queues[kind as usize], place, comes);
                }
                Kind::Leased if comes => mail.inflight += 1,
                Kind::Leased => mail.inflight -= 1,
                Kind::Dead => put(&mut mail.dead, seq, comes),
                Kind::Gone => {}
            }
        }
        if let Some(partition) = message.partition() {
            let is_live = after.is_some() && message.is_live();
            put(mail.lines.entry(partition).or_default(), seq, is_live);
        }
        mail.changed.insert(seq);
    }

    /// Returns the earliest deadline.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Returns true if a receiver would be given something.
    pub fn has_message(&self, number: usize, topic: &str) -> bool {
        let queues = self.tenants[number].queues.get(topic);
        queues.is_some_and(|queues| !queues[Kind::Ready as usize].is_empty())
    }

    /// Returns how much more a tenant may use of a bound that tenants share: whatever is free, or else the
    /// rest of its equal part.
    fn room(&self, number: usize, capacity: u32, used: fn(&TenantMail) -> u64, more: u64) -> u64 {
        let mut used = self.tenants.each_ref().map(used);
        used[number] += more;
        let capacity = u64::from(capacity);
        let others = used.iter().enumerate();
        let others = others.filter(|(other, used)| *other != number && **used > 0);
        let part = 1.max(capacity / (others.count() as u64 + 1));
        let free = capacity.saturating_sub(used.iter().sum());
        free.max(part.saturating_sub(used[number]))
    }
}

impl TenantMail {
    /// Returns the message with this id.
    fn message(&self, id: MessageId) -> Option<&Message> {
        let message = self.messages.get(&id.seq())?;
        (message.id == id).then_some(message)
    }

    /// Returns the number of messages that wait in a topic.
    fn depth(&self, topic: &str) -> u64 {
        let queues = self.queues.get(topic).into_iter().flatten();
        queues.map(|queue| queue.len() as u64).sum()
    }

    /// Returns the messages of a topic that are ready or delayed, in their order.
    fn queue(&self, topic: &str, kind: Kind) -> impl Iterator<Item = &Message> {
        let queue = self.queues.get(topic).map(|queues| &queues[kind as usize]);
        let places = queue.into_iter().flatten();
        places.filter_map(|(_, seq)| self.messages.get(seq))
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, item: T, comes: bool) {
    if comes {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}

/// Returns true if an operation ends messages.
fn ends(op: Option<Op>) -> bool {
    [
        Op::ACK_MESSAGE,
        Op::ACK_BATCH,
        Op::PURGE,
        Op::DELETE_MESSAGE,
    ]
    .map(Some)
    .contains(&op)
}

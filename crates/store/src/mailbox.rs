//! The mailbox's side of storage: the same load, decide, save, over messages.

use std::{collections::BTreeMap, sync::Arc};

use asyncgate_core::{
    MessageId, TenantId, Timestamp,
    mailbox::{ChainHead, Changes, Decision, Kind, Message, Rejection, Shelf, shard_of},
};

use crate::{Answer, Error, fair::Weights, transact::keeping_output};

/// The rows that a decision needs. What is not declared is not loaded.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// Sends whose keys are looked up, in order.
    pub sends: Vec<SendKey>,
    /// Messages by id, with or without their payload, which settling does not need. Those that do
    /// not exist are missing from the snapshot.
    pub messages: Vec<MessageId>,
    /// The next ready messages of a topic.
    pub ready: Option<Take>,
    /// Dead letters.
    pub dead: Option<DeadFilter>,
    /// Messages of a topic that wait, ready or delayed, and how many at most.
    pub waiting: Option<(String, usize)>,
}

impl Reads {
    /// The topic whose messages are touched, if it is known beforehand.
    pub fn topic(&self) -> Option<&str> {
        let ready = self.ready.as_ref().map(|take| &*take.topic);
        let sent = self.sends.first().map(|send| &*send.topic);
        let dead = self
            .dead
            .as_ref()
            .and_then(|filter| filter.topic.as_deref());
        let waiting = self.waiting.as_ref().map(|(topic, _)| &**topic);
        ready.or(sent).or(dead).or(waiting)
    }

    /// How many rows are touched at most.
    pub fn rows(&self) -> usize {
        let ready = self.ready.as_ref().map_or(0, |take| take.max_messages);
        let dead = self.dead.as_ref().map_or(0, |filter| filter.limit);
        let waiting = self.waiting.as_ref().map_or(0, |(_, limit)| *limit);
        self.sends.len() + self.messages.len() + ready + dead + waiting
    }
}

/// What a sender calls a message, and the shard that it goes to if it is new.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SendKey {
    /// Where to.
    pub topic: Arc<str>,
    /// The sender's name for it.
    pub idem_key: Arc<str>,
    /// The shard.
    pub shard: u16,
}

impl SendKey {
    /// The key of a send into one of `shards` shards.
    pub fn new(topic: &str, idem_key: &str, partition_key: Option<&str>, shards: u16) -> Self {
        Self {
            topic: topic.into(),
            idem_key: idem_key.into(),
            shard: shard_of(topic, partition_key, shards),
        }
    }
}

/// How many ready messages to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// Of which topic.
    pub topic: String,
    /// The most messages.
    pub max_messages: usize,
    /// The most bytes of content, unless the first message alone has more.
    pub max_bytes: usize,
}

impl Take {
    /// Takes messages while they fit. `taken` counts their bytes; it is absent before the first.
    pub fn fits(&self, taken: &mut Option<usize>, message: &Message) -> bool {
        let first = taken.is_none();
        let bytes = taken.get_or_insert_default();
        *bytes = bytes.saturating_add(message.payload.len());
        first || *bytes <= self.max_bytes
    }
}

/// Which dead letters to list, in the order in which they were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Only of this topic.
    pub topic: Option<String>,
    /// Only with this reason.
    pub reason: Option<String>,
    /// Only those that died at or before this time.
    pub died_by: Option<Timestamp>,
    /// Only those after this one.
    pub after: Option<MessageId>,
    /// The most to return.
    pub limit: usize,
}

impl DeadFilter {
    /// Whether a message is to be listed.
    pub fn matches(&self, message: &Message) -> bool {
        let asyncgate_core::mailbox::State::Dead { at, .. } = message.state else {
            return false;
        };
        self.topic
            .as_ref()
            .is_none_or(|topic| **topic == *message.topic)
            && (self.reason.is_none() || self.reason == message.reason)
            && self.died_by.is_none_or(|by| at <= by)
            && self
                .after
                .is_none_or(|after| message.id.seq() > after.seq())
    }
}

/// How many dead letters a look goes through before it answers with what it has: a rare filter costs
/// the caller more pages, never the server a scan.
pub const MAX_LOOKED_AT: usize = 2_000;

impl DeadFilter {
    /// How many dead letters to look at.
    pub fn looks_at(&self) -> usize {
        // One more than wanted tells whether there are more.
        MAX_LOOKED_AT.max(self.limit.saturating_add(1))
    }
}

/// Some dead letters, and where to go on. Looking through those that do not match is bounded, so a
/// page may be short, or even empty, and still have a `next`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeadPage {
    /// The dead letters, in the order in which they were sent.
    pub letters: Vec<Message>,
    /// What to give as `after` for more; absent when there are none.
    pub next: Option<MessageId>,
}

/// The rows that were declared, as they stand.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The latest time that anything was written with.
    pub last_time: Timestamp,
    /// What the declared sends meet.
    pub shelf: Shelf,
    /// The declared messages that exist, in the order declared.
    pub messages: Vec<Message>,
    /// The ready messages, in the order of delivery.
    pub ready: Vec<Message>,
    /// The dead letters, in the order in which they were sent.
    pub dead: Vec<Message>,
    /// Where the look for dead letters ended, if there may be more.
    pub dead_next: Option<MessageId>,
    /// How many messages wait in each shard that dead letters would return to.
    pub depths: BTreeMap<u16, u64>,
    /// The waiting messages: those that are ready in the order of delivery, then those that are not.
    pub waiting: Vec<Message>,
    /// How many messages receivers hold, over all tenants.
    pub inflight: u64,
}

/// A pure decision: what to write, or `None` to write nothing. It may be called more than once;
/// the last call counts.
pub type Decide = Box<dyn FnMut(Snapshot) -> Option<Changes> + Send>;

/// One transaction to run.
pub struct Job {
    /// The tenant whose rows it may touch.
    pub tenant: TenantId,
    /// What to load.
    pub reads: Reads,
    /// The time it is decided at.
    pub now: Timestamp,
    /// Roughly how much memory it holds while it waits.
    pub weight: usize,
    /// The decision.
    pub decide: Decide,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("tenant", &self.tenant)
            .field("reads", &self.reads)
            .finish_non_exhaustive()
    }
}

/// Durable messages. The contract of [`Store`](crate::Store) holds here too; beyond it:
/// - Repeated sends are recognised by rows, not by memory alone: a restart forgets none whose
///   window is open.
/// - Messages are found by the place in their id, ready ones by topic, priority and age, and what
///   is due by time, so that no call costs more because more is stored.
pub trait Mailbox: Send + Sync {
    /// Runs one decision in one transaction.
    fn transact_mailbox(&self, job: Job) -> Answer<'_, ()>;

    /// Tells how long repeated sends must be recognised, so that older ones can be forgotten.
    fn set_replay_window(&self, millis: i64);

    /// Says how the work is divided among tenants and topics when there is more than can be done.
    fn set_weights(&self, weights: Weights);

    /// One message.
    fn message(&self, tenant: TenantId, id: MessageId) -> Answer<'_, Option<Message>>;

    /// All messages that are stored, gone ones included, in the order in which they were sent.
    fn messages(
        &self,
        tenant: TenantId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Answer<'_, Vec<Message>>;

    /// The next ready messages of a topic, which stay where they are.
    fn peek(&self, tenant: TenantId, take: Take) -> Answer<'_, Vec<Message>>;

    /// Dead letters.
    fn dead_letters(&self, tenant: TenantId, filter: DeadFilter) -> Answer<'_, DeadPage>;

    /// Topics by name, after `after`. Those whose messages are all gone are not listed.
    fn topics(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<Topic>>;

    /// Where the tenant's chains end, by shard.
    fn chains(&self, tenant: TenantId) -> Answer<'_, BTreeMap<u16, ChainHead>>;

    /// Messages whose time is at or before `now`, earliest first.
    fn messages_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, MessageId)>>;

    /// The earliest deadline of a message.
    fn next_message_due(&self) -> Answer<'_, Option<Timestamp>>;

    /// Messages that have waited since `since` or longer, after `after` in the order of tenants and
    /// places: what nobody came for.
    fn waiting_since(
        &self,
        since: Timestamp,
        after: Option<(TenantId, MessageId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(TenantId, MessageId)>>;

    /// How full the mailbox is, over all tenants.
    fn load(&self) -> Answer<'_, Load>;
}

/// What a topic holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// How many messages it holds of each kind.
    pub counts: Counts,
    /// Since when the first in line waits, a delayed one only if none is ready.
    pub oldest: Option<Timestamp>,
}

/// How many messages there are of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([u64; Kind::ALL.len()]);

impl Counts {
    /// Whether there are messages that are not gone.
    pub const fn any(&self) -> bool {
        self.waiting() + self.of(Kind::Leased) + self.of(Kind::Dead) > 0
    }

    /// The number of messages of a kind.
    pub const fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Sets the number of messages of a kind.
    pub const fn set(&mut self, kind: Kind, count: u64) {
        self.0[kind as usize] = count;
    }

    /// Ready and delayed ones.
    pub const fn waiting(&self) -> u64 {
        self.of(Kind::Ready) + self.of(Kind::Delayed)
    }

    /// Counts a change of one message: from one kind to another.
    pub const fn count(&mut self, before: Option<Kind>, after: Option<Kind>) {
        if let Some(before) = before {
            self.0[before as usize] = self.0[before as usize].saturating_sub(1);
        }
        if let Some(after) = after {
            self.0[after as usize] += 1;
        }
    }
}

/// How full the mailbox is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Load {
    /// How many messages there are of each kind, by shard.
    pub shards: BTreeMap<u16, Counts>,
    /// How many sends are remembered.
    pub remembered: u64,
}

impl Load {
    /// How many messages receivers hold.
    pub fn inflight(&self) -> u64 {
        let shards = self.shards.values();
        shards.map(|counts| counts.of(Kind::Leased)).sum()
    }
}

/// Runs a typed decision: the outer error is the store's, the inner the rule's.
///
/// No `async fn`: that would keep every argument twice, for whoever waits to carry along.
pub fn transact<T: Send + 'static>(
    store: &(impl Mailbox + ?Sized),
    tenant: TenantId,
    now: Timestamp,
    weight: usize,
    reads: Reads,
    mut decide: impl FnMut(Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
) -> impl Future<Output = Result<Result<T, Rejection>, Error>> + Send {
    let (decide, output) = keeping_output(move |snapshot| {
        let Decision { changes, output } = decide(snapshot)?;
        Ok((changes, output))
    });
    let job = Job {
        tenant,
        reads,
        now,
        weight,
        decide: Box::new(decide),
    };
    let written = store.transact_mailbox(job);
    async move {
        written.await?;
        output.decided()
    }
}

//! The plane of messages: the rows that its decisions declare and are shown, and the reads of a mailbox.

use std::{collections::BTreeMap, sync::Arc};

use asyncgate_core::{
    MessageId, TenantId, Timestamp,
    mailbox::{
        ChainHead, Changes, Kind, Lines, Message, Occupied, Partition, Rejection, SendContext,
        Share, State, shard_of,
    },
};

use crate::{
    Answer, Declared, Job, Plane, Work,
    fair::{Lane, Weights},
};

/// Messages and their chains.
#[derive(Debug)]
pub enum Messages {}

impl Plane for Messages {
    type Reads = Reads;
    type Snapshot = Snapshot;
    type Changes = Changes;
    type Rejection = Rejection;

    fn is_empty(changes: &Changes) -> bool {
        changes.is_empty()
    }

    fn receipts(_: &Changes) -> usize {
        // Messages have chains of their own and never touch the ledger.
        0
    }

    fn work(job: Job<Self>) -> Work {
        Work::Messages(job)
    }
}

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

impl Declared for Reads {
    type Plane = Messages;

    /// Returns the lane of the topic, if it is known beforehand: who only names messages by id may touch any topic.
    fn lane(&self) -> Lane {
        let ready = self.ready.as_ref().map(|take| &*take.topic);
        let sent = self.sends.first().map(|send| &*send.topic);
        let dead = self
            .dead
            .as_ref()
            .and_then(|filter| filter.topic.as_deref());
        let waiting = self.waiting.as_ref().map(|(topic, _)| &**topic);
        let topic = ready.or(sent).or(dead).or(waiting);
        topic.map_or(Lane::Messages, |topic| Lane::Topic(topic.to_owned()))
    }

    fn rows(&self) -> usize {
        let ready = self.ready.as_ref().map_or(0, |take| take.max_messages);
        let dead = self.dead.as_ref().map_or(0, |filter| filter.limit);
        let waiting = self.waiting.as_ref().map_or(0, |(_, limit)| *limit);
        self.sends.len() + self.messages.len() + ready + dead + waiting
    }
}

/// The sender's name for a message, and where the message goes if it is new.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SendKey {
    /// The topic that it is sent to.
    pub topic: Arc<str>,
    /// The sender's name for it within the topic.
    pub idem_key: Arc<str>,
    /// The key that orders it among the messages of the topic.
    pub partition_key: Option<Arc<str>>,
    /// The shard.
    pub shard: u16,
}

impl SendKey {
    /// The key of a send into one of `shards` shards.
    pub fn new(topic: &str, idem_key: &str, partition_key: Option<&str>, shards: u16) -> Self {
        Self {
            topic: topic.into(),
            idem_key: idem_key.into(),
            partition_key: partition_key.map(Into::into),
            shard: shard_of(topic, partition_key, shards),
        }
    }

    /// Returns the partition that the message goes to, if it has a key.
    pub fn partition(&self) -> Option<Partition> {
        let key = self.partition_key.as_ref()?;
        Some((Arc::clone(&self.topic), Arc::clone(key)))
    }
}

/// A wish for the next ready messages of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// The topic.
    pub topic: String,
    /// The most messages.
    pub max_messages: usize,
    /// The most bytes of content, unless the first message alone has more.
    pub max_bytes: usize,
}

impl Take {
    /// Returns true while messages fit. `taken` counts their bytes; it is absent before the first.
    pub fn fits(&self, taken: &mut Option<usize>, message: &Message) -> bool {
        self.fits_bytes(taken, message.payload.len())
    }

    /// Does the same for a message whose content has so many bytes.
    pub fn fits_bytes(&self, taken: &mut Option<usize>, length: usize) -> bool {
        let first = taken.is_none();
        let bytes = taken.get_or_insert_default();
        *bytes = bytes.saturating_add(length);
        first || *bytes <= self.max_bytes
    }
}

/// A choice of dead letters, in the order in which they were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Only those of this topic.
    pub topic: Option<String>,
    /// Only those with this reason.
    pub reason: Option<String>,
    /// Only those that died at or before this time.
    pub died_by: Option<Timestamp>,
    /// Only those after this one.
    pub after: Option<MessageId>,
    /// The most to return.
    pub limit: usize,
}

impl DeadFilter {
    /// Returns true if a message is to be listed.
    pub fn matches(&self, message: &Message) -> bool {
        let State::Dead { at, .. } = message.state else {
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

/// The most dead letters that a look goes through before it answers with what it has: a rare filter costs the
/// caller more pages, never the server a scan.
pub const MAX_LOOKED_AT: usize = 2_000;

impl DeadFilter {
    /// Returns how many dead letters to look at.
    pub fn looks_at(&self) -> usize {
        // One more than wanted tells whether there are more.
        MAX_LOOKED_AT.max(self.limit.saturating_add(1))
    }
}

/// A page of dead letters. The search through those that do not match is bounded, so a page may be short, or even
/// empty, and still have a `next`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeadPage {
    /// The dead letters, in the order in which they were sent.
    pub letters: Vec<Message>,
    /// The value of `after` for the next page; absent when there is none.
    pub next: Option<MessageId>,
}

/// The rows that were declared, as they stand.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The rows that the declared sends are decided with.
    pub send_context: SendContext,
    /// The declared messages that exist, in the order declared.
    pub messages: Vec<Message>,
    /// The ready messages, in the order of delivery.
    pub ready: Vec<Message>,
    /// The dead letters, in the order in which they were sent.
    pub dead: Vec<Message>,
    /// The dead letter at which the search ended, if there may be more.
    pub dead_next: Option<MessageId>,
    /// The number of waiting messages in each topic that dead letters would return to.
    pub depths: BTreeMap<Arc<str>, u64>,
    /// The partitions that dead letters would return to and that have a live message.
    pub occupied: Occupied,
    /// The waiting messages: those that are ready in the order of delivery, then those that are not.
    pub waiting: Vec<Message>,
    /// The partitions of all live messages that are shown.
    pub lines: Lines,
    /// The number of messages that receivers hold.
    pub inflight: Share,
}

impl Snapshot {
    /// Returns the dead letters that are shown.
    pub fn letters(&self) -> impl Iterator<Item = &Message> {
        let named = self.messages.iter();
        let named = named.filter(|message| message.standing().kind == Kind::Dead);
        named.chain(&self.dead)
    }

    /// Returns the partitions of all live messages that are shown, each with the number of them. A line
    /// shows one message more than that.
    pub fn partitions(&self) -> BTreeMap<Partition, usize> {
        let shown = self.messages.iter().chain(&self.ready).chain(&self.waiting);
        let live = shown.filter(|message| message.is_live());
        let mut partitions = BTreeMap::new();
        for partition in live.filter_map(Message::partition) {
            *partitions.entry(partition).or_default() += 1;
        }
        partitions
    }
}

/// Durable messages. They are written by [`Store::transact`](crate::Store::transact), whose contract holds for them.
/// Beyond it:
/// - Repeated sends are recognised by rows, not by memory alone: a restart forgets none whose window is open.
/// - Messages are found by the place in their id, ready ones by topic, priority and age, and due ones by time, so that
///   no call costs more because more is stored.
pub trait Mailbox: Send + Sync {
    /// Sets for how long repeated sends must be recognised. Older ones can be forgotten.
    fn set_replay_window(&self, millis: i64);

    /// Sets how the work is divided among tenants and topics when there is more than can be done.
    fn set_weights(&self, weights: Weights);

    /// Returns one message.
    fn message(&self, tenant: TenantId, id: MessageId) -> Answer<'_, Option<Message>>;

    /// Returns all messages that are stored, gone ones included, in the order in which they were sent.
    fn messages(
        &self,
        tenant: TenantId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Answer<'_, Vec<Message>>;

    /// Returns the next ready messages of a topic. They stay where they are.
    fn peek(&self, tenant: TenantId, take: Take) -> Answer<'_, Vec<Message>>;

    /// Returns dead letters.
    fn dead_letters(&self, tenant: TenantId, filter: DeadFilter) -> Answer<'_, DeadPage>;

    /// Returns topics by name, after `after`. Topics whose messages are all gone are left out.
    fn topics(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<Topic>>;

    /// Returns the heads of the tenant's chains, by shard.
    fn chains(&self, tenant: TenantId) -> Answer<'_, BTreeMap<u16, ChainHead>>;

    /// Returns messages whose deadline is at or before `now`, earliest first.
    fn messages_due(&self, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, MessageId)>>;

    /// Returns the earliest deadline of a message.
    fn next_message_due(&self) -> Answer<'_, Option<Timestamp>>;

    /// Returns messages that have waited since `since` or longer, because nobody came for them. They are in the
    /// order of tenants and places, after `after`.
    fn waiting_since(
        &self,
        since: Timestamp,
        after: Option<(TenantId, MessageId)>,
        limit: usize,
    ) -> Answer<'_, Vec<(TenantId, MessageId)>>;

    /// Returns how full the mailbox is, over all tenants. Sends whose window is over at `now` are counted for
    /// a moment at most.
    fn load(&self, now: Timestamp) -> Answer<'_, Load>;
}

/// A topic and its counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// The number of its messages of each kind.
    pub counts: Counts,
    /// The time since which the first in line waits. A delayed message counts only if none is ready.
    pub oldest: Option<Timestamp>,
}

/// The number of messages of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts([u64; Kind::ALL.len()]);

impl Counts {
    /// Returns true if there are messages that are not gone.
    pub const fn any(&self) -> bool {
        self.waiting() + self.of(Kind::Leased) + self.of(Kind::Dead) > 0
    }

    /// Returns the number of messages of a kind.
    pub const fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Sets the number of messages of a kind.
    pub const fn set(&mut self, kind: Kind, count: u64) {
        self.0[kind as usize] = count;
    }

    /// Returns the number of ready and delayed messages.
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

/// The load of a mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Load {
    /// The number of messages of each kind, by shard.
    pub shards: BTreeMap<u16, Counts>,
    /// The tenants that ever sent a message, and what they use of the shared bounds.
    pub tenants: BTreeMap<TenantId, Used>,
}

/// What a tenant uses of the bounds that tenants share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// The number of messages that its receivers hold.
    pub inflight: u64,
    /// The number of its sends that are remembered.
    pub remembered: u64,
}

impl Load {
    /// Returns how many messages receivers hold.
    pub fn inflight(&self) -> u64 {
        self.tenants.values().map(|used| used.inflight).sum()
    }

    /// Returns how many sends are remembered.
    pub fn remembered(&self) -> u64 {
        self.tenants.values().map(|used| used.remembered).sum()
    }

    /// Returns each tenant's part of what `used` counts.
    pub fn shares(&self, used: fn(&Used) -> u64) -> impl Iterator<Item = Share> {
        let counts = || self.tenants.values().map(used);
        let (total, tenants) = (counts().sum(), counts().filter(|count| *count > 0).count());
        counts().map(move |own| Share {
            total,
            own,
            tenants: tenants as u64,
        })
    }
}

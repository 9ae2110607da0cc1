//! The messages of all tenants in memory.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use asyncgate_core::{
    MessageId, TenantId, Timestamp,
    mailbox::{
        ChainHead, Changes, Kind, Line, Message, MessageWrite, Occupied, Partition, Policy,
        SendContext, Standing,
    },
};

use bytes::Bytes;

use super::Map;
use crate::{
    Remembered, Shares,
    mailbox::{Counts, DeadFilter, DeadPage, Load, Reads, SendKey, Snapshot, Take, Topic, Used},
};

/// The messages of all tenants, and what is counted over all of them.
#[derive(Debug)]
pub struct MessageRows {
    tenants: BTreeMap<TenantId, Tenant>,
    due: BTreeSet<(Timestamp, TenantId, MessageId)>,
    shards: BTreeMap<u16, Counts>,
    inflight: Shares<TenantId>,
    remembered: Remembered<TenantId, MessageId>,
    replay_window_ms: i64,
    /// False if somebody else keeps the payloads.
    keeps_payloads: bool,
}

#[derive(Debug, Default)]
struct Tenant {
    head: u64,
    messages: BTreeMap<u64, Message>,
    /// The lengths of payloads as they were sent.
    lengths: Map<u64, usize>,
    keys: Map<Name, MessageId>,
    queues: Map<Arc<str>, Queue>,
    partitions: Map<Partition, Members>,
    dead: BTreeSet<u64>,
    topics: BTreeMap<Arc<str>, Counts>,
    chains: BTreeMap<u16, ChainHead>,
}

/// The sender's name for a message: its topic and its key.
type Name = (Arc<str>, Arc<str>);

/// The waiting messages of a topic. Those that go first stand first.
#[derive(Debug, Default)]
struct Queue {
    ready: Places,
    delayed: Places,
}

/// The live messages of a partition, by their places.
#[derive(Debug, Default)]
struct Members {
    turns: BTreeSet<u64>,
    blocked: BTreeSet<u64>,
}

/// Places in line: by priority, then by age.
type Places = BTreeSet<(Reverse<i32>, u64)>;

impl Default for MessageRows {
    fn default() -> Self {
        Self {
            tenants: BTreeMap::new(),
            due: BTreeSet::new(),
            shards: BTreeMap::new(),
            inflight: Shares::default(),
            remembered: Remembered::default(),
            replay_window_ms: Policy::default().t_replay_ms,
            keeps_payloads: true,
        }
    }
}

impl MessageRows {
    /// Makes rows without payloads: somebody else keeps them, and fills them in.
    pub fn without_payloads() -> Self {
        Self {
            keeps_payloads: false,
            ..Self::default()
        }
    }

    /// Sets for how long sends are remembered. A longer window brings back the sends that it covers.
    pub fn set_replay_window(&mut self, millis: i64) {
        if millis > self.replay_window_ms {
            self.remember_all();
        }
        self.replay_window_ms = millis;
    }

    /// Remembers every send whose message is there. The next transaction forgets those that are too old.
    fn remember_all(&mut self) {
        let mut sends = Vec::new();
        for (id, tenant) in &mut self.tenants {
            for message in tenant.messages.values() {
                // They come in the order in which they were sent: the last one keeps the name.
                tenant.keys.insert(name(message), message.id);
                sends.push((message.sent_at, *id, message.id));
            }
        }
        sends.sort_unstable();
        self.remembered = Remembered::default();
        for (at, tenant, message) in sends {
            self.remembered.add(tenant, at, message);
        }
    }

    /// Loads the rows that a job declared.
    pub fn load(&mut self, id: TenantId, reads: &Reads, now: Timestamp) -> Snapshot {
        self.forget_sends(now);
        let tenant = self.tenants.entry(id).or_default();
        let dead = reads
            .dead
            .as_ref()
            .map(|filter| tenant.dead_letters(filter));
        let DeadPage {
            letters: dead,
            next: dead_next,
        } = dead.unwrap_or_default();
        let mut snapshot = Snapshot {
            send_context: tenant.send_context(&reads.sends),
            messages: reads
                .messages
                .iter()
                .filter_map(|id| tenant.message(*id))
                .collect(),
            ready: reads
                .ready
                .as_ref()
                .map(|take| tenant.next(take))
                .unwrap_or_default(),
            dead,
            dead_next,
            waiting: reads
                .waiting
                .as_ref()
                .map(|(topic, limit)| tenant.waiting(topic, *limit))
                .unwrap_or_default(),
            inflight: self.inflight.share(id),
            ..Snapshot::default()
        };
        snapshot.send_context.remembered = self.remembered.share(id);
        snapshot.send_context.oldest_remembered = self.remembered.oldest(id);
        let topics = snapshot.letters().map(|message| &message.topic);
        snapshot.depths = tenant.depths(topics);
        snapshot.occupied = tenant.occupied(snapshot.letters().filter_map(Message::partition));
        let lines = snapshot.partitions().into_iter();
        let lines = lines.map(|(partition, shown)| {
            let line = tenant.line(&partition, shown);
            (partition, line)
        });
        snapshot.lines = lines.collect();
        snapshot
    }

    /// Takes back the messages of a tenant that were kept elsewhere, in the order in which they were sent, each with the
    /// length of its payload. `head` is the last place that was ever given, also if its message is forgotten.
    pub fn restore(
        &mut self,
        id: TenantId,
        head: u64,
        chains: BTreeMap<u16, ChainHead>,
        messages: Vec<(Message, usize)>,
    ) {
        let lengths = messages.iter();
        let lengths: Vec<(u64, usize)> = lengths
            .map(|(message, length)| (message.id.seq(), *length))
            .collect();
        // A shard whose messages are all forgotten is one with none.
        for shard in chains.keys() {
            self.shards.entry(*shard).or_default();
        }
        let messages = messages.into_iter().map(|(message, _)| MessageWrite {
            message,
            before: None,
        });
        self.apply(
            id,
            &Changes {
                messages: messages.collect(),
                chains,
                ..Changes::default()
            },
        );
        let tenant = self.tenants.entry(id).or_default();
        tenant.head = tenant.head.max(head);
        tenant.lengths.extend(lengths);
    }

    /// Returns the places of the next ready messages of a topic.
    pub fn next_places(&self, id: TenantId, take: &Take) -> Vec<u64> {
        let tenant = self.tenants.get(&id).into_iter();
        let next = tenant.flat_map(|tenant| tenant.fitting(take));
        next.map(|message| message.id.seq()).collect()
    }

    /// Returns the length of a message's payload as it was sent.
    pub fn length(&self, id: TenantId, seq: u64) -> usize {
        let tenant = self.tenants.get(&id);
        let length = tenant.and_then(|tenant| tenant.lengths.get(&seq));
        length.copied().unwrap_or_default()
    }

    /// Returns the last place that was given to a message of a tenant.
    pub fn head(&self, id: TenantId) -> u64 {
        self.tenants.get(&id).map_or(0, |tenant| tenant.head)
    }

    /// Forgets sends whose window is over.
    fn forget_sends(&mut self, now: Timestamp) {
        let since = now.plus_millis(-self.replay_window_ms);
        let tenants = &mut self.tenants;
        self.remembered.forget(since, |tenant, id| {
            let Some(tenant) = tenants.get_mut(&tenant) else {
                return;
            };
            let message = tenant.messages.get(&id.seq());
            if let Some(name) = message.map(name) {
                // A newer message may have the name by now.
                if tenant.keys.get(&name) == Some(&id) {
                    tenant.keys.remove(&name);
                }
            }
        });
    }

    /// Writes what a decision about messages wants written.
    pub fn apply(&mut self, id: TenantId, changes: &Changes) {
        let tenant = self.tenants.entry(id).or_default();
        tenant.chains.extend(&changes.chains);
        for write in &changes.messages {
            let message = &write.message;
            let after = message.standing();
            if write.before.is_none() {
                tenant.head = tenant.head.max(message.id.seq());
                tenant.keys.insert(name(message), message.id);
                tenant
                    .lengths
                    .insert(message.id.seq(), message.payload.len());
                self.remembered.add(id, message.sent_at, message.id);
            }
            if write.before.is_some_and(|was| was.kind == Kind::Leased) {
                self.inflight.take_one(id);
            }
            self.inflight.add(id, u64::from(after.kind == Kind::Leased));
            move_due(&mut self.due, id, message.id, write.before, Some(after));
            let shard = self.shards.entry(message.shard).or_default();
            shard.count(write.before.map(|was| was.kind), Some(after.kind));
            tenant.place(message, write.before, Some(after));
            tenant.join(message);
            tenant.put(message, self.keeps_payloads);
        }
        for write in &changes.forgotten {
            let message = &write.message;
            move_due(&mut self.due, id, message.id, write.before, None);
            let shard = self.shards.entry(message.shard).or_default();
            shard.count(write.before.map(|was| was.kind), None);
            tenant.place(message, write.before, None);
            tenant.messages.remove(&message.id.seq());
            tenant.lengths.remove(&message.id.seq());
        }
    }

    /// Returns one message.
    pub fn message(&self, tenant: TenantId, id: MessageId) -> Option<Message> {
        self.tenants.get(&tenant)?.message(id)
    }

    /// Returns messages after a place, in the order in which they were sent.
    pub fn messages(
        &self,
        tenant: TenantId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Vec<Message> {
        let after = after.map_or(0, |id| id.seq());
        self.tenants.get(&tenant).map_or_else(Vec::new, |tenant| {
            let later = (Bound::Excluded(after), Bound::Unbounded);
            let messages = tenant.messages.range(later).take(limit);
            messages.map(|(_, message)| message.clone()).collect()
        })
    }

    /// Returns the next ready messages of a topic.
    pub fn peek(&self, tenant: TenantId, take: &Take) -> Vec<Message> {
        let tenant = self.tenants.get(&tenant);
        tenant.map(|tenant| tenant.next(take)).unwrap_or_default()
    }

    /// Returns dead letters.
    pub fn dead_letters(&self, tenant: TenantId, filter: &DeadFilter) -> DeadPage {
        let tenant = self.tenants.get(&tenant);
        tenant
            .map(|tenant| tenant.dead_letters(filter))
            .unwrap_or_default()
    }

    /// Returns topics by name.
    pub fn topics(&self, tenant: TenantId, after: Option<&str>, limit: usize) -> Vec<Topic> {
        let Some(tenant) = self.tenants.get(&tenant) else {
            return Vec::new();
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let topics = tenant.topics.range::<str, _>((from, Bound::Unbounded));
        topics
            .filter(|(_, counts)| counts.any())
            .take(limit)
            .map(|(name, counts)| Topic {
                name: name.as_ref().to_owned(),
                counts: *counts,
                oldest: tenant.first_in_line(name),
            })
            .collect()
    }

    /// Returns the heads of a tenant's chains, by shard.
    pub fn chains(&self, tenant: TenantId) -> BTreeMap<u16, ChainHead> {
        let tenant = self.tenants.get(&tenant);
        tenant
            .map(|tenant| tenant.chains.clone())
            .unwrap_or_default()
    }

    /// Returns messages whose deadline is at or before `now`, earliest first.
    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<(TenantId, MessageId)> {
        let due = self.due.iter().take_while(|(at, ..)| *at <= now);
        due.take(limit)
            .map(|(_, tenant, id)| (*tenant, *id))
            .collect()
    }

    /// Returns the earliest deadline.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Returns messages that have waited since `since` or longer, in the order of tenants and places.
    pub fn waiting_since(
        &self,
        since: Timestamp,
        after: Option<(TenantId, MessageId)>,
        limit: usize,
    ) -> Vec<(TenantId, MessageId)> {
        let all = self.tenants.iter().flat_map(|(tenant, rows)| {
            let messages = rows.messages.values();
            messages.map(move |message| (*tenant, message))
        });
        all.filter(|(tenant, message)| {
            is_waiting(message)
                && message.since <= since
                && after.is_none_or(|(last, id)| (*tenant, message.id.seq()) > (last, id.seq()))
        })
        .take(limit)
        .map(|(tenant, message)| (tenant, message.id))
        .collect()
    }

    /// Returns how full the mailbox is.
    pub fn total(&mut self, now: Timestamp) -> Load {
        self.forget_sends(now);
        let senders = self.tenants.iter();
        let senders = senders.filter(|(_, tenant)| !tenant.chains.is_empty());
        let used = |tenant: &TenantId| Used {
            inflight: self.inflight.share(*tenant).own,
            remembered: self.remembered.of(*tenant),
        };
        Load {
            shards: self.shards.clone(),
            tenants: senders.map(|(id, _)| (*id, used(id))).collect(),
        }
    }
}

impl Tenant {
    fn message(&self, id: MessageId) -> Option<Message> {
        let found = self.messages.get(&id.seq())?;
        (found.id == id).then(|| found.clone())
    }

    /// Stores a message. Its payload stays as it was sent: a decision that had no need of it got none.
    fn put(&mut self, message: &Message, keeps_payload: bool) {
        let mut message = message.clone();
        if !keeps_payload {
            message.payload = Bytes::new();
        }
        let gone = message.standing().kind == Kind::Gone;
        if let Some(stored) = self.messages.get(&message.id.seq()).filter(|_| !gone) {
            message.payload.clone_from(&stored.payload);
        }
        self.messages.insert(message.id.seq(), message);
    }

    fn chain(&self, shard: u16) -> ChainHead {
        self.chains.get(&shard).copied().unwrap_or_default()
    }

    fn keyed(&self, send: &SendKey) -> Option<Message> {
        let name = (Arc::clone(&send.topic), Arc::clone(&send.idem_key));
        self.message(*self.keys.get(&name)?)
    }

    /// Returns what sends are decided with, except what is counted over all tenants.
    fn send_context(&self, sends: &[SendKey]) -> SendContext {
        SendContext {
            head: self.head,
            chains: sends
                .iter()
                .map(|send| (send.shard, self.chain(send.shard)))
                .collect(),
            depths: self.depths(sends.iter().map(|send| &send.topic)),
            occupied: self.occupied(sends.iter().filter_map(SendKey::partition)),
            keyed: sends.iter().map(|send| self.keyed(send)).collect(),
            ..SendContext::default()
        }
    }

    /// Returns how many messages wait in each of the topics.
    fn depths<'a>(&self, topics: impl Iterator<Item = &'a Arc<str>>) -> BTreeMap<Arc<str>, u64> {
        let depth = |topic: &Arc<str>| self.topics.get(topic).map_or(0, Counts::waiting);
        topics
            .map(|topic| (Arc::clone(topic), depth(topic)))
            .collect()
    }

    /// Returns those of the partitions that have live messages.
    fn occupied(&self, partitions: impl Iterator<Item = Partition>) -> Occupied {
        partitions
            .filter(|partition| self.partitions.contains_key(partition))
            .collect()
    }

    /// Returns the first live messages of a partition, one more than are shown of it.
    fn line(&self, partition: &Partition, shown: usize) -> Line {
        let Some(members) = self.partitions.get(partition) else {
            return Line::default();
        };
        let turns: Vec<u64> = members.turns.iter().copied().take(shown + 1).collect();
        let blocked = members.blocked.iter().take(shown + 1 - turns.len());
        let blocked = blocked.filter_map(|seq| self.messages.get(seq));
        Line {
            turns,
            blocked: blocked.cloned().collect(),
        }
    }

    /// Moves a message to its place in its partition, or takes it out.
    fn join(&mut self, message: &Message) {
        let Some(partition) = message.partition() else {
            return;
        };
        let seq = message.id.seq();
        if !message.is_live() {
            if let Some(members) = self.partitions.get_mut(&partition) {
                members.turns.remove(&seq);
                members.blocked.remove(&seq);
                if members.turns.is_empty() && members.blocked.is_empty() {
                    self.partitions.remove(&partition);
                }
            }
            return;
        }
        let Members { turns, blocked } = self.partitions.entry(partition).or_default();
        let (from, to) = match message.is_blocked() {
            true => (turns, blocked),
            false => (blocked, turns),
        };
        from.remove(&seq);
        to.insert(seq);
    }

    fn next(&self, take: &Take) -> Vec<Message> {
        self.fitting(take).cloned().collect()
    }

    fn fitting(&self, take: &Take) -> impl Iterator<Item = &Message> {
        let mut taken = None;
        let length = |message: &Message| self.lengths.get(&message.id.seq());
        self.queue(&take.topic, |queue| &queue.ready)
            .take(take.max_messages)
            .take_while(move |message| {
                let length = length(message).copied().unwrap_or_default();
                take.fits_bytes(&mut taken, length)
            })
    }

    fn queue<'a>(
        &'a self,
        topic: &str,
        part: fn(&Queue) -> &Places,
    ) -> impl Iterator<Item = &'a Message> {
        let part = self.queues.get(topic).map(part);
        let places = part.into_iter().flatten();
        places.filter_map(|(_, seq)| self.messages.get(seq))
    }

    fn dead_letters(&self, filter: &DeadFilter) -> DeadPage {
        let after = filter.after.map_or(0, |id| id.seq());
        let places = self.dead.range((Bound::Excluded(after), Bound::Unbounded));
        let dead = places.filter_map(|seq| self.messages.get(seq));
        let of_topic = |message: &&Message| {
            let topic = filter.topic.as_ref();
            topic.is_none_or(|topic| **topic == *message.topic)
        };
        let mut page = DeadPage::default();
        for (looked_at, message) in (1..).zip(dead.filter(of_topic)) {
            if filter.matches(message) {
                if page.letters.len() == filter.limit {
                    page.next = page.letters.last().map(|message| message.id);
                    break;
                }
                page.letters.push(message.clone());
            }
            if looked_at == filter.looks_at() {
                page.next = Some(message.id);
                break;
            }
        }
        page
    }

    fn waiting(&self, topic: &str, limit: usize) -> Vec<Message> {
        self.in_line(topic).take(limit).cloned().collect()
    }

    fn in_line(&self, topic: &str) -> impl Iterator<Item = &Message> {
        let ready = self.queue(topic, |queue| &queue.ready);
        ready.chain(self.queue(topic, |queue| &queue.delayed))
    }

    fn first_in_line(&self, topic: &str) -> Option<Timestamp> {
        self.in_line(topic).next().map(|message| message.since)
    }

    fn place(&mut self, message: &Message, before: Option<Standing>, after: Option<Standing>) {
        let (before, after) = (before.map(|was| was.kind), after.map(|is| is.kind));
        let counts = self.topics.entry(Arc::clone(&message.topic)).or_default();
        counts.count(before, after);
        if *counts == Counts::default() {
            self.topics.remove(&message.topic);
        }
        let seq = message.id.seq();
        let place = (Reverse(message.priority), seq);
        let queue = self.queues.entry(Arc::clone(&message.topic)).or_default();
        queue.ready.remove(&place);
        queue.delayed.remove(&place);
        if after == Some(Kind::Ready) {
            queue.ready.insert(place);
        } else if after == Some(Kind::Delayed) {
            queue.delayed.insert(place);
        } else if queue.ready.is_empty() && queue.delayed.is_empty() {
            self.queues.remove(&message.topic);
        }
        if after == Some(Kind::Dead) {
            self.dead.insert(seq);
        } else {
            self.dead.remove(&seq);
        }
    }
}

fn name(message: &Message) -> Name {
    (Arc::clone(&message.topic), Arc::clone(&message.idem_key))
}

fn is_waiting(message: &Message) -> bool {
    matches!(message.standing().kind, Kind::Ready | Kind::Delayed)
}

fn move_due(
    due: &mut BTreeSet<(Timestamp, TenantId, MessageId)>,
    tenant: TenantId,
    id: MessageId,
    before: Option<Standing>,
    after: Option<Standing>,
) {
    if let Some(at) = before.and_then(|was| was.due) {
        due.remove(&(at, tenant, id));
    }
    if let Some(at) = after.and_then(|is| is.due) {
        due.insert((at, tenant, id));
    }
}

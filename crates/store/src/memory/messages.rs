//! The messages of all tenants in memory.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    sync::Arc,
};

use asyncgate_core::{
    MessageId, TenantId, Timestamp,
    mailbox::{ChainHead, Changes, Kind, Message, Policy, SendContext, Standing},
};

use super::Map;
use crate::mailbox::{Counts, DeadFilter, DeadPage, Load, Reads, SendKey, Snapshot, Take, Topic};

/// The messages of all tenants, and what is counted over all of them.
#[derive(Debug)]
pub(super) struct MessageRows {
    tenants: BTreeMap<TenantId, Tenant>,
    due: BTreeSet<(Timestamp, TenantId, MessageId)>,
    shards: BTreeMap<u16, Counts>,
    inflight: u64,
    /// The remembered sends, in the order in which they were made.
    remembered: VecDeque<(Timestamp, TenantId, MessageId)>,
    replay_window_ms: i64,
}

#[derive(Debug, Default)]
struct Tenant {
    head: u64,
    messages: BTreeMap<u64, Message>,
    keys: Map<Name, MessageId>,
    lines: Map<Arc<str>, Line>,
    dead: BTreeSet<u64>,
    topics: BTreeMap<Arc<str>, Counts>,
    chains: BTreeMap<u16, ChainHead>,
}

/// The sender's name for a message: its topic and its key.
type Name = (Arc<str>, Arc<str>);

/// The waiting messages of a topic. Those that go first stand first.
#[derive(Debug, Default)]
struct Line {
    ready: Places,
    delayed: Places,
}

/// Places in line: by priority, then by age.
type Places = BTreeSet<(Reverse<i32>, u64)>;

impl Default for MessageRows {
    fn default() -> Self {
        Self {
            tenants: BTreeMap::new(),
            due: BTreeSet::new(),
            shards: BTreeMap::new(),
            inflight: 0,
            remembered: VecDeque::new(),
            replay_window_ms: Policy::default().t_replay_ms,
        }
    }
}

impl MessageRows {
    /// Sets for how long sends are remembered. A longer window brings back the sends that it covers.
    pub(super) fn set_replay_window(&mut self, millis: i64) {
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
        self.remembered = sends.into();
    }

    pub(super) fn load(&mut self, id: TenantId, reads: &Reads, now: Timestamp) -> Snapshot {
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
        let waiting = |shard: &u16| self.shards.get(shard).map_or(0, Counts::waiting);
        Snapshot {
            send_context: SendContext {
                head: tenant.head,
                shards: reads
                    .sends
                    .iter()
                    .map(|send| send.shard)
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .map(|shard| (shard, (tenant.chain(shard), waiting(&shard))))
                    .collect(),
                keyed: reads.sends.iter().map(|send| tenant.keyed(send)).collect(),
                remembered: self.remembered.len() as u64,
                oldest_remembered: self.remembered.front().map(|(at, ..)| *at),
            },
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
            depths: dead
                .iter()
                .map(|message| (message.shard, waiting(&message.shard)))
                .collect(),
            dead,
            dead_next,
            waiting: reads
                .waiting
                .as_ref()
                .map(|(topic, limit)| tenant.waiting(topic, *limit))
                .unwrap_or_default(),
            inflight: self.inflight,
        }
    }

    /// Forgets sends whose window is over.
    fn forget_sends(&mut self, now: Timestamp) {
        while let Some((at, tenant, id)) = self.remembered.front().copied() {
            if at.plus_millis(self.replay_window_ms) > now {
                return;
            }
            self.remembered.pop_front();
            if let Some(tenant) = self.tenants.get_mut(&tenant) {
                let message = tenant.messages.get(&id.seq());
                if let Some(name) = message.map(name) {
                    // A newer message may have the name by now.
                    if tenant.keys.get(&name) == Some(&id) {
                        tenant.keys.remove(&name);
                    }
                }
            }
        }
    }

    pub(super) fn apply(&mut self, id: TenantId, changes: &Changes) {
        let tenant = self.tenants.entry(id).or_default();
        tenant.chains.extend(&changes.chains);
        for write in &changes.messages {
            let message = &write.message;
            let after = message.standing();
            if write.before.is_none() {
                tenant.head = tenant.head.max(message.id.seq());
                tenant.keys.insert(name(message), message.id);
                self.remembered.push_back((message.sent_at, id, message.id));
            }
            self.inflight = self.inflight + u64::from(after.kind == Kind::Leased)
                - u64::from(write.before.is_some_and(|was| was.kind == Kind::Leased));
            move_due(&mut self.due, id, message.id, write.before, Some(after));
            let shard = self.shards.entry(message.shard).or_default();
            shard.count(write.before.map(|was| was.kind), Some(after.kind));
            tenant.place(message, write.before, Some(after));
            tenant.put(message);
        }
        for write in &changes.forgotten {
            let message = &write.message;
            move_due(&mut self.due, id, message.id, write.before, None);
            let shard = self.shards.entry(message.shard).or_default();
            shard.count(write.before.map(|was| was.kind), None);
            tenant.place(message, write.before, None);
            tenant.messages.remove(&message.id.seq());
        }
    }

    pub(super) fn message(&self, tenant: TenantId, id: MessageId) -> Option<Message> {
        self.tenants.get(&tenant)?.message(id)
    }

    pub(super) fn messages(
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

    pub(super) fn peek(&self, tenant: TenantId, take: &Take) -> Vec<Message> {
        let tenant = self.tenants.get(&tenant);
        tenant.map(|tenant| tenant.next(take)).unwrap_or_default()
    }

    pub(super) fn dead_letters(&self, tenant: TenantId, filter: &DeadFilter) -> DeadPage {
        let tenant = self.tenants.get(&tenant);
        tenant
            .map(|tenant| tenant.dead_letters(filter))
            .unwrap_or_default()
    }

    pub(super) fn topics(&self, tenant: TenantId, after: Option<&str>, limit: usize) -> Vec<Topic> {
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

    pub(super) fn chains(&self, tenant: TenantId) -> BTreeMap<u16, ChainHead> {
        let tenant = self.tenants.get(&tenant);
        tenant
            .map(|tenant| tenant.chains.clone())
            .unwrap_or_default()
    }

    pub(super) fn due(&self, now: Timestamp, limit: usize) -> Vec<(TenantId, MessageId)> {
        let due = self.due.iter().take_while(|(at, ..)| *at <= now);
        due.take(limit)
            .map(|(_, tenant, id)| (*tenant, *id))
            .collect()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }

    pub(super) fn waiting_since(
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

    pub(super) fn total(&self) -> Load {
        Load {
            shards: self.shards.clone(),
            remembered: self.remembered.len() as u64,
        }
    }
}

impl Tenant {
    fn message(&self, id: MessageId) -> Option<Message> {
        let found = self.messages.get(&id.seq())?;
        (found.id == id).then(|| found.clone())
    }

    /// Stores a message. Its payload stays as it was sent: a decision that had no need of it got none.
    fn put(&mut self, message: &Message) {
        let mut message = message.clone();
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

    fn next(&self, take: &Take) -> Vec<Message> {
        let mut taken = None;
        self.line(&take.topic, |line| &line.ready)
            .take(take.max_messages)
            .take_while(|message| take.fits(&mut taken, message))
            .cloned()
            .collect()
    }

    fn line<'a>(
        &'a self,
        topic: &str,
        part: fn(&Line) -> &Places,
    ) -> impl Iterator<Item = &'a Message> {
        let part = self.lines.get(topic).map(part);
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
        let ready = self.line(topic, |line| &line.ready);
        ready.chain(self.line(topic, |line| &line.delayed))
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
        let line = self.lines.entry(Arc::clone(&message.topic)).or_default();
        line.ready.remove(&place);
        line.delayed.remove(&place);
        if after == Some(Kind::Ready) {
            line.ready.insert(place);
        } else if after == Some(Kind::Delayed) {
            line.delayed.insert(place);
        } else if line.ready.is_empty() && line.delayed.is_empty() {
            self.lines.remove(&message.topic);
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

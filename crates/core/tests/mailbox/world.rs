//! A tiny world: the rows that a store would keep, and the checks that every decision must pass.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use asyncgate_core::{
    Env, Ids, LeaseId, MessageId, Stamp, Timestamp,
    mailbox::{
        self, ChainHead, Changes, Decision, Kind, Line, Lines, Message, Nack, Occupied, Outgoing,
        Partition, Policy, Received, Rejection, SendContext, Sent, Settlement, Share, State, Swept,
        Wish, shard_of,
    },
};
use bytes::Bytes;

/// Rows of one tenant, and a clock that only the test moves.
#[derive(Debug)]
pub struct World {
    pub now: Timestamp,
    pub policy: Policy,
    pub rows: BTreeMap<u64, Message>,
    pub chains: BTreeMap<u16, ChainHead>,
    head: u64,
    /// Every send that was accepted, oldest first.
    sends: Vec<(Timestamp, MessageId)>,
    decisions: u64,
    /// What other tenants have, of which a share counts: deliveries, and remembered sends.
    pub elsewhere: [Share; 2],
}

/// Builds a message to `inbox` under this key, with the key as content.
pub fn mail(key: &str) -> Outgoing {
    Outgoing {
        topic: "inbox".to_owned(),
        idem_key: key.to_owned(),
        payload: Bytes::copy_from_slice(key.as_bytes()),
        is_text: false,
        attrs: BTreeMap::new(),
        partition_key: None,
        delay_ms: 0,
        ttl_ms: None,
        priority: 0,
        corr_id: None,
    }
}

/// A wish for everything that is ready, for five seconds.
pub const ALL: Wish = Wish {
    visibility_ms: 5_000,
    max_messages: 1_000,
    max_bytes: usize::MAX,
};

/// A wish for one message, for five seconds.
pub const ONE: Wish = Wish {
    max_messages: 1,
    ..ALL
};

impl World {
    pub fn new() -> Self {
        Self::with(Policy::default())
    }

    pub fn with(policy: Policy) -> Self {
        Self {
            now: Timestamp::from_millis(1_767_610_800_000),
            policy,
            rows: BTreeMap::new(),
            chains: BTreeMap::new(),
            head: 0,
            sends: Vec::new(),
            decisions: 0,
            elsewhere: [Share::default(); 2],
        }
    }

    pub fn wait_ms(&mut self, millis: i64) {
        self.now = self.now.plus_millis(millis);
    }

    pub fn env(&mut self) -> Env {
        self.decisions += 1;
        Env {
            now: self.now,
            ids: Ids::new(Stamp::from_u64(self.decisions), self.decisions),
            instance: Arc::from("asyncgate-1"),
            quotas: None,
            policy: Arc::new(asyncgate_core::Policy {
                mailbox: self.policy.clone(),
                ..asyncgate_core::Policy::default()
            }),
        }
    }

    pub fn message(&self, id: MessageId) -> Message {
        self.rows[&id.seq()].clone()
    }

    pub fn kind(&self, id: MessageId) -> Option<Kind> {
        let row = self.rows.get(&id.seq());
        row.map(|message| message.standing().kind)
    }

    pub fn count(&self, kind: Kind) -> usize {
        let rows = self.rows.values();
        rows.filter(|row| row.standing().kind == kind).count()
    }

    /// Returns the number of messages that wait in a topic.
    pub fn depth(&self, topic: &str) -> u64 {
        let waits = |row: &&Message| {
            &*row.topic == topic && matches!(row.standing().kind, Kind::Ready | Kind::Delayed)
        };
        self.rows.values().filter(waits).count() as u64
    }

    /// Returns the live messages of a partition.
    fn members(&self, partition: &Partition) -> impl Iterator<Item = &Message> {
        let rows = self.rows.values().filter(|row| row.is_live());
        rows.filter(move |row| row.partition().as_ref() == Some(partition))
    }

    /// Returns those of the partitions that have live messages.
    fn occupied(&self, partitions: impl Iterator<Item = Partition>) -> Occupied {
        let taken = |partition: &Partition| self.members(partition).next().is_some();
        partitions.filter(taken).collect()
    }

    /// Returns the lines that a store would show with these rows, and nothing more of them.
    fn lines<'a>(&self, rows: impl IntoIterator<Item = &'a Message>) -> Lines {
        let live = rows.into_iter().filter(|row| row.is_live());
        let mut counts: BTreeMap<Partition, usize> = BTreeMap::new();
        for partition in live.filter_map(Message::partition) {
            *counts.entry(partition).or_default() += 1;
        }
        let line = |(partition, count): (Partition, usize)| {
            let turns = self.members(&partition).filter(|row| !row.is_blocked());
            let turns: Vec<u64> = turns.map(|row| row.id.seq()).take(count + 1).collect();
            let blocked = self.members(&partition).filter(|row| row.is_blocked());
            let blocked = blocked.take(count + 1 - turns.len()).cloned().collect();
            (partition, Line { turns, blocked })
        };
        counts.into_iter().map(line).collect()
    }

    /// Returns how much of a shared bound is used, with what others use.
    fn share(&self, elsewhere: usize, own: u64) -> Share {
        let others = self.elsewhere[elsewhere];
        Share {
            total: others.total + own,
            own,
            tenants: others.tenants + u64::from(own > 0),
        }
    }

    /// Returns the sends whose replay window is not over.
    fn remembered(&self) -> impl Iterator<Item = &(Timestamp, MessageId)> {
        let since = self.now.plus_millis(-self.policy.t_replay_ms);
        self.sends.iter().filter(move |(at, _)| *at > since)
    }

    /// Sends several messages in one call.
    pub fn send_all(&mut self, outgoing: Vec<Outgoing>) -> Vec<Result<Sent, Rejection>> {
        let named = |sent: &Outgoing| {
            // A store may still hold a row whose window is over: the rule itself must check the window.
            let mut rows = self.rows.values().rev();
            rows.find(|row| *row.topic == *sent.topic && *row.idem_key == *sent.idem_key)
                .cloned()
        };
        let context = SendContext {
            head: self.head,
            chains: outgoing
                .iter()
                .map(|sent| {
                    let key = sent.partition_key.as_deref();
                    let shard = shard_of(&sent.topic, key, self.policy.shards);
                    let chain = self.chains.get(&shard).copied().unwrap_or_default();
                    (shard, chain)
                })
                .collect(),
            depths: outgoing
                .iter()
                .map(|sent| (sent.topic.as_str().into(), self.depth(&sent.topic)))
                .collect(),
            occupied: self.occupied(outgoing.iter().filter_map(|sent| {
                let key = sent.partition_key.as_deref()?;
                Some((sent.topic.as_str().into(), key.into()))
            })),
            keyed: outgoing.iter().map(named).collect(),
            remembered: self.share(1, self.remembered().count() as u64),
            oldest_remembered: self.remembered().next().map(|(at, _)| *at),
        };
        let env = self.env();
        let decision = mailbox::send(env, context, outgoing);
        self.apply(decision)
    }

    pub fn try_send(&mut self, sent: Outgoing) -> Result<Sent, Rejection> {
        self.send_all(vec![sent]).remove(0)
    }

    /// Sends a message that must be new.
    pub fn send(&mut self, sent: Outgoing) -> MessageId {
        let sent = self.try_send(sent).unwrap();
        assert!(!sent.duplicate);
        sent.id
    }

    /// Returns the ready messages of a topic, in the order of delivery.
    pub fn ready(&self, topic: &str) -> Vec<Message> {
        let rows = self.rows.values();
        let ready = rows.filter(|row| &*row.topic == topic && row.state == State::Ready);
        let mut ready: Vec<Message> = ready.cloned().collect();
        ready.sort_by_key(|message| (Reverse(message.priority), message.id.seq()));
        ready
    }

    pub fn try_receive(&mut self, topic: &str, wish: &Wish) -> Result<Received, Rejection> {
        let (env, ready) = (self.env(), self.ready(topic));
        let inflight = self.share(0, self.count(Kind::Leased) as u64);
        let lines = self.lines(&ready);
        let decision = mailbox::receive(env, wish, inflight, ready, lines)?;
        Ok(self.apply(decision))
    }

    pub fn receive(&mut self, wish: &Wish) -> Vec<Message> {
        self.try_receive("inbox", wish).unwrap().messages
    }

    /// Receives the one message that is first in line.
    pub fn take(&mut self) -> (MessageId, LeaseId) {
        let mut received = self.receive(&ONE);
        let message = received.pop().unwrap();
        (message.id, message.delivery.unwrap().lease)
    }

    pub fn ack(
        &mut self,
        id: MessageId,
        lease: impl Into<Option<LeaseId>>,
    ) -> Result<Settlement, Rejection> {
        let (env, row) = (self.env(), self.rows.get(&id.seq()).cloned());
        let lines = self.lines(&row);
        let decision = mailbox::ack(&env, row, lease.into(), lines)?;
        Ok(self.apply(decision))
    }

    pub fn ack_all(
        &mut self,
        acks: &[(MessageId, Option<LeaseId>)],
    ) -> Vec<Result<Settlement, Rejection>> {
        let env = self.env();
        let rows = acks.iter().filter_map(|(id, _)| self.rows.get(&id.seq()));
        let rows: Vec<Message> = rows.cloned().collect();
        let lines = self.lines(&rows);
        let decision = mailbox::ack_all(&env, rows, acks, lines);
        self.apply(decision)
    }

    pub fn nack(
        &mut self,
        id: MessageId,
        lease: impl Into<Option<LeaseId>>,
        nack: Nack,
    ) -> Result<Settlement, Rejection> {
        let (env, row) = (self.env(), self.rows.get(&id.seq()).cloned());
        let lines = self.lines(&row);
        let decision = mailbox::nack(env, row, lease.into(), nack, lines)?;
        Ok(self.apply(decision))
    }

    pub fn extend(
        &mut self,
        id: MessageId,
        lease: impl Into<Option<LeaseId>>,
        visibility_ms: i64,
    ) -> Result<Timestamp, Rejection> {
        let (env, row) = (self.env(), self.rows.get(&id.seq()).cloned());
        let decision = mailbox::extend(&env, row, lease.into(), visibility_ms)?;
        Ok(self.apply(decision))
    }

    /// Sweeps every row, due or not: the rule itself must skip those that are not due.
    pub fn sweep(&mut self) -> Swept {
        let env = self.env();
        let rows: Vec<Message> = self.rows.values().cloned().collect();
        let lines = self.lines(&rows);
        let decision = mailbox::sweep(&env, rows, lines);
        self.apply(decision)
    }

    pub fn redrive(&mut self, ids: &[MessageId]) -> Result<usize, Rejection> {
        let env = self.env();
        let named: Vec<Message> = ids.iter().map(|id| self.message(*id)).collect();
        let topics = named.iter().map(|row| Arc::clone(&row.topic));
        let depths = topics.map(|topic| (Arc::clone(&topic), self.depth(&topic)));
        let depths = depths.collect();
        let occupied = self.occupied(named.iter().filter_map(Message::partition));
        let decision = mailbox::redrive(&env, depths, occupied, named)?;
        Ok(self.apply(decision))
    }

    pub fn redrive_one(&mut self, id: MessageId) -> Result<Settlement, Rejection> {
        let (env, row) = (self.env(), self.rows.get(&id.seq()).cloned());
        let topics = row.iter().map(|row| Arc::clone(&row.topic));
        let depths = topics.map(|topic| (Arc::clone(&topic), self.depth(&topic)));
        let depths = depths.collect();
        let occupied = self.occupied(row.iter().filter_map(Message::partition));
        let decision = mailbox::redrive_one(&env, depths, occupied, row)?;
        Ok(self.apply(decision))
    }

    pub fn purge(&mut self, ids: &[MessageId]) -> usize {
        let env = self.env();
        let named: Vec<Message> = ids.iter().map(|id| self.message(*id)).collect();
        let lines = self.lines(&named);
        let decision = mailbox::purge(&env, named, lines);
        self.apply(decision)
    }

    pub fn delete(&mut self, id: MessageId) -> Result<Settlement, Rejection> {
        let (env, row) = (self.env(), self.rows.get(&id.seq()).cloned());
        let lines = self.lines(&row);
        let decision = mailbox::delete(&env, row, lines)?;
        Ok(self.apply(decision))
    }

    /// Writes a decision as a store would, and checks the properties that stores rely on.
    fn apply<T>(&mut self, decision: Decision<T>) -> T {
        let Decision { changes, output } = decision;
        let Changes {
            messages,
            forgotten,
            chains,
        } = changes;
        let mut written = HashSet::new();
        for write in &messages {
            let (id, row) = (write.message.id, self.rows.get(&write.message.id.seq()));
            assert!(written.insert(id), "a message is written once");
            assert_eq!(write.before, row.map(Message::standing));
            match row {
                Some(row) => unchanged(row, &write.message),
                None => {
                    self.head += 1;
                    assert_eq!(id.seq(), self.head, "places have no gaps");
                    self.sends.push((write.message.sent_at, id));
                    self.follow_chain(&write.message);
                }
            }
            self.rows.insert(id.seq(), write.message.clone());
        }
        for write in &forgotten {
            let row = self.rows.remove(&write.message.id.seq()).unwrap();
            assert!(written.insert(row.id), "a message is written once");
            assert_eq!(write.before, Some(row.standing()));
        }
        for (shard, head) in chains {
            assert_eq!(self.chains[&shard], head);
        }
        assert!(self.count(Kind::Leased) <= self.policy.global_inflight as usize);
        self.check_turns();
        output
    }

    /// Checks that one live message of each partition has the turn, and that all others are blocked.
    fn check_turns(&self) {
        let partitions = self.rows.values().filter(|row| row.is_live());
        let partitions: HashSet<_> = partitions.filter_map(Message::partition).collect();
        for partition in partitions {
            let turns = self.members(&partition).filter(|row| !row.is_blocked());
            assert_eq!(turns.count(), 1, "{partition:?}");
        }
        let blocked = self.rows.values().filter(|row| row.is_blocked());
        assert!({ blocked }.all(|row| row.partition_key.is_some()));
    }

    fn follow_chain(&mut self, message: &Message) {
        let chain = self.chains.entry(message.shard).or_default();
        assert_eq!(message.chain_seq, chain.seq + 1);
        assert_eq!(message.prev, chain.link);
        assert_eq!(message.flaw(), None);
        *chain = message.chain_head();
    }
}

/// Checks that the sender's part of a message never changes, and that a message that is gone keeps
/// no content.
fn unchanged(was: &Message, is: &Message) {
    let sent = |message: &Message| Message {
        payload: Bytes::new(),
        attrs: Arc::default(),
        expires_at: None,
        since: Timestamp::default(),
        state: State::Ready,
        attempt: 0,
        delivery: None,
        reason: None,
        last_error: None,
        ..message.clone()
    };
    assert_eq!(sent(was), sent(is));
    if matches!(is.state, State::Gone { .. }) {
        assert!(is.payload.is_empty() && is.attrs.is_empty());
    } else {
        assert_eq!((&is.payload, &is.attrs), (&was.payload, &was.attrs));
    }
}

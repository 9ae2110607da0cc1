//! A tiny world: the rows that a store would keep, and the checks that every decision must pass.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use asyncgate_core::{
    Env, Ids, LeaseId, MessageId, Stamp, Timestamp,
    mailbox::{
        self, ChainHead, Changes, Decision, Kind, Message, Nack, Outgoing, Policy, Received,
        Rejection, SendContext, Sent, Settlement, State, Swept, Wish, shard_of,
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
}

/// Builds a message to `inbox` under this key, with the key as content.
pub fn mail(key: &str) -> Outgoing {
    Outgoing {
        topic: "inbox".to_owned(),
        idem_key: key.to_owned(),
        payload: Bytes::copy_from_slice(key.as_bytes()),
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

    /// Returns the number of messages that wait in a shard.
    pub fn depth(&self, shard: u16) -> u64 {
        let waits = |row: &&Message| {
            row.shard == shard && matches!(row.standing().kind, Kind::Ready | Kind::Delayed)
        };
        self.rows.values().filter(waits).count() as u64
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
            shards: outgoing
                .iter()
                .map(|sent| {
                    let key = sent.partition_key.as_deref();
                    let shard = shard_of(&sent.topic, key, self.policy.shards);
                    let chain = self.chains.get(&shard).copied().unwrap_or_default();
                    (shard, (chain, self.depth(shard)))
                })
                .collect(),
            keyed: outgoing.iter().map(named).collect(),
            remembered: self.remembered().count() as u64,
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
        let inflight = self.count(Kind::Leased) as u64;
        let decision = mailbox::receive(env, wish, inflight, ready)?;
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
        let decision = mailbox::ack(&env, row, lease.into())?;
        Ok(self.apply(decision))
    }

    pub fn ack_all(
        &mut self,
        acks: &[(MessageId, Option<LeaseId>)],
    ) -> Vec<Result<Settlement, Rejection>> {
        let env = self.env();
        let rows = acks.iter().filter_map(|(id, _)| self.rows.get(&id.seq()));
        let decision = mailbox::ack_all(&env, rows.cloned().collect(), acks);
        self.apply(decision)
    }

    pub fn nack(
        &mut self,
        id: MessageId,
        lease: impl Into<Option<LeaseId>>,
        nack: Nack,
    ) -> Result<Settlement, Rejection> {
        let (env, row) = (self.env(), self.rows.get(&id.seq()).cloned());
        let decision = mailbox::nack(env, row, lease.into(), nack)?;
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
        let decision = mailbox::sweep(&env, self.rows.values().cloned().collect());
        self.apply(decision)
    }

    pub fn redrive(&mut self, ids: &[MessageId]) -> Result<usize, Rejection> {
        let env = self.env();
        let named: Vec<Message> = ids.iter().map(|id| self.message(*id)).collect();
        let shards = named.iter().map(|row| row.shard);
        let depths = shards.map(|shard| (shard, self.depth(shard))).collect();
        let decision = mailbox::redrive(&env, depths, named)?;
        Ok(self.apply(decision))
    }

    pub fn purge(&mut self, ids: &[MessageId]) -> usize {
        let env = self.env();
        let named = ids.iter().map(|id| self.message(*id)).collect();
        let decision = mailbox::purge(&env, named);
        self.apply(decision)
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
        output
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

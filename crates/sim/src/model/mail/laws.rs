//! The laws that no transaction over messages may break, for any caller.

use std::{collections::BTreeMap, sync::Arc};

use asyncgate_core::{
    Timestamp,
    mailbox::{Changes, Kind, Message, MessageWrite, State, hash_chain, payload_hash, shard_of},
};

use super::{Mail, ends};
use crate::{
    step::Op,
    violation::{Checked, hold},
};

impl Mail {
    pub(super) fn check_laws(
        &self,
        number: usize,
        op: Option<Op>,
        now: Timestamp,
        changes: &Changes,
    ) -> Checked {
        let mail = &self.tenants[number];
        let stood = changes.messages.iter().chain(&changes.forgotten);
        for MessageWrite { message, before } in stood {
            let known = mail.messages.get(&message.id.seq());
            let standing = known.map(Message::standing);
            hold(*before == standing, "messages are serializable", || {
                format!("{} stood {standing:?}, not {before:?}", message.id)
            })?;
        }
        for write in &changes.forgotten {
            let message = &write.message;
            let over = match message.state {
                State::Dead { until, .. } | State::Gone { until } => until <= now,
                State::Ready
                | State::Delayed { .. }
                | State::Blocked { .. }
                | State::Leased { .. } => false,
            };
            hold(over && op.is_none(), "at least once", || {
                format!("{} is forgotten as {:?}", message.id, message.state)
            })?;
        }
        let mut inflight = mail.inflight;
        for write in &changes.messages {
            let was_leased = write.before.is_some_and(|was| was.kind == Kind::Leased);
            let is_leased = write.message.standing().kind == Kind::Leased;
            inflight = inflight + u64::from(is_leased) - u64::from(was_leased);
            match mail.messages.get(&write.message.id.seq()) {
                Some(before) => self.check_moved(number, op, before, &write.message)?,
                None => self.check_name(number, now, &write.message)?,
            }
        }
        let room = self.room(number, self.policy.global_inflight, |mail| mail.inflight, 0);
        let most = mail.inflight + room;
        hold(inflight <= most, "held messages are bounded", || {
            format!("receivers of tenant {number} hold {inflight}, at most {most}")
        })?;
        self.check_turns(number, changes)?;
        self.check_capacity(number, op, changes)?;
        self.check_chains(number, changes)
    }

    /// Checks that sent and redriven messages fit. A message that a receiver gives back had its place before.
    fn check_capacity(&self, number: usize, op: Option<Op>, changes: &Changes) -> Checked {
        let brings = [Op::SEND, Op::SEND_BATCH, Op::REPROCESS].map(Some);
        if !brings.contains(&op) {
            return Ok(());
        }
        let mail = &self.tenants[number];
        let mut depths: BTreeMap<&str, u64> = BTreeMap::new();
        for write in &changes.messages {
            let topic = &*write.message.topic;
            *depths.entry(topic).or_insert_with(|| mail.depth(topic)) += 1;
        }
        let most = u64::from(self.policy.topic_capacity);
        let over = depths.iter().find(|(_, depth)| **depth > most);
        hold(over.is_none(), "topics are bounded", || {
            format!("topic and depth {over:?}")
        })
    }

    fn check_moved(
        &self,
        number: usize,
        op: Option<Op>,
        before: &Message,
        after: &Message,
    ) -> Checked {
        let told = || {
            format!(
                "{} goes from {:?} to {:?}",
                after.id, before.state, after.state
            )
        };
        let (was, is) = (before.standing().kind, after.standing().kind);
        hold(was != Kind::Gone, "acknowledged is final", told)?;
        hold(is != Kind::Gone || ends(op), "at least once", told)?;
        if is == Kind::Leased {
            let most = self.policy.max_attempts;
            hold(after.attempt <= most, "attempts are bounded", told)?;
            let kept = was == Kind::Leased && before.delivery == after.delivery;
            let lease = after.delivery.map(|delivery| delivery.lease);
            let used = lease.is_none_or(|lease| self.tenants[number].leases.contains(&lease));
            hold(kept || !used, "every delivery has a lease of its own", told)?;
            hold(kept || was == Kind::Ready, "one receiver at a time", told)?;
        }
        let purged = is == Kind::Gone && [Some(Op::PURGE), Some(Op::DELETE_MESSAGE)].contains(&op);
        hold(
            !(purged && was == Kind::Leased),
            "held messages are not purged",
            told,
        )
    }

    /// Checks that a name stands for one message as long as it is remembered.
    fn check_name(&self, number: usize, now: Timestamp, new: &Message) -> Checked {
        let mail = &self.tenants[number];
        let name = (Arc::clone(&new.topic), Arc::clone(&new.idem_key));
        let first = mail.names.get(&name).and_then(|seq| mail.messages.get(seq));
        let window = self.policy.t_replay_ms;
        let free = first.is_none_or(|first| first.sent_at.plus_millis(window) <= now);
        hold(free, "one message per name", || format!("{name:?}"))
    }

    /// Checks that each shard's chain grows by exactly the new messages, in their order.
    fn check_chains(&self, number: usize, changes: &Changes) -> Checked {
        let mail = &self.tenants[number];
        let mut heads = mail.chains.clone();
        let mut head = mail.head;
        let new = changes
            .messages
            .iter()
            .filter(|write| write.before.is_none());
        for MessageWrite { message, .. } in new {
            head += 1;
            let told = || format!("message {head} of tenant {number}");
            hold(message.id.seq() == head, "places have no gaps", told)?;
            let (key, shards) = (message.partition_key.as_deref(), self.policy.shards);
            let shard = shard_of(&message.topic, key, shards);
            let content = payload_hash(&message.payload);
            let (topic, key) = (&message.topic, &message.idem_key);
            let envelope = hash_chain(topic, message.sent_at, key, &content, &message.attrs);
            let chain = heads.entry(shard).or_default();
            let linked = message.shard == shard
                && message.payload_hash == content
                && message.hash_chain == envelope
                && message.prev == chain.link
                && message.chain_seq == chain.seq + 1;
            hold(linked, "chain of messages", told)?;
            *chain = chain.then(&envelope);
        }
        let grown = heads
            .iter()
            .filter(|(shard, head)| mail.chains.get(shard) != Some(head));
        hold(changes.chains.iter().eq(grown), "chain of messages", || {
            format!("heads {:?} of tenant {number}", changes.chains)
        })
    }
}

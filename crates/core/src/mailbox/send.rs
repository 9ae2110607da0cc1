//! Sending: a new message, or the one that the key already stands for.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    ChainHead, Changes, Decision, Full, Message, MessageWrite, Occupied, Rejection, Share, State,
    hash_chain, partition::join, payload_hash, shard_of,
};
use crate::{Env, MessageId, Timestamp};

/// A message that a sender wants to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// The topic to send it to.
    pub topic: String,
    /// The sender's name for the message.
    pub idem_key: String,
    /// The content.
    pub payload: Bytes,
    /// True if the sender gave the content as text.
    pub is_text: bool,
    /// The sender's labels for it.
    pub attrs: BTreeMap<String, String>,
    /// The key that orders it: messages of one topic and key are delivered one after the other.
    pub partition_key: Option<String>,
    /// The time it waits before it can be delivered.
    pub delay_ms: i64,
    /// The age from which it is too old to be delivered.
    pub ttl_ms: Option<i64>,
    /// The rank among ready messages; higher goes first.
    pub priority: i32,
    /// The id that follows the message through logs; a new one is made when absent.
    pub corr_id: Option<[u8; 16]>,
}

/// The stored rows that a send is decided with.
#[derive(Debug, Clone, Default)]
pub struct SendContext {
    /// The place of the tenant's last message.
    pub head: u64,
    /// The chains of the shards that the sends go to.
    pub chains: BTreeMap<u16, ChainHead>,
    /// The number of messages that wait in each topic that the sends go to.
    pub depths: BTreeMap<Arc<str>, u64>,
    /// The partitions that the sends go to and that have a live message.
    pub occupied: Occupied,
    /// For each send, the message that already has its key, if there is one.
    pub keyed: Vec<Option<Message>>,
    /// The number of remembered sends.
    pub remembered: Share,
    /// The time of the tenant's oldest remembered send.
    pub oldest_remembered: Option<Timestamp>,
}

/// The answer to a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The message's id.
    pub id: MessageId,
    /// True if it was sent before.
    pub duplicate: bool,
    /// The shard it is in.
    pub shard: u16,
    /// The id that follows it through logs.
    pub corr_id: [u8; 16],
}

/// Sends messages independently: one that is refused does not stop the others.
pub fn send(
    mut env: Env,
    mut context: SendContext,
    outgoing: Vec<Outgoing>,
) -> Decision<Vec<Result<Sent, Rejection>>> {
    let mut changes = Changes::default();
    let mut output = Vec::with_capacity(outgoing.len());
    let mut keyed = std::mem::take(&mut context.keyed).into_iter();
    // What this very call has sent, by place in the changes: a batch may repeat itself.
    let mut fresh: HashMap<(String, String), usize> = HashMap::new();
    // A single send, the common case, cannot repeat itself and saves the copies of its names.
    let several = outgoing.len() > 1;
    for message in outgoing {
        let stored = keyed.next().flatten();
        let name = several.then(|| (message.topic.clone(), message.idem_key.clone()));
        let known = name.as_ref().and_then(|name| fresh.get(name));
        let known = known.map(|at: &usize| &changes.messages[*at].message);
        let known = known.or(stored.as_ref());
        let sent = match known.and_then(|known| repeated(&env, known, &message)) {
            Some(repeated) => repeated,
            None => place(&mut env, &mut context, &mut changes, message),
        };
        if let (
            Ok(Sent {
                duplicate: false, ..
            }),
            Some(name),
        ) = (&sent, name)
        {
            fresh.insert(name, changes.messages.len() - 1);
        }
        output.push(sent);
    }
    Decision { changes, output }
}

/// Returns the answer to a repeated send, or nothing if the key's replay window is over.
fn repeated(env: &Env, known: &Message, sent: &Outgoing) -> Option<Result<Sent, Rejection>> {
    let window = known.sent_at.plus_millis(env.policy.mailbox.t_replay_ms);
    if window <= env.now {
        return None;
    }
    if known.payload_hash != payload_hash(&sent.payload) {
        return Some(Err(Rejection::IdemConflict { msg_id: known.id }));
    }
    Some(Ok(Sent {
        id: known.id,
        duplicate: true,
        shard: known.shard,
        corr_id: known.corr_id,
    }))
}

fn place(
    env: &mut Env,
    context: &mut SendContext,
    changes: &mut Changes,
    sent: Outgoing,
) -> Result<Sent, Rejection> {
    let now = env.now;
    let policy = &env.policy.mailbox;
    if sent.payload.len() > policy.max_payload_bytes {
        let limit = policy.max_payload_bytes;
        return Err(Rejection::TooLarge { limit });
    }
    let topic: Arc<str> = sent.topic.into();
    let capacity = policy.topic_capacity;
    let depth = context.depths.entry(Arc::clone(&topic)).or_default();
    if *depth >= u64::from(capacity) {
        return Err(Rejection::Saturated(Full::Topic { capacity }));
    }
    if context.remembered.room(policy.dedup_capacity) == 0 {
        let oldest = context.oldest_remembered.unwrap_or(now);
        let until = oldest.plus_millis(policy.t_replay_ms);
        // The rows whose window is over are about to be swept: they must not block a send.
        if until > now {
            return Err(Rejection::Saturated(Full::Dedup { until }));
        }
    }
    context.head += 1;
    context.remembered.take_one();
    *depth += 1;
    let shard = shard_of(&topic, sent.partition_key.as_deref(), policy.shards);
    let chain = context.chains.entry(shard).or_default();
    let payload_hash = payload_hash(&sent.payload);
    let hash_chain = hash_chain(&topic, now, &sent.idem_key, &payload_hash, &sent.attrs);
    let prev = chain.link;
    *chain = chain.then(&hash_chain);
    let partition_key: Option<Arc<str>> = sent.partition_key.map(Into::into);
    let partition = partition_key.clone().map(|key| (Arc::clone(&topic), key));
    let has_turn = join(&mut context.occupied, partition);
    let until = now.plus_millis(sent.delay_ms);
    let message = Message {
        id: env.ids.message(context.head),
        partition_key,
        shard,
        sent_at: now,
        attrs: Arc::new(sent.attrs),
        payload: sent.payload,
        is_text: sent.is_text,
        payload_hash,
        hash_chain,
        prev,
        chain_seq: chain.seq,
        corr_id: sent.corr_id.unwrap_or_else(|| env.ids.correlation()),
        priority: sent.priority,
        expires_at: sent.ttl_ms.map(|ttl| now.plus_millis(ttl)),
        since: now,
        state: State::waiting(now, until, has_turn),
        attempt: 0,
        delivery: None,
        reason: None,
        last_error: None,
        topic,
        idem_key: sent.idem_key.into(),
    };
    changes.chains.insert(shard, *chain);
    let sent = Sent {
        id: message.id,
        duplicate: false,
        shard,
        corr_id: message.corr_id,
    };
    let before = None;
    changes.messages.push(MessageWrite { message, before });
    Ok(sent)
}

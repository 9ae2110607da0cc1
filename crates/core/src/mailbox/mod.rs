//! Messages: sent once, delivered at least once, acknowledged or dead.
//!
//! A message is in one of six states. `Ready`, `Delayed` and `Blocked` wait, `Leased` is with a
//! receiver until a deadline, `Dead` is a dead letter, and `Gone` is only remembered, so that a
//! repeated acknowledgement is answered and a repeated send is recognised.
//!
//! Invariants: an acknowledged message is never delivered again; a message that is neither
//! acknowledged nor purged is delivered again or becomes a dead letter; no message waits for ever;
//! of the messages of a topic with one partition key, at most one is with a receiver.

mod envelope;
mod partition;
mod policy;
mod receive;
mod redrive;
mod rejection;
mod send;
mod settle;
mod share;
mod sweep;
mod topic_class;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

pub use envelope::{ChainHead, Digest, Flaw, hash_chain, payload_hash, shard_of};
pub use partition::{Line, Lines, Occupied, Partition};
pub use policy::Policy;
pub use receive::{Damage, Received, Wish, receive};
pub use redrive::{delete, purge, redrive, redrive_one};
pub use rejection::{Full, Rejection};
pub use send::{Outgoing, SendContext, Sent, send};
pub use settle::{Nack, Settlement, ack, ack_all, extend, nack};
pub use share::Share;
pub use sweep::{Swept, sweep};
pub use topic_class::{TopicClasses, TopicPattern};

use crate::{LeaseId, Link, MessageId, Timestamp};

/// A message and everything known about it. Copies share the parts that its sender wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The id, which carries its place among the tenant's messages.
    pub id: MessageId,
    /// The topic it was sent to.
    pub topic: Arc<str>,
    /// The key that orders it: messages of one topic and key are delivered one after the other.
    pub partition_key: Option<Arc<str>>,
    /// The shard whose chain it is part of.
    pub shard: u16,
    /// The time it was sent.
    pub sent_at: Timestamp,
    /// The sender's name for it.
    pub idem_key: Arc<str>,
    /// The sender's labels for it.
    pub attrs: Arc<BTreeMap<String, String>>,
    /// The content. Empty once the message is gone.
    pub payload: Bytes,
    /// True if the sender gave the content as text.
    pub is_text: bool,
    /// The hash of the content as it was sent.
    pub payload_hash: Digest,
    /// The hash of the envelope.
    pub hash_chain: Digest,
    /// The shard's link before this message.
    pub prev: Link,
    /// The message's place in its shard's chain, from 1.
    pub chain_seq: u64,
    /// The id that follows the message through logs and answers.
    pub corr_id: [u8; 16],
    /// The rank among ready messages; higher goes first.
    pub priority: i32,
    /// The time from which it is too old to be delivered, if its sender set one.
    pub expires_at: Option<Timestamp>,
    /// The start of its wait: the time it was sent, or brought back from the dead letters.
    pub since: Timestamp,
    /// The current state.
    pub state: State,
    /// The number of deliveries.
    pub attempt: u32,
    /// The last delivery.
    pub delivery: Option<Delivery>,
    /// The reason of the last refusal.
    pub reason: Option<String>,
    /// The error text of the last refusal.
    pub last_error: Option<String>,
}

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It can be delivered.
    Ready,
    /// It can be delivered later.
    Delayed {
        /// The first time at which it can be delivered.
        until: Timestamp,
    },
    /// Another message with its partition key has the turn.
    Blocked {
        /// The end of its own delay, which is over if it lies in the past.
        until: Timestamp,
    },
    /// A receiver has it.
    Leased {
        /// The time at which it is taken back.
        until: Timestamp,
    },
    /// It is a dead letter.
    Dead {
        /// The reason for it.
        cause: Cause,
        /// The time at which it became one.
        at: Timestamp,
        /// The time at which it is forgotten.
        until: Timestamp,
    },
    /// It was acknowledged or purged, and is remembered for a while.
    Gone {
        /// The time at which it is forgotten.
        until: Timestamp,
    },
}

/// One handover of a message to a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The receiver's fencing token.
    pub lease: LeaseId,
    /// The time of the handover.
    pub at: Timestamp,
    /// The time for which the receiver asked to keep it.
    pub visibility_ms: i64,
}

/// The reason why a message became a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Its last allowed delivery failed.
    MaxAttempts,
    /// It grew too old before it was acknowledged.
    Expired,
    /// Its stored bytes no longer agree with their hash.
    Integrity,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 3] = [Self::MaxAttempts, Self::Expired, Self::Integrity];

    /// The cause's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxAttempts => "max_attempts",
            Self::Expired => "expired",
            Self::Integrity => "integrity",
        }
    }

    /// Returns the reason of a dead letter for which no receiver gave one.
    const fn reason(self) -> &'static str {
        match self {
            Self::MaxAttempts => "visibility_timeout",
            Self::Expired => "expired",
            Self::Integrity => "integrity",
        }
    }
}

/// The facts about a message that logs and metrics may see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// The topic; logs and metrics show only its class.
    pub topic: Arc<str>,
    /// The shard it is in.
    pub shard: u16,
    /// The id that follows it through logs.
    pub corr_id: [u8; 16],
}

/// A message that became a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// The message.
    pub trace: Trace,
    /// The rule that made it a dead letter.
    pub cause: Cause,
    /// The reason recorded with the dead letter.
    pub reason: String,
    /// The number of deliveries.
    pub attempt: u32,
}

/// The sort of a state, for counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Can be delivered.
    Ready,
    /// Can be delivered later: after a delay, or after others with its partition key.
    Delayed,
    /// With a receiver.
    Leased,
    /// A dead letter.
    Dead,
    /// Only remembered.
    Gone,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Ready,
        Self::Delayed,
        Self::Leased,
        Self::Dead,
        Self::Gone,
    ];

    /// The kind's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Leased => "leased",
            Self::Dead => "dlq",
            Self::Gone => "gone",
        }
    }
}

/// The facts by which a store indexes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The sort of its state.
    pub kind: Kind,
    /// The next time at which the server must look at it, if there is one.
    pub due: Option<Timestamp>,
}

impl Message {
    /// Returns the facts by which a store indexes the message.
    pub fn standing(&self) -> Standing {
        let (kind, due) = match self.state {
            // The retention is no deadline of the row: it is a setting and may change with a restart. The
            // server looks for messages that wait too long by their `since`.
            State::Ready => (Kind::Ready, self.expires_at),
            State::Delayed { until } => {
                // Whatever comes first: the end of the delay, or the end of the message's life.
                let due = self.expires_at.map_or(until, |end| end.min(until));
                (Kind::Delayed, Some(due))
            }
            // Its turn comes with the end of another message, not with a time.
            State::Blocked { .. } => (Kind::Delayed, self.expires_at),
            State::Leased { until } => (Kind::Leased, Some(until)),
            State::Dead { until, .. } => (Kind::Dead, Some(until)),
            State::Gone { until } => (Kind::Gone, Some(until)),
        };
        Standing { kind, due }
    }

    /// Returns roughly the memory that the message takes.
    pub fn weight(&self) -> usize {
        let attrs = self
            .attrs
            .iter()
            .map(|(key, value)| key.len() + value.len());
        // 256 bytes stand for the fields of fixed size.
        self.payload.len() + self.topic.len() + self.idem_key.len() + attrs.sum::<usize>() + 256
    }

    /// Returns true if the message is too old to be delivered.
    fn is_expired(&self, now: Timestamp, policy: &Policy) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
            || self.since.plus_millis(policy.ready_retention_ms) <= now
    }

    /// Returns true if the message is gone and the time to forget it has come, even if no sweep has
    /// removed it yet.
    fn is_forgotten(&self, now: Timestamp) -> bool {
        matches!(self.state, State::Gone { until } if until <= now)
    }

    /// Returns the facts about the message that logs and metrics may see.
    pub fn trace(&self) -> Trace {
        Trace {
            topic: Arc::clone(&self.topic),
            shard: self.shard,
            corr_id: self.corr_id,
        }
    }

    /// Makes the message a dead letter.
    fn die(&mut self, cause: Cause, now: Timestamp, policy: &Policy) -> Death {
        // A repeated send is recognised by this row, so the row must outlive the replay window.
        let window = self.sent_at.plus_millis(policy.t_replay_ms);
        let until = now.plus_millis(policy.dlq_retention_ms).max(window);
        self.state = State::Dead {
            cause,
            at: now,
            until,
        };
        let given = self.reason.take();
        let reason = given.unwrap_or_else(|| cause.reason().to_owned());
        self.reason = Some(reason.clone());
        Death {
            trace: self.trace(),
            cause,
            reason,
            attempt: self.attempt,
        }
    }

    /// Marks the message as gone and drops everything that neither the answers to repeated calls nor
    /// the chain need.
    fn go(&mut self, until: Timestamp) {
        self.state = State::Gone { until };
        self.payload = Bytes::new();
        self.attrs = Arc::default();
        self.reason = None;
        self.last_error = None;
    }
}

/// The rows that a decision of the mailbox writes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Messages to insert or replace.
    pub messages: Vec<MessageWrite>,
    /// Messages to forget.
    pub forgotten: Vec<MessageWrite>,
    /// Chains that have grown, by shard.
    pub chains: BTreeMap<u16, ChainHead>,
}

impl Changes {
    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.forgotten.is_empty()
    }

    fn update(&mut self, before: Standing, message: Message) {
        let before = Some(before);
        self.messages.push(MessageWrite { message, before });
    }
}

/// A message to write, with its standing before.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageWrite {
    /// The message's new content.
    pub message: Message,
    /// The message's standing before; absent for a new one.
    pub before: Option<Standing>,
}

/// A decision about messages.
pub type Decision<T> = crate::Decision<T, Changes>;

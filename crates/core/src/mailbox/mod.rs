//! Messages: sent once, delivered at least once, acknowledged or dead.
//!
//! A message stands in one of five states. `Ready` and `Delayed` wait, `Leased` is in a receiver's
//! hands until a deadline, `Dead` is a dead letter, and `Gone` is only remembered: so that a repeated
//! acknowledgement is answered and a repeated send is recognised.
//!
//! Invariants: what was acknowledged is never delivered again; what is neither acknowledged nor
//! purged is delivered again or becomes a dead letter; nothing waits for ever.

mod envelope;
mod policy;
mod receive;
mod redrive;
mod rejection;
mod send;
mod settle;
mod sweep;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

pub use envelope::{ChainHead, Digest, Flaw, hash_chain, payload_hash, shard_of};
pub use policy::Policy;
pub use receive::{Damage, Received, Wish, receive};
pub use redrive::{purge, redrive};
pub use rejection::{Full, Rejection};
pub use send::{Outgoing, SendContext, Sent, send};
pub use settle::{Nack, Settlement, ack, ack_all, extend, nack};
pub use sweep::{Swept, sweep};

use crate::{LeaseId, Link, MessageId, Timestamp};

/// A message with all that is known of it. Copies share what its sender wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its id, which carries its place among the tenant's messages.
    pub id: MessageId,
    /// Where it was sent to.
    pub topic: Arc<str>,
    /// Messages with one key share a shard, so that they keep their order.
    pub partition_key: Option<Arc<str>>,
    /// The shard it counts against and whose chain it is part of.
    pub shard: u16,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// The sender's name for it.
    pub idem_key: Arc<str>,
    /// What the sender says about it.
    pub attrs: Arc<BTreeMap<String, String>>,
    /// The content. Empty once the message is gone.
    pub payload: Bytes,
    /// The hash of the content as it was sent.
    pub payload_hash: Digest,
    /// The hash of the envelope.
    pub hash_chain: Digest,
    /// The shard's link before this message.
    pub prev: Link,
    /// The message's place in its shard's chain, from 1.
    pub chain_seq: u64,
    /// Follows the message through logs and answers.
    pub corr_id: [u8; 16],
    /// Higher goes first.
    pub priority: i32,
    /// When it is too old to be delivered, if its sender said so.
    pub expires_at: Option<Timestamp>,
    /// Since when it waits: when it was sent, or brought back from the dead letters.
    pub since: Timestamp,
    /// Where it stands.
    pub state: State,
    /// How often it was delivered.
    pub attempt: u32,
    /// The last delivery.
    pub delivery: Option<Delivery>,
    /// The reason of the last refusal.
    pub reason: Option<String>,
    /// What the last refusal said of its error.
    pub last_error: Option<String>,
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It can be delivered.
    Ready,
    /// It can be delivered later.
    Delayed {
        /// From when on.
        until: Timestamp,
    },
    /// A receiver has it.
    Leased {
        /// When it is taken back.
        until: Timestamp,
    },
    /// It is a dead letter.
    Dead {
        /// Why.
        cause: Cause,
        /// Since when.
        at: Timestamp,
        /// When it is forgotten.
        until: Timestamp,
    },
    /// It was acknowledged or purged, and is remembered for a while.
    Gone {
        /// When it is forgotten.
        until: Timestamp,
    },
}

/// One handing over to a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The receiver's fencing token.
    pub lease: LeaseId,
    /// When it was handed over.
    pub at: Timestamp,
    /// How long the receiver asked to keep it.
    pub visibility_ms: i64,
}

/// Why a message became a dead letter.
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

    /// What a dead letter says when no receiver gave a reason.
    const fn reason(self) -> &'static str {
        match self {
            Self::MaxAttempts => "visibility_timeout",
            Self::Expired => "expired",
            Self::Integrity => "integrity",
        }
    }
}

/// What logs and counts may know of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// Where it was sent to, to be told as its class only.
    pub topic: Arc<str>,
    /// The shard it is in.
    pub shard: u16,
    /// What follows it through logs.
    pub corr_id: [u8; 16],
}

/// A message that became a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// Which message.
    pub trace: Trace,
    /// Why.
    pub cause: Cause,
    /// The reason that the dead letter has.
    pub reason: String,
    /// How often it was delivered.
    pub attempt: u32,
}

/// The sort of a state, for counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Can be delivered.
    Ready,
    /// Can be delivered later.
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

/// How a message stands for the indexes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What it counts as.
    pub kind: Kind,
    /// When it must be looked at, if ever.
    pub due: Option<Timestamp>,
}

impl Message {
    /// How the message stands.
    pub fn standing(&self) -> Standing {
        let (kind, due) = match self.state {
            State::Ready => (Kind::Ready, self.expires_at),
            State::Delayed { until } => {
                let due = self.expires_at.map_or(until, |end| end.min(until));
                (Kind::Delayed, Some(due))
            }
            State::Leased { until } => (Kind::Leased, Some(until)),
            State::Dead { until, .. } => (Kind::Dead, Some(until)),
            State::Gone { until } => (Kind::Gone, Some(until)),
        };
        Standing { kind, due }
    }

    /// Roughly how much memory the message takes.
    pub fn weight(&self) -> usize {
        let attrs = self
            .attrs
            .iter()
            .map(|(key, value)| key.len() + value.len());
        self.payload.len() + self.topic.len() + self.idem_key.len() + attrs.sum::<usize>() + 256
    }

    /// Whether the message grew too old to be delivered.
    fn is_expired(&self, now: Timestamp, policy: &Policy) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
            || self.since.plus_millis(policy.ready_retention_ms) <= now
    }

    /// What logs and counts may know of the message.
    pub fn trace(&self) -> Trace {
        Trace {
            topic: Arc::clone(&self.topic),
            shard: self.shard,
            corr_id: self.corr_id,
        }
    }

    fn die(&mut self, cause: Cause, now: Timestamp, policy: &Policy) -> Death {
        // A send is recognised through its message, which must not go before the window is over.
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

    /// Forgets all but what answers to repeated calls and the chain need.
    fn go(&mut self, until: Timestamp) {
        self.state = State::Gone { until };
        self.payload = Bytes::new();
        self.attrs = Arc::default();
        self.reason = None;
        self.last_error = None;
    }
}

/// What a decision of the mailbox writes.
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
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.forgotten.is_empty()
    }

    fn update(&mut self, before: Standing, message: Message) {
        let before = Some(before);
        self.messages.push(MessageWrite { message, before });
    }
}

/// A message to write, and how it stood before.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageWrite {
    /// The message as it shall be.
    pub message: Message,
    /// How it stood; absent for a new one.
    pub before: Option<Standing>,
}

/// A decision about messages.
pub type Decision<T> = crate::Decision<T, Changes>;

//! Why the mailbox refused. A refused call changes nothing.

use crate::{MessageId, Timestamp};

/// A refusal by a rule of the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No such message, or no longer.
    #[error("no such message, or it was acknowledged too long ago")]
    NotFound,
    /// Somebody else has or had the message since.
    #[error("the lease has ended and the message was delivered again")]
    StaleLease,
    /// Nobody has the message.
    #[error("the message is not with a receiver")]
    NotLeased,
    /// The call must name the lease.
    #[error("this server wants the lease of the delivery")]
    LeaseMissing,
    /// The key was used for other content.
    #[error("the idem_key was used before with other content")]
    IdemConflict {
        /// The message that the key stands for.
        msg_id: MessageId,
    },
    /// There is no room.
    #[error("{0}")]
    Saturated(Full),
    /// The content is too large.
    #[error("the payload is larger than {limit} bytes")]
    TooLarge {
        /// The largest allowed size.
        limit: usize,
    },
}

/// What is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// A shard holds as many messages as it may.
    #[error("shard {shard} is full")]
    Shard {
        /// Which one.
        shard: u16,
    },
    /// Receivers hold as many messages as they may together.
    #[error("too many messages are with receivers")]
    Inflight,
    /// Remembering one more send would mean to forget another too early.
    #[error("too many sends are remembered")]
    Dedup {
        /// When the oldest may be forgotten.
        until: Timestamp,
    },
}

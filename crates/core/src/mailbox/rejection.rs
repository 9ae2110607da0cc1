//! The reasons why the mailbox refuses. A refused call changes nothing.

use crate::{MessageId, Timestamp};

/// A refusal by a rule of the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The message does not exist, or no longer.
    #[error("no such message, or it was acknowledged too long ago")]
    NotFound,
    /// The message was delivered to somebody else since.
    #[error("the lease has ended and the message was delivered again")]
    StaleLease,
    /// The message is with no receiver.
    #[error("the message is not with a receiver")]
    NotLeased,
    /// A receiver has the message.
    #[error("a receiver has the message; try again when it has ended")]
    Leased,
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

/// The part of the mailbox that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// A topic holds as many messages as it may.
    #[error("the topic is full: {capacity} messages wait in it")]
    Topic {
        /// The most messages that may wait in it.
        capacity: u32,
    },
    /// The tenant's receivers hold as many messages as they may together.
    #[error("your receivers hold as many messages as they may: acknowledge some, or wait")]
    Inflight,
    /// To remember one more send of the tenant, the server would have to forget another too early.
    #[error(
        "as many of your sends as may be are remembered to recognise repetitions: wait until the \
         oldest is forgotten"
    )]
    Dedup {
        /// The time at which the oldest may be forgotten.
        until: Timestamp,
    },
}

impl Full {
    /// The name of the full part in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Topic { .. } => "work",
            Self::Inflight => "inflight",
            Self::Dedup { .. } => "dedup",
        }
    }
}

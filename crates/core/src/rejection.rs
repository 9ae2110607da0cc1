//! The reasons why a rule refuses. A refused decision changes nothing.

use crate::{TaskId, identity::QuotaExceeded, task::Status};

/// A refusal by a rule of the task plane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No such task in the tenant.
    #[error("no such task")]
    TaskNotFound,
    /// No such receipt in the tenant.
    #[error("no such receipt")]
    ReceiptNotFound,
    /// The lease is not the task's current one, or its time is over.
    #[error("the lease is not the task's current one, or has ended")]
    LeaseInvalid,
    /// The task's state does not allow this.
    #[error("a task that is {} cannot do this", .status.as_str())]
    InvalidTransition {
        /// The state the task is in.
        status: Status,
    },
    /// The idempotency key was used for other content.
    #[error("the idempotency key was used before with other content")]
    IdempotencyConflict {
        /// The task that the key stands for.
        task_id: TaskId,
    },
    /// A success without proof, where proof is demanded.
    #[error("a success must have artifacts or delivery_proof")]
    Unlocatable,
    /// The caller neither owns the thing nor may act for its owner.
    #[error("not the caller's own")]
    NotOwner,
    /// A value is larger than allowed.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// The thing that is too large.
        what: &'static str,
        /// The largest allowed size in bytes.
        limit: usize,
    },
    /// The tenant has as many classes of tasks as allowed, and the task would be of a new one.
    #[error(
        "tasks that have not ended already have {limit} different types or sets of required capabilities, \
         which is the most; create the task when fewer are in use, or use one of them"
    )]
    TooManyClasses {
        /// The largest allowed number.
        limit: usize,
    },
    /// With this there would be more of something than the tenant's quota allows.
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    /// There are more of something than allowed.
    #[error("{what} exceeds {limit}")]
    LimitExceeded {
        /// The thing there is too much of.
        what: &'static str,
        /// The largest allowed number or size.
        limit: usize,
    },
}

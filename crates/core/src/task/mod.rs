//! Tasks: their data, their states, and one file for each event in their life.
//!
//! Invariants: a task has at most one lease at a time; an ended task never changes again, except
//! that missing proof of a success may be added once; `created_by` and the spec never change.

mod batch;
mod cancel;
mod claim;
mod contract;
mod create;
mod finish;
mod hold;
mod sweep;

use std::sync::Arc;

use crate::{Class, Json, LeaseId, Principal, ReceiptId, TaskId, Timestamp, class::as_set};

pub use batch::{Answers, Ending, check_all, create_all, finish_all, renew_all};
pub use cancel::cancel;
pub use claim::{Claim, Claimed, claim};
pub use contract::{Contract, Deadline};
pub use create::{Created, IdempotencyKey, NewTask, create};
pub use finish::{Completion, Failure, Finished, Report, complete, fail};
pub use hold::{Hold, progress, release, renew, start};
pub use sweep::{Swept, sweep};

/// A piece of work with an owner, an outcome to come, and a history of receipts.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// The id. Ids sort by creation.
    pub id: TaskId,
    /// The request. It never changes, so copies of the task share it.
    pub spec: Arc<Spec>,
    /// The owner. It never changes.
    pub created_by: Principal,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The receipt that opened the obligation to its owner.
    pub assignment: ReceiptId,
    /// The current state.
    pub state: State,
    /// The number of reported failures.
    pub attempt: u32,
    /// The number of leases that ran out.
    pub expiries: u32,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The time before which it cannot be claimed.
    pub next_eligible_at: Timestamp,
    /// The last progress that a worker reported.
    pub progress: Option<Progress>,
    /// The error of the last failure that was retried.
    pub retried_error: Option<Json>,
    /// The ids of the workers whose leases ran out, the latest last, at most [`EXPIRED_WORKERS`].
    pub expired_workers: Vec<Arc<str>>,
    /// The server instance that watches its deadlines.
    pub instance: Arc<str>,
}

/// The most workers that a task remembers of those whose leases ran out.
pub const EXPIRED_WORKERS: usize = 5;

/// The request behind a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The sort of work.
    pub task_type: String,
    /// The work's input.
    pub payload: Json,
    /// The address of a larger input.
    pub payload_pointer: Option<String>,
    /// The demands on the worker.
    pub requirements: Requirements,
    /// The rank among ready tasks; higher goes first.
    pub priority: i32,
    /// The number of reported failures that ends the task.
    pub max_attempts: u32,
    /// The delay before the first retry; it doubles with each.
    pub retry_backoff_seconds: u32,
    /// The owner's name for this task: creating it again returns the first task.
    pub idempotency_key: Option<String>,
    /// The sort of outcome the owner expects.
    pub expected_outcome_kind: Option<String>,
    /// The media type of the artifact the owner expects.
    pub expected_artifact_mime: Option<String>,
    /// The owner's terms; absent if there are none. Boxed, because most tasks have none.
    pub contract: Option<Box<Contract>>,
}

/// The demands on a worker, and labels that demand nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirements {
    /// All of these must be among the worker's capabilities. Sorted, each once.
    pub capabilities: Vec<String>,
    /// Labels for people and lists.
    pub tags: Vec<String>,
}

impl Requirements {
    /// Builds requirements from lists in any order.
    pub fn new(capabilities: Vec<String>, tags: Vec<String>) -> Self {
        Self {
            capabilities: as_set(capabilities),
            tags,
        }
    }

    /// Returns true if there are no demands and no labels.
    pub fn is_empty(&self) -> bool {
        self.capabilities.is_empty() && self.tags.is_empty()
    }
}

/// The state of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Queued, but not claimable before `next_eligible_at`.
    Delayed,
    /// Queued and claimable.
    Ready,
    /// Held by a worker.
    Leased(Lease),
    /// Held by a worker that said that it began.
    Running(Lease),
    /// Over.
    Ended(End),
}

/// A worker's time-bound right to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The fencing token.
    pub id: LeaseId,
    /// The worker that holds it.
    pub worker: Principal,
    /// The time it was given.
    pub created_at: Timestamp,
    /// The time it runs out.
    pub expires_at: Timestamp,
    /// The number of renewals.
    pub renewals: u32,
    /// The time that the worker expects the work to take.
    pub expected_duration_seconds: Option<u32>,
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The outcome.
    pub outcome: Outcome,
    /// The time of the end.
    pub at: Timestamp,
    /// The lease and worker that ended it; absent when it was cancelled or the server gave it up.
    pub by: Option<(LeaseId, Principal)>,
    /// The result of a success.
    pub result: Option<Json>,
    /// The description of a failure or cancellation.
    pub error: Option<Json>,
    /// The addresses of the results.
    pub artifacts: Option<Json>,
    /// The proof that the results were delivered.
    pub delivery_proof: Option<Json>,
    /// The worker's summary of a success.
    pub result_summary: Option<String>,
    /// What else the worker said of a success.
    pub completion_metadata: Option<Json>,
    /// The receipt of the end: after late proof, the receipt that discharged the obligation.
    pub receipt: ReceiptId,
    /// True once a receipt discharged the obligation.
    pub discharged: bool,
}

impl End {
    /// Returns an end without a result, after which nothing is owed any more.
    const fn without_result(
        outcome: Outcome,
        at: Timestamp,
        error: Option<Json>,
        receipt: ReceiptId,
    ) -> Self {
        Self {
            outcome,
            at,
            by: None,
            result: None,
            error,
            artifacts: None,
            delivery_proof: None,
            result_summary: None,
            completion_metadata: None,
            receipt,
            discharged: true,
        }
    }
}

/// The three ways in which a task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A worker reported success.
    Succeeded,
    /// A worker reported a failure that was not to be retried, or the server gave the task up.
    Failed,
    /// The task was called off.
    Canceled,
}

impl Outcome {
    /// Returns the status that this outcome leaves the task in.
    pub const fn status(self) -> Status {
        match self {
            Self::Succeeded => Status::Succeeded,
            Self::Failed => Status::Failed,
            Self::Canceled => Status::Canceled,
        }
    }
}

/// The public form of a task's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Waiting for a worker, or delayed.
    Queued,
    /// Held by a worker.
    Leased,
    /// Held by a worker that said that it began.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Called off.
    Canceled,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Leased,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Canceled,
    ];

    /// Returns the status' name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Leased => "leased",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    /// Returns the status with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Returns true if a worker holds the task under a lease.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Leased | Self::Running)
    }

    /// Returns true if the task has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

/// The last progress that a worker reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The report.
    pub value: Json,
    /// The time of the report.
    pub at: Timestamp,
}

/// The index in which a store must keep a task, besides the one of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Among the ready tasks of its class, by priority, and among the deadlines if it has one.
    Ready {
        /// Higher goes first.
        priority: i32,
        /// The time at which the server must look at the task.
        due: Option<Timestamp>,
    },
    /// Among the deadlines.
    Due {
        /// The time at which the server must look at the task.
        at: Timestamp,
    },
    /// In no index: the task is over.
    Ended,
}

impl Placement {
    /// Returns the time at which the server must look at the task, if there is one.
    pub const fn due(self) -> Option<Timestamp> {
        match self {
            Self::Ready { due, .. } => due,
            Self::Due { at } => Some(at),
            Self::Ended => None,
        }
    }
}

/// The facts that a store needs about a task that it is about to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The public state.
    pub status: Status,
    /// The index that holds it.
    pub placement: Placement,
}

impl Task {
    /// Returns the task's current status and placement.
    pub fn standing(&self) -> Standing {
        Standing {
            status: self.status(),
            placement: self.placement(),
        }
    }

    /// Returns the public state.
    pub fn status(&self) -> Status {
        match &self.state {
            State::Delayed | State::Ready => Status::Queued,
            State::Leased(_) => Status::Leased,
            State::Running(_) => Status::Running,
            State::Ended(end) => end.outcome.status(),
        }
    }

    /// Returns the current lease.
    pub const fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Leased(lease) | State::Running(lease) => Some(lease),
            State::Delayed | State::Ready | State::Ended(_) => None,
        }
    }

    /// Returns the end, if the task has ended.
    pub const fn end(&self) -> Option<&End> {
        match &self.state {
            State::Ended(end) => Some(end),
            State::Delayed | State::Ready | State::Leased(_) | State::Running(_) => None,
        }
    }

    /// Returns the index in which a store must keep the task.
    pub fn placement(&self) -> Placement {
        let deadline = self.deadline_at();
        let sooner = |at: Timestamp| Placement::Due {
            at: deadline.map_or(at, |deadline| deadline.min(at)),
        };
        match &self.state {
            State::Ready => Placement::Ready {
                priority: self.spec.priority,
                due: deadline,
            },
            // A delayed task becomes ready when somebody looks at it, so its delay is a deadline too.
            State::Delayed => sooner(self.next_eligible_at),
            State::Leased(lease) | State::Running(lease) => sooner(lease.expires_at),
            State::Ended(_) => Placement::Ended,
        }
    }

    /// Returns the time by which the task must have ended, if its owner named one.
    pub fn deadline_at(&self) -> Option<Timestamp> {
        let deadline = self.spec.contract.as_ref()?.deadline?;
        Some(deadline.of(self.created_at))
    }

    /// Returns true if the task should have ended before `now`, or at that very moment.
    pub(crate) fn is_too_late(&self, now: Timestamp) -> bool {
        self.deadline_at().is_some_and(|deadline| deadline <= now)
    }

    /// Returns the error of the last failure: the one that ended the task, or the last that was retried.
    pub fn last_error(&self) -> Option<&Json> {
        self.end()
            .filter(|end| end.outcome == Outcome::Failed)
            .and_then(|end| end.error.as_ref())
            .or(self.retried_error.as_ref())
    }

    /// Returns the class it is queued in.
    pub fn class(&self) -> Class {
        Class {
            task_type: self.spec.task_type.clone(),
            capabilities: self.spec.requirements.capabilities.clone(),
        }
    }

    /// Returns roughly the memory that it takes: the bytes that callers sent with it.
    pub fn weight(&self) -> usize {
        let sent = |json: &Option<Json>| json.as_ref().map_or(0, Json::len);
        let end = self.end().map_or(0, |end| {
            sent(&end.result)
                + sent(&end.error)
                + sent(&end.artifacts)
                + sent(&end.delivery_proof)
                + sent(&end.completion_metadata)
        });
        let progress = self
            .progress
            .as_ref()
            .map_or(0, |progress| progress.value.len());
        let contract = self.spec.contract.as_ref();
        let contract = contract.map_or(0, |contract| contract.weight());
        self.spec.payload.len() + contract + end + progress + sent(&self.retried_error)
    }

    /// Returns the address of the task's outcome and payload, for receipts too small to hold them.
    fn how_to_retrieve(&self) -> String {
        format!("GET /v1/tasks/{}", self.id)
    }
}

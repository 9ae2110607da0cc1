//! Tasks: their data, their states, and one file for each thing that can happen to them.
//!
//! Invariants: a task has at most one lease at a time; an ended task never changes again, except
//! that missing proof of a success may be added once; `created_by` and the spec never change.

mod cancel;
mod claim;
mod create;
mod finish;
mod hold;
mod sweep;

use std::sync::Arc;

use crate::{Class, Json, LeaseId, Principal, ReceiptId, TaskId, Timestamp, class::as_set};

pub use cancel::cancel;
pub use claim::{Claim, claim};
pub use create::{Created, NewTask, create};
pub use finish::{Completion, Failure, Finished, complete, fail};
pub use hold::{Hold, progress, release, renew, start};
pub use sweep::{Swept, sweep};

/// A piece of work with an owner, an outcome to come, and a history of receipts.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its id; ids sort by creation.
    pub id: TaskId,
    /// What was asked for. Never changes, so copies of the task share it.
    pub spec: Arc<Spec>,
    /// The owner. Never changes.
    pub created_by: Principal,
    /// When it was created.
    pub created_at: Timestamp,
    /// The receipt that opened the obligation to its owner.
    pub assignment: ReceiptId,
    /// Where it stands.
    pub state: State,
    /// How many failures were reported.
    pub attempt: u32,
    /// How many leases ran out.
    pub expiries: u32,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// Before this time it cannot be claimed.
    pub next_eligible_at: Timestamp,
    /// What its worker said last.
    pub progress: Option<Progress>,
    /// The server instance that watches its deadlines.
    pub instance: Arc<str>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// What sort of work it is.
    pub task_type: String,
    /// The work's input.
    pub payload: Json,
    /// Where a larger input is.
    pub payload_pointer: Option<String>,
    /// What a worker must offer.
    pub requirements: Requirements,
    /// Higher goes first.
    pub priority: i32,
    /// The number of reported failures that ends the task.
    pub max_attempts: u32,
    /// The delay before the first retry; it doubles with each.
    pub retry_backoff_seconds: u32,
    /// The owner's name for this task: creating it again returns the first.
    pub idempotency_key: Option<String>,
    /// What sort of outcome the owner expects.
    pub expected_outcome_kind: Option<String>,
    /// The media type of the artifact the owner expects.
    pub expected_artifact_mime: Option<String>,
}

/// What a worker must offer, and labels that bind nobody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirements {
    /// All of these must be among the worker's capabilities. Sorted, each once.
    pub capabilities: Vec<String>,
    /// Labels for people and lists.
    pub tags: Vec<String>,
}

impl Requirements {
    /// From lists in any order.
    pub fn new(capabilities: Vec<String>, tags: Vec<String>) -> Self {
        Self {
            capabilities: as_set(capabilities),
            tags,
        }
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.capabilities.is_empty() && self.tags.is_empty()
    }
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Queued, but not before `next_eligible_at`.
    Delayed,
    /// Queued and claimable.
    Ready,
    /// In a worker's hands.
    Leased(Lease),
    /// In a worker's hands, and the worker said that it began.
    Running(Lease),
    /// Over.
    Ended(End),
}

/// A worker's time-bound right to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The fencing token.
    pub id: LeaseId,
    /// Who holds it.
    pub worker: Principal,
    /// When it was given.
    pub created_at: Timestamp,
    /// When it runs out.
    pub expires_at: Timestamp,
    /// How often it was renewed.
    pub renewals: u32,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Which end.
    pub outcome: Outcome,
    /// When.
    pub at: Timestamp,
    /// The lease and worker that ended it; absent when it was cancelled.
    pub by: Option<(LeaseId, Principal)>,
    /// What a success returned.
    pub result: Option<Json>,
    /// What a failure or cancellation said.
    pub error: Option<Json>,
    /// Where the results are.
    pub artifacts: Option<Json>,
    /// That the results were delivered.
    pub delivery_proof: Option<Json>,
    /// The receipt of the end: the one that discharged the obligation, once there is one.
    pub receipt: ReceiptId,
    /// Whether a receipt discharged the obligation.
    pub discharged: bool,
}

/// The three ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A worker reported success.
    Succeeded,
    /// A worker reported a failure that was not to be retried.
    Failed,
    /// Its owner called it off.
    Canceled,
}

impl Outcome {
    /// The state that this outcome leaves the task in.
    pub const fn status(self) -> Status {
        match self {
            Self::Succeeded => Status::Succeeded,
            Self::Failed => Status::Failed,
            Self::Canceled => Status::Canceled,
        }
    }
}

/// A task's state as the world sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Waiting for a worker, or for its time.
    Queued,
    /// In a worker's hands.
    Leased,
    /// A worker said that it began.
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

    /// The status' name on the wire.
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

    /// The status with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether nothing more can happen.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

/// What a worker said last about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What it said.
    pub value: Json,
    /// When.
    pub at: Timestamp,
}

/// Where a store must be able to find a task, besides by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Among the ready tasks of its class, by priority.
    Ready {
        /// Higher goes first.
        priority: i32,
    },
    /// Among the deadlines.
    Due {
        /// When somebody must look at the task.
        at: Timestamp,
    },
    /// Nowhere: it is over.
    Ended,
}

/// What a store needs to know of a task that it is about to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its state as the world sees it.
    pub status: Status,
    /// Where it can be found.
    pub placement: Placement,
}

impl Task {
    /// How the task stands now.
    pub fn standing(&self) -> Standing {
        Standing {
            status: self.status(),
            placement: self.placement(),
        }
    }

    /// The state as the world sees it.
    pub fn status(&self) -> Status {
        match &self.state {
            State::Delayed | State::Ready => Status::Queued,
            State::Leased(_) => Status::Leased,
            State::Running(_) => Status::Running,
            State::Ended(end) => end.outcome.status(),
        }
    }

    /// The current lease.
    pub const fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Leased(lease) | State::Running(lease) => Some(lease),
            State::Delayed | State::Ready | State::Ended(_) => None,
        }
    }

    /// How it ended, if it did.
    pub const fn end(&self) -> Option<&End> {
        match &self.state {
            State::Ended(end) => Some(end),
            State::Delayed | State::Ready | State::Leased(_) | State::Running(_) => None,
        }
    }

    /// Where a store must be able to find it.
    pub fn placement(&self) -> Placement {
        match &self.state {
            State::Ready => Placement::Ready {
                priority: self.spec.priority,
            },
            State::Delayed => Placement::Due {
                at: self.next_eligible_at,
            },
            State::Leased(lease) | State::Running(lease) => Placement::Due {
                at: lease.expires_at,
            },
            State::Ended(_) => Placement::Ended,
        }
    }

    /// The class it is queued in.
    pub fn class(&self) -> Class {
        Class {
            task_type: self.spec.task_type.clone(),
            capabilities: self.spec.requirements.capabilities.clone(),
        }
    }

    /// Roughly how much memory it takes: what callers sent with it.
    pub fn weight(&self) -> usize {
        let sent = |json: &Option<Json>| json.as_ref().map_or(0, Json::len);
        let end = self.end().map_or(0, |end| {
            sent(&end.result) + sent(&end.error) + sent(&end.artifacts) + sent(&end.delivery_proof)
        });
        let progress = self
            .progress
            .as_ref()
            .map_or(0, |progress| progress.value.len());
        self.spec.payload.len() + end + progress
    }

    /// Where its outcome and payload can be read, for receipts that cannot hold them.
    fn how_to_retrieve(&self) -> String {
        format!("GET /v1/tasks/{}", self.id)
    }
}

//! The contract of a task: what its owner says of the work beside the input. All of it is optional.

use serde::Serialize;

use crate::{Json, Timestamp, receipt::Body};

/// The owner's terms. They never change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contract {
    /// The owner's words to the worker.
    pub instructions: Option<String>,
    /// The conditions under which the owner takes the work as done.
    pub success_criteria: Option<Json>,
    /// The place or the way in which the owner wants the result.
    pub result_delivery: Option<Json>,
    /// The lease of a claim that names none, in seconds.
    pub lease_ttl_seconds: Option<i64>,
    /// The time by which the task must have ended.
    pub deadline: Option<Deadline>,
    /// The number of leases that may run out before the task ends; 0 means any number. Absent means the
    /// policy's.
    pub max_lease_expiries: Option<u32>,
}

/// The time by which a task must have ended, as its owner said it. Kept in this form so that a request
/// that is sent again is the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// So many seconds after the creation.
    After {
        /// The seconds.
        seconds: i64,
    },
    /// At this time.
    At(Timestamp),
}

impl Deadline {
    /// Returns the time of the deadline of a task that was created at `created_at`.
    pub const fn of(self, created_at: Timestamp) -> Timestamp {
        match self {
            Self::After { seconds } => created_at.plus_millis(seconds.saturating_mul(1_000)),
            Self::At(at) => at,
        }
    }
}

/// The times of a contract in the form in which the owner sent them.
#[derive(Debug, Serialize)]
struct Timeouts {
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ttl_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_at: Option<String>,
}

impl Contract {
    /// Returns true if the owner said nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the contract in the form in which a [`Spec`](super::Spec) holds it: absent if it is empty,
    /// as it is for most tasks.
    pub fn boxed(self) -> Option<Box<Self>> {
        (!self.is_empty()).then(|| Box::new(self))
    }

    /// Returns true if both ask for the same work. A limit on expiries is no content, as other limits are
    /// not.
    pub(super) fn asks_the_same(&self, other: &Self) -> bool {
        self.instructions == other.instructions
            && self.success_criteria == other.success_criteria
            && self.result_delivery == other.result_delivery
            && self.lease_ttl_seconds == other.lease_ttl_seconds
            && self.deadline == other.deadline
    }

    /// Adds the contract to the body of an assignment.
    pub(super) fn add_to(&self, body: Body) -> Body {
        let timed = self.lease_ttl_seconds.is_some() || self.deadline.is_some();
        let timeouts = timed.then(|| Timeouts {
            lease_ttl_seconds: self.lease_ttl_seconds,
            deadline_seconds: match self.deadline {
                Some(Deadline::After { seconds }) => Some(seconds),
                Some(Deadline::At(_)) | None => None,
            },
            deadline_at: match self.deadline {
                Some(Deadline::At(at)) => Some(at.to_string()),
                Some(Deadline::After { .. }) | None => None,
            },
        });
        body.with_some("instructions", self.instructions.as_ref())
            .with_content("success_criteria", self.success_criteria.as_ref())
            .with_content("result_delivery", self.result_delivery.as_ref())
            .with_some("timeouts", timeouts)
            .with_some("max_lease_expiries", self.max_lease_expiries)
    }

    /// Returns roughly the memory that it takes.
    pub(super) fn weight(&self) -> usize {
        let sent = |json: &Option<Json>| json.as_ref().map_or(0, Json::len);
        self.instructions.as_ref().map_or(0, String::len)
            + sent(&self.success_criteria)
            + sent(&self.result_delivery)
    }
}

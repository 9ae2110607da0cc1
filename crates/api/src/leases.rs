//! Operations for principals that do the work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    Access, Code, Effect, Method, Principal, PrincipalKind, Requirements, Scope, Timeouts, bounds,
    operation::operation,
};

operation!(
    /// Takes tasks to work on.
    Tasks, LeaseNext: LeaseNextInput => LeaseNextOutput,
    name: "lease_next",
    method: Method::Post,
    path: "/v1/leases/claim",
    tool: Some("asyncgate.lease_next"),
    access: Access::Needs(&[Scope::TasksLease]),
    effect: Effect::Add,
    summary: "Take the next tasks to work on.",
    doc: "Gives you the tasks with the highest priority, oldest first, whose required \
          capabilities you offer. Each comes with a lease_id: send it with every later call \
          about the task. Before expires_at, either finish (complete or fail) or renew_lease; \
          otherwise the task goes to another worker and your lease is void. With wait_seconds \
          (up to 60) the call waits for a task and answers as soon as there is one; an empty \
          list means there was none.",
    refusals: &[Code::LimitExceeded],
);

/// A worker's offer and demand.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseNextInput {
    /// Your stable name. Default: your credential's principal.
    #[serde(default)]
    pub worker_id: Option<String>,
    /// Your kind. Default `worker`.
    #[serde(default)]
    pub worker_kind: Option<PrincipalKind>,
    /// The process or machine you run in.
    #[serde(default)]
    pub worker_instance_id: Option<String>,
    /// Your capabilities. Tasks that require others are not given to you.
    #[serde(default)]
    pub capabilities: Option<Vec<String>>,
    /// The only task types you accept. Default: any.
    #[serde(default)]
    pub accept_types: Option<Vec<String>>,
    /// The most tasks to take, 1 to 1000. Default 1.
    #[serde(default)]
    #[schemars(range(min = 1, max = bounds::MAX_CLAIMED_TASKS))]
    pub max_tasks: Option<u32>,
    /// Seconds that you may hold each before you must renew, 1 to 1800. Default 300.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub lease_ttl_seconds: Option<i64>,
    /// Seconds that you expect the work to take, for the owner to see.
    #[serde(default)]
    #[schemars(range(max = bounds::MAX_DEADLINE_SECONDS))]
    pub expected_duration_seconds: Option<u32>,
    /// Seconds to wait for a task, 0 to 60. Default 0.
    #[serde(default)]
    pub wait_seconds: Option<u32>,
}

/// The tasks that you now hold.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LeaseNextOutput {
    /// The tasks, in the order to work on them.
    pub tasks: Vec<LeasedTask>,
}

/// A task that you hold.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LeasedTask {
    /// The task's id.
    pub task_id: String,
    /// The lease's id: send it with every call about the task.
    pub lease_id: String,
    /// The sort of work.
    #[serde(rename = "type")]
    pub task_type: String,
    /// The work's input, as it was sent.
    pub payload: Box<RawValue>,
    /// A pointer to a larger input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_pointer: Option<String>,
    /// Failures reported before.
    pub attempt: u32,
    /// The time at which the lease runs out.
    pub expires_at: String,
    /// The demands on the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Requirements>,
    /// The task's owner.
    pub created_by: Principal,
    /// The owner's id.
    pub principal_ai: String,
    /// The sort of outcome the owner expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_outcome_kind: Option<String>,
    /// The media type of the artifact the owner expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_artifact_mime: Option<String>,
    /// The owner's words to the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The conditions under which the owner takes the work as done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success_criteria: Option<Box<RawValue>>,
    /// The place or the way in which the owner wants the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_delivery: Option<Box<RawValue>>,
    /// The owner's limits on time, as they were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// The time by which the task must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<String>,
}

operation!(
    /// Keeps a task longer.
    Tasks, RenewLease: RenewLeaseInput => RenewLeaseOutput,
    name: "renew_lease",
    method: Method::Post,
    path: "/v1/leases/renew",
    tool: Some("asyncgate.renew_lease"),
    access: Access::Needs(&[Scope::TasksLease]),
    effect: Effect::Advance,
    summary: "Keep a task longer.",
    doc: "Moves the end of your lease to now plus extend_by_seconds (default 300, at most \
          1800); it never gets shorter. LEASE_INVALID_OR_EXPIRED means that the task is no \
          longer yours: stop working on it.",
    refusals: &[Code::TaskNotFound, Code::LeaseInvalidOrExpired],
);

/// The lease to renew.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewLeaseInput {
    /// The task's id.
    pub task_id: String,
    /// The lease's id.
    pub lease_id: String,
    /// Seconds from now until the new end, 1 to 1800. Default 300.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub extend_by_seconds: Option<i64>,
    /// Your stable name.
    #[serde(default)]
    pub worker_id: Option<String>,
    /// Your kind. Default `worker`.
    #[serde(default)]
    pub worker_kind: Option<PrincipalKind>,
    /// The process or machine you run in.
    #[serde(default)]
    pub worker_instance_id: Option<String>,
}

/// The renewed lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RenewLeaseOutput {
    /// Always true.
    pub ok: bool,
    /// The time at which the lease now runs out.
    pub expires_at: String,
}

operation!(
    /// Gives a task back.
    Tasks, ReleaseLease: ReleaseLeaseInput => Done,
    name: "release_lease",
    method: Method::Post,
    path: "/v1/leases/release",
    tool: Some("asyncgate.release_lease"),
    access: Access::Needs(&[Scope::TasksLease]),
    effect: Effect::Advance,
    summary: "Give a task back undone.",
    doc: "The task can be leased by others at once and no failure is counted. Use it when you \
          shut down or cannot do the task after all.",
    refusals: &[Code::TaskNotFound, Code::LeaseInvalidOrExpired],
);

/// The lease to give back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseLeaseInput {
    /// The task's id.
    pub task_id: String,
    /// The lease's id.
    pub lease_id: String,
    /// Your stable name.
    #[serde(default)]
    pub worker_id: Option<String>,
    /// Your kind. Default `worker`.
    #[serde(default)]
    pub worker_kind: Option<PrincipalKind>,
    /// The process or machine you run in.
    #[serde(default)]
    pub worker_instance_id: Option<String>,
}

/// The call succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Always true.
    pub ok: bool,
}

operation!(
    /// Records that the work began.
    Tasks, StartTask: StartTaskInput => Done,
    name: "start_task",
    method: Method::Post,
    path: "/v1/tasks/{task_id}/running",
    tool: Some("asyncgate.start_task"),
    access: Access::Needs(&[Scope::TasksLease]),
    effect: Effect::Advance,
    summary: "Say that work on a leased task has begun.",
    doc: "Optional: a task can go from leased straight to its end. It makes the owner see \
          status running.",
    refusals: &[Code::TaskNotFound, Code::LeaseInvalidOrExpired],
);

/// The task that was begun.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartTaskInput {
    /// The task's id.
    pub task_id: String,
    /// The lease's id.
    pub lease_id: String,
    /// Your stable name.
    #[serde(default)]
    pub worker_id: Option<String>,
    /// Your kind. Default `worker`.
    #[serde(default)]
    pub worker_kind: Option<PrincipalKind>,
    /// The process or machine you run in.
    #[serde(default)]
    pub worker_instance_id: Option<String>,
}

operation!(
    /// Records the progress of the work.
    Tasks, ReportProgress: ReportProgressInput => Done,
    name: "report_progress",
    method: Method::Post,
    path: "/v1/tasks/{task_id}/progress",
    tool: Some("asyncgate.report_progress"),
    access: Access::Needs(&[Scope::TasksLease]),
    effect: Effect::Add,
    summary: "Say how far the work is.",
    doc: "The owner sees the latest progress in get_task. It does not renew the lease.",
    refusals: &[
        Code::TaskNotFound,
        Code::LeaseInvalidOrExpired,
        Code::QuotaExceeded,
    ],
);

/// A progress report.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportProgressInput {
    /// The task's id.
    pub task_id: String,
    /// The lease's id.
    pub lease_id: String,
    /// Any JSON.
    pub progress: Box<RawValue>,
    /// Your stable name.
    #[serde(default)]
    pub worker_id: Option<String>,
    /// Your kind. Default `worker`.
    #[serde(default)]
    pub worker_kind: Option<PrincipalKind>,
    /// The process or machine you run in.
    #[serde(default)]
    pub worker_instance_id: Option<String>,
}

operation!(
    /// Ends a task with success.
    Tasks, Complete: CompleteInput => CompleteOutput,
    name: "complete",
    method: Method::Post,
    path: "/v1/tasks/{task_id}/complete",
    tool: Some("asyncgate.complete"),
    access: Access::Needs(&[Scope::TasksLease]),
    effect: Effect::Advance,
    summary: "End a task with success.",
    doc: "Say where the results are, in artifacts (a list of pointers such as {type, url}, or \
          one), or that you delivered them, in delivery_proof. Without either the task succeeds but \
          the owner's obligation stays open (discharged = false), until you send complete again for the same lease \
          with the missing proof. Repeating the call after a lost answer is safe.",
    refusals: &[Code::TaskNotFound, Code::LeaseInvalidOrExpired, Code::InvalidStateTransition, Code::LimitExceeded],
);

/// A success.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteInput {
    /// The task's id.
    pub task_id: String,
    /// The lease's id.
    pub lease_id: String,
    /// The result: any JSON up to 1 MiB.
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// Pointers to the results: a list of up to 100, one object or one text. With delivery_proof 65,280 bytes at most.
    #[serde(default)]
    #[schemars(extend("maxItems" = bounds::MAX_ARTIFACTS))]
    pub artifacts: Option<Box<RawValue>>,
    /// The proof that the results were delivered: target, time, status.
    #[serde(default)]
    pub delivery_proof: Option<Box<RawValue>>,
    /// A summary of the result, in words: 4 KiB at most.
    #[serde(default)]
    #[schemars(length(max = bounds::MAX_SUMMARY_BYTES))]
    pub result_summary: Option<String>,
    /// What else there is to say of the work: an object of up to 16 KiB.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub completion_metadata: Option<Box<RawValue>>,
    /// Your stable name.
    #[serde(default)]
    pub worker_id: Option<String>,
    /// Your kind. Default `worker`.
    #[serde(default)]
    pub worker_kind: Option<PrincipalKind>,
    /// The process or machine you run in.
    #[serde(default)]
    pub worker_instance_id: Option<String>,
}

/// The receipt of a success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompleteOutput {
    /// Always true.
    pub ok: bool,
    /// True if the owner's obligation is closed. False: send complete again with proof.
    pub discharged: bool,
    /// True if this repeats the call that ended the task; the first result stays.
    pub duplicate: bool,
    /// What is missing, if the obligation is still open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The receipt that proves it.
    pub receipt_id: String,
}

operation!(
    /// Reports a failure.
    Tasks, Fail: FailInput => FailOutput,
    name: "fail",
    method: Method::Post,
    path: "/v1/tasks/{task_id}/fail",
    tool: Some("asyncgate.fail"),
    access: Access::Needs(&[Scope::TasksLease]),
    effect: Effect::Advance,
    summary: "Report that a task failed.",
    doc: "With retryable = true the task is queued again after a growing delay, while \
          attempts are left (requeued = true); otherwise it ends as failed. Repeating the call \
          that ended the task is safe.",
    refusals: &[Code::TaskNotFound, Code::LeaseInvalidOrExpired, Code::InvalidStateTransition, Code::LimitExceeded],
);

/// A failure.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailInput {
    /// The task's id.
    pub task_id: String,
    /// The lease's id.
    pub lease_id: String,
    /// The error: any JSON.
    pub error: Box<RawValue>,
    /// True if trying again may help. Default false.
    #[serde(default)]
    pub retryable: bool,
    /// Seconds before the retry, instead of the growing delay: 0 to 86,400.
    #[serde(default)]
    #[schemars(range(max = bounds::MAX_RETRY_AFTER_SECONDS))]
    pub retry_after_seconds: Option<u32>,
    /// Your stable name.
    #[serde(default)]
    pub worker_id: Option<String>,
    /// Your kind. Default `worker`.
    #[serde(default)]
    pub worker_kind: Option<PrincipalKind>,
    /// The process or machine you run in.
    #[serde(default)]
    pub worker_instance_id: Option<String>,
}

/// The effect on the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailOutput {
    /// Always true.
    pub ok: bool,
    /// True if the task will be tried again.
    pub requeued: bool,
    /// The time from which it can be leased again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_eligible_at: Option<String>,
    /// True if this repeats the call that ended the task.
    pub duplicate: bool,
    /// The receipt that records it.
    pub receipt_id: String,
}

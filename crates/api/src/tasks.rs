//! Operations for principals that hand out work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    Access, Code, Effect, Method, Principal, PrincipalKind, Scope, bounds, forms,
    operation::operation,
};

/// A task's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Waiting for a worker, or delayed.
    Queued,
    /// Held by a worker.
    Leased,
    /// Held by a worker that has begun.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Called off.
    Canceled,
}

/// The demands on a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requirements {
    /// The worker must offer all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Labels without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Limits on time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("not" = { "required": ["deadline_seconds", "deadline_at"] }))]
pub struct Timeouts {
    /// The default lease, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub lease_ttl_seconds: Option<i64>,
    /// Seconds until it ends as failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = bounds::MAX_DEADLINE_SECONDS))]
    pub deadline_seconds: Option<i64>,
    /// The same as a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<String>,
}

operation!(
    /// Hands over a task.
    Tasks, CreateTask: CreateTaskInput => CreateTaskOutput,
    name: "create_task",
    method: Method::Post,
    path: "/v1/tasks",
    tool: Some("asyncgate.create_task"),
    access: Access::Needs(&[Scope::TasksWrite]),
    effect: Effect::Add,
    brings_work: true,
    summary: "Hand over a task to be done by a worker.",
    doc: "Returns the task_id at once; a worker with the required capabilities will do it. \
          list_open_obligations lists it until a receipt proves it done. With an idempotency_key of your own, \
          a repeated call returns the first task. Wait with get_task and wait_seconds.",
    creates: true,
    refusals: &[
        Code::IdempotencyConflict,
        Code::LimitExceeded,
        Code::QuotaExceeded,
    ],
);

/// A request for work.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTaskInput {
    /// The sort of work, e.g. `report.render`. Workers choose by it.
    #[serde(rename = "type")]
    pub task_type: String,
    /// The input: any JSON up to 1 MiB, kept byte for byte.
    #[serde(default)]
    // Raw: parsing and writing it again could change digits of numbers and the order of keys.
    pub payload: Option<Box<RawValue>>,
    /// A pointer to a larger input.
    #[serde(default)]
    pub payload_pointer: Option<String>,
    /// The demands on the worker.
    #[serde(default)]
    pub requirements: Option<Requirements>,
    /// Higher goes first. Default 0.
    #[serde(default)]
    pub priority: Option<i32>,
    /// Your name for this task. Other content under the same key is refused.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// Reported failures that end the task. Default 3.
    #[serde(default)]
    #[schemars(range(min = 1, max = bounds::MAX_TASK_ATTEMPTS))]
    pub max_attempts: Option<u32>,
    /// Seconds before the first retry; doubles with each, up to 900. Default 30.
    #[serde(default)]
    pub retry_backoff_seconds: Option<u32>,
    /// Seconds during which the task cannot be leased.
    #[serde(default)]
    #[schemars(range(min = 0, max = bounds::MAX_TASK_DELAY_SECONDS))]
    pub delay_seconds: Option<i64>,
    /// The sort of outcome you expect.
    #[serde(default)]
    pub expected_outcome_kind: Option<String>,
    /// The media type of the artifact you expect.
    #[serde(default)]
    pub expected_artifact_mime: Option<String>,
    /// What to do, in words.
    #[serde(default)]
    #[schemars(length(max = bounds::MAX_INSTRUCTIONS_BYTES))]
    pub instructions: Option<String>,
    /// When it is done: JSON up to 16 KiB.
    #[serde(default)]
    pub success_criteria: Option<Box<RawValue>>,
    /// How you want the result: JSON up to 16 KiB.
    #[serde(default)]
    pub result_delivery: Option<Box<RawValue>>,
    /// Limits on time.
    #[serde(default)]
    pub timeouts: Option<Timeouts>,
    /// Lost workers that end it; 0: any number. Default 20.
    #[serde(default)]
    pub max_lease_expiries: Option<u32>,
    /// Its kind. Default `agent`.
    #[serde(default)]
    pub principal_kind: Option<PrincipalKind>,
    /// The owner, if you may act for others.
    // The aliases in this crate are older names of the same fields; clients still send them.
    #[serde(default)]
    pub principal_id: Option<String>,
    /// An older name of principal_id. Both may be there if they say the same.
    // A field of its own and no alias: some clients send both names. A schema cannot say that two fields must
    // be equal, so it names the newer one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub principal_ai: Option<String>,
    /// Its instance.
    #[serde(default)]
    pub principal_instance_id: Option<String>,
}

/// The task that was created or existed before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateTaskOutput {
    /// The task's id.
    pub task_id: String,
    /// Its current state.
    pub status: TaskStatus,
    /// True if the idempotency key named an existing task.
    pub duplicate: bool,
}

operation!(
    /// Reads a task.
    Tasks, GetTask: GetTaskInput => TaskRecord,
    name: "get_task",
    method: Method::Get,
    path: "/v1/tasks/{task_id}",
    tool: Some("asyncgate.get_task"),
    access: Access::Needs(&[Scope::TasksRead, Scope::TasksLease]),
    effect: Effect::Read,
    summary: "Read a task, its state and, once it has ended, its result.",
    doc: "With wait_seconds the call answers as soon as the task has ended; if it has not by \
          then, call again.",
    refusals: &[Code::TaskNotFound],
);

/// The task to read.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetTaskInput {
    /// The task's id, or its last group without the zeros in front.
    #[schemars(regex(pattern = forms::TASK))]
    pub task_id: String,
    /// Seconds to wait for the task's end, 0 to 60.
    #[serde(default)]
    pub wait_seconds: Option<u32>,
    /// Its kind. Default `agent`.
    #[serde(default)]
    #[schemars(extend("not" = forms::NOBODY))]
    pub principal_kind: Option<PrincipalKind>,
    /// The owner, if you may act for others.
    #[serde(default)]
    pub principal_id: Option<String>,
}

/// A task.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Task")]
pub struct TaskRecord {
    /// Its id.
    pub task_id: String,
    /// The sort of work.
    #[serde(rename = "type")]
    pub task_type: String,
    /// Its state.
    pub status: TaskStatus,
    /// The work's input, as it was sent.
    pub payload: Box<RawValue>,
    /// A pointer to a larger input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_pointer: Option<String>,
    /// Its owner.
    pub created_by: Principal,
    /// The owner's id.
    pub principal_ai: String,
    /// The demands on the worker.
    pub requirements: Requirements,
    /// Higher goes first.
    pub priority: i32,
    /// Reported failures so far.
    pub attempt: u32,
    /// Reported failures that end it.
    pub max_attempts: u32,
    /// Seconds before the first retry.
    pub retry_backoff_seconds: u32,
    /// Leases that ran out; they do not count as failures.
    pub lease_expiries: u32,
    /// The owner's name for the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
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
    /// Leases that may run out before the task ends, if its owner said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lease_expiries: Option<u32>,
    /// The time of creation.
    pub created_at: String,
    /// The time of the last change.
    pub updated_at: String,
    /// The time before which it cannot be leased.
    pub next_eligible_at: String,
    /// The error of the last failure, also of one that was retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Box<RawValue>>,
    /// The current lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseRecord>,
    /// The last progress report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Box<RawValue>>,
    /// The time of that report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_at: Option<String>,
    /// Its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<TaskResult>,
    /// The server instance that watches its deadlines.
    pub asyncgate_instance: String,
}

/// A worker's current lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Lease")]
pub struct LeaseRecord {
    /// The lease's id.
    pub lease_id: String,
    /// Its holder.
    pub worker: Principal,
    /// The time it was given.
    pub created_at: String,
    /// The time it runs out.
    pub expires_at: String,
    /// The number of renewals.
    pub renewals: u32,
    /// Seconds that the worker expects the work to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_duration_seconds: Option<u32>,
}

/// The outcome of a task.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TaskResult {
    /// `succeeded`, `failed` or `canceled`.
    pub outcome: TaskStatus,
    /// The result of a success, as it was sent.
    pub result: Option<Box<RawValue>>,
    /// The error, or the reason of a cancellation.
    pub error: Option<Box<RawValue>>,
    /// Pointers to the results.
    pub artifacts: Option<Box<RawValue>>,
    /// Proof that the results were delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_proof: Option<Box<RawValue>>,
    /// The worker's summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// What else the worker said of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_metadata: Option<Box<RawValue>>,
    /// The time of the end.
    pub completed_at: String,
}

operation!(
    /// Lists tasks.
    Tasks, ListTasks: ListTasksInput => ListTasksOutput,
    name: "list_tasks",
    method: Method::Get,
    path: "/v1/tasks",
    tool: Some("asyncgate.list_tasks"),
    access: Access::Needs(&[Scope::TasksRead]),
    effect: Effect::Read,
    pages: true,
    summary: "List tasks, newest first.",
    doc: "Without a principal an agent sees its own tasks and an admin all of the tenant. \
          Follow next_cursor until it is null.",
);

/// A filter and a page of tasks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTasksInput {
    /// Only tasks in this state.
    #[serde(default)]
    pub status: Option<TaskStatus>,
    /// Only tasks of this type.
    #[serde(default, rename = "type")]
    pub task_type: Option<String>,
    /// The most to return, 1 to 200. Default 50.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    #[schemars(extend("format" = "uuid"))]
    pub cursor: Option<String>,
    /// Its kind. Default `agent`.
    #[serde(default)]
    #[schemars(extend("not" = forms::NOBODY))]
    pub principal_kind: Option<PrincipalKind>,
    /// The owner, if you may act for others.
    #[serde(default, alias = "created_by")]
    pub principal_id: Option<String>,
}

/// A page of tasks.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ListTasksOutput {
    /// The tasks, newest first.
    pub tasks: Vec<TaskRecord>,
    /// The `cursor` of the next page; null on the last.
    pub next_cursor: Option<String>,
}

operation!(
    /// Calls a task off.
    Tasks, CancelTask: CancelTaskInput => CancelTaskOutput,
    name: "cancel_task",
    method: Method::Post,
    path: "/v1/tasks/{task_id}/cancel",
    tool: Some("asyncgate.cancel_task"),
    access: Access::Needs(&[Scope::TasksWrite]),
    effect: Effect::End,
    summary: "Call a task off.",
    doc: "It ends at once, also when a worker holds it, who learns so from its next call. \
          Cancelling again is fine; what succeeded or failed cannot be cancelled.",
    refusals: &[Code::TaskNotFound, Code::InvalidStateTransition],
);

/// The task to call off.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelTaskInput {
    /// The task's id.
    pub task_id: String,
    /// The reason; kept in the receipt.
    #[serde(default)]
    pub reason: Option<String>,
    /// Its kind. Default `agent`.
    #[serde(default)]
    pub principal_kind: Option<PrincipalKind>,
    /// The principal that cancels, if you may act for others.
    #[serde(default)]
    pub principal_id: Option<String>,
    /// Its instance.
    #[serde(default)]
    pub principal_instance_id: Option<String>,
}

/// The canceled task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CancelTaskOutput {
    /// Always true.
    pub ok: bool,
    /// The task's state.
    pub status: TaskStatus,
}

//! Operations on many tasks in one call. Each task is answered by itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    Access, Batch, Code, CompleteOutput, CreateTaskInput, CreateTaskOutput, Effect, FailOutput,
    Method, PrincipalKind, Refusal, Scope, bounds, forms::way, operation::operation,
};

operation!(
    /// Hands over many tasks.
    Tasks, CreateTasks: CreateTasksInput => CreateTasksOutput,
    name: "create_tasks",
    method: Method::Post,
    path: "/v1/tasks/batch",
    tool: Some("asyncgate.create_tasks"),
    access: Access::Needs(&[Scope::TasksWrite]),
    effect: Effect::Add,
    brings_work: true,
    summary: "Hand over up to 1,000 tasks in one call.",
    doc: "Each has its own answer, in order: a task_id, or a code and message.",
    refusals: &[Code::LimitExceeded],
);

/// Requests for work.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTasksInput {
    /// The tasks.
    pub tasks: Batch<CreateTaskInput>,
}

/// The answers in order.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CreateTasksOutput {
    /// One for each task.
    pub results: Vec<CreateResult>,
}

/// The answer to one request of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
// A client tells the two apart by their fields: one has `task_id`, the other `code`.
#[serde(untagged)]
pub enum CreateResult {
    /// It exists, now or since before.
    Created(CreateTaskOutput),
    /// It was not created.
    Refused(Refusal),
}

operation!(
    /// Ends many tasks.
    Tasks, FinishTasks: FinishTasksInput => FinishTasksOutput,
    name: "finish_tasks",
    method: Method::Post,
    path: "/v1/leases/finish/batch",
    tool: Some("asyncgate.finish_tasks"),
    access: Access::Needs(&[Scope::TasksLease]),
    effect: Effect::Advance,
    summary: "Report the end of up to 1,000 tasks in one call.",
    doc: "Each item says complete or fail, with the fields of that tool, and has its own answer, in order: as that \
          tool gives it, or a code and message. Repeating the call after a lost answer is safe.",
);

/// Reports of a worker.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishTasksInput {
    /// 1 to 1,000 reports.
    pub items: Batch<FinishItem>,
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

/// The report of one task: a success or a failure.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    way("FinishComplete", &["complete"], &["fail"], &Value::Null),
    way("FinishFail", &["fail"], &["complete"], &Value::Null),
]))]
pub struct FinishItem {
    /// The task's id.
    pub task_id: String,
    /// The lease's id.
    pub lease_id: String,
    /// Its success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<Success>,
    /// Or its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<Failing>,
}

/// A success, with the fields of complete.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Success {
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Pointers to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxItems" = bounds::MAX_ARTIFACTS))]
    pub artifacts: Option<Box<RawValue>>,
    /// The proof of its delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_proof: Option<Box<RawValue>>,
    /// A summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::MAX_SUMMARY_BYTES))]
    pub result_summary: Option<String>,
    /// More: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub completion_metadata: Option<Box<RawValue>>,
}

/// A failure, with the fields of fail.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failing {
    /// The error.
    pub error: Box<RawValue>,
    /// True if trying again may help.
    #[serde(default)]
    pub retryable: bool,
    /// Seconds before the retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = bounds::MAX_RETRY_AFTER_SECONDS))]
    pub retry_after_seconds: Option<u32>,
}

/// The answers in order.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct FinishTasksOutput {
    /// One for each report.
    pub results: Vec<FinishResult>,
}

/// The answer to one report of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
// A client tells them apart by their fields: `discharged`, `requeued` and `code`.
#[serde(untagged)]
pub enum FinishResult {
    /// The success was taken.
    Completed(CompleteOutput),
    /// The failure was taken.
    Failed(FailOutput),
    /// It was not taken.
    Refused(Refusal),
}

operation!(
    /// Keeps many tasks longer.
    Tasks, RenewLeases: RenewLeasesInput => RenewLeasesOutput,
    name: "renew_leases",
    method: Method::Post,
    path: "/v1/leases/renew/batch",
    tool: Some("asyncgate.renew_leases"),
    access: Access::Needs(&[Scope::TasksLease]),
    effect: Effect::Advance,
    summary: "Keep up to 256 tasks longer in one call.",
    doc: "Renews each as renew_lease does. With wait_seconds it then waits, and answers as soon as one of the tasks \
          is no longer yours or was called off: stop working on those that have a code.",
);

/// The leases to renew.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewLeasesInput {
    /// 1 to 256 leases.
    pub leases: Batch<LeaseItem, { bounds::MAX_RENEWED_LEASES }>,
    /// Seconds from now until the new end, 1 to 1800. Default 300.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub extend_by_seconds: Option<i64>,
    /// Seconds to wait for the loss of one, 0 to 60. Default 0.
    #[serde(default)]
    pub wait_seconds: Option<u32>,
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

/// A lease of a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseItem {
    /// The task's id.
    pub task_id: String,
    /// The lease's id.
    pub lease_id: String,
}

/// The answers in order.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RenewLeasesOutput {
    /// One for each lease.
    pub results: Vec<RenewResult>,
}

/// The answer to one lease of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
// A client tells the two apart by their fields: one has `expires_at`, the other `code`.
#[serde(untagged)]
pub enum RenewResult {
    /// It is still yours.
    Renewed(RenewedLease),
    /// It is not.
    Refused(Refusal),
}

/// A lease that is still yours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RenewedLease {
    /// The time at which it runs out.
    pub expires_at: String,
}

//! Translation from the types of rules and stores to those of the wire.

use std::sync::Arc;

use asyncgate_api as api;
use asyncgate_core::{
    Json, Principal, PrincipalKey, PrincipalKind, Relationship, Task, TenantId, Timestamp,
    identity::{Scope, Scopes},
    metering::{UsageEvent, Used},
    task::{Contract, Deadline, End, Lease, Requirements, Status},
};
use asyncgate_store::{DeliveredReceipt, MAX_ANSWER_BYTES};
use serde_json::value::RawValue;

use crate::Engine;

pub(crate) fn core_kind(kind: api::PrincipalKind) -> PrincipalKind {
    match kind {
        api::PrincipalKind::Agent => PrincipalKind::Agent,
        api::PrincipalKind::Worker => PrincipalKind::Worker,
        api::PrincipalKind::Service => PrincipalKind::Service,
        api::PrincipalKind::Human => PrincipalKind::Human,
        api::PrincipalKind::System => PrincipalKind::System,
    }
}

pub(crate) const fn core_scope(scope: api::Scope) -> Scope {
    match scope {
        api::Scope::TasksRead => Scope::TasksRead,
        api::Scope::TasksWrite => Scope::TasksWrite,
        api::Scope::TasksLease => Scope::TasksLease,
        api::Scope::ReceiptsRead => Scope::ReceiptsRead,
        api::Scope::ReceiptsAck => Scope::ReceiptsAck,
        api::Scope::AdminRead => Scope::AdminRead,
        api::Scope::AdminWrite => Scope::AdminWrite,
        api::Scope::MailboxSend => Scope::MailboxSend,
        api::Scope::MailboxRecv => Scope::MailboxRecv,
        api::Scope::MailboxAdmin => Scope::MailboxAdmin,
        api::Scope::HostUse => Scope::HostUse,
        api::Scope::HostAdmin => Scope::HostAdmin,
        api::Scope::PlatformAdmin => Scope::PlatformAdmin,
    }
}

const fn scope(scope: Scope) -> api::Scope {
    match scope {
        Scope::TasksRead => api::Scope::TasksRead,
        Scope::TasksWrite => api::Scope::TasksWrite,
        Scope::TasksLease => api::Scope::TasksLease,
        Scope::ReceiptsRead => api::Scope::ReceiptsRead,
        Scope::ReceiptsAck => api::Scope::ReceiptsAck,
        Scope::AdminRead => api::Scope::AdminRead,
        Scope::AdminWrite => api::Scope::AdminWrite,
        Scope::MailboxSend => api::Scope::MailboxSend,
        Scope::MailboxRecv => api::Scope::MailboxRecv,
        Scope::MailboxAdmin => api::Scope::MailboxAdmin,
        Scope::HostUse => api::Scope::HostUse,
        Scope::HostAdmin => api::Scope::HostAdmin,
        Scope::PlatformAdmin => api::Scope::PlatformAdmin,
    }
}

/// Returns scopes in the order in which they are listed everywhere.
pub(crate) fn scopes(scopes: Scopes) -> Vec<api::Scope> {
    scopes.iter().map(scope).collect()
}

fn kind(kind: PrincipalKind) -> api::PrincipalKind {
    match kind {
        PrincipalKind::Agent => api::PrincipalKind::Agent,
        PrincipalKind::Worker => api::PrincipalKind::Worker,
        PrincipalKind::Service => api::PrincipalKind::Service,
        PrincipalKind::Human => api::PrincipalKind::Human,
        PrincipalKind::System => api::PrincipalKind::System,
    }
}

pub(crate) fn status(status: Status) -> api::TaskStatus {
    match status {
        Status::Queued => api::TaskStatus::Queued,
        Status::Leased => api::TaskStatus::Leased,
        Status::Running => api::TaskStatus::Running,
        Status::Succeeded => api::TaskStatus::Succeeded,
        Status::Failed => api::TaskStatus::Failed,
        Status::Canceled => api::TaskStatus::Canceled,
    }
}

pub(crate) fn core_status(status: api::TaskStatus) -> Status {
    match status {
        api::TaskStatus::Queued => Status::Queued,
        api::TaskStatus::Leased => Status::Leased,
        api::TaskStatus::Running => Status::Running,
        api::TaskStatus::Succeeded => Status::Succeeded,
        api::TaskStatus::Failed => Status::Failed,
        api::TaskStatus::Canceled => Status::Canceled,
    }
}

pub(crate) fn principal(principal: &Principal) -> api::Principal {
    api::Principal {
        kind: kind(principal.kind),
        id: name(&principal.id),
        instance_id: principal.instance_id.as_ref().map(name),
    }
}

/// Returns a principal that acts through no instance.
pub(crate) fn principal_key(key: &PrincipalKey) -> api::Principal {
    api::Principal {
        kind: kind(key.kind),
        id: name(&key.id),
        instance_id: None,
    }
}

/// Copies a name for the wire. Inside the server, names are shared.
pub(crate) fn name(shared: &Arc<str>) -> String {
    shared.as_ref().to_owned()
}

fn raw(json: &Json) -> Box<RawValue> {
    json.raw().to_owned()
}

fn some_raw(json: Option<&Json>) -> Option<Box<RawValue>> {
    json.map(raw)
}

fn requirements(requirements: &Requirements) -> api::Requirements {
    api::Requirements {
        capabilities: requirements.capabilities.clone(),
        tags: requirements.tags.clone(),
    }
}

pub(crate) fn task(task: &Task) -> api::TaskRecord {
    let spec = &task.spec;
    let contract = spec.contract.as_deref();
    api::TaskRecord {
        task_id: task.id.to_string(),
        task_type: spec.task_type.clone(),
        status: status(task.status()),
        payload: raw(&spec.payload),
        payload_pointer: spec.payload_pointer.clone(),
        created_by: principal(&task.created_by),
        principal_ai: name(&task.created_by.id),
        requirements: requirements(&spec.requirements),
        priority: spec.priority,
        attempt: task.attempt,
        max_attempts: spec.max_attempts,
        retry_backoff_seconds: spec.retry_backoff_seconds,
        lease_expiries: task.expiries,
        idempotency_key: spec.idempotency_key.clone(),
        expected_outcome_kind: spec.expected_outcome_kind.clone(),
        expected_artifact_mime: spec.expected_artifact_mime.clone(),
        instructions: contract.and_then(|contract| contract.instructions.clone()),
        success_criteria: contract
            .and_then(|contract| some_raw(contract.success_criteria.as_ref())),
        result_delivery: contract.and_then(|contract| some_raw(contract.result_delivery.as_ref())),
        timeouts: contract.and_then(timeouts),
        deadline_at: task.deadline_at().map(|at| at.to_string()),
        max_lease_expiries: contract.and_then(|contract| contract.max_lease_expiries),
        created_at: task.created_at.to_string(),
        updated_at: task.updated_at.to_string(),
        next_eligible_at: task.next_eligible_at.to_string(),
        last_error: some_raw(task.last_error()),
        lease: task.lease().map(lease),
        progress: task.progress.as_ref().map(|progress| raw(&progress.value)),
        progress_at: task
            .progress
            .as_ref()
            .map(|progress| progress.at.to_string()),
        result: task.end().map(result),
        asyncgate_instance: task.instance.to_string(),
    }
}

/// Returns the limits on time as the owner sent them.
fn timeouts(contract: &Contract) -> Option<api::Timeouts> {
    let timeouts = api::Timeouts {
        lease_ttl_seconds: contract.lease_ttl_seconds,
        deadline_seconds: match contract.deadline {
            Some(Deadline::After { seconds }) => Some(seconds),
            Some(Deadline::At(_)) | None => None,
        },
        deadline_at: match contract.deadline {
            Some(Deadline::At(at)) => Some(at.to_string()),
            Some(Deadline::After { .. }) | None => None,
        },
    };
    (timeouts != api::Timeouts::default()).then_some(timeouts)
}

fn lease(lease: &Lease) -> api::LeaseRecord {
    api::LeaseRecord {
        lease_id: lease.id.to_string(),
        worker: principal(&lease.worker),
        created_at: lease.created_at.to_string(),
        expires_at: lease.expires_at.to_string(),
        renewals: lease.renewals,
        expected_duration_seconds: lease.expected_duration_seconds,
    }
}

fn result(end: &End) -> api::TaskResult {
    api::TaskResult {
        outcome: status(end.outcome.status()),
        result: some_raw(end.result.as_ref()),
        error: some_raw(end.error.as_ref()),
        artifacts: some_raw(end.artifacts.as_ref()),
        delivery_proof: some_raw(end.delivery_proof.as_ref()),
        result_summary: end.result_summary.clone(),
        completion_metadata: some_raw(end.completion_metadata.as_ref()),
        completed_at: end.at.to_string(),
    }
}

/// Returns a task for the worker that holds `lease`.
pub(crate) fn leased(task: &Task, lease: &Lease) -> api::LeasedTask {
    let spec = &task.spec;
    let required = !spec.requirements.is_empty();
    let contract = spec.contract.as_deref();
    api::LeasedTask {
        task_id: task.id.to_string(),
        lease_id: lease.id.to_string(),
        task_type: spec.task_type.clone(),
        payload: raw(&spec.payload),
        payload_pointer: spec.payload_pointer.clone(),
        attempt: task.attempt,
        expires_at: lease.expires_at.to_string(),
        requirements: required.then(|| requirements(&spec.requirements)),
        created_by: principal(&task.created_by),
        principal_ai: name(&task.created_by.id),
        expected_outcome_kind: spec.expected_outcome_kind.clone(),
        expected_artifact_mime: spec.expected_artifact_mime.clone(),
        instructions: contract.and_then(|contract| contract.instructions.clone()),
        success_criteria: contract
            .and_then(|contract| some_raw(contract.success_criteria.as_ref())),
        result_delivery: contract.and_then(|contract| some_raw(contract.result_delivery.as_ref())),
        timeouts: contract.and_then(timeouts),
        deadline_at: task.deadline_at().map(|at| at.to_string()),
    }
}

pub(crate) fn receipt(tenant: TenantId, found: &DeliveredReceipt) -> api::ReceiptRecord {
    let receipt = &found.receipt;
    api::ReceiptRecord {
        receipt_id: receipt.id.to_string(),
        receipt_type: receipt.receipt_type.as_str().to_owned(),
        created_at: receipt.created_at.to_string(),
        from: principal(&receipt.from),
        to: principal(&receipt.to),
        task_id: receipt.task_id.map(|id| id.to_string()),
        lease_id: receipt.lease_id.map(|id| id.to_string()),
        schedule_id: None,
        parents: receipt.parents.iter().map(ToString::to_string).collect(),
        body: raw(&receipt.body),
        hash: receipt.hash(),
        seq: receipt.seq(),
        link: found.link.to_string(),
        asyncgate_instance: receipt.instance.to_string(),
        tenant_id: tenant.to_string(),
        delivered_at: found.delivered_at.map(|at| at.to_string()),
    }
}

pub(crate) fn relationship(known: &Relationship) -> api::RelationshipRecord {
    api::RelationshipRecord {
        principal_kind: kind(known.principal.kind),
        principal_id: name(&known.principal.id),
        principal_instance_id: known.principal.instance_id.as_ref().map(name),
        first_seen_at: known.first_seen_at.to_string(),
        last_seen_at: known.last_seen_at.to_string(),
        sessions_count: known.sessions_count,
    }
}

/// A page of receipts with its cursors.
pub(crate) struct Cut {
    pub(crate) receipts: Vec<DeliveredReceipt>,
    pub(crate) cursor: Option<String>,
    pub(crate) next_cursor: Option<String>,
}

/// Cuts a page to one less than was `asked` for, because the last receipt only shows if there are more, and to
/// what fits into an answer. An empty page leaves the reader at `since`.
pub(crate) fn cut(mut receipts: Vec<DeliveredReceipt>, asked: usize, since: Option<&str>) -> Cut {
    let found = receipts.len();
    receipts.truncate(asked.saturating_sub(1));
    fit(&mut receipts);
    let more = receipts.len() < found;
    let last = receipts.last().map(|found| found.receipt.id.to_string());
    let cursor = last.or_else(|| since.map(str::to_owned));
    let next_cursor = cursor.clone().filter(|_| more);
    Cut {
        receipts,
        cursor,
        next_cursor,
    }
}

/// Leaves out the receipts behind those that fit into one answer. At least one stays.
pub(crate) fn fit(receipts: &mut Vec<DeliveredReceipt>) {
    let mut taken = 0;
    let fitting = receipts.iter().take_while(|found| {
        taken += found.receipt.body.len();
        taken <= MAX_ANSWER_BYTES
    });
    let fitting = fitting.count().max(1);
    receipts.truncate(fitting);
}

impl Engine {
    pub(crate) fn server_info(&self) -> api::ServerInfo {
        let settings = self.settings();
        api::ServerInfo {
            name: "AsyncGate".to_owned(),
            version: settings.version.to_owned(),
            instance_id: settings.instance_id.to_string(),
            uptime: self.uptime_seconds(),
            environment: settings.environment.clone(),
        }
    }
}

/// Returns a usage event as it is listed and billed.
pub(crate) fn usage_event(tenant: TenantId, event: &UsageEvent) -> api::UsageEventRecord {
    api::UsageEventRecord {
        usage_event_id: event.id.to_string(),
        tenant_id: tenant.to_string(),
        seq: event.seq,
        since: event.since.as_ref().map(Timestamp::to_string),
        until: event.until.to_string(),
        used: used(&event.used),
        total: used(&event.total),
    }
}

const fn used(used: &Used) -> api::UsedAmounts {
    api::UsedAmounts {
        tasks_created: used.tasks_created,
        lease_seconds: used.lease_seconds,
        receipt_byte_seconds: used.receipt_byte_seconds,
        api_calls: used.api_calls,
    }
}

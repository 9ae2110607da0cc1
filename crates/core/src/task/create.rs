//! Handing over a task: it is queued, and its owner is owed an outcome.

use std::sync::Arc;

use crate::{
    Class, Decision, Env, Json, Ledger, Principal, PrincipalKey, ReceiptType, Rejection, Seq, Task,
    TaskWrite, TenantLoad,
    identity::{Quota, QuotaName},
    ledger::Draft,
    receipt::Body,
    task::{Contract, Requirements, Spec, State, batch::alone},
};

/// A tasker's request. Values that it leaves open are filled from the policy.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// The owner.
    pub owner: Principal,
    /// The sort of work.
    pub task_type: String,
    /// The work's input.
    pub payload: Json,
    /// The address of a larger input.
    pub payload_pointer: Option<String>,
    /// The demands on the worker.
    pub requirements: Requirements,
    /// Higher goes first.
    pub priority: Option<i32>,
    /// The number of reported failures that ends the task.
    pub max_attempts: Option<u32>,
    /// The delay before the first retry.
    pub retry_backoff_seconds: Option<u32>,
    /// The owner's name for this task.
    pub idempotency_key: Option<String>,
    /// The time before which it cannot be claimed, from now.
    pub delay_ms: i64,
    /// The sort of outcome the owner expects.
    pub expected_outcome_kind: Option<String>,
    /// The media type of the artifact the owner expects.
    pub expected_artifact_mime: Option<String>,
    /// The owner's terms.
    pub contract: Contract,
}

impl NewTask {
    /// Builds a request from the least that a tasker must say.
    pub fn new(owner: Principal, task_type: impl Into<String>, payload: Json) -> Self {
        Self {
            owner,
            task_type: task_type.into(),
            payload,
            payload_pointer: None,
            requirements: Requirements::default(),
            priority: None,
            max_attempts: None,
            retry_backoff_seconds: None,
            idempotency_key: None,
            delay_ms: 0,
            expected_outcome_kind: None,
            expected_artifact_mime: None,
            contract: Contract::default(),
        }
    }

    /// Returns the class that the task will have.
    pub fn class(&self) -> Class {
        Class {
            task_type: self.task_type.clone(),
            capabilities: self.requirements.capabilities.clone(),
        }
    }

    /// Returns the whole of the owner's name for the task, if it gave one.
    pub fn key(&self) -> Option<IdempotencyKey> {
        Some(IdempotencyKey {
            owner: self.owner.key(),
            key: self.idempotency_key.clone()?,
        })
    }
}

/// An owner's name for a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey {
    /// The principal that gave the name.
    pub owner: PrincipalKey,
    /// The name.
    pub key: String,
}

impl IdempotencyKey {
    /// Returns the name of a task, if it has one.
    pub fn of(task: &Task) -> Option<Self> {
        Some(Self {
            owner: task.created_by.key(),
            key: task.spec.idempotency_key.clone()?,
        })
    }
}

/// The task that a request to create one stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Created {
    /// The new task, or the first with the same idempotency key.
    pub task: Task,
    /// True if the task existed before.
    pub duplicate: bool,
}

/// Creates a task. If the owner's idempotency key already stands for a task (`existing`), returns
/// that task for the same content and refuses other content. `load` says what the tenant has in use.
pub fn create(
    env: Env,
    head: Seq,
    new: NewTask,
    existing: Option<Task>,
    load: TenantLoad,
) -> Result<Decision<Created>, Rejection> {
    alone(env, head, |env, ledger| {
        add(env, ledger, new, existing, &load)
    })
}

/// Does the work of [`create`] behind what was decided before.
pub(super) fn add(
    env: &mut Env,
    ledger: &mut Ledger,
    new: NewTask,
    existing: Option<Task>,
    load: &TenantLoad,
) -> Result<Created, Rejection> {
    // Checked before the key, so that the refusal does not depend on earlier calls.
    let limit = max_payload_bytes(env);
    if new.payload.len() > limit {
        let what = "payload";
        return Err(Rejection::TooLarge { what, limit });
    }
    if let Some(task) = existing {
        return repeat(&new, task);
    }
    check_room(env, load)?;
    // The task's id carries the place of its assignment, which is the next receipt.
    let id = env.ids.task(ledger.next_seq());
    let owner = new.owner.clone();
    let delayed = new.delay_ms > 0;
    // The edge refuses negative delays; here they mean none.
    let next_eligible_at = env.now.plus_millis(new.delay_ms.max(0));
    let spec = spec(new, env);
    let assignment = ledger.append(
        env,
        Draft {
            receipt_type: ReceiptType::TaskAssigned,
            from: &owner,
            to: &owner,
            task_id: Some(id),
            lease_id: None,
            body: assignment_body(&spec).finish(|| format!("GET /v1/tasks/{id}")),
        },
    );
    let task = Task {
        id,
        spec: Arc::new(spec),
        created_by: owner,
        created_at: env.now,
        assignment,
        state: if delayed {
            State::Delayed
        } else {
            State::Ready
        },
        attempt: 0,
        expiries: 0,
        updated_at: env.now,
        next_eligible_at,
        progress: None,
        retried_error: None,
        expired_workers: Vec::new(),
        instance: env.instance.clone(),
    };
    ledger.changes.tasks.push(TaskWrite {
        task: task.clone(),
        // No standing before: the store inserts and removes nothing from its indexes.
        before: None,
    });
    let duplicate = false;
    Ok(Created { task, duplicate })
}

/// Returns the size that a payload may have: that of the settings or that of the tenant's quota, whichever is less.
fn max_payload_bytes(env: &Env) -> usize {
    let limit = env.policy.max_payload_bytes;
    match env.quota(QuotaName::PayloadBytes) {
        Quota::None => limit,
        Quota::AtMost(most) => usize::try_from(most).map_or(limit, |most| most.min(limit)),
    }
}

/// Refuses one more task of a tenant that has used up what it may have.
fn check_room(env: &Env, load: &TenantLoad) -> Result<(), Rejection> {
    let TenantLoad { usage, classes } = load;
    if let Some(quotas) = &env.quotas {
        quotas.check(QuotaName::ActiveTasks, usage.active_tasks)?;
        // New work brings receipts. The receipts of work that is under way are always written.
        quotas.check(QuotaName::ReceiptStorageBytes, usage.receipt_storage_bytes)?;
    }
    // Every class costs memory for as long as it has a task, so one tenant may not have any number of them.
    let limit = env.policy.max_task_classes;
    if !classes.is_known && classes.classes >= limit {
        return Err(Rejection::TooManyClasses { limit });
    }
    Ok(())
}

/// Answers the same content with the first task and refuses other content. Priority, delay and
/// limits are not content: a tasker may be restarted with other settings.
fn repeat(new: &NewTask, task: Task) -> Result<Created, Rejection> {
    let first = &task.spec;
    // Payloads are compared as values, so that another order of keys is the same content.
    let same = first.task_type == new.task_type
        && first.payload == new.payload
        && first.payload_pointer == new.payload_pointer
        && first.requirements == new.requirements
        && match &first.contract {
            Some(contract) => contract.asks_the_same(&new.contract),
            None => Contract::default().asks_the_same(&new.contract),
        };
    if !same {
        let task_id = task.id;
        return Err(Rejection::IdempotencyConflict { task_id });
    }
    let duplicate = true;
    Ok(Created { task, duplicate })
}

fn spec(new: NewTask, env: &Env) -> Spec {
    let policy = &env.policy;
    Spec {
        task_type: new.task_type,
        payload: new.payload,
        payload_pointer: new.payload_pointer,
        requirements: new.requirements,
        priority: new.priority.unwrap_or(policy.default_priority),
        max_attempts: new.max_attempts.unwrap_or(policy.default_max_attempts),
        retry_backoff_seconds: new
            .retry_backoff_seconds
            .unwrap_or(policy.default_retry_backoff_seconds),
        idempotency_key: new.idempotency_key,
        expected_outcome_kind: new.expected_outcome_kind,
        expected_artifact_mime: new.expected_artifact_mime,
        contract: new.contract.boxed(),
    }
}

/// Builds the body of the assignment: the contract, without the payload, which is only its input.
fn assignment_body(spec: &Spec) -> Body {
    let requirements = &spec.requirements;
    let mut body = Body::new().with("type", &spec.task_type);
    // The long texts go first: what is added first leaves first when a body is too large.
    if let Some(contract) = &spec.contract {
        body = contract.add_to(body);
    }
    body.with_some("capabilities", some(&requirements.capabilities))
        .with_some("tags", some(&requirements.tags))
        .with_some("payload_pointer", spec.payload_pointer.as_ref())
        .with_some("expected_outcome_kind", spec.expected_outcome_kind.as_ref())
        .with_some(
            "expected_artifact_mime",
            spec.expected_artifact_mime.as_ref(),
        )
}

fn some(names: &Vec<String>) -> Option<&Vec<String>> {
    (!names.is_empty()).then_some(names)
}

//! A history that does and refuses everything once.

use std::{collections::HashMap, fmt};

use serde_json::{Value, json};

use crate::{admission::admission, facades::Outcome, messages::messages};

/// One call, and what it must come to.
pub struct Step {
    pub operation: &'static str,
    /// The input; texts like `$task` stand for what an earlier step kept.
    pub input: Value,
    /// The code it must be refused with; absent when it must be done.
    pub code: Option<&'static str>,
    /// What to keep of the answer, and under which name.
    keep: &'static [(&'static str, &'static str)],
    /// How much time passes before the call.
    pub after_ms: i64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.input)
    }
}

impl Step {
    pub fn after(mut self, millis: i64) -> Self {
        self.after_ms = millis;
        self
    }

    pub fn keep(mut self, keep: &'static [(&'static str, &'static str)]) -> Self {
        self.keep = keep;
        self
    }
}

pub fn done(operation: &'static str, input: Value) -> Step {
    Step {
        operation,
        input,
        code: None,
        keep: &[],
        after_ms: 0,
    }
}

pub fn refused(operation: &'static str, input: Value, code: &'static str) -> Step {
    Step {
        code: Some(code),
        ..done(operation, input)
    }
}

/// What steps kept for later steps.
#[derive(Default)]
pub struct Memory(HashMap<&'static str, Value>);

impl Memory {
    /// The input with what was kept in place of its names.
    pub fn fill(&self, input: &Value) -> Value {
        match input {
            Value::String(text) => match text.strip_prefix('$') {
                Some(name) => self
                    .0
                    .get(name)
                    .cloned()
                    .unwrap_or_else(|| panic!("no ${name}")),
                None => input.clone(),
            },
            Value::Object(object) => object
                .iter()
                .map(|(key, value)| (key.clone(), self.fill(value)))
                .collect(),
            Value::Array(values) => values.iter().map(|value| self.fill(value)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => input.clone(),
        }
    }

    pub fn keep(&mut self, step: &Step, outcome: &Outcome) {
        for (name, pointer) in step.keep {
            let Outcome::Answer(answer) = outcome else {
                panic!("{step}: nothing to keep of {outcome:?}");
            };
            let value = answer
                .pointer(pointer)
                .unwrap_or_else(|| panic!("{step}: no {pointer}"));
            self.0.insert(name, value.clone());
        }
    }
}

const TASK: &[(&str, &str)] = &[("task", "/task_id")];
const LEASE: &[(&str, &str)] = &[("task", "/tasks/0/task_id"), ("lease", "/tasks/0/lease_id")];
const NOBODY: &str = "0190a0b0-0000-7000-8000-000000000000";

fn held(extra: Value) -> Value {
    let mut input = json!({ "worker_id": "w", "task_id": "$task", "lease_id": "$lease" });
    for (key, value) in extra.as_object().into_iter().flatten() {
        input[key] = value.clone();
    }
    input
}

fn create(extra: Value) -> Value {
    let mut input = json!({ "type": "echo", "payload": { "n": 1 }, "principal_id": "alice" });
    for (key, value) in extra.as_object().into_iter().flatten() {
        input[key] = value.clone();
    }
    input
}

/// The whole history.
pub fn script() -> Vec<Step> {
    let mut steps = tasks();
    steps.extend(task_batches());
    steps.extend(messages());
    steps.extend(admission());
    steps
}

/// Batches: what is done, what is refused alone, and what is refused whole.
fn task_batches() -> Vec<Step> {
    let keyed = || create(json!({ "idempotency_key": "batch" }));
    let both = &[
        ("first", "/tasks/0/task_id"),
        ("first lease", "/tasks/0/lease_id"),
        ("second", "/tasks/1/task_id"),
        ("second lease", "/tasks/1/lease_id"),
    ];
    let first = || json!({ "task_id": "$first", "lease_id": "$first lease" });
    let second = || json!({ "task_id": "$second", "lease_id": "$second lease" });
    let with = |mut item: Value, name: &str, value: Value| {
        item[name] = value;
        item
    };
    let proof = || json!({ "result": 1, "delivery_proof": { "target": "t" } });
    vec![
        refused("create_tasks", json!({ "tasks": [] }), "BAD_REQUEST"),
        refused(
            "create_tasks",
            json!({ "tasks": [keyed()], "x": 1 }),
            "BAD_REQUEST",
        ),
        done(
            "create_tasks",
            json!({ "tasks": [
                keyed(), { "type": 7 }, keyed(), create(json!({ "payload": 2, "idempotency_key": "batch" })),
                { "type": "x", "color": 1 }, create(json!({ "delay_seconds": -1 })), 3, create(json!({})),
            ] }),
        ),
        done(
            "lease_next",
            json!({ "worker_id": "w", "max_tasks": 1_000 }),
        )
        .keep(both),
        refused(
            "lease_next",
            json!({ "worker_id": "w", "max_tasks": 1_001 }),
            "BAD_REQUEST",
        ),
        refused(
            "renew_leases",
            json!({ "worker_id": "w", "leases": [] }),
            "BAD_REQUEST",
        ),
        done(
            "renew_leases",
            json!({
                "worker_id": "w", "extend_by_seconds": 500, "wait_seconds": 60,
                "leases": [first(), with(first(), "lease_id", json!(NOBODY)), {}, second()],
            }),
        ),
        refused("finish_tasks", json!({ "items": [] }), "BAD_REQUEST"),
        done(
            "finish_tasks",
            json!({ "worker_id": "w", "items": [
                with(first(), "complete", json!({ "result": 1 })),
                with(first(), "complete", proof()),
                with(first(), "complete", proof()),
                with(second(), "complete", json!({ "completion_metadata": 7 })),
                second(),
                { "task_id": NOBODY, "lease_id": NOBODY, "fail": { "error": 1 } },
                with(second(), "fail", json!({ "error": "net", "retryable": true, "retry_after_seconds": 0 })),
                with(second(), "fail", json!({ "error": "again" })),
            ] }),
        ),
        done("get_task", json!({ "task_id": "$first" })),
        done(
            "cancel_task",
            json!({ "task_id": "$second", "principal_id": "alice" }),
        ),
    ]
}

fn tasks() -> Vec<Step> {
    let alice = || json!({ "principal_id": "alice" });
    let worker = || json!({ "worker_id": "w" });
    vec![
        done("get_config", json!({})),
        refused("get_config", json!({ "x": "1" }), "BAD_REQUEST"),
        done("whoami", json!({})),
        refused("whoami", json!({ "x": "1" }), "BAD_REQUEST"),
        refused("create_task", json!({ "type": "" }), "BAD_REQUEST"),
        refused(
            "create_task",
            create(json!({ "delay_seconds": -1 })),
            "BAD_REQUEST",
        ),
        done("create_task", create(json!({ "idempotency_key": "k" }))).keep(TASK),
        done("create_task", create(json!({ "idempotency_key": "k" }))).keep(TASK),
        refused(
            "create_task",
            create(json!({ "idempotency_key": "k", "payload": 2 })),
            "IDEMPOTENCY_CONFLICT",
        ),
        done("get_task", json!({ "task_id": "$task" })),
        refused("get_task", json!({ "task_id": NOBODY }), "TASK_NOT_FOUND"),
        refused("get_task", json!({ "task_id": "7" }), "BAD_REQUEST"),
        done("list_open_obligations", alice()),
        refused(
            "list_open_obligations",
            json!({ "limit": 0 }),
            "BAD_REQUEST",
        ),
        refused(
            "lease_next",
            json!({ "worker_id": "w", "max_tasks": 0 }),
            "BAD_REQUEST",
        ),
        done("lease_next", worker()).keep(LEASE),
        done("lease_next", worker()),
        done("start_task", held(json!({}))),
        refused(
            "start_task",
            held(json!({ "worker_id": "v" })),
            "LEASE_INVALID_OR_EXPIRED",
        ),
        done(
            "report_progress",
            held(json!({ "progress": { "percent": 50 } })),
        ),
        refused(
            "report_progress",
            held(json!({ "lease_id": NOBODY, "progress": 1 })),
            "LEASE_INVALID_OR_EXPIRED",
        ),
        done("renew_lease", held(json!({ "extend_by_seconds": 600 }))).after(1_000),
        refused(
            "renew_lease",
            held(json!({ "extend_by_seconds": 0 })),
            "BAD_REQUEST",
        ),
        done("complete", held(json!({ "result": { "sum": 3 } }))),
        done(
            "complete",
            held(json!({ "result": 4, "artifacts": [{ "type": "s3", "url": "s3://b/r" }] })),
        ),
        done("complete", held(json!({ "result": 5 }))),
        refused(
            "fail",
            held(json!({ "error": "late" })),
            "LEASE_INVALID_OR_EXPIRED",
        ),
        refused(
            "complete",
            json!({ "worker_id": "w", "task_id": NOBODY, "lease_id": NOBODY }),
            "TASK_NOT_FOUND",
        ),
        refused(
            "cancel_task",
            json!({ "task_id": "$task" }),
            "INVALID_STATE_TRANSITION",
        ),
        done("get_task", json!({ "task_id": "$task", "wait_seconds": 1 })),
        done("list_ledger", json!({ "task_id": "$task" })),
        done("list_ledger", json!({ "lease_id": "$lease", "limit": 1 })),
        done("list_ledger", json!({ "receipt_type": "task.completed" })),
        refused("list_ledger", json!({}), "BAD_REQUEST"),
        done("read_ledger", json!({ "limit": 3 })),
        refused(
            "read_ledger",
            json!({ "since_receipt_id": NOBODY }),
            "BAD_REQUEST",
        ),
        refused(
            "list_ledger",
            json!({ "task_id": "$task", "lease_id": "$lease" }),
            "BAD_REQUEST",
        ),
        done("get_ledger_head", json!({})),
        refused("get_ledger_head", json!({ "x": "1" }), "BAD_REQUEST"),
        done("list_receipts", alice()).keep(&[("receipt", "/receipts/0/receipt_id")]),
        done(
            "list_receipts",
            json!({ "principal_id": "alice", "since_receipt_id": "$receipt" }),
        ),
        refused(
            "list_receipts",
            json!({ "since_receipt_id": NOBODY }),
            "BAD_REQUEST",
        ),
        done("get_receipt", json!({ "receipt_id": "$receipt" })),
        refused(
            "get_receipt",
            json!({ "receipt_id": NOBODY }),
            "RECEIPT_NOT_FOUND",
        ),
        done(
            "ack_receipt",
            json!({ "receipt_id": "$receipt", "principal_id": "alice" }),
        ),
        refused(
            "ack_receipt",
            json!({ "receipt_id": NOBODY }),
            "RECEIPT_NOT_FOUND",
        ),
        done(
            "bootstrap",
            json!({ "principal_id": "alice", "principal_instance_id": "laptop" }),
        ),
        refused("bootstrap", json!({ "max_items": 0 }), "BAD_REQUEST"),
        // A failure that is retried, one that is not, a lease that runs out, one that is given back.
        done(
            "create_task",
            create(json!({ "retry_backoff_seconds": 10 })),
        )
        .keep(TASK),
        done("lease_next", worker()).keep(LEASE),
        done(
            "fail",
            held(json!({ "error": { "why": "net" }, "retryable": true })),
        ),
        refused("release_lease", held(json!({})), "LEASE_INVALID_OR_EXPIRED"),
        done("lease_next", worker()).after(9_999),
        done(
            "lease_next",
            json!({ "worker_id": "w", "lease_ttl_seconds": 2 }),
        )
        .after(1)
        .keep(LEASE),
        refused("renew_lease", held(json!({})), "LEASE_INVALID_OR_EXPIRED").after(2_000),
        done("lease_next", worker()).after(5_000).keep(LEASE),
        done("release_lease", held(json!({}))),
        done(
            "lease_next",
            json!({ "worker_id": "w", "accept_types": ["echo"] }),
        )
        .keep(LEASE),
        done("fail", held(json!({ "error": "no" }))),
        done(
            "create_task",
            create(json!({ "requirements": { "capabilities": ["gpu"] } })),
        )
        .keep(TASK),
        done("lease_next", worker()),
        done(
            "cancel_task",
            json!({ "task_id": "$task", "principal_id": "alice", "reason": "enough" }),
        ),
        done(
            "cancel_task",
            json!({ "task_id": "$task", "principal_id": "alice" }),
        ),
        done("list_tasks", alice()),
        done("list_tasks", json!({ "status": "failed", "limit": 1 })),
        refused("list_tasks", json!({ "status": "lost" }), "BAD_REQUEST"),
        done("list_open_obligations", alice()),
    ]
}

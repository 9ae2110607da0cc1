//! A task in words.

use asyncgate_client::{
    api::{LeaseRecord, TaskRecord, TaskStatus},
    has_ended,
};
use serde_json::value::RawValue;

use crate::{
    plain::one_line,
    show::{Cell, fields, status, who},
};

/// Formats all that a person wants to know of a task.
pub fn describe(task: &TaskRecord) -> String {
    let result = task.result.as_ref();
    let json = |json: &Option<Box<RawValue>>| json.as_ref().map(|json| one_line(json.get()).into());
    let lease = task.lease.as_ref();
    // A task that waits for no time can be taken at once, and says so by its status.
    let waits = task.status == TaskStatus::Queued && task.next_eligible_at > task.updated_at;
    let expiries = task.lease_expiries;
    fields::<Cell, _>([
        ("task", Some(task.task_id.as_str().into())),
        ("type", Some(task.task_type.as_str().into())),
        ("status", Some(status(task.status))),
        ("owner", Some(who(&task.created_by).into())),
        ("payload", Some(one_line(task.payload.get()).into())),
        (
            "failed",
            Some(format!("{} of {}", task.attempt, task.max_attempts).into()),
        ),
        (
            "expiries",
            (expiries > 0).then(|| expiries.to_string().into()),
        ),
        ("created", Some(task.created_at.as_str().into())),
        ("deadline", task.deadline_at.as_deref().map(Into::into)),
        (
            "next try",
            waits.then(|| task.next_eligible_at.as_str().into()),
        ),
        (
            "last error",
            // The error that ended a task is shown with its end.
            json(&task.last_error).filter(|_| task.status != TaskStatus::Failed),
        ),
        ("leased", lease.map(held)),
        ("lease", lease.map(|lease| lease.lease_id.as_str().into())),
        (
            "progress",
            json(&task.progress).filter(|_| !has_ended(task.status)),
        ),
        (
            "ended",
            result.map(|result| result.completed_at.as_str().into()),
        ),
        ("result", result.and_then(|result| json(&result.result))),
        (
            "summary",
            result.and_then(|result| {
                result
                    .result_summary
                    .as_deref()
                    .map(|text| one_line(text).into())
            }),
        ),
        ("error", result.and_then(|result| json(&result.error))),
        (
            "artifacts",
            result.and_then(|result| json(&result.artifacts)),
        ),
        (
            "proof",
            result.and_then(|result| json(&result.delivery_proof)),
        ),
    ])
}

fn held(lease: &LeaseRecord) -> Cell {
    let renewed = match lease.renewals {
        0 => String::new(),
        1 => ", renewed once".to_owned(),
        times => format!(", renewed {times} times"),
    };
    let (worker, end) = (who(&lease.worker), &lease.expires_at);
    format!("by {worker} until {end}{renewed}").into()
}

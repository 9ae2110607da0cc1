//! What few tasks have: contracts, and what is left to say of a state. Each is one text, a JSON array, so that the
//! rows of all other tasks stay as short as they were.

use std::sync::Arc;

use asyncgate_core::{
    Json, Task, Timestamp,
    task::{Contract, Deadline},
};
use rusqlite::{Result, types::Type};
use serde_json::value::RawValue;

/// A JSON value that may be missing: a list with or without it. `null` is a value too, so it cannot stand for
/// a missing one.
type Sent<T> = Vec<T>;

/// The rest of a task's state.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StateMore {
    pub(super) retried_error: Option<Json>,
    pub(super) expired_workers: Vec<Arc<str>>,
    pub(super) expected_duration_seconds: Option<u32>,
    pub(super) result_summary: Option<String>,
    pub(super) completion_metadata: Option<Json>,
}

/// Encodes the rest of a task's state; absent if there is nothing to say.
pub(super) fn state_text(task: &Task) -> Option<String> {
    let (lease, end) = (task.lease(), task.end());
    let expected = lease.and_then(|lease| lease.expected_duration_seconds);
    let summary = end.and_then(|end| end.result_summary.as_ref());
    let metadata = end.and_then(|end| end.completion_metadata.as_ref());
    let nothing = task.retried_error.is_none()
        && task.expired_workers.is_empty()
        && expected.is_none()
        && summary.is_none()
        && metadata.is_none();
    if nothing {
        return None;
    }
    let workers: Vec<&str> = task.expired_workers.iter().map(|id| &**id).collect();
    let error = sent(task.retried_error.as_ref());
    serde_json::to_string(&(error, workers, expected, summary, sent(metadata))).ok()
}

pub(super) fn read_state(text: Option<String>) -> Result<StateMore> {
    let Some(text) = text else {
        return Ok(StateMore::default());
    };
    type Parts = (
        Sent<Box<RawValue>>,
        Vec<String>,
        Option<u32>,
        Option<String>,
        Sent<Box<RawValue>>,
    );
    let (error, workers, expected_duration_seconds, result_summary, metadata): Parts =
        serde_json::from_str(&text).map_err(damaged)?;
    Ok(StateMore {
        retried_error: json(error),
        expired_workers: workers.into_iter().map(Into::into).collect(),
        expected_duration_seconds,
        result_summary,
        completion_metadata: json(metadata),
    })
}

/// Encodes a contract.
pub(super) fn contract_text(contract: &Contract) -> Option<String> {
    let (after, at) = match contract.deadline {
        Some(Deadline::After { seconds }) => (Some(seconds), None),
        Some(Deadline::At(at)) => (None, Some(at.as_millis())),
        None => (None, None),
    };
    let parts = (
        &contract.instructions,
        sent(contract.success_criteria.as_ref()),
        sent(contract.result_delivery.as_ref()),
        contract.lease_ttl_seconds,
        after,
        at,
        contract.max_lease_expiries,
    );
    serde_json::to_string(&parts).ok()
}

pub(super) fn read_contract(text: &str) -> Result<Contract> {
    type Parts = (
        Option<String>,
        Sent<Box<RawValue>>,
        Sent<Box<RawValue>>,
        Option<i64>,
        Option<i64>,
        Option<i64>,
        Option<u32>,
    );
    let (instructions, criteria, delivery, lease_ttl_seconds, after, at, max_lease_expiries): Parts =
        serde_json::from_str(text).map_err(damaged)?;
    let after = after.map(|seconds| Deadline::After { seconds });
    Ok(Contract {
        instructions,
        success_criteria: json(criteria),
        result_delivery: json(delivery),
        lease_ttl_seconds,
        deadline: after.or(at.map(|at| Deadline::At(Timestamp::from_millis(at)))),
        max_lease_expiries,
    })
}

fn sent(json: Option<&Json>) -> Sent<&RawValue> {
    json.map(Json::raw).into_iter().collect()
}

fn json(mut sent: Sent<Box<RawValue>>) -> Option<Json> {
    // What was stored was taken once: only its text is read back.
    sent.pop()
        .and_then(|raw| Json::from_text(raw.get().to_owned()))
}

fn damaged(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
}

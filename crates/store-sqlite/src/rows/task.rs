//! Task rows.

use asyncgate_core::{
    Json, Task, TaskId,
    task::{End, Lease, Outcome, Progress, Requirements, Spec, State},
};
use rusqlite::{OptionalExtension, Result, Row, params, types::Type};

use crate::{
    codec::{self, Columns, Key},
    db::Db,
};

/// Payloads above this size live in their own table: a task is rewritten several times in its
/// life, its payload never changes.
const LARGE_PAYLOAD_BYTES: usize = 2_048;

const SELECT: &str = "
    SELECT task_id, state, attempt, expiries, updated_at, eligible_at,
           lease_id, worker, leased_at, lease_until, renewals, progress, progress_at,
           ended_at, result, error, artifacts, delivery_proof, end_receipt, discharged,
           type, payload, payload_pointer, requirements, priority, max_attempts, retry_backoff,
           idempotency_key, outcome_kind, artifact_mime, owner, created_at, assignment, instance
    FROM task WHERE task = ?1";

const INSERT: &str = "
    INSERT INTO task (
        task, task_id, state, attempt, expiries, updated_at, eligible_at,
        type, payload, payload_pointer, requirements, priority, max_attempts, retry_backoff,
        idempotency_key, outcome_kind, artifact_mime, owner, created_at, assignment, instance
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
              ?19, ?20, ?21)";

const UPDATE: &str = "
    UPDATE task SET
        state = ?2, attempt = ?3, expiries = ?4, updated_at = ?5, eligible_at = ?6,
        lease_id = ?7, worker = ?8, leased_at = ?9, lease_until = ?10, renewals = ?11,
        progress = ?12, progress_at = ?13, ended_at = ?14, result = ?15, error = ?16,
        artifacts = ?17, delivery_proof = ?18, end_receipt = ?19, discharged = ?20
    WHERE task = ?1";

/// The task at `key`, if there is one.
pub(crate) fn load(db: &mut Db, key: Key) -> Result<Option<Task>> {
    let loaded = db
        .conn
        .prepare_cached(SELECT)?
        .query_row([key.0], read)
        .optional()?;
    let Some((mut task, payload, instance)) = loaded else {
        return Ok(None);
    };
    task.spec.payload = match payload {
        Some(payload) => payload,
        None => load_payload(db, key)?,
    };
    task.instance = db.instance(instance)?;
    Ok(Some(task))
}

/// The task with this id, if there is one.
pub(crate) fn find(db: &mut Db, tenant: i64, id: TaskId) -> Result<Option<Task>> {
    let at_place = load(db, Key::new(tenant, id.seq()))?;
    Ok(at_place.filter(|task| task.id == id))
}

fn load_payload(db: &Db, key: Key) -> Result<Json> {
    db.conn
        .prepare_cached("SELECT payload FROM large_payload WHERE task = ?1")?
        .query_row([key.0], |row| {
            let mut columns = Columns::of(row);
            let payload = columns.json()?;
            columns.must(payload)
        })
}

pub(crate) fn insert(db: &mut Db, key: Key, task: &Task) -> Result<()> {
    let instance = db.intern_instance(&task.instance)?;
    let spec = &task.spec;
    let large = spec.payload.len() > LARGE_PAYLOAD_BYTES;
    db.conn.prepare_cached(INSERT)?.execute(params![
        key.0,
        task.id.as_bytes(),
        state_number(&task.state),
        task.attempt,
        task.expiries,
        task.updated_at.as_millis(),
        task.next_eligible_at.as_millis(),
        spec.task_type,
        (!large).then(|| spec.payload.text()),
        spec.payload_pointer,
        requirements_text(&spec.requirements),
        spec.priority,
        spec.max_attempts,
        spec.retry_backoff_seconds,
        spec.idempotency_key,
        spec.expected_outcome_kind,
        spec.expected_artifact_mime,
        codec::principal(&task.created_by),
        task.created_at.as_millis(),
        task.assignment.as_bytes(),
        instance,
    ])?;
    if large {
        db.conn
            .prepare_cached("INSERT INTO large_payload VALUES (?1, ?2)")?
            .execute(params![key.0, spec.payload.text()])?;
    }
    Ok(())
}

/// Writes what can change about a task.
pub(crate) fn update(db: &Db, key: Key, task: &Task) -> Result<()> {
    let (lease, end) = (task.lease(), task.end());
    let by = end.and_then(|end| end.by.as_ref());
    let lease_id = lease.map(|lease| lease.id).or(by.map(|(id, _)| *id));
    let worker = lease
        .map(|lease| &lease.worker)
        .or(by.map(|(_, worker)| worker));
    let text = |json: &'_ Option<Json>| json.as_ref().map(|json| json.text().to_owned());
    db.conn.prepare_cached(UPDATE)?.execute(params![
        key.0,
        state_number(&task.state),
        task.attempt,
        task.expiries,
        task.updated_at.as_millis(),
        task.next_eligible_at.as_millis(),
        lease_id.as_ref().map(|id| id.as_bytes()),
        worker.map(codec::principal),
        lease.map(|lease| lease.created_at.as_millis()),
        lease.map(|lease| lease.expires_at.as_millis()),
        lease.map(|lease| lease.renewals),
        task.progress.as_ref().map(|progress| progress.value.text()),
        task.progress
            .as_ref()
            .map(|progress| progress.at.as_millis()),
        end.map(|end| end.at.as_millis()),
        end.and_then(|end| text(&end.result)),
        end.and_then(|end| text(&end.error)),
        end.and_then(|end| text(&end.artifacts)),
        end.and_then(|end| text(&end.delivery_proof)),
        end.map(|end| end.receipt.as_bytes()),
        end.map(|end| end.discharged),
    ])?;
    Ok(())
}

/// A task whose payload and instance are still to be filled in, and what they are.
fn read(row: &Row<'_>) -> Result<(Task, Option<Json>, i64)> {
    let mut columns = Columns::of(row);
    let c = &mut columns;
    let id = c.task_id()?;
    let state: i64 = c.get()?;
    let (attempt, expiries) = (c.get()?, c.get()?);
    let (updated_at, next_eligible_at) = (c.time()?, c.time()?);
    let hold = read_hold(c)?;
    let progress = read_progress(c)?;
    let state = read_state(c, state, hold)?;
    let task_type = c.get()?;
    let payload = c.json()?;
    let spec = Spec {
        task_type,
        payload: Json::null(),
        payload_pointer: c.get()?,
        requirements: read_requirements(c)?,
        priority: c.get()?,
        max_attempts: c.get()?,
        retry_backoff_seconds: c.get()?,
        idempotency_key: c.get()?,
        expected_outcome_kind: c.get()?,
        expected_artifact_mime: c.get()?,
    };
    let task = Task {
        id,
        spec,
        created_by: c.principal()?,
        created_at: c.time()?,
        assignment: c.receipt_id()?,
        state,
        attempt,
        expiries,
        updated_at,
        next_eligible_at,
        progress,
        instance: "".into(),
    };
    Ok((task, payload, c.get()?))
}

type HoldColumns = (
    Option<asyncgate_core::LeaseId>,
    Option<asyncgate_core::Principal>,
    Option<asyncgate_core::Timestamp>,
    Option<asyncgate_core::Timestamp>,
    Option<u32>,
);

fn read_hold(c: &mut Columns<'_>) -> Result<HoldColumns> {
    Ok((
        c.lease_id()?,
        c.some_principal()?,
        c.some_time()?,
        c.some_time()?,
        c.get()?,
    ))
}

fn read_progress(c: &mut Columns<'_>) -> Result<Option<Progress>> {
    let (value, at) = (c.json()?, c.some_time()?);
    Ok(value.zip(at).map(|(value, at)| Progress { value, at }))
}

const DELAYED: i64 = 0;
const READY: i64 = 1;
const LEASED: i64 = 2;
const RUNNING: i64 = 3;
const SUCCEEDED: i64 = 4;
const FAILED: i64 = 5;
const CANCELED: i64 = 6;

const fn state_number(state: &State) -> i64 {
    match state {
        State::Delayed => DELAYED,
        State::Ready => READY,
        State::Leased(_) => LEASED,
        State::Running(_) => RUNNING,
        State::Ended(end) => match end.outcome {
            Outcome::Succeeded => SUCCEEDED,
            Outcome::Failed => FAILED,
            Outcome::Canceled => CANCELED,
        },
    }
}

fn read_state(c: &mut Columns<'_>, number: i64, hold: HoldColumns) -> Result<State> {
    let (lease_id, worker, leased_at, lease_until, renewals) = hold;
    let ended_at = c.some_time()?;
    let (result, error, artifacts, delivery_proof) = (c.json()?, c.json()?, c.json()?, c.json()?);
    let receipt: Option<[u8; 16]> = c.get()?;
    let discharged: Option<bool> = c.get()?;
    let outcome = match number {
        DELAYED => return Ok(State::Delayed),
        READY => return Ok(State::Ready),
        LEASED | RUNNING => {
            let lease = Lease {
                id: c.must(lease_id)?,
                worker: c.must(worker)?,
                created_at: c.must(leased_at)?,
                expires_at: c.must(lease_until)?,
                renewals: c.must(renewals)?,
            };
            return Ok(if number == LEASED {
                State::Leased(lease)
            } else {
                State::Running(lease)
            });
        }
        SUCCEEDED => Outcome::Succeeded,
        FAILED => Outcome::Failed,
        CANCELED => Outcome::Canceled,
        _ => return Err(rusqlite::Error::IntegralValueOutOfRange(1, number)),
    };
    Ok(State::Ended(End {
        outcome,
        at: c.must(ended_at)?,
        by: lease_id.zip(worker),
        result,
        error,
        artifacts,
        delivery_proof,
        receipt: asyncgate_core::ReceiptId::from_bytes(c.must(receipt)?),
        discharged: c.must(discharged)?,
    }))
}

/// Capabilities, then tags, as JSON; absent when nothing is required.
fn requirements_text(requirements: &Requirements) -> Option<String> {
    if requirements.is_empty() {
        return None;
    }
    serde_json::to_string(&(&requirements.capabilities, &requirements.tags)).ok()
}

fn read_requirements(c: &mut Columns<'_>) -> Result<Requirements> {
    let Some(text) = c.get::<Option<String>>()? else {
        return Ok(Requirements::default());
    };
    let (capabilities, tags) = serde_json::from_str(&text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
    })?;
    Ok(Requirements { capabilities, tags })
}

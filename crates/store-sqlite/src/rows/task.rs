//! The rows of tasks.

use std::sync::Arc;

use asyncgate_core::{
    Class, Json, Placement, Task, TaskId,
    task::{End, Lease, Outcome, Progress, Requirements, Spec, State, Status},
};
use asyncgate_store::{IdempotencyKey, Parties};
use rusqlite::{OptionalExtension, Result, Row, params, types::Type};

use crate::{
    codec::{self, Columns, Key},
    db::Db,
    rows::{
        checksum::{Cells, Checksum, Stored, damaged, is_damage},
        more::{self, StateMore},
    },
};

/// The size above which payloads and contracts live in tables of their own: a task is rewritten several times in its life,
/// and they never change.
const LARGE_BYTES: usize = 2_048;
/// The text in the place of a contract that stands in its own table.
const ELSEWHERE: &str = "";

/// The columns that change and those that never do have a checksum each, so that a change does not have
/// to read the rest. The payload, the contract and the instance stand at the end, because other tables may hold them.
const SELECT: &str = "
    SELECT state, attempt, expiries, updated_at, eligible_at,
           lease_id, worker, leased_at, lease_until, renewals, progress, progress_at,
           ended_at, result, error, artifacts, delivery_proof, end_receipt, discharged, state_more,
           state_sum, task_id, type, payload_pointer, requirements, priority, max_attempts, retry_backoff,
           idempotency_key, outcome_kind, artifact_mime, owner, created_at, assignment, spec_sum,
           payload, instance, contract
    FROM task WHERE task = ?1";

const INSERT: &str = "
    INSERT INTO task (
        task, state, attempt, expiries, updated_at, eligible_at,
        lease_id, worker, leased_at, lease_until, renewals, progress, progress_at,
        ended_at, result, error, artifacts, delivery_proof, end_receipt, discharged, state_more,
        state_sum, task_id, type, payload_pointer, requirements, priority, max_attempts, retry_backoff,
        idempotency_key, outcome_kind, artifact_mime, owner, created_at, assignment, spec_sum,
        payload, instance, contract
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
              ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35,
              ?36, ?37, ?38, ?39)";

const UPDATE: &str = "
    UPDATE task SET
        state = ?2, attempt = ?3, expiries = ?4, updated_at = ?5, eligible_at = ?6,
        lease_id = ?7, worker = ?8, leased_at = ?9, lease_until = ?10, renewals = ?11,
        progress = ?12, progress_at = ?13, ended_at = ?14, result = ?15, error = ?16,
        artifacts = ?17, delivery_proof = ?18, end_receipt = ?19, discharged = ?20, state_more = ?21,
        state_sum = ?22
    WHERE task = ?1";

/// Returns the task at `key`, if there is one.
pub(crate) fn load(db: &mut Db, key: Key) -> Result<Option<Task>> {
    let loaded = db
        .conn
        .prepare_cached(SELECT)?
        .query_row([key.0], |row| read(row, key))
        .optional()?;
    let Some(Loaded {
        mut task,
        payload,
        instance,
        contract,
        mut sum,
        stored,
    }) = loaded
    else {
        return Ok(None);
    };
    let contract = match contract {
        Some(text) if text == ELSEWHERE => Some(load_contract(db, key)?),
        contract => contract,
    };
    let spec = Arc::make_mut(&mut task.spec);
    spec.payload = match payload {
        Some(payload) => payload,
        None => load_payload(db, key)?,
    };
    task.instance = db.instance(instance)?;
    sum.add_text(spec.payload.text());
    sum.add_text(&task.instance);
    if let Some(text) = &contract {
        sum.add_text(text);
    }
    sum.check(stored)?;
    if let Some(text) = &contract {
        spec.contract = Some(Box::new(more::read_contract(text)?));
    }
    Ok(Some(task))
}

/// Returns the task with this id, if there is one.
pub(crate) fn find(db: &mut Db, tenant: i64, id: TaskId) -> Result<Option<Task>> {
    let at_place = load(db, Key::new(tenant, id.seq()))?;
    Ok(at_place.filter(|task| task.id == id))
}

/// Returns the status of the task at `key`. The column stands before those that may be large.
pub(crate) fn status(db: &Db, key: Key) -> Result<Option<Status>> {
    let state: Option<i64> = db
        .conn
        .prepare_cached("SELECT state FROM task WHERE task = ?1")?
        .query_row([key.0], |row| row.get(0))
        .optional()?;
    Ok(state.and_then(|state| match state {
        DELAYED | READY => Some(Status::Queued),
        LEASED => Some(Status::Leased),
        RUNNING => Some(Status::Running),
        SUCCEEDED => Some(Status::Succeeded),
        FAILED => Some(Status::Failed),
        CANCELED => Some(Status::Canceled),
        _ => None,
    }))
}

/// Returns the id of the task at `key`.
pub(crate) fn id(db: &Db, key: Key) -> Result<Option<TaskId>> {
    db.conn
        .prepare_cached("SELECT task_id FROM task WHERE task = ?1")?
        .query_row([key.0], |row| row.get(0).map(TaskId::from_bytes))
        .optional()
}

/// Returns the owner and the worker of the task at `key`, if it has this id. The owner is read from the
/// assignment: in the task's row it stands behind what may be large.
pub(crate) fn parties(db: &Db, key: Key, id: TaskId) -> Result<Option<Parties>> {
    db.conn
        .prepare_cached(
            "SELECT t.worker, r.addressee FROM task t JOIN receipt r ON r.receipt = t.task
             WHERE t.task = ?1 AND t.task_id = ?2",
        )?
        .query_row(params![key.0, id.as_bytes()], |row| {
            let mut columns = Columns::of(row);
            Ok(Parties {
                worker: columns.some_principal()?.map(|worker| worker.key()),
                owner: columns.principal()?.key(),
            })
        })
        .optional()
}

/// Returns the task that was loaded from `key`, if it is ready. If it cannot be offered, because its row or the index is
/// damaged, it is taken out of the index: one bad row must not block all others for ever.
pub(crate) fn check_ready(db: &Db, key: Key, loaded: Result<Option<Task>>) -> Result<Option<Task>> {
    let why = match loaded {
        Ok(Some(task)) if matches!(task.placement(), Placement::Ready { .. }) => {
            return Ok(Some(task));
        }
        Ok(_) => damaged("the task is not ready"),
        Err(error) if is_damage(&error) => error,
        Err(error) => return Err(error),
    };
    let id: Option<[u8; 16]> = db
        .conn
        .query_row("SELECT task_id FROM task WHERE task = ?1", [key.0], |row| {
            row.get(0)
        })
        .unwrap_or_default();
    let id = id.map(TaskId::from_bytes);
    tracing::error!(
        task = id.map(tracing::field::display),
        assignment = key.seq(),
        %why,
        "a task that cannot be given out was taken out of the queue; it will not be done"
    );
    let deleted = db
        .conn
        .execute("DELETE FROM ready WHERE task = ?1", [key.0])?;
    // The caller looks again after `None`, and would find the same row for ever.
    if deleted == 0 {
        return Err(why);
    }
    Ok(None)
}

/// Returns the task that the index named for an idempotency key, which must be the one with this key.
pub(crate) fn check_keyed(found: Option<Task>, wanted: &IdempotencyKey) -> Result<Task> {
    found
        .filter(|task| {
            task.spec.idempotency_key.as_ref() == Some(&wanted.key)
                && task.created_by.key() == wanted.owner
        })
        .ok_or_else(|| damaged("the index of idempotency keys names another task"))
}

fn load_payload(db: &Db, key: Key) -> Result<Json> {
    let payload = db
        .conn
        .prepare_cached("SELECT payload FROM large_payload WHERE task = ?1")?
        .query_row([key.0], |row| Columns::of(row).json())
        .optional()?;
    payload
        .flatten()
        .ok_or_else(|| damaged("the row has lost its payload"))
}

fn load_contract(db: &Db, key: Key) -> Result<String> {
    let contract = db
        .conn
        .prepare_cached("SELECT contract FROM large_contract WHERE task = ?1")?
        .query_row([key.0], |row| row.get(0))
        .optional()?;
    contract.ok_or_else(|| damaged("the row has lost its contract"))
}

pub(crate) fn insert(db: &mut Db, key: Key, task: &Task) -> Result<()> {
    let instance = db.intern_instance(&task.instance)?;
    let payload = &task.spec.payload;
    let large = payload.len() > LARGE_BYTES;
    let contract = task.spec.contract.as_ref();
    let contract = contract.and_then(|contract| more::contract_text(contract));
    let contract = contract.as_deref();
    let large_contract = contract.filter(|text| text.len() > LARGE_BYTES);
    let mut statement = db.conn.prepare_cached(INSERT)?;
    let mut cells = Cells::new(&mut statement, key)?;
    put_state(&mut cells, task)?;
    put_spec(&mut cells, task, contract)?;
    cells.bind((!large).then(|| payload.text()))?;
    cells.bind(instance)?;
    cells.bind(large_contract.map(|_| ELSEWHERE).or(contract))?;
    cells.execute()?;
    if large {
        db.conn
            .prepare_cached("INSERT INTO large_payload VALUES (?1, ?2)")?
            .execute(params![key.0, payload.text()])?;
    }
    if let Some(text) = large_contract {
        db.conn
            .prepare_cached("INSERT INTO large_contract VALUES (?1, ?2)")?
            .execute(params![key.0, text])?;
    }
    Ok(())
}

/// Writes the columns of a task that can change.
pub(crate) fn update(db: &Db, key: Key, task: &Task) -> Result<()> {
    let mut statement = db.conn.prepare_cached(UPDATE)?;
    let mut cells = Cells::new(&mut statement, key)?;
    put_state(&mut cells, task)?;
    cells.execute()
}

fn put_state(cells: &mut Cells<'_, '_>, task: &Task) -> Result<()> {
    let (lease, end) = (task.lease(), task.end());
    let by = end.and_then(|end| end.by.as_ref());
    let lease_id = lease.map(|lease| lease.id).or(by.map(|(id, _)| *id));
    let worker = lease
        .map(|lease| &lease.worker)
        .or(by.map(|(_, worker)| worker));
    cells.put(state_number(&task.state))?;
    cells.put(task.attempt)?;
    cells.put(task.expiries)?;
    cells.put_time(task.updated_at)?;
    cells.put_time(task.next_eligible_at)?;
    cells.put(lease_id.as_ref().map(|id| id.as_bytes()))?;
    cells.put(worker.map(codec::principal))?;
    cells.put(lease.map(|lease| lease.created_at.as_millis()))?;
    cells.put(lease.map(|lease| lease.expires_at.as_millis()))?;
    cells.put(lease.map(|lease| lease.renewals))?;
    let progress = task.progress.as_ref();
    cells.put(progress.map(|progress| progress.value.text()))?;
    cells.put(progress.map(|progress| progress.at.as_millis()))?;
    cells.put(end.map(|end| end.at.as_millis()))?;
    for said in [
        end.and_then(|end| end.result.as_ref()),
        end.and_then(|end| end.error.as_ref()),
        end.and_then(|end| end.artifacts.as_ref()),
        end.and_then(|end| end.delivery_proof.as_ref()),
    ] {
        cells.put(said.map(Json::text))?;
    }
    cells.put(end.map(|end| end.receipt.as_bytes()))?;
    cells.put(end.map(|end| end.discharged))?;
    cells.put_some(more::state_text(task).as_deref())?;
    cells.seal()
}

fn put_spec(cells: &mut Cells<'_, '_>, task: &Task, contract: Option<&str>) -> Result<()> {
    let spec = &task.spec;
    cells.put(task.id.as_bytes())?;
    cells.put(&spec.task_type)?;
    cells.put(&spec.payload_pointer)?;
    cells.put(requirements_text(&spec.requirements))?;
    cells.put(spec.priority)?;
    cells.put(spec.max_attempts)?;
    cells.put(spec.retry_backoff_seconds)?;
    cells.put(&spec.idempotency_key)?;
    cells.put(&spec.expected_outcome_kind)?;
    cells.put(&spec.expected_artifact_mime)?;
    cells.put(codec::principal(&task.created_by))?;
    cells.put_time(task.created_at)?;
    cells.put(task.assignment.as_bytes())?;
    cells.cover(spec.payload.text());
    cells.cover(&task.instance);
    if let Some(contract) = contract {
        cells.cover(contract);
    }
    cells.seal()
}

/// A task whose payload, contract and instance are not filled in and not covered by the checksum yet.
struct Loaded {
    task: Task,
    /// Absent if it is large: then it stands in its own table.
    payload: Option<Json>,
    instance: i64,
    /// [`ELSEWHERE`] if it is large: then it stands in its own table.
    contract: Option<String>,
    sum: Checksum,
    stored: Stored,
}

fn read(row: &Row<'_>, key: Key) -> Result<Loaded> {
    let mut columns = Columns::of(row);
    let c = &mut columns;
    c.begin_checksum(Checksum::new(key));
    let state: i64 = c.get()?;
    let (attempt, expiries) = (c.get()?, c.get()?);
    let (updated_at, next_eligible_at) = (c.time()?, c.time()?);
    let hold = read_hold(c)?;
    let progress = read_progress(c)?;
    let columns = read_end(c)?;
    let more = more::read_state(c.covered_some()?)?;
    let (retried_error, expired_workers) =
        (more.retried_error.clone(), more.expired_workers.clone());
    let state = read_state(c, state, hold, columns, more)?;
    let (sum, stored) = c.end_checksum()?;
    sum.check(stored)?;
    c.begin_checksum(Checksum::new(key));
    let id = c.task_id()?;
    let spec = Spec {
        task_type: c.get()?,
        payload: Json::null(),
        payload_pointer: c.get()?,
        requirements: read_requirements(c)?,
        priority: c.get()?,
        max_attempts: c.get()?,
        retry_backoff_seconds: c.get()?,
        idempotency_key: c.get()?,
        expected_outcome_kind: c.get()?,
        expected_artifact_mime: c.get()?,
        contract: None,
    };
    let task = Task {
        id,
        spec: Arc::new(spec),
        created_by: c.principal()?,
        created_at: c.time()?,
        assignment: c.receipt_id()?,
        state,
        attempt,
        expiries,
        updated_at,
        next_eligible_at,
        progress,
        retried_error,
        expired_workers,
        instance: "".into(),
    };
    let (sum, stored) = c.end_checksum()?;
    Ok(Loaded {
        task,
        payload: c.json()?,
        instance: c.get()?,
        contract: c.get()?,
        sum,
        stored,
    })
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

/// Returns the number of the state of a task that ended so; for other statuses one that no task has.
pub(crate) const fn ended_as(status: Status) -> i64 {
    match status {
        Status::Succeeded => SUCCEEDED,
        Status::Failed => FAILED,
        Status::Canceled => CANCELED,
        Status::Queued | Status::Leased | Status::Running => -1,
    }
}

type EndColumns = (
    Option<asyncgate_core::Timestamp>,
    [Option<Json>; 4],
    Option<[u8; 16]>,
    Option<bool>,
);

fn read_end(c: &mut Columns<'_>) -> Result<EndColumns> {
    let ended_at = c.some_time()?;
    let said = [c.json()?, c.json()?, c.json()?, c.json()?];
    Ok((ended_at, said, c.get()?, c.get()?))
}

fn read_state(
    c: &Columns<'_>,
    number: i64,
    hold: HoldColumns,
    end: EndColumns,
    more: StateMore,
) -> Result<State> {
    let (lease_id, worker, leased_at, lease_until, renewals) = hold;
    let (ended_at, [result, error, artifacts, delivery_proof], receipt, discharged) = end;
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
                expected_duration_seconds: more.expected_duration_seconds,
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
        result_summary: more.result_summary,
        completion_metadata: more.completion_metadata,
        receipt: asyncgate_core::ReceiptId::from_bytes(c.must(receipt)?),
        discharged: c.must(discharged)?,
    }))
}

/// Encodes capabilities, then tags, as JSON; absent when nothing is required.
fn requirements_text(requirements: &Requirements) -> Option<String> {
    if requirements.is_empty() {
        return None;
    }
    serde_json::to_string(&(&requirements.capabilities, &requirements.tags)).ok()
}

/// Reads a class from the columns `type` and `requirements`, of which the first stands at `column`.
pub(crate) fn read_class(row: &Row<'_>, column: usize) -> Result<Class> {
    Ok(Class {
        task_type: row.get(column)?,
        capabilities: requirements(row.get(column + 1)?)?.capabilities,
    })
}

fn read_requirements(c: &mut Columns<'_>) -> Result<Requirements> {
    requirements(c.get()?)
}

fn requirements(text: Option<String>) -> Result<Requirements> {
    let Some(text) = text else {
        return Ok(Requirements::default());
    };
    let (capabilities, tags) = serde_json::from_str(&text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
    })?;
    Ok(Requirements { capabilities, tags })
}

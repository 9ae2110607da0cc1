//! Hands over a task.

use asyncgate_api::{
    CreateTask, CreateTaskInput, CreateTaskOutput, Timeouts,
    bounds::{
        MAX_DEADLINE_SECONDS, MAX_INSTRUCTIONS_BYTES, MAX_TASK_ATTEMPTS, MAX_TASK_DELAY_SECONDS,
        MAX_TERMS_BYTES,
    },
};
use asyncgate_core::{
    Json,
    task::{Contract, Created, Deadline, NewTask, Requirements},
};
use asyncgate_store::ReadSet;

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, Touches, authorise::Named, input, touches::task_bytes, view};

/// The memory that a task takes besides its payload, roughly.
const TASK_WEIGHT: usize = 1_024;

impl Execute for CreateTask {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let new = new_task(caller, input)?;
        let weight = weight(&new);
        let reads = ReadSet::to_create(&new);
        let created = engine
            .transact(caller.tenant, weight, reads, move |env, snapshot| {
                snapshot.create(env, new.clone())
            })
            .await?;
        if !created.duplicate {
            engine.metrics.created.inc();
        }
        Ok(answer(&created))
    }

    fn touches(input: &CreateTaskInput) -> Touches<'_> {
        Touches::Task {
            task_type: &input.task_type,
            bytes: task_bytes(input),
        }
    }

    fn created(output: &CreateTaskOutput) -> bool {
        !output.duplicate
    }
}

/// Returns roughly the memory that a request takes.
pub(super) fn weight(new: &NewTask) -> usize {
    TASK_WEIGHT + new.payload.len()
}

pub(super) fn answer(created: &Created) -> CreateTaskOutput {
    CreateTaskOutput {
        task_id: created.task.id.to_string(),
        status: view::status(created.task.status()),
        duplicate: created.duplicate,
    }
}

/// Reads a request for work.
pub(super) fn new_task(caller: &Caller, input: CreateTaskInput) -> Result<NewTask, Fault> {
    let named = Named::principal(
        input.principal_kind,
        same_name(input.principal_id, input.principal_ai)?,
        input.principal_instance_id,
    );
    let owner = caller.acting(named)?;
    let required = input.requirements.unwrap_or_default();
    let requirements = Requirements::new(
        input::names("requirements.capabilities", required.capabilities)?,
        input::names("requirements.tags", required.tags)?,
    );
    let payload = match input.payload {
        Some(raw) => input::json("payload", raw)?,
        None => Json::null(),
    };
    let contract = Contract {
        instructions: input::bounded_text(
            "instructions",
            input.instructions,
            MAX_INSTRUCTIONS_BYTES,
        )?,
        success_criteria: input::bounded_json(
            "success_criteria",
            input.success_criteria,
            MAX_TERMS_BYTES,
        )?,
        result_delivery: input::bounded_json(
            "result_delivery",
            input.result_delivery,
            MAX_TERMS_BYTES,
        )?,
        max_lease_expiries: input.max_lease_expiries,
        ..timed(input.timeouts.unwrap_or_default())?
    };
    Ok(NewTask {
        owner,
        contract,
        task_type: input::name("type", input.task_type)?,
        payload,
        payload_pointer: input::text("payload_pointer", input.payload_pointer)?,
        requirements,
        priority: input.priority,
        max_attempts: attempts(input.max_attempts)?,
        retry_backoff_seconds: input.retry_backoff_seconds,
        idempotency_key: input
            .idempotency_key
            .map(|key| input::name("idempotency_key", key))
            .transpose()?,
        delay_ms: delay_ms(input.delay_seconds)?,
        expected_outcome_kind: input::text("expected_outcome_kind", input.expected_outcome_kind)?,
        expected_artifact_mime: input::text(
            "expected_artifact_mime",
            input.expected_artifact_mime,
        )?,
    })
}

/// Returns the owner's id, which may stand under two names.
fn same_name(id: Option<String>, older: Option<String>) -> Result<Option<String>, Fault> {
    match (id, older) {
        (Some(id), Some(older)) if id != older => Err(Fault::bad_request(
            "principal_id and principal_ai name different principals",
        )),
        (id, older) => Ok(id.or(older)),
    }
}

/// Reads the limits on time.
fn timed(timeouts: Timeouts) -> Result<Contract, Fault> {
    let Timeouts {
        lease_ttl_seconds,
        deadline_seconds,
        deadline_at,
    } = timeouts;
    input::positive_seconds("timeouts.lease_ttl_seconds", lease_ttl_seconds)?;
    let after = input::bounded_seconds(
        "timeouts.deadline_seconds",
        deadline_seconds,
        MAX_DEADLINE_SECONDS,
    )?;
    input::positive_seconds("timeouts.deadline_seconds", after)?;
    let deadline = match (after, deadline_at) {
        (None, None) => None,
        (Some(seconds), None) => Some(Deadline::After { seconds }),
        (None, Some(text)) => {
            let at = text.parse().map_err(|error| {
                let field = "timeouts.deadline_at";
                Fault::bad_request(format!("{field}: {error}")).with("field", field)
            })?;
            Some(Deadline::At(at))
        }
        (Some(_), Some(_)) => {
            return Err(Fault::bad_request(
                "give timeouts.deadline_seconds or timeouts.deadline_at, not both",
            ));
        }
    };
    Ok(Contract {
        lease_ttl_seconds,
        deadline,
        ..Contract::default()
    })
}

fn attempts(wished: Option<u32>) -> Result<Option<u32>, Fault> {
    if wished.is_some_and(|attempts| attempts == 0 || attempts > MAX_TASK_ATTEMPTS) {
        return Err(Fault::bad_request(format!(
            "max_attempts must be 1 to {MAX_TASK_ATTEMPTS}"
        )));
    }
    Ok(wished)
}

fn delay_ms(seconds: Option<i64>) -> Result<i64, Fault> {
    let seconds = seconds.unwrap_or(0);
    if !(0..=MAX_TASK_DELAY_SECONDS).contains(&seconds) {
        return Err(Fault::bad_request(format!(
            "delay_seconds must be 0 to {MAX_TASK_DELAY_SECONDS}"
        )));
    }
    Ok(seconds * 1_000)
}

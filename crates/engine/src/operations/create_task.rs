//! Hands over a task.

use asyncgate_api::{
    CreateTask, CreateTaskInput, CreateTaskOutput,
    bounds::{MAX_TASK_ATTEMPTS, MAX_TASK_DELAY_SECONDS},
};
use asyncgate_core::{
    Json,
    task::{NewTask, Requirements},
};
use asyncgate_store::ReadSet;

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, Touches, authorise::Named, input, view};

/// The memory that a task takes besides its payload, roughly.
const TASK_WEIGHT: usize = 1_024;

impl Execute for CreateTask {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let new = new_task(caller, input)?;
        let weight = TASK_WEIGHT + new.payload.len();
        let reads = ReadSet::to_create(&new);
        let created = engine
            .transact(caller.tenant, weight, reads, move |env, snapshot| {
                snapshot.create(env, new.clone())
            })
            .await?;
        if !created.duplicate {
            engine.metrics.created.inc();
        }
        Ok(CreateTaskOutput {
            task_id: created.task.id.to_string(),
            status: view::status(created.task.status()),
            duplicate: created.duplicate,
        })
    }

    fn touches(input: &CreateTaskInput) -> Touches<'_> {
        let payload = input.payload.as_ref();
        Touches::Task {
            task_type: &input.task_type,
            bytes: payload.map_or(0, |raw| raw.get().len()),
        }
    }

    fn created(output: &CreateTaskOutput) -> bool {
        !output.duplicate
    }
}

fn new_task(caller: &Caller, input: CreateTaskInput) -> Result<NewTask, Fault> {
    let named = Named::principal(
        input.principal_kind,
        input.principal_id,
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
    Ok(NewTask {
        owner,
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

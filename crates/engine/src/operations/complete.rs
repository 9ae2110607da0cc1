//! Ends a task with success.

use asyncgate_api::{
    Complete, CompleteOutput, Success,
    bounds::{MAX_SUMMARY_BYTES, MAX_TERMS_BYTES},
};
use asyncgate_core::{
    Json, TaskId,
    task::{self, Completion, Finished},
};

use super::{Execute, Executed, UnderLease};
use crate::{Caller, Engine, Fault, input};

/// What a worker is told whose success proves nothing.
const HINT: &str = "The owner is still owed a result that can be found: send complete again for this lease, with \
                    artifacts or delivery_proof.";

impl Execute for Complete {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        let completion = completion(Success {
            result: input.result,
            artifacts: input.artifacts,
            delivery_proof: input.delivery_proof,
            result_summary: input.result_summary,
            completion_metadata: input.completion_metadata,
        })?;
        let (task_id, weight) = (under.task_id, weight(&completion));
        let finished = under
            .transact(engine, caller, weight, move |env, head, hold, task| {
                task::complete(env, head, hold, task, completion.clone())
            })
            .await?;
        Ok(answer(engine, task_id, &finished))
    }
}

/// Reads a success.
pub(super) fn completion(success: Success) -> Result<Completion, Fault> {
    let completion = Completion {
        result: input::some_json("result", success.result)?,
        artifacts: input::some_json("artifacts", success.artifacts)?,
        delivery_proof: input::some_json("delivery_proof", success.delivery_proof)?,
        summary: input::bounded_text("result_summary", success.result_summary, MAX_SUMMARY_BYTES)?,
        metadata: input::bounded_json(
            "completion_metadata",
            success.completion_metadata,
            MAX_TERMS_BYTES,
        )?,
    };
    let metadata = completion.metadata.as_ref();
    if metadata.is_some_and(|metadata| !metadata.text().starts_with('{')) {
        return Err(Fault::bad_request("completion_metadata must be an object"));
    }
    Ok(completion)
}

/// Returns roughly the memory that a success takes.
pub(super) fn weight(completion: &Completion) -> usize {
    let sent = [
        &completion.result,
        &completion.artifacts,
        &completion.delivery_proof,
        &completion.metadata,
    ];
    sent.into_iter().flatten().map(Json::len).sum()
}

/// Makes the answer to a success. One without proof is counted and logged.
pub(super) fn answer(engine: &Engine, task_id: TaskId, finished: &Finished) -> CompleteOutput {
    if !finished.discharged && !finished.duplicate {
        engine.metrics.unproven.inc();
        tracing::warn!(
            task = %task_id,
            "a worker reported success without artifacts or delivery_proof: its owner's obligation stays open"
        );
    }
    CompleteOutput {
        ok: true,
        discharged: finished.discharged,
        hint: (!finished.discharged).then(|| HINT.to_owned()),
        duplicate: finished.duplicate,
        receipt_id: finished.receipt_id.to_string(),
    }
}

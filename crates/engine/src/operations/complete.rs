//! Ends a task with success.

use asyncgate_api::{Complete, CompleteOutput};
use asyncgate_core::{
    Json,
    task::{self, Completion},
};

use super::{Execute, Executed, UnderLease};
use crate::{Caller, Engine, input};

impl Execute for Complete {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        let completion = Completion {
            result: input::some_json("result", input.result)?,
            artifacts: input::some_json("artifacts", input.artifacts)?,
            delivery_proof: input::some_json("delivery_proof", input.delivery_proof)?,
        };
        let sent = [
            &completion.result,
            &completion.artifacts,
            &completion.delivery_proof,
        ];
        let weight = sent.into_iter().flatten().map(Json::len).sum();
        let finished = under
            .transact(engine, caller, weight, move |env, head, hold, task| {
                task::complete(env, head, hold, task, completion.clone())
            })
            .await?;
        Ok(CompleteOutput {
            ok: true,
            duplicate: finished.duplicate,
            receipt_id: finished.receipt_id.to_string(),
        })
    }
}

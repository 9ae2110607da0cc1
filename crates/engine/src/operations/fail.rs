//! Reports a failure.

use asyncgate_api::{Fail, FailOutput, bounds::MAX_RETRY_AFTER_SECONDS};
use asyncgate_core::task::{self, Failure};

use super::{Execute, Executed, UnderLease};
use crate::{Caller, Engine, input};

impl Execute for Fail {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        let failure = Failure {
            error: input::json("error", input.error)?,
            retryable: input.retryable,
            retry_after_seconds: input::bounded_seconds(
                "retry_after_seconds",
                input.retry_after_seconds,
                MAX_RETRY_AFTER_SECONDS,
            )?,
        };
        let weight = failure.error.len();
        let finished = under
            .transact(engine, caller, weight, move |env, head, hold, task| {
                task::fail(env, head, hold, task, failure.clone())
            })
            .await?;
        Ok(FailOutput {
            ok: true,
            requeued: finished.retry_at.is_some(),
            next_eligible_at: finished.retry_at.map(|at| at.to_string()),
            duplicate: finished.duplicate,
            receipt_id: finished.receipt_id.to_string(),
        })
    }
}

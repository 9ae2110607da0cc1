//! Reports a failure.

use asyncgate_api::{Fail, FailOutput, Failing, bounds::MAX_RETRY_AFTER_SECONDS};
use asyncgate_core::task::{self, Failure, Finished};

use super::{Execute, Executed, UnderLease};
use crate::{Caller, Engine, Fault, input};

impl Execute for Fail {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        let failure = failure(Failing {
            error: input.error,
            retryable: input.retryable,
            retry_after_seconds: input.retry_after_seconds,
        })?;
        let weight = failure.error.len();
        let finished = under
            .transact(engine, caller, weight, move |env, head, hold, task| {
                task::fail(env, head, hold, task, failure.clone())
            })
            .await?;
        Ok(answer(&finished))
    }
}

/// Reads a failure.
pub(super) fn failure(failing: Failing) -> Result<Failure, Fault> {
    Ok(Failure {
        error: input::json("error", failing.error)?,
        retryable: failing.retryable,
        retry_after_seconds: input::bounded_seconds(
            "retry_after_seconds",
            failing.retry_after_seconds,
            MAX_RETRY_AFTER_SECONDS,
        )?,
    })
}

pub(super) fn answer(finished: &Finished) -> FailOutput {
    FailOutput {
        ok: true,
        requeued: finished.retry_at.is_some(),
        next_eligible_at: finished.retry_at.map(|at| at.to_string()),
        duplicate: finished.duplicate,
        receipt_id: finished.receipt_id.to_string(),
    }
}

//! Records the progress of the work.

use asyncgate_api::{Done, ReportProgress};
use asyncgate_core::task;

use super::{Execute, Executed, UnderLease};
use crate::{Caller, Engine, input};

impl Execute for ReportProgress {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        let value = input::json("progress", input.progress)?;
        let weight = value.len();
        under
            .transact(engine, caller, weight, move |env, head, hold, task| {
                task::progress(env, head, hold, task, value.clone())
            })
            .await?;
        Ok(Done { ok: true })
    }
}

//! Records the progress of the work.

use asyncgate_api::{Done, ReportProgress};
use asyncgate_core::task;

use super::{Execute, Executed, UnderLease, the_task};
use crate::{Caller, Engine, input};

impl Execute for ReportProgress {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        let value = input::json("progress", input.progress)?;
        let weight = value.len();
        engine
            .transact(
                caller.tenant,
                weight,
                under.reads(),
                move |env, mut snapshot| {
                    let task = the_task(&mut snapshot)?;
                    task::progress(env, snapshot.head, &under.hold, task, value.clone())
                },
            )
            .await?;
        Ok(Done { ok: true })
    }
}

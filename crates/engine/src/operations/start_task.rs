//! Records that the work began.

use asyncgate_api::{Done, StartTask};
use asyncgate_core::task;

use super::{Execute, Executed, UnderLease, the_task};
use crate::{Caller, Engine};

impl Execute for StartTask {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        engine
            .transact(caller.tenant, 0, under.reads(), move |env, mut snapshot| {
                let task = the_task(&mut snapshot)?;
                task::start(env, snapshot.head, &under.hold, task)
            })
            .await?;
        Ok(Done { ok: true })
    }
}

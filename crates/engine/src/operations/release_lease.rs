//! Gives a task back.

use asyncgate_api::{Done, ReleaseLease};
use asyncgate_core::task;

use super::{Execute, Executed, UnderLease};
use crate::{Caller, Engine};

impl Execute for ReleaseLease {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        under.transact(engine, caller, 0, task::release).await?;
        Ok(Done { ok: true })
    }
}

//! Keeps a task longer.

use asyncgate_api::{RenewLease, RenewLeaseOutput};
use asyncgate_core::task;

use super::{Execute, Executed, UnderLease};
use crate::{Caller, Engine, input};

impl Execute for RenewLease {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        let extend_by = input::positive_seconds("extend_by_seconds", input.extend_by_seconds)?;
        let lease = under
            .transact(engine, caller, 0, move |env, head, hold, task| {
                task::renew(env, head, hold, task, extend_by)
            })
            .await?;
        Ok(RenewLeaseOutput {
            ok: true,
            expires_at: lease.expires_at.to_string(),
        })
    }
}

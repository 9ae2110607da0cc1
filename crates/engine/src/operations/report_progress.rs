//! Records the progress of the work.

use asyncgate_api::{Done, ReportProgress};
use asyncgate_core::identity::QuotaName;
use asyncgate_store::ReadSet;

use super::{Execute, Executed, UnderLease};
use crate::{Caller, Engine, input};

impl Execute for ReportProgress {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let worker = (input.worker_kind, input.worker_id, input.worker_instance_id);
        let under = UnderLease::new(caller, &input.task_id, &input.lease_id, worker)?;
        let value = input::json("progress", input.progress)?;
        let weight = value.len();
        let UnderLease { task_id, hold } = under;
        let quota = engine.quota(caller.tenant, QuotaName::ReceiptsPerTask);
        let reads = ReadSet::to_report(task_id, quota);
        engine
            .transact(caller.tenant, weight, reads, move |env, snapshot| {
                snapshot.progress(env, &hold, value.clone())
            })
            .await?;
        Ok(Done { ok: true })
    }
}

//! Keeps many tasks longer, and perhaps waits until one of them is lost.

use std::sync::Arc;

use asyncgate_api::{
    LeaseItem, Operation as _, RenewLeases, RenewLeasesOutput, RenewResult, RenewedLease,
};
use asyncgate_core::{
    Env, Principal, TaskId,
    task::{Answers, Hold, Lease},
};
use asyncgate_store::{Decision, ReadSet, Snapshot};
use futures_util::{FutureExt as _, future::select_all};

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, authorise::Named, batch::CheckedBatch, input};

type Holds = Arc<[(TaskId, Hold)]>;

impl Execute for RenewLeases {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let limit = input::wait(input.wait_seconds)?;
        let extend_by = input::positive_seconds("extend_by_seconds", input.extend_by_seconds)?;
        let named = Named::worker(input.worker_kind, input.worker_id, input.worker_instance_id);
        let worker = caller.acting(named)?;
        let mut batch = CheckedBatch::new("leases", input.leases, |item| hold(&worker, &item))?;
        let holds: Holds = batch.take().into();
        // Registered before the renewal: the end of a lease that was renewed is not missed.
        let waiters: Vec<_> = match limit.is_zero() {
            true => Vec::new(),
            false => {
                let signals = engine.store.signals();
                let waiter = |(id, _): &(TaskId, Hold)| signals.lease_waiter(caller.tenant, *id);
                holds.iter().map(waiter).collect()
            }
        };
        let ends: Vec<_> = waiters.iter().map(|waiter| waiter.ended()).collect();
        let renewed = decide(engine, caller, &holds, move |env, snapshot, holds| {
            snapshot.renew_all(env, holds, extend_by)
        });
        let mut leases = renewed.await?;
        let all_good = batch.all_passed() && leases.iter().all(Result::is_ok);
        if all_good && !ends.is_empty() {
            let _waiting = engine.metrics.waiting();
            let lost = select_all(ends).map(drop);
            if Box::pin(engine.wait_as(caller, lost, limit)).await {
                let checked = decide(engine, caller, &holds, |env, snapshot, holds| {
                    snapshot.check_all(&env, holds)
                });
                leases = checked.await?;
            }
        }
        let answers = leases.into_iter().map(|lease| lease.map_err(Fault::from));
        let done = |lease: Lease| {
            let expires_at = lease.expires_at.to_string();
            RenewResult::Renewed(RenewedLease { expires_at })
        };
        Ok(RenewLeasesOutput {
            results: batch.answers(engine, &Self::SPEC, answers, done, RenewResult::Refused),
        })
    }
}

/// Runs a rule on the leases that a worker says it holds.
async fn decide(
    engine: &Engine,
    caller: &Caller,
    holds: &Holds,
    rule: impl Fn(Env, Snapshot, &[(TaskId, Hold)]) -> Decision<Answers<Lease>> + Send + 'static,
) -> Result<Answers<Lease>, Fault> {
    let reads = ReadSet::to_hold(holds.iter().map(|(id, _)| *id));
    let holds = Arc::clone(holds);
    engine
        .transact(caller.tenant, 0, reads, move |env, snapshot| {
            Ok(rule(env, snapshot, &holds))
        })
        .await
}

fn hold(worker: &Principal, item: &LeaseItem) -> Result<(TaskId, Hold), Fault> {
    let hold = Hold {
        worker: worker.clone(),
        lease_id: input::id("lease_id", &item.lease_id)?,
    };
    Ok((input::id("task_id", &item.task_id)?, hold))
}

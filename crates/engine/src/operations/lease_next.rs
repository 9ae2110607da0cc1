//! Takes tasks to work on, perhaps after waiting for one.

use std::{future::pending, time::Duration};

use asyncgate_api::{
    LeaseNext, LeaseNextInput, LeaseNextOutput, LeasedTask,
    bounds::{MAX_CLAIMED_TASKS, MAX_DEADLINE_SECONDS},
};
use asyncgate_core::{
    Reach, TenantId,
    task::{self, Claim},
};
use asyncgate_store::{ReadSet, take_or_wait};

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, authorise::Named, input, view};

impl Execute for LeaseNext {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        engine.metrics.claims.inc();
        let limit = input::wait(input.wait_seconds)?;
        let wish = wish(caller, input)?;
        let mut tasks = take(engine, caller.tenant, &wish).await?;
        if tasks.is_empty() && !limit.is_zero() {
            let _waiting = engine.metrics.waiting();
            tasks = wait_and_take(engine, caller.tenant, &wish, limit).await?;
        }
        engine.metrics.leases.inc_by(tasks.len() as u64);
        Ok(LeaseNextOutput { tasks })
    }
}

#[derive(Debug, Clone)]
struct Wish {
    claim: Claim,
    reach: Reach,
    max_tasks: usize,
}

fn wish(caller: &Caller, input: LeaseNextInput) -> Result<Wish, Fault> {
    let named = Named::worker(input.worker_kind, input.worker_id, input.worker_instance_id);
    let worker = caller.acting(named)?;
    let max_tasks = input.max_tasks.unwrap_or(1);
    if max_tasks == 0 || max_tasks > MAX_CLAIMED_TASKS {
        return Err(Fault::bad_request(format!(
            "max_tasks must be 1 to {MAX_CLAIMED_TASKS}"
        )));
    }
    let capabilities = input::names("capabilities", input.capabilities.unwrap_or_default())?;
    let accept_types = input
        .accept_types
        .map(|types| input::names("accept_types", types))
        .transpose()?;
    let reach = Reach::new(capabilities, accept_types);
    Ok(Wish {
        claim: Claim {
            worker,
            capabilities: reach.capabilities.clone(),
            lease_ttl_ms: input::positive_seconds("lease_ttl_seconds", input.lease_ttl_seconds)?,
            expected_duration_seconds: input::bounded_seconds(
                "expected_duration_seconds",
                input.expected_duration_seconds,
                MAX_DEADLINE_SECONDS,
            )?,
        },
        reach,
        max_tasks: max_tasks as usize,
    })
}

async fn take(engine: &Engine, tenant: TenantId, wish: &Wish) -> Result<Vec<LeasedTask>, Fault> {
    let reads = ReadSet {
        claimable: Some((wish.reach.clone(), wish.max_tasks)),
        ..ReadSet::default()
    };
    loop {
        let claim = wish.claim.clone();
        let claimed = engine
            .transact(tenant, 0, reads.clone(), move |env, snapshot| {
                Ok(task::claim(env, snapshot.head, &claim, snapshot.claimable))
            })
            .await?;
        // Tasks whose deadline had passed stood in front. They are gone now, and others may stand behind them,
        // of which no wake-up would tell.
        if claimed.leased.is_empty() && claimed.ended > 0 {
            continue;
        }
        let view = |task| Some(view::leased(task, task.lease()?));
        return Ok(claimed.leased.iter().filter_map(view).collect());
    }
}

/// Takes tasks, and waits for one that the worker can serve if there is none.
async fn wait_and_take(
    engine: &Engine,
    tenant: TenantId,
    wish: &Wish,
    limit: Duration,
) -> Result<Vec<LeasedTask>, Fault> {
    let signals = engine.store.signals();
    let register = || signals.task_waiter(tenant, wish.reach.clone());
    let look = || async {
        let tasks = take(engine, tenant, wish).await;
        tasks.map(|tasks| (!tasks.is_empty()).then_some(tasks))
    };
    let stop = engine.wait_for(pending(), limit);
    let taken = take_or_wait(register, look, stop).await;
    taken.map(Option::unwrap_or_default)
}

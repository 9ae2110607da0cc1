//! Takes tasks to work on, perhaps after waiting for one.

use std::time::Duration;

use asyncgate_api::{LeaseNext, LeaseNextInput, LeaseNextOutput, LeasedTask};
use asyncgate_core::{
    Reach, TenantId,
    task::{self, Claim},
};
use asyncgate_store::{ReadSet, ReadyWait};
use tokio::time::Instant;

use super::Execute;
use crate::{Caller, Engine, Fault, authorise::Named, input, view};

const MAX_TASKS: u32 = 100;

impl Execute for LeaseNext {
    async fn execute(
        engine: &Engine,
        caller: &Caller,
        input: LeaseNextInput,
    ) -> Result<LeaseNextOutput, Fault> {
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
    if max_tasks == 0 || max_tasks > MAX_TASKS {
        return Err(Fault::bad_request(format!(
            "max_tasks must be 1 to {MAX_TASKS}"
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
    let claim = wish.claim.clone();
    let leased = engine
        .transact(tenant, 0, reads, move |env, snapshot| {
            Ok(task::claim(env, snapshot.head, &claim, snapshot.claimable))
        })
        .await?;
    let view = |task| Some(view::leased(task, task.lease()?));
    Ok(leased.iter().filter_map(view).collect())
}

/// Looks again each time a task that the worker can serve becomes ready. It registers before it
/// looks, so that it misses none, and holds on to a wake-up until it has looked, so that the
/// wake-up passes to another worker if this call is given up.
async fn wait_and_take(
    engine: &Engine,
    tenant: TenantId,
    wish: &Wish,
    limit: Duration,
) -> Result<Vec<LeasedTask>, Fault> {
    let started = Instant::now();
    let mut woken: Option<ReadyWait<'_>> = None;
    loop {
        let mut wait = engine.store.signals().ready(tenant, wish.reach.clone());
        let tasks = take(engine, tenant, wish).await?;
        // A claim that took something may have left the task that the wake-up was for: then it is
        // passed on. Only who found nothing knows that nothing is left.
        if let Some(woken) = woken.take().filter(|_| tasks.is_empty()) {
            woken.looked();
        }
        let left = limit.saturating_sub(started.elapsed());
        if !tasks.is_empty() || left.is_zero() || !engine.wait_for(wait.woken(), left).await {
            return Ok(tasks);
        }
        woken = Some(wait);
    }
}

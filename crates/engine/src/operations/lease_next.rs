//! Takes tasks to work on, perhaps after waiting for one.

use std::{future::pending, pin::pin, time::Duration};

use asyncgate_api::{
    LeaseNext, LeaseNextInput, LeaseNextOutput, LeasedTask, Operation as _,
    bounds::{MAX_CLAIMED_TASKS, MAX_DEADLINE_SECONDS},
};
use asyncgate_core::{
    Reach, TenantId,
    identity::{Quota, QuotaName},
    task::Claim,
};
use asyncgate_store::{ReadSet, RoomWaiter, TaskWaiter, take_or_wait};

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, authorise::Named, input, view};

impl Execute for LeaseNext {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        engine.metrics.claims.inc();
        let limit = input::wait(input.wait_seconds)?;
        let wish = wish(caller, input)?;
        let taken = take(engine, caller.tenant, &wish).await?;
        if taken.lacked_room {
            engine.note_lack_of_room(caller, &Self::SPEC);
        }
        let mut tasks = taken.tasks;
        if tasks.is_empty() && !limit.is_zero() {
            let _waiting = engine.metrics.waiting();
            let quota = engine.quota(caller.tenant, QuotaName::ConcurrentLeases);
            tasks = match quota {
                Quota::None => wait_and_take(engine, caller, &wish, limit).await?,
                Quota::AtMost(_) => Box::pin(wait_for_room(engine, caller, &wish, limit)).await?,
            };
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

/// What a look for tasks found.
struct Taken {
    tasks: Vec<LeasedTask>,
    /// True if there were tasks for this worker, but its tenant may hold no more leases.
    lacked_room: bool,
}

async fn take(engine: &Engine, tenant: TenantId, wish: &Wish) -> Result<Taken, Fault> {
    let reads = ReadSet {
        claimable: Some((wish.reach.clone(), wish.max_tasks)),
        ..ReadSet::default()
    };
    loop {
        let claim = wish.claim.clone();
        let claimed = engine
            .transact(tenant, 0, reads.clone(), move |env, snapshot| {
                Ok(snapshot.claim(env, &claim))
            })
            .await?;
        // Tasks whose deadline had passed stood in front. They are gone now, and others may stand behind them,
        // of which no wake-up would tell.
        if claimed.leased.is_empty() && claimed.ended > 0 {
            continue;
        }
        let view = |task| Some(view::leased(task, task.lease()?));
        return Ok(Taken {
            tasks: claimed.leased.iter().filter_map(view).collect(),
            lacked_room: claimed.lacked_room,
        });
    }
}

/// Takes tasks, and waits for one that the worker can serve if there is none.
async fn wait_and_take(
    engine: &Engine,
    caller: &Caller,
    wish: &Wish,
    limit: Duration,
) -> Result<Vec<LeasedTask>, Fault> {
    let (signals, tenant) = (engine.store.signals(), caller.tenant);
    let register = || signals.task_waiter(tenant, wish.reach.clone());
    let look = || async {
        let taken = take(engine, tenant, wish).await;
        taken.map(|Taken { tasks, .. }| (!tasks.is_empty()).then_some(tasks))
    };
    let stop = engine.wait_as(caller, pending(), limit);
    let taken = take_or_wait(register, look, stop).await;
    taken.map(Option::unwrap_or_default)
}

/// Does the same for a tenant that may hold only so many leases: it waits for a task, and for the end of another lease
/// too if that is what it lacks.
async fn wait_for_room(
    engine: &Engine,
    caller: &Caller,
    wish: &Wish,
    limit: Duration,
) -> Result<Vec<LeasedTask>, Fault> {
    let (signals, tenant) = (engine.store.signals(), caller.tenant);
    let mut stop = pin!(engine.wait_as(caller, pending(), limit));
    // The wake-ups are held during the look, so that they pass on if it fails, is dropped, or takes something: as in
    // `take_or_wait`.
    let (mut by_task, mut by_room): (Option<TaskWaiter<'_>>, Option<RoomWaiter<'_>>) = (None, None);
    loop {
        // Registering comes before the look: whatever happens after the look wakes this worker.
        let mut for_task = signals.task_waiter(tenant, wish.reach.clone());
        let for_room = signals.room_waiter(tenant);
        // The quota may have been changed meanwhile.
        engine.tenant(tenant).await?;
        let Taken { tasks, lacked_room } = take(engine, tenant, wish).await?;
        if !tasks.is_empty() {
            return Ok(tasks);
        }
        if let Some(woken) = by_task.take() {
            woken.consume();
        }
        // A worker that found no task has no use for the room. Dropped, its wake-up passes to one that may.
        if let Some(woken) = by_room.take().filter(|_| lacked_room) {
            woken.consume();
        }
        let mut for_room = lacked_room.then_some(for_room);
        let room = async {
            match &mut for_room {
                Some(for_room) => for_room.woken().await,
                None => pending().await,
            }
        };
        let is_task = tokio::select! {
            biased;
            _ = &mut stop => return Ok(Vec::new()),
            () = for_task.woken() => true,
            () = room => false,
        };
        match is_task {
            true => by_task = Some(for_task),
            false => by_room = for_room,
        }
    }
}

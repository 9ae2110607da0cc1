//! Reads a task, perhaps after waiting for its end.

use asyncgate_api::GetTask;
use asyncgate_core::{Rejection, ShortId, Task, TaskId};
use asyncgate_store::{Parties, ReceiptFilter, SeqPage};

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, authorise::Named, input, view};

impl Execute for GetTask {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let limit = input::wait(input.wait_seconds)?;
        caller.acting(Named::reader(input.principal_kind, input.principal_id))?;
        let id = named(engine, caller, &input.task_id).await?;
        let mut task = read(engine, caller, id).await?;
        if !limit.is_zero() && !task.status().is_terminal() {
            // An end is final and wakes all who wait for it: there is nothing to look for again and
            // no wake-up to pass on, which is what the loop around the queues of waiters is for.
            let waiter = engine.store.signals().end_waiter(caller.tenant, id);
            let ended = waiter.ended();
            // The task may have ended before the waiter was registered.
            task = read(engine, caller, id).await?;
            if !task.status().is_terminal() {
                let _waiting = engine.metrics.waiting();
                engine.wait_as(caller, ended, limit).await;
                task = read(engine, caller, id).await?;
            }
        }
        Ok(view::task(&task))
    }
}

/// Finds the task that an id or its short form names. At the place in a short form stands the task's
/// assignment, which has the whole id.
async fn named(engine: &Engine, caller: &Caller, text: &str) -> Result<TaskId, Fault> {
    let Ok(short) = text.parse::<ShortId>() else {
        return input::id("task_id", text);
    };
    let place = SeqPage {
        after: short.seq() - 1,
        limit: 1,
    };
    let found = engine
        .store
        .receipts(caller.tenant, ReceiptFilter::All, place);
    let found = found.await?;
    let id = found.first().and_then(|receipt| receipt.receipt.task_id);
    let id = id.filter(|id| id.short() == Some(short));
    Ok(id.ok_or(Rejection::TaskNotFound)?)
}

async fn read(engine: &Engine, caller: &Caller, id: TaskId) -> Result<Task, Fault> {
    let task = engine.store.task(caller.tenant, id).await?;
    let task = task.ok_or(Rejection::TaskNotFound)?;
    caller.may_read(&Parties::of(&task))?;
    Ok(task)
}

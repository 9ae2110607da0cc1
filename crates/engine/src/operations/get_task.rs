//! Reads a task, perhaps after waiting for its end.

use asyncgate_api::GetTask;
use asyncgate_core::{Rejection, Task, TaskId};

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, authorise::Named, input, view};

impl Execute for GetTask {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id: TaskId = input::id("task_id", &input.task_id)?;
        let limit = input::wait(input.wait_seconds)?;
        caller.acting(Named::reader(input.principal_kind, input.principal_id))?;
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
                engine.wait_for(ended, limit).await;
                task = read(engine, caller, id).await?;
            }
        }
        Ok(view::task(&task))
    }
}

async fn read(engine: &Engine, caller: &Caller, id: TaskId) -> Result<Task, Fault> {
    let task = engine.store.task(caller.tenant, id).await?;
    let task = task.ok_or(Rejection::TaskNotFound)?;
    caller.may_read(&task)?;
    Ok(task)
}

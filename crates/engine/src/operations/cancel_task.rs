//! Calls a task off.

use asyncgate_api::{CancelTask, CancelTaskOutput};
use asyncgate_core::{Rejection, task};

use super::{Execute, Executed, one_task, the_task};
use crate::{Caller, Engine, authorise::Named, input, view};

impl Execute for CancelTask {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id = input::id("task_id", &input.task_id)?;
        let by = caller.acting(Named::principal(
            input.principal_kind,
            input.principal_id,
            input.principal_instance_id,
        ))?;
        let reason = input::text("reason", input.reason)?;
        let asker = caller.clone();
        let weight = reason.as_ref().map_or(0, String::len);
        let status = engine
            .transact(
                caller.tenant,
                weight,
                one_task(id),
                move |env, mut snapshot| {
                    let task = the_task(&mut snapshot)?;
                    if asker.may_act_for(&task.created_by).is_err() {
                        return Err(Rejection::NotOwner);
                    }
                    task::cancel(env, snapshot.head, task, &by, reason.as_deref())
                },
            )
            .await
            .map_err(|fault| caller.explain(fault))?;
        Ok(CancelTaskOutput {
            ok: true,
            status: view::status(status),
        })
    }
}

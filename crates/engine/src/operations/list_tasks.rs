//! Lists tasks.

use asyncgate_api::{ListTasks, ListTasksOutput};
use asyncgate_core::TaskId;
use asyncgate_store::TaskFilter;

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, authorise::Named, input, view};

impl Execute for ListTasks {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let everyone = caller.sees_all() && input.principal_id.is_none();
        let principal = caller.acting(Named::reader(input.principal_kind, input.principal_id))?;
        let settings = engine.settings();
        let limit = input::limit(
            "limit",
            input.limit,
            settings.default_list_limit,
            settings.max_list_limit,
        )?;
        let before = match input.cursor {
            Some(cursor) => Some(known(engine, caller, &cursor).await?),
            None => None,
        };
        let filter = TaskFilter {
            owner: (!everyone).then(|| principal.key()),
            status: input.status.map(view::core_status),
            task_type: input.task_type,
            before,
            limit,
        };
        let page = engine.store.tasks(caller.tenant, filter).await?;
        Ok(ListTasksOutput {
            tasks: page.tasks.iter().map(view::task).collect(),
            next_cursor: page.next.map(|id| id.to_string()),
        })
    }
}

/// Finds the task that a cursor names.
async fn known(engine: &Engine, caller: &Caller, cursor: &str) -> Result<TaskId, Fault> {
    let id: TaskId = input::id("cursor", cursor)?;
    match engine.store.parties(caller.tenant, id).await? {
        Some(_) => Ok(id),
        None => Err(Fault::bad_request("cursor names no task")),
    }
}

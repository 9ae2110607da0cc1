//! `asyncgate task list`.

use asyncgate_client::api::{ListTasksInput, TaskRecord, TaskStatus};
use clap::Args;

use crate::{
    listing::{Paging, Quiet},
    remote::{As, Common},
    show::{Cell, short, status, table, who},
};

#[derive(Debug, Args)]
pub struct List {
    /// Only tasks in this state.
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<TaskStatus>,
    /// Only tasks of this type.
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

impl List {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let filter = ListTasksInput {
            status: self.status,
            task_type: self.task_type,
            principal_kind: self.for_whom.kind(),
            principal_id: self.for_whom.id(),
            ..ListTasksInput::default()
        };
        let pages = self.paging.gather(async |cursor, limit| {
            let mut input = filter.clone();
            (input.cursor, input.limit) = (cursor, Some(limit));
            let page = client.list_tasks(&input).await?;
            Ok((page.tasks, page.next_cursor))
        });
        let id = |task: &TaskRecord| task.task_id.clone();
        pages
            .await?
            .show_or_ids(&self.common, self.quiet, id, |tasks| {
                let header = ["TASK", "STATUS", "TYPE", "OWNER", "FAILED", "CREATED"];
                table(header, tasks.iter().map(row).collect())
            })
    }
}

fn row(task: &TaskRecord) -> [Cell; 6] {
    [
        short(&task.task_id).into(),
        status(task.status),
        task.task_type.as_str().into(),
        who(&task.created_by).into(),
        format!("{}/{}", task.attempt, task.max_attempts).into(),
        task.created_at.as_str().into(),
    ]
}

fn parse_status(text: &str) -> Result<TaskStatus, String> {
    serde_json::from_value(text.into())
        .map_err(|_| "must be queued, leased, running, succeeded, failed or canceled".to_owned())
}

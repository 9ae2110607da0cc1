//! `asyncgate task`: create, read, list, cancel and wait for tasks.

mod create;
mod create_batch;
mod describe;
mod list;

use std::time::Duration;

use asyncgate_client::api::{CancelTaskInput, GetTaskInput, TaskStatus};
use clap::{Args, Subcommand};

use crate::{
    exit::Exit,
    ids,
    remote::{As, Common},
    show::status,
};
use describe::describe;

/// The subcommands of `asyncgate task`.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Hand over a task; prints its id once it is on disk.
    #[command(after_help = "\
Examples:
  asyncgate task create greet --payload '{\"name\":\"Ada\"}' --as alice
  asyncgate task create greet --payload @ada.json --idempotency-key greet-ada --wait 30
  TASK=$(asyncgate task create greet -q)
  asyncgate task create --batch tasks.ndjson    with lines such as {\"type\":\"greet\",\"payload\":{\"name\":\"Ada\"}}
  jq -c '.users[] | {type: \"greet\", payload: .}' users.json | asyncgate task create --batch - --json")]
    Create(Box<create::Create>),
    /// Read a task.
    #[command(after_help = "\
Examples:
  asyncgate task get 019a2f6e-0000-7000-8000-00000005c3a1
  asyncgate task get 5c3a1              the short form, as task list prints it
  asyncgate task get 5c3a1 --json | jq .result")]
    Get(Get),
    /// List tasks, newest first.
    #[command(after_help = "\
Examples:
  asyncgate task list --status failed --limit 20
  asyncgate task list --as alice --all --json
  asyncgate task list --type greet -q | xargs -n1 asyncgate task cancel")]
    List(list::List),
    /// Call a task off.
    #[command(
        after_help = "Example:\n  asyncgate task cancel 5c3a1 --reason 'not needed any more'"
    )]
    Cancel(Cancel),
    /// Wait until a task has ended; exits with 6 if it did not succeed.
    #[command(after_help = "Example:\n  asyncgate task wait 5c3a1 --timeout 300 && echo done")]
    Wait(Wait),
}

#[derive(Debug, Args)]
pub struct Get {
    /// The task's id, the short form that tables print, or the beginning of the id.
    #[arg(value_name = "TASK")]
    task_id: String,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Cancel {
    /// The task's id, the short form that tables print, or the beginning of the id.
    #[arg(value_name = "TASK")]
    task_id: String,
    /// Why; kept in the receipt.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Wait {
    /// The task's id, the short form that tables print, or the beginning of the id.
    #[arg(value_name = "TASK")]
    task_id: String,
    /// The most seconds to wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
    timeout: u64,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

impl Task {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create(args) => args.run().await,
            Self::Get(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Cancel(args) => args.run().await,
            Self::Wait(args) => args.run().await,
        }
    }
}

impl Get {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = GetTaskInput {
            task_id: ids::or_short(&client, self.task_id).await?,
            ..GetTaskInput::default()
        };
        let task = client.get_task(&input).await?;
        self.common.show(&task, || describe(&task))
    }
}

impl Cancel {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = CancelTaskInput {
            task_id: ids::whole(&client, self.task_id).await?,
            reason: self.reason,
            principal_kind: self.for_whom.kind(),
            principal_id: self.for_whom.id(),
            ..CancelTaskInput::default()
        };
        let canceled = client.cancel_task(&input).await?;
        self.common
            .show(&canceled, || status(canceled.status).painted())
    }
}

impl Wait {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = GetTaskInput {
            task_id: ids::or_short(&client, self.task_id).await?,
            ..GetTaskInput::default()
        };
        let limit = Duration::from_secs(self.timeout);
        let task = client.wait_for_task(&input, limit).await?;
        self.common.show(&task, || describe(&task))?;
        match task.status {
            TaskStatus::Succeeded => Ok(()),
            TaskStatus::Failed => Err(Exit::task_not_done("the task failed").into()),
            TaskStatus::Canceled => Err(Exit::task_not_done("the task was canceled").into()),
            TaskStatus::Queued | TaskStatus::Leased | TaskStatus::Running => {
                Err(Exit::task_not_done("the task has not ended in time").into())
            }
        }
    }
}

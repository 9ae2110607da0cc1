//! `asyncgate task`: create, read, list, cancel and wait for tasks.

use std::io::Read as _;

use anyhow::Context as _;
use asyncgate_client::api::{
    CancelTaskInput, CreateTaskInput, GetTaskInput, ListTasksInput, Requirements, TaskRecord,
    TaskStatus,
};
use clap::{Args, Subcommand};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{
    exit::Exit,
    remote::{As, Common},
    show::{fields, status, table, who},
};

/// The subcommands of `asyncgate task`.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Hand over a task; prints its id once it is on disk.
    #[command(
        after_help = "Example:\n  asyncgate task create greet --payload '{\"name\":\"Ada\"}' --as alice --wait 30"
    )]
    Create(Create),
    /// Read a task.
    #[command(after_help = "Example:\n  asyncgate task get 019a2f6e-... --json | jq .result")]
    Get(Get),
    /// List tasks, newest first.
    #[command(after_help = "Example:\n  asyncgate task list --status failed --limit 20")]
    List(List),
    /// Call a task off.
    #[command(
        after_help = "Example:\n  asyncgate task cancel 019a2f6e-... --reason 'not needed any more'"
    )]
    Cancel(Cancel),
    /// Wait until a task has ended; exits with 6 if it did not succeed.
    #[command(
        after_help = "Example:\n  asyncgate task wait 019a2f6e-... --timeout 300 && echo done"
    )]
    Wait(Wait),
}

#[derive(Debug, Args)]
pub struct Create {
    /// What sort of work it is.
    #[arg(value_name = "TYPE")]
    task_type: String,
    /// The work's input as JSON; `-` reads it from stdin, `@FILE` from a file.
    #[arg(long, value_name = "JSON", default_value = "null")]
    payload: String,
    /// A capability that the worker must have; may be repeated.
    #[arg(long = "require", value_name = "NAME")]
    capabilities: Vec<String>,
    /// Your name for the task: creating it again returns the first.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Higher goes first.
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    /// Seconds before it can be leased.
    #[arg(long, value_name = "SECONDS")]
    delay: Option<i64>,
    /// How many reported failures end it.
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Wait this many seconds for its end, and print the outcome.
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Get {
    /// The task's id.
    task_id: String,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct List {
    /// Only tasks in this state.
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<TaskStatus>,
    /// Only tasks of this type.
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// The most to print.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Cancel {
    /// The task's id.
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
    /// The task's id.
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

impl Create {
    async fn run(self) -> anyhow::Result<()> {
        let common = self.common;
        let input = CreateTaskInput {
            task_type: self.task_type,
            payload: Some(payload(&self.payload)?),
            requirements: Some(Requirements {
                capabilities: self.capabilities,
                tags: Vec::new(),
            }),
            idempotency_key: self.idempotency_key,
            priority: self.priority,
            delay_seconds: self.delay,
            max_attempts: self.max_attempts,
            principal_kind: self.for_whom.kind(),
            principal_id: self.for_whom.id(),
            ..CreateTaskInput::default()
        };
        let client = common.client()?;
        let created = client.create_task(&input).await?;
        let Some(timeout) = self.wait else {
            return common.show(&created, || {
                let note = if created.duplicate {
                    "  (was there before)"
                } else {
                    ""
                };
                format!("{}{note}", created.task_id)
            });
        };
        Wait {
            task_id: created.task_id,
            timeout,
            for_whom: self.for_whom,
            common,
        }
        .run()
        .await
    }
}

impl Get {
    async fn run(self) -> anyhow::Result<()> {
        let input = GetTaskInput {
            task_id: self.task_id,
            ..GetTaskInput::default()
        };
        let task = self.common.client()?.get_task(&input).await?;
        self.common.show(&task, || describe(&task))
    }
}

impl List {
    async fn run(self) -> anyhow::Result<()> {
        let input = ListTasksInput {
            status: self.status,
            task_type: self.task_type,
            limit: Some(self.limit.clamp(1, 200) as u32),
            principal_kind: self.for_whom.kind(),
            principal_id: self.for_whom.id(),
            ..ListTasksInput::default()
        };
        let found = self.common.client()?.tasks(input);
        let tasks: Vec<TaskRecord> = found.take(self.limit).try_collect().await?;
        self.common.show(&tasks, || {
            let row = |task: &TaskRecord| {
                [
                    task.task_id.clone(),
                    status(task.status),
                    task.task_type.clone(),
                    who(&task.created_by),
                    format!("{}/{}", task.attempt, task.max_attempts),
                    task.created_at.clone(),
                ]
            };
            let header = ["TASK", "STATUS", "TYPE", "OWNER", "FAILED", "CREATED"];
            table(header, tasks.iter().map(row).collect())
        })
    }
}

impl Cancel {
    async fn run(self) -> anyhow::Result<()> {
        let input = CancelTaskInput {
            task_id: self.task_id,
            reason: self.reason,
            principal_kind: self.for_whom.kind(),
            principal_id: self.for_whom.id(),
            ..CancelTaskInput::default()
        };
        let canceled = self.common.client()?.cancel_task(&input).await?;
        self.common.show(&canceled, || status(canceled.status))
    }
}

impl Wait {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let started = Instant::now();
        let task = loop {
            // The server ends a wait after 60 seconds at the latest; whoever wants more asks again.
            let left = self.timeout.saturating_sub(started.elapsed().as_secs());
            let input = GetTaskInput {
                task_id: self.task_id.clone(),
                wait_seconds: Some(left.min(60) as u32),
                ..GetTaskInput::default()
            };
            let task = client.get_task(&input).await?;
            if task.result.is_some() || left == 0 {
                break task;
            }
        };
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

/// Returns the payload: the argument itself, stdin (`-`) or a file (`@FILE`).
fn payload(text: &str) -> anyhow::Result<Box<RawValue>> {
    let text = match text.strip_prefix('@') {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?
        }
        None if text == "-" => {
            let mut read = String::new();
            std::io::stdin()
                .read_to_string(&mut read)
                .context("cannot read stdin")?;
            read
        }
        None => text.to_owned(),
    };
    let text = text.trim().to_owned();
    RawValue::from_string(text)
        .map_err(|error| Exit::usage(format!("the payload is not JSON: {error}")).into())
}

fn parse_status(text: &str) -> Result<TaskStatus, String> {
    serde_json::from_value(text.into())
        .map_err(|_| "must be queued, leased, running, succeeded, failed or canceled".to_owned())
}

fn describe(task: &TaskRecord) -> String {
    let lease = task
        .lease
        .as_ref()
        .map(|lease| format!("by {} until {}", who(&lease.worker), lease.expires_at));
    let result = task.result.as_ref();
    let text = |json: &Option<Box<RawValue>>| json.as_ref().map(|json| json.get().to_owned());
    fields(&[
        ("task", Some(task.task_id.clone())),
        ("type", Some(task.task_type.clone())),
        ("status", Some(status(task.status))),
        ("owner", Some(who(&task.created_by))),
        ("payload", Some(task.payload.get().to_owned())),
        (
            "failed",
            Some(format!("{} of {}", task.attempt, task.max_attempts)),
        ),
        ("created", Some(task.created_at.clone())),
        ("leased", lease),
        ("progress", text(&task.progress)),
        ("ended", result.map(|result| result.completed_at.clone())),
        ("result", result.and_then(|result| text(&result.result))),
        ("error", result.and_then(|result| text(&result.error))),
        (
            "artifacts",
            result.and_then(|result| text(&result.artifacts)),
        ),
    ])
}

//! `asyncgate obligations`: what a principal is still owed.

use asyncgate_client::{
    Client,
    api::{GetTaskInput, ListOpenObligationsInput, ReceiptRecord, TaskRecord, TaskStatus},
};
use clap::Args;
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;

use crate::{
    listing::{Paging, Quiet},
    remote::{As, Common},
    show::{short, table, who},
};

/// The number of tasks that are read at a time.
const AT_ONCE: usize = 8;
/// The most characters of the instructions that a table shows.
const SHOWN_CHARS: usize = 60;

/// The arguments of `asyncgate obligations`.
#[derive(Debug, Args)]
#[command(after_help = "\
An obligation stays open until a receipt proves the outcome: a task that succeeded without proof is
still owed.

Examples:
  asyncgate obligations --as alice
  asyncgate obligations --as service/billing --all --json")]
pub struct Obligations {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

impl Obligations {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let owner = ListOpenObligationsInput {
            principal_kind: self.for_whom.kind(),
            principal_id: self.for_whom.id(),
            ..ListOpenObligationsInput::default()
        };
        let pages = self.paging.gather(async |cursor, limit| {
            let mut input = owner.clone();
            (input.since_receipt_id, input.limit) = (cursor, Some(limit));
            let page = client.list_open_obligations(&input).await?;
            Ok((page.open_obligations, page.next_cursor))
        });
        let open = pages.await?;
        let states = match self.common.json || self.quiet.quiet {
            true => Vec::new(),
            false => states(&client, &open.items).await,
        };
        let id = |receipt: &ReceiptRecord| {
            let id = receipt.task_id.as_ref().unwrap_or(&receipt.receipt_id);
            id.clone()
        };
        open.show_or_ids(&self.common, self.quiet, id, |open| {
            if open.is_empty() {
                return "nothing is owed".to_owned();
            }
            let rows = open
                .iter()
                .zip(states)
                .map(|(open, state)| row(open, state));
            let header = ["TASK", "TYPE", "SINCE", "STATE", "INSTRUCTIONS"];
            table(header, rows.collect())
        })
    }
}

/// The parts of an assignment that say what is owed.
#[derive(Debug, Default, Deserialize)]
struct Assignment {
    #[serde(rename = "type")]
    task_type: Option<String>,
    instructions: Option<String>,
}

fn row(open: &ReceiptRecord, state: String) -> [String; 5] {
    let assignment: Assignment = serde_json::from_str(open.body.get()).unwrap_or_default();
    let instructions = assignment.instructions.unwrap_or_default();
    let mut chars = instructions.chars();
    let mut shown: String = chars.by_ref().take(SHOWN_CHARS).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    [
        open.task_id.as_deref().map(short).unwrap_or_default(),
        assignment
            .task_type
            .unwrap_or_else(|| open.receipt_type.clone()),
        open.created_at.clone(),
        state,
        shown,
    ]
}

/// Reads how far each of the tasks is. A task that cannot be read is left without a state: the list of
/// what is owed does not depend on it.
async fn states(client: &Client, open: &[ReceiptRecord]) -> Vec<String> {
    let reading = stream::iter(open.iter().map(|open| async {
        let input = GetTaskInput {
            task_id: open.task_id.clone()?,
            ..GetTaskInput::default()
        };
        client.get_task(&input).await.ok()
    }));
    let tasks: Vec<Option<TaskRecord>> = reading.buffered(AT_ONCE).collect().await;
    let states = tasks.iter().map(|task| task.as_ref().map(state));
    states.map(Option::unwrap_or_default).collect()
}

fn state(task: &TaskRecord) -> String {
    let by = |verb: &str| {
        let lease = task.lease.as_ref();
        lease.map_or_else(
            || verb.to_owned(),
            |lease| format!("{verb} by {}", who(&lease.worker)),
        )
    };
    match task.status {
        TaskStatus::Queued => "queued".to_owned(),
        TaskStatus::Leased => by("leased"),
        TaskStatus::Running => by("running"),
        TaskStatus::Succeeded => "succeeded, not proved".to_owned(),
        // These two discharge, so the task ended after the obligations were listed.
        TaskStatus::Failed => "failed".to_owned(),
        TaskStatus::Canceled => "canceled".to_owned(),
    }
}

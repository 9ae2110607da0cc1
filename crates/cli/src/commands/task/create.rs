//! `asyncgate task create`: hands over a task.

use std::io::Read as _;

use anyhow::Context as _;
use asyncgate_client::api::{CreateTaskInput, Requirements, Timeouts};
use clap::Args;
use serde_json::value::RawValue;

use super::{Wait, create_batch::Batch};
use crate::{
    exit::Exit,
    remote::{As, Common},
};

#[derive(Debug, Args)]
pub struct Create {
    /// What sort of work it is.
    #[arg(value_name = "TYPE", required_unless_present = "batch")]
    task_type: Option<String>,
    /// Hand over a task for each line of a file, or of stdin if it is `-`: the input of create_task as JSON. Prints an id
    /// for each (with --json an answer), and exits with 3 if any was refused.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "task_type", "payload", "capabilities", "idempotency_key", "priority", "delay", "max_attempts", "instructions",
        "success_criteria", "result_delivery", "deadline", "lease_ttl", "max_lease_expiries", "wait",
    ])]
    batch: Option<String>,
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
    /// What the worker should do, in words; `-` reads it from stdin, `@FILE` from a file.
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// When it is done, as JSON; `@FILE` reads it from a file.
    #[arg(long, value_name = "JSON")]
    success_criteria: Option<String>,
    /// Where or how the result is wanted, as JSON; `@FILE` reads it from a file.
    #[arg(long, value_name = "JSON")]
    result_delivery: Option<String>,
    /// The end of its time: seconds from now, or a time such as 2026-01-05T11:00:00Z.
    #[arg(long, value_name = "SECONDS|TIME")]
    deadline: Option<String>,
    /// Seconds that a worker may hold it before it must renew, if it asks for none.
    #[arg(long, value_name = "SECONDS")]
    lease_ttl: Option<i64>,
    /// How many leases may run out before it ends as failed; 0 for any number.
    #[arg(long, value_name = "N")]
    max_lease_expiries: Option<u32>,
    /// Wait this many seconds for its end, and print the outcome.
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
    /// Print only the task's id.
    #[arg(long, short, conflicts_with_all = ["json", "wait"])]
    quiet: bool,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

impl Create {
    pub async fn run(self) -> anyhow::Result<()> {
        let common = self.common;
        if let Some(path) = &self.batch {
            let (for_whom, quiet) = (self.for_whom, self.quiet);
            let batch = Batch {
                for_whom,
                common,
                quiet,
            };
            return batch.run(path).await;
        }
        let json = |text: &Option<String>| text.as_deref().map(payload).transpose();
        let timed = self.deadline.is_some() || self.lease_ttl.is_some();
        // A number counts from now. Whatever else it is, the server says what is wrong with it.
        let seconds = self.deadline.as_ref().and_then(|text| text.parse().ok());
        let input = CreateTaskInput {
            instructions: self.instructions.as_deref().map(read).transpose()?,
            success_criteria: json(&self.success_criteria)?,
            result_delivery: json(&self.result_delivery)?,
            timeouts: timed.then(|| Timeouts {
                lease_ttl_seconds: self.lease_ttl,
                deadline_seconds: seconds,
                deadline_at: self.deadline.clone().filter(|_| seconds.is_none()),
            }),
            max_lease_expiries: self.max_lease_expiries,
            task_type: self.task_type.unwrap_or_default(),
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
                let note = match created.duplicate && !self.quiet {
                    true => "  (was there before)",
                    false => "",
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

/// Returns a text: the argument itself, stdin (`-`) or a file (`@FILE`).
fn read(text: &str) -> anyhow::Result<String> {
    Ok(match text.strip_prefix('@') {
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
    })
}

/// Returns JSON that is given as a text.
fn payload(text: &str) -> anyhow::Result<Box<RawValue>> {
    RawValue::from_string(read(text)?.trim().to_owned())
        .map_err(|error| Exit::usage(format!("this is not JSON: {error}")).into())
}

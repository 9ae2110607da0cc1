//! `asyncgate worker`: the built-in handlers, as a process of their own.

use std::time::Duration;

use asyncgate_client::{
    End, Event, Worker as Runtime,
    handlers::{HttpGet, HttpGetOptions, echo, sleep_then_return},
};
use clap::Args;

use crate::{
    output,
    remote::Remote,
    show::show,
    signals::{Signals, Wish},
};

/// The arguments of `asyncgate worker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Task types and their payloads:
  echo               any JSON; returns it
  sleep_then_return  {\"seconds\": 2, \"return\": ...}; waits, then returns that
  http_get           {\"url\": \"https://...\"}; returns status, headers and body

SIGTERM or Ctrl-C finishes what is running, gives back what cannot finish, and exits with 0.

Example:
  asyncgate worker --id w1 --concurrency 8")]
pub struct Worker {
    /// Your stable name.
    #[arg(long, default_value = "asyncgate-worker")]
    id: String,
    /// A capability to offer; may be repeated.
    #[arg(long = "capability", value_name = "NAME")]
    capabilities: Vec<String>,
    /// How many tasks to work on at once.
    #[arg(long, default_value_t = 4)]
    concurrency: usize,
    /// Seconds that a lease lasts; it is renewed after a third.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    lease_ttl: u64,
    /// Let http_get reach private and loopback addresses.
    #[arg(long)]
    allow_private_addresses: bool,
    /// Print a summary as JSON at the end.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Worker {
    pub async fn run(self) -> anyhow::Result<()> {
        let http_get = HttpGet::new(HttpGetOptions {
            allow_private: self.allow_private_addresses,
            ..HttpGetOptions::default()
        })?;
        let quiet = self.json;
        let worker = Runtime::builder(self.remote.client()?)
            .id(self.id)
            .capabilities(self.capabilities)
            .concurrency(self.concurrency)
            .lease_ttl(Duration::from_secs(self.lease_ttl))
            .handle("echo", echo)
            .handle("sleep_then_return", sleep_then_return)
            .handle("http_get", http_get.handler())
            .observe(move |event| {
                if let (false, Some(line)) = (quiet, line(event)) {
                    // A reader that went away is no reason to stop working.
                    let _ = output::say(&line);
                }
            })
            .build()?;
        let mut signals = Signals::listen()?;
        let stop = async move { while signals.next().await != Wish::Stop {} };
        let summary = worker.run(stop).await?;
        let counts = serde_json::json!({
            "completed": summary.completed,
            "failed": summary.failed,
            "released": summary.released,
            "lost": summary.lost,
            "unreported": summary.unreported,
        });
        show(self.json, &counts, || {
            format!(
                "{} completed, {} failed, {} given back, {} lost",
                summary.completed, summary.failed, summary.released, summary.lost
            )
        })
    }
}

fn line(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Leased { task } => format!("{}  {} taken", task.task_id, task.task_type),
        Event::Ended { task_id, end, .. } => {
            let what = match end {
                End::Completed { .. } => "completed",
                End::Failed { requeued: true } => "failed, will be tried again",
                End::Failed { requeued: false } => "failed",
                End::Released => "given back",
                End::Lost => "lost: cancelled, or the lease ran out",
                End::Unreported => "done, but the server could not be told",
            };
            format!("{task_id}  {what}")
        }
        Event::ClaimFailed { error, .. } => format!("cannot ask for tasks: {error}"),
        Event::Draining { running } => format!("stopping: {running} running"),
        _ => return None,
    })
}

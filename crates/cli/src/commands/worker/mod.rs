//! `asyncgate worker`: a command of the user's, or the built-in handlers, as a process that does tasks.

mod exec;
mod process;
mod said;

use std::{ffi::OsString, sync::Arc, time::Duration};

use asyncgate_client::{
    End, Event, Worker as Runtime, WorkerBuilder,
    handlers::{HttpGet, HttpGetOptions, echo, sleep_then_return},
};
use clap::Args;

use crate::{
    exit::Exit,
    output,
    plain::plain,
    remote::Remote,
    show::show,
    signals::{Signals, Wish},
};
use exec::Exec;

const BUILT_IN: [&str; 3] = ["echo", "sleep_then_return", "http_get"];

/// The arguments of `asyncgate worker`.
#[derive(Debug, Args)]
#[command(after_help = WORKER_HELP)]
pub struct Worker {
    /// Your stable name.
    #[arg(long, default_value = "asyncgate-worker")]
    id: String,
    /// A type of tasks to take; may be repeated. Without a command, one of the built-in types.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Do each task by this command line, run by `sh -c`.
    #[arg(long, value_name = "COMMAND", requires = "types")]
    exec: Option<OsString>,
    /// Do each task by this program, run as it is, without a shell.
    #[arg(
        last = true,
        value_name = "PROGRAM",
        requires = "types",
        conflicts_with = "exec"
    )]
    program: Vec<OsString>,
    /// The most seconds for a task; then its command is stopped, and it is tried again.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Seconds that a command has to end after SIGTERM; then it is killed.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    kill_after: u64,
    /// An exit code of the command that lets the task be tried again, besides 75, 126 and 127; may be repeated.
    #[arg(long = "retry-on", value_name = "CODE", value_parser = clap::value_parser!(u8).range(1..))]
    retry_on: Vec<u8>,
    /// Send no proof of delivery of its own: what the command does is owed until it names artifacts.
    #[arg(long)]
    no_proof: bool,
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
    /// Print a summary as JSON at the end, and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

const WORKER_HELP: &str = "\
Your own command, in any language:
  It reads the payload on stdin, as JSON. What it writes to stdout is the result: JSON if it is JSON, else
  text, up to 1 MiB. It inherits the environment of the worker, and finds in it:
    ASYNCGATE_TASK_ID, ASYNCGATE_TASK_TYPE, ASYNCGATE_LEASE_ID, ASYNCGATE_WORKER_ID, ASYNCGATE_URL
    ASYNCGATE_OWNER           whose task it is, such as agent/alice
    ASYNCGATE_ATTEMPT         the failures so far: 0 at first
    ASYNCGATE_PAYLOAD_POINTER the address of a larger input, if there is one
    ASYNCGATE_ARTIFACTS_FILE  an empty file: say in it where the results are, one URL a line, or as JSON
  It exits with 0 for success. 75 (a temporary failure), 126 and 127 (it could not be run), --retry-on and
  the end by a signal let the task be tried again while it has attempts; any other code fails it. The end
  of what it wrote to stderr is the error.
  The lease is renewed while it runs. If the task is cancelled or the lease lost, its whole process group
  gets SIGTERM, and SIGKILL after --kill-after. What it leaves running is killed when it has ended.
  A success counts as delivered, so that nothing more is owed; with --no-proof only artifacts do that.

Built-in types and their payloads, without a command:
  echo               any JSON; returns it
  sleep_then_return  {\"seconds\": 2, \"return\": ...}; waits, then returns that
  http_get           {\"url\": \"https://...\"}; returns status, headers and body

SIGTERM or Ctrl-C finishes what is running, gives back what cannot finish, and exits with 0.

Examples:
  asyncgate worker --id w1 --concurrency 8
  asyncgate worker --type thumbnail --timeout 60 --exec 'jq -r .url | ./thumbnail.sh'
  asyncgate worker --type report --type invoice -- python3 render.py --fast";

impl Worker {
    pub async fn run(self) -> anyhow::Result<()> {
        let quiet = self.json;
        let kill_after = Duration::from_secs(self.kill_after);
        let mut worker = Runtime::builder(&self.remote.client()?)
            .id(&self.id)
            .capabilities(self.capabilities.iter().cloned())
            .concurrency(self.concurrency)
            .lease_ttl(Duration::from_secs(self.lease_ttl))
            .observe(move |event| {
                if let (false, Some(line)) = (quiet, line(event)) {
                    // A reader that went away is no reason to stop working.
                    let _ = output::say(&plain(&line));
                }
            });
        if let Some(seconds) = self.timeout {
            worker = worker.handler_timeout(Duration::from_secs(seconds));
        }
        let (worker, types) = match self.command() {
            // The runtime must wait longer for a handler than the handler for its command, which may first
            // end in good order and then leave something running.
            Some(command) => {
                let worker = worker.cancel_grace(2 * kill_after + Duration::from_secs(2));
                (self.by_command(worker, command), self.types.clone())
            }
            None => self.by_hand(worker)?,
        };
        let worker = worker.build()?;
        let mut signals = Signals::listen()?;
        if !quiet {
            let (id, types) = (&self.id, types.join(", "));
            output::say(&plain(&format!("{id} waits for tasks of type {types}")))?;
        }
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

    /// Returns the program that does the tasks and its arguments, if it is not built in.
    fn command(&self) -> Option<Vec<OsString>> {
        match &self.exec {
            Some(line) => Some(vec!["sh".into(), "-c".into(), line.clone()]),
            None => (!self.program.is_empty()).then(|| self.program.clone()),
        }
    }

    fn by_command(&self, mut worker: WorkerBuilder, command: Vec<OsString>) -> WorkerBuilder {
        let exec = Arc::new(Exec {
            command,
            worker_id: self.id.clone(),
            retry_on: [75, 126, 127]
                .into_iter()
                .chain(self.retry_on.iter().copied())
                .collect(),
            kill_after: Duration::from_secs(self.kill_after),
            proves: !self.no_proof,
            quiet: self.json,
        });
        for task_type in &self.types {
            let exec = Arc::clone(&exec);
            worker = worker.handle(task_type, move |context, payload| {
                let exec = Arc::clone(&exec);
                async move { exec.handle(context, payload).await }
            });
        }
        worker
    }

    /// Adds the built-in handlers that are wanted, and returns their types.
    fn by_hand(&self, mut worker: WorkerBuilder) -> anyhow::Result<(WorkerBuilder, Vec<String>)> {
        let types = match self.types.is_empty() {
            true => BUILT_IN.map(str::to_owned).to_vec(),
            false => self.types.clone(),
        };
        for task_type in &types {
            worker = match task_type.as_str() {
                "echo" => worker.handle("echo", echo),
                "sleep_then_return" => worker.handle("sleep_then_return", sleep_then_return),
                "http_get" => {
                    let http_get = HttpGet::new(HttpGetOptions {
                        allow_private: self.allow_private_addresses,
                        ..HttpGetOptions::default()
                    })?;
                    worker.handle("http_get", http_get.handler())
                }
                other => {
                    let built_in = BUILT_IN.join(", ");
                    let message = format!(
                        "{other} is not built in ({built_in} are): say by --exec how it is done"
                    );
                    return Err(Exit::usage(message).into());
                }
            };
        }
        Ok((worker, types))
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

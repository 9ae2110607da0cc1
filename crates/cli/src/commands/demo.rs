//! `asyncgate demo`: a worker dies in the middle of a task, and nothing is lost.
//!
//! A server, an agent and two workers run as processes of this same binary, on a directory that is
//! thrown away. Each step is printed when the server's ledger shows that it happened.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use asyncgate_client::{
    Client,
    api::{
        CreateTaskInput, GetTaskInput, ListLedgerInput, ListOpenObligationsInput, ReceiptRecord,
        TaskRecord,
    },
};
use asyncgate_ledger::{Expectations, Story};
use clap::Args;
use futures_util::StreamExt as _;

use super::verify::Checks;
use crate::{
    output,
    show::{Style, paint, who},
};

const KEY: &str = "a-key-for-the-demo-only";
/// The longest time that one step may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// The arguments of `asyncgate demo`: there are none.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  asyncgate demo")]
pub struct Demo {}

impl Demo {
    pub async fn run(self) -> anyhow::Result<()> {
        let dir = tempfile::tempdir().context("cannot make a directory for the demo")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut play = Play::new(program, dir.path())?;
        play.tell().await
    }
}

/// The running demo: its server and a client of it.
struct Play {
    program: std::path::PathBuf,
    url: String,
    client: Client,
    _server: Process,
}

/// A process that ends with the demo.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if the process has ended by itself, and then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Play {
    fn new(program: std::path::PathBuf, dir: &std::path::Path) -> anyhow::Result<Self> {
        step("A server starts on an empty directory.");
        let mut server = Command::new(&program)
            .args(["serve", "--bind", "127.0.0.1:0", "--log-level", "error"])
            .args(["--set", "expiry_jitter_max_seconds=0", "--data-dir"])
            .arg(dir)
            .env("ASYNCGATE_API_KEY", KEY)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server")?;
        let stdout = server.stdout.take().context("the server has no stdout")?;
        let server = Process(server);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Some(url) = line.trim().strip_prefix("listening on ") else {
            bail!("the server did not start");
        };
        note(url);
        Ok(Self {
            program,
            url: url.to_owned(),
            client: Client::new(url, KEY)?,
            _server: server,
        })
    }

    fn worker(&self, id: &str) -> anyhow::Result<Process> {
        let child = Command::new(&self.program)
            .args(["worker", "--id", id, "--lease-ttl", "2", "--json"])
            .env("ASYNCGATE_URL", &self.url)
            .env("ASYNCGATE_API_KEY", KEY)
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a worker")?;
        Ok(Process(child))
    }

    async fn tell(&mut self) -> anyhow::Result<()> {
        step("Alice, an agent, hands over a task. The answer comes when it is on disk.");
        let created = self.client.create_task(&task()?).await?;
        let id = created.task_id;
        note(&format!("task {id}"));
        note(&format!(
            "{} obligation is open: Alice is owed an outcome",
            self.open().await?
        ));

        step("Worker w1 takes it.");
        let first = self.worker("w1")?;
        let accepted = self.receipt(&id, "task.accepted", 1).await?;
        note(&format!(
            "{} by {}, lease {}",
            accepted.receipt_type,
            who(&accepted.from),
            lease(&accepted)
        ));

        step("w1 is killed in the middle of its work (kill -9).");
        drop(first);

        step(
            "Its lease runs out after 2 seconds. Nobody polls; the deadline itself wakes the server.",
        );
        let expired = self.receipt(&id, "lease.expired", 1).await?;
        let task = self.task(&id, 0).await?;
        note(&format!(
            "{} at {}",
            expired.receipt_type, expired.created_at
        ));
        note(&format!(
            "the task is queued again, and no attempt was burned: attempt {}",
            task.attempt
        ));

        step("Worker w2 takes it and finishes.");
        let _second = self.worker("w2")?;
        let accepted = self.receipt(&id, "task.accepted", 2).await?;
        note(&format!(
            "{} by {}, lease {}",
            accepted.receipt_type,
            who(&accepted.from),
            lease(&accepted)
        ));
        let task = self.task(&id, 15).await?;
        let Some(result) = &task.result else {
            bail!("the task did not end in time");
        };
        let value = result.result.as_ref().map_or("null", |value| value.get());
        note(&format!("{:?} with {value}", result.outcome));
        note(&format!(
            "{} obligations are open: a receipt with proof closed it",
            self.open().await?
        ));

        step("The ledger tells the story, and anyone can verify it.");
        self.verify(&id).await
    }

    async fn task(&self, id: &str, wait: u32) -> anyhow::Result<TaskRecord> {
        let input = GetTaskInput {
            task_id: id.to_owned(),
            wait_seconds: Some(wait),
            ..GetTaskInput::default()
        };
        Ok(self.client.get_task(&input).await?)
    }

    async fn open(&self) -> anyhow::Result<usize> {
        let alice = ListOpenObligationsInput {
            principal_id: Some("alice".to_owned()),
            ..ListOpenObligationsInput::default()
        };
        Ok(self
            .client
            .list_open_obligations(&alice)
            .await?
            .open_obligations
            .len())
    }

    /// Waits for the `nth` receipt of a type about the task.
    async fn receipt(&self, id: &str, kind: &str, nth: usize) -> anyhow::Result<ReceiptRecord> {
        let look = async {
            loop {
                let mut found = self.client.ledger(ListLedgerInput {
                    task_id: Some(id.to_owned()),
                    ..ListLedgerInput::default()
                });
                let mut seen = 0;
                while let Some(receipt) = found.next().await {
                    let receipt = receipt?;
                    seen += usize::from(receipt.receipt_type == kind);
                    if receipt.receipt_type == kind && seen == nth {
                        return anyhow::Ok(receipt);
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, look)
            .await
            .with_context(|| format!("no {kind} came in time"))?
    }

    async fn verify(&self, id: &str) -> anyhow::Result<()> {
        let mut checks = Checks {
            expectations: Expectations::default(),
            story: Some(Story::about(id.parse()?)),
        };
        let report = checks.server(&self.client).await?;
        for line in checks.story.iter().flat_map(Story::lines) {
            note(&line);
        }
        step(&format!(
            "{} receipts, chain and signature verified, {} obligations open.",
            report.receipts, report.open_obligations
        ));
        Ok(())
    }
}

fn task() -> anyhow::Result<CreateTaskInput> {
    let payload = serde_json::value::to_raw_value(&serde_json::json!({
        "seconds": 4,
        "return": { "greeting": "Hello Alice" },
    }))?;
    Ok(CreateTaskInput {
        task_type: "sleep_then_return".to_owned(),
        payload: Some(payload),
        idempotency_key: Some("demo".to_owned()),
        principal_id: Some("alice".to_owned()),
        ..CreateTaskInput::default()
    })
}

fn lease(receipt: &ReceiptRecord) -> &str {
    receipt.lease_id.as_deref().unwrap_or("none")
}

fn step(text: &str) {
    // A reader that went away does not stop the demo, which cleans up at its end.
    let _ = output::say(&paint(Style::Bold, text));
}

fn note(text: &str) {
    let _ = output::say(&format!("    {}", paint(Style::Dim, text)));
}

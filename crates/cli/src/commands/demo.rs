//! `asyncgate demo`: a worker dies in the middle of a task, and nothing is lost.
//!
//! A server and two workers run as processes of this same binary, on a directory that is thrown away; this
//! process is their operator and the agent. Agent and workers have keys of their own, which allow nothing
//! else. Each step is printed when the server's ledger shows that it happened.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use asyncgate_client::{
    Client,
    api::{
        CreateKeyInput, CreateTaskInput, GetTaskInput, ListLedgerInput, ListOpenObligationsInput,
        PrincipalKind, PrincipalName, ReceiptRecord, TaskRecord,
    },
};
use asyncgate_ledger::{Expectations, Story};
use clap::Args;
use futures_util::StreamExt as _;

use super::{Running, verify::Checks};
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
    pub fn run(self) -> Running<'static> {
        Box::pin(self.work())
    }

    async fn work(self) -> anyhow::Result<()> {
        let dir = tempfile::tempdir().context("cannot make a directory for the demo")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut play = Play::new(program, dir.path())?;
        play.tell().await
    }
}

/// The running demo: its server, and its operator as a client of it.
struct Play {
    program: std::path::PathBuf,
    url: String,
    operator: Client,
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
            operator: Client::new(url, KEY)?,
            _server: server,
        })
    }

    /// Makes a key that is good for one principal, with the rights of its role.
    async fn key(&self, role: &str, kind: PrincipalKind, id: &str) -> anyhow::Result<String> {
        let input = CreateKeyInput {
            tenant_id: None,
            principal: PrincipalName {
                kind,
                id: id.to_owned(),
            },
            role: role.to_owned(),
            scopes: None,
            expires_at: None,
            expires_in_secs: Some(3_600),
            label: Some("demo".to_owned()),
        };
        Ok(self.operator.create_key(&input).await?.key.0)
    }

    async fn worker(&self, id: &str) -> anyhow::Result<Process> {
        let key = self.key("worker", PrincipalKind::Worker, id).await?;
        let child = Command::new(&self.program)
            .args(["worker", "--id", id, "--lease-ttl", "2", "--json"])
            .env("ASYNCGATE_URL", &self.url)
            .env("ASYNCGATE_API_KEY", key)
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a worker")?;
        Ok(Process(child))
    }

    async fn tell(&mut self) -> anyhow::Result<()> {
        step("Alice, an agent, gets a key of her own. With it she is Alice and nobody else.");
        let key = self.key("agent", PrincipalKind::Agent, "alice").await?;
        let alice = Client::new(self.url.as_str(), key)?;
        let me = alice.whoami().await?;
        note(&format!("{} with the role {}", who(&me.principal), me.role));

        step("She hands over a task. The answer comes when it is on disk.");
        let created = alice.create_task(&task()?).await?;
        let id = created.task_id;
        note(&format!("task {id}"));
        note(&format!(
            "{} obligation is open: Alice is owed an outcome",
            open(&alice).await?
        ));

        step("Worker w1, with a key of its own, takes it.");
        let first = self.worker("w1").await?;
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
        let task = read(&alice, &id, 0).await?;
        note(&format!(
            "{} at {}",
            expired.receipt_type, expired.created_at
        ));
        note(&format!(
            "the task is queued again, and no attempt was burned: attempt {}",
            task.attempt
        ));

        step("Worker w2 takes it and finishes.");
        let _second = self.worker("w2").await?;
        let accepted = self.receipt(&id, "task.accepted", 2).await?;
        note(&format!(
            "{} by {}, lease {}",
            accepted.receipt_type,
            who(&accepted.from),
            lease(&accepted)
        ));
        let task = read(&alice, &id, 15).await?;
        let Some(result) = &task.result else {
            bail!("the task did not end in time");
        };
        let value = result.result.as_ref().map_or("null", |value| value.get());
        note(&format!("{:?} with {value}", result.outcome));
        note(&format!(
            "{} obligations are open: a receipt with proof closed it",
            open(&alice).await?
        ));

        step("The ledger tells the story, and anyone can verify it.");
        self.verify(&id).await
    }

    /// Waits for the `nth` receipt of a type about the task.
    async fn receipt(&self, id: &str, kind: &str, nth: usize) -> anyhow::Result<ReceiptRecord> {
        let look = async {
            loop {
                let mut found = self.operator.ledger(ListLedgerInput {
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
        let report = checks.server(&self.operator).await?;
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

/// Reads a task, perhaps after waiting for its end.
async fn read(client: &Client, id: &str, wait: u32) -> anyhow::Result<TaskRecord> {
    let input = GetTaskInput {
        task_id: id.to_owned(),
        wait_seconds: Some(wait),
        ..GetTaskInput::default()
    };
    Ok(client.get_task(&input).await?)
}

/// Counts what the client's principal is owed.
async fn open(client: &Client) -> anyhow::Result<usize> {
    let own = ListOpenObligationsInput::default();
    let open = client.list_open_obligations(&own).await?;
    Ok(open.open_obligations.len())
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

//! `asyncgate verify`: checks that a ledger is whole, without trusting whoever keeps it; and that
//! everything else in a data directory agrees with the ledger.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use asyncgate_client::{
    Client,
    api::{LedgerHead, ReceiptRecord},
};
use asyncgate_core::{TaskId, TenantId};
use asyncgate_ledger::{
    ChainReport, Expectations, Failure, KnownHead, PublicKey, Report, Story, Verifier,
    verify_export_with,
};
use clap::Args;
use serde::Serialize;

use super::{Running, ledger::each_receipt};
use crate::{
    exit::Exit,
    ids, output,
    plain::plain_lines,
    remote::Common,
    show::{Progress, Style, fields, paint},
};

/// The arguments of `asyncgate verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
It checks that no receipt was changed, left out, added or reordered (the chain of links), that the
server vouches for it (signatures), that every receipt keeps the rules (parents, discharges), and that
the open obligations are those that the receipts say. Of a data directory it checks more: that the log
and the database are sound, that tasks, indexes and counters say what the receipts say, and that the
messages in it agree with their hashes and stand in their chains. It names the first place that does not
hold, and exits with 7.

Examples:
  asyncgate verify ledger.ndjson --public-key 6e1f...   an export, offline
  asyncgate verify --data-dir ./data                    the file of a server, also while it runs
  asyncgate verify --url http://127.0.0.1:8080          a running server
  asyncgate verify ledger.ndjson --explain 019a2f6e-... --mermaid")]
pub struct Verify {
    /// A file that `asyncgate ledger export` wrote.
    #[arg(conflicts_with = "data_dir")]
    file: Option<PathBuf>,
    /// A server's data directory.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The key that must have signed, in hexadecimal digits.
    #[arg(long, value_name = "HEX")]
    public_key: Option<PublicKey>,
    /// A head that was seen earlier and must still be there: SEQ:LINK.
    #[arg(long, value_name = "SEQ:LINK", value_parser = parse_known)]
    known_head: Option<KnownHead>,
    /// Tell the story of this task. Of a running server, a short form of the id is enough.
    #[arg(long, value_name = "TASK")]
    explain: Option<String>,
    /// With --explain: as a Mermaid diagram.
    #[arg(long, requires = "explain")]
    mermaid: bool,
    #[command(flatten)]
    common: Common,
}

/// A tenant's ledger that holds, and the chains of its messages where those were at hand.
#[derive(Debug, Serialize)]
pub struct Verified {
    #[serde(flatten)]
    pub ledger: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains: Option<ChainReport>,
}

impl From<Report> for Verified {
    fn from(ledger: Report) -> Self {
        let chains = None;
        Self { ledger, chains }
    }
}

/// Checks a data directory. Only the server's binary can read the files in it.
pub type CheckDataDir = fn(&Path, &mut Checks) -> anyhow::Result<Vec<Verified>>;

fn parse_known(text: &str) -> Result<KnownHead, String> {
    let (seq, link) = text.split_once(':').ok_or("must be SEQ:LINK")?;
    Ok(KnownHead {
        seq: seq.parse().map_err(|_| "SEQ must be a number")?,
        link: link.parse().map_err(|error| format!("{error}"))?,
    })
}

impl Verify {
    /// Checks the ledger and prints what was found.
    pub fn run(self, check_data_dir: CheckDataDir) -> Running<'static> {
        Box::pin(self.work(check_data_dir))
    }

    async fn work(self, check_data_dir: CheckDataDir) -> anyhow::Result<()> {
        let explain = self.explain().await?;
        let mut checks = Checks {
            expectations: Expectations {
                public_key: self.public_key,
                known_head: self.known_head,
            },
            story: explain.map(Story::about),
        };
        let verified = match (&self.file, &self.data_dir) {
            (Some(path), _) => vec![checks.file(path, explain)?.into()],
            (None, Some(dir)) => check_data_dir(dir, &mut checks)?,
            (None, None) => vec![checks.server(&self.common.client()?).await?.into()],
        };
        if let Some(story) = checks.story {
            return self.print(&story);
        }
        self.common.show(&verified, || {
            let good: Vec<String> = verified.iter().map(describe).collect();
            good.join("\n\n")
        })
    }

    /// Returns the id of the task whose story is wanted.
    async fn explain(&self) -> anyhow::Result<Option<TaskId>> {
        let Some(text) = &self.explain else {
            return Ok(None);
        };
        let whole = match self.file.is_none() && self.data_dir.is_none() {
            true => ids::whole(&self.common.client()?, text.clone()).await?,
            false => text.clone(),
        };
        let id = whole.parse().map_err(|_| {
            Exit::usage(format!(
                "{text} is not the whole id of a task; `asyncgate task get` shows it"
            ))
        })?;
        Ok(Some(id))
    }

    fn print(&self, story: &Story) -> anyhow::Result<()> {
        if story.is_empty() {
            let message = "the ledger has no receipt about this task";
            return Err(Exit::usage(message).into());
        }
        let text = if self.mermaid {
            story.mermaid()
        } else {
            format!("{}\n\n{}", story.lines().join("\n"), story.graph())
        };
        Ok(output::say(plain_lines(text.trim_end()).as_ref())?)
    }
}

/// The checks of one run: what the caller expects, and the story of the task that it asked about.
#[derive(Debug)]
pub struct Checks {
    pub(super) expectations: Expectations,
    pub(super) story: Option<Story>,
}

impl Checks {
    /// Begins to check a tenant's ledger.
    pub fn ledger(&mut self, tenant: TenantId) -> LedgerCheck<'_> {
        LedgerCheck {
            verifier: Verifier::new(tenant, self.expectations),
            story: self.story.as_mut(),
        }
    }

    fn file(&mut self, path: &Path, explain: Option<TaskId>) -> anyhow::Result<Report> {
        let open = || File::open(path).with_context(|| format!("cannot read {}", path.display()));
        let mut progress = Progress::start();
        let report = verify_export_with(open()?, self.expectations, |at| {
            progress.at(|| format!("{} receipts", at.receipts));
        });
        if let Some(task) = explain {
            // A broken ledger still has a story, so the file is read again from its start.
            self.story = Some(Story::read(task, open()?).map_err(failure)?);
        }
        report.map_err(failure)
    }

    /// Checks the ledger of a running server.
    pub(super) async fn server(&mut self, client: &Client) -> anyhow::Result<Report> {
        let head = client.get_ledger_head().await?;
        let tenant = head
            .tenant_id
            .parse()
            .context("the server names no tenant")?;
        let mut ledger = self.ledger(tenant);
        let mut progress = Progress::start();
        each_receipt(client, &head, |receipt| {
            ledger.push(receipt)?;
            progress.at(|| format!("{} of {} receipts", receipt.seq, head.seq));
            Ok(())
        })
        .await?;
        ledger.finish(&head)
    }
}

/// A check of one ledger, receipt by receipt.
#[derive(Debug)]
pub struct LedgerCheck<'a> {
    verifier: Verifier,
    story: Option<&'a mut Story>,
}

impl LedgerCheck<'_> {
    /// Checks the next receipt.
    pub fn push(&mut self, record: &ReceiptRecord) -> anyhow::Result<()> {
        let pushed = self.verifier.push(record);
        pushed.map_err(|broken| failure(broken.into()))?;
        if let Some(story) = &mut self.story {
            story.push(record);
        }
        Ok(())
    }

    /// Checks that the ledger ends where its head says.
    pub fn finish(self, head: &LedgerHead) -> anyhow::Result<Report> {
        let finished = self.verifier.finish(head);
        finished.map_err(|broken| failure(broken.into()))
    }
}

fn failure(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Broken(found) => Exit::broken(format!("the ledger is broken: {found}")).into(),
        Failure::Read(error) => anyhow::Error::new(error).context("cannot read the ledger"),
    }
}

fn describe(verified: &Verified) -> String {
    let report = &verified.ledger;
    let vouched = match &report.signed_by {
        Some(key) => format!("{key} at {}", report.signed_at),
        None => "nobody; the head is not signed".to_owned(),
    };
    let facts = fields([
        ("tenant", Some(report.tenant_id.clone())),
        ("receipts", Some(report.receipts.to_string())),
        ("tasks", Some(report.tasks.to_string())),
        (
            "open obligations",
            Some(report.open_obligations.to_string()),
        ),
        ("link", Some(report.link.clone())),
        ("signatures", Some(report.signatures.to_string())),
        ("head signed by", Some(vouched)),
        (
            "messages",
            verified.chains.map(|chains| {
                let ChainReport { messages, shards } = chains;
                format!("{messages}, in the chains of {shards} shards")
            }),
        ),
    ]);
    format!("{}\n{facts}", paint(Style::Green, "the ledger is whole"))
}

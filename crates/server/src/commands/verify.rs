//! `asyncgate verify`: whether a ledger is whole, without trusting whoever keeps it; and, of a data
//! directory, whether everything else in it agrees with the ledger.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use asyncgate_client::api::{LedgerHead, ReceiptRecord};
use asyncgate_core::{TaskId, TenantId, Timestamp};
use asyncgate_ledger::{
    ChainReport, ChainVerifier, Expectations, Failure, KnownHead, PublicKey, Report, Standings,
    Story, Verifier, verify_export_with,
};
use asyncgate_store::{Error, SeqPage};
use asyncgate_store_sqlite::{Finding, LogError, OpenError, SqliteFile};
use clap::Args;
use serde::Serialize;

use super::{
    Ended,
    ledger::each_receipt,
    remote::Remote,
    show::{Progress, Style, fields, paint, show},
};
use crate::{node::DATABASE, output};

/// How many receipts are read at a time.
const PAGE: usize = 1_000;

/// What to verify.
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
    /// Tell the story of this task.
    #[arg(long, value_name = "TASK")]
    explain: Option<TaskId>,
    /// With --explain: as a Mermaid diagram.
    #[arg(long, requires = "explain")]
    mermaid: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

/// What holds: the ledger of a tenant, and the chains of its messages where those were at hand.
#[derive(Debug, Serialize)]
struct Whole {
    #[serde(flatten)]
    ledger: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    chains: Option<ChainReport>,
}

impl From<Report> for Whole {
    fn from(ledger: Report) -> Self {
        let chains = None;
        Self { ledger, chains }
    }
}

fn parse_known(text: &str) -> Result<KnownHead, String> {
    let (seq, link) = text.split_once(':').ok_or("must be SEQ:LINK")?;
    Ok(KnownHead {
        seq: seq.parse().map_err(|_| "SEQ must be a number")?,
        link: link.parse().map_err(|error| format!("{error}"))?,
    })
}

impl Verify {
    pub async fn run(self) -> anyhow::Result<()> {
        let mut story = self.explain.map(Story::about);
        let reports = match (&self.file, &self.data_dir) {
            (Some(path), _) => vec![self.check_file(path, &mut story)?.into()],
            (None, Some(dir)) => self.check_data_dir(dir, &mut story)?,
            (None, None) => vec![self.check_server(&mut story).await?.into()],
        };
        if let Some(story) = story {
            return self.tell(&story);
        }
        show(self.json, &reports, || {
            let good: Vec<String> = reports.iter().map(describe).collect();
            good.join("\n\n")
        })
    }

    const fn expectations(&self) -> Expectations {
        Expectations {
            public_key: self.public_key,
            known_head: self.known_head,
        }
    }

    fn check_file(&self, path: &PathBuf, story: &mut Option<Story>) -> anyhow::Result<Report> {
        let open = || File::open(path).with_context(|| format!("cannot read {}", path.display()));
        let mut progress = Progress::start();
        let report = verify_export_with(open()?, self.expectations(), |at| {
            progress.at(|| format!("{} receipts", at.receipts));
        });
        if let Some(found) = story {
            *found = Story::read(self.explain.unwrap_or(TaskId::from_bytes([0; 16])), open()?)
                .map_err(failure)?;
        }
        report.map_err(failure)
    }

    async fn check_server(&self, story: &mut Option<Story>) -> anyhow::Result<Report> {
        let client = self.remote.client()?;
        let head = client.get_ledger_head().await?;
        let tenant = head
            .tenant_id
            .parse()
            .context("the server names no tenant")?;
        let mut verifier = Verifier::new(tenant, self.expectations());
        let mut progress = Progress::start();
        each_receipt(&client, &head, |receipt| {
            take(&mut verifier, story, receipt)?;
            progress.at(|| format!("{} of {} receipts", receipt.seq, head.seq));
            Ok(())
        })
        .await?;
        verifier
            .finish(&head)
            .map_err(|error| failure(error.into()))
    }

    fn check_data_dir(&self, dir: &Path, story: &mut Option<Story>) -> anyhow::Result<Vec<Whole>> {
        let path = dir.join(DATABASE);
        let mut file = SqliteFile::open(&path).map_err(|error| {
            if let OpenError::Log(LogError::Frame { .. } | LogError::Header { .. }) = error {
                return Ended::broken(error.to_string()).into();
            }
            anyhow::Error::new(error).context(format!("{}", path.display()))
        })?;
        let mut progress = Progress::start();
        file.check_pages(move || progress.at(|| "checking the database".to_owned()))
            .map_err(|found| finding("the database", found))?;
        let mut reports = Vec::new();
        for tenant in file.tenants().map_err(unread)? {
            reports.push(Whole {
                ledger: self.check_tenant(&mut file, tenant, story)?,
                chains: Some(check_messages(&mut file, tenant)?),
            });
        }
        file.check_indexes()
            .map_err(|found| finding("an index", found))?;
        Ok(reports)
    }

    fn check_tenant(
        &self,
        file: &mut SqliteFile,
        tenant: TenantId,
        story: &mut Option<Story>,
    ) -> anyhow::Result<Report> {
        let head = file.head(tenant).map_err(unread)?;
        let mut verifier = Verifier::new(tenant, self.expectations());
        let mut standings = Standings::default();
        let mut progress = Progress::start();
        let mut after = 0;
        while after < head.seq {
            let limit = PAGE.min(usize::try_from(head.seq - after).unwrap_or(PAGE));
            let found = file
                .receipts(tenant, SeqPage { after, limit })
                .map_err(unread)?;
            if found.is_empty() {
                break;
            }
            for found in &found {
                let record = asyncgate_ledger::record(tenant, &found.receipt, found.link);
                take(&mut verifier, story, &record)?;
                standings.push(&found.receipt);
                after = record.seq;
            }
            progress.at(|| format!("{after} of {} receipts", head.seq));
        }
        let report = verifier
            .finish(&unsigned(tenant, head))
            .map_err(|error| failure(error.into()))?;
        file.check_tasks(
            tenant,
            |task| standings.check(task),
            |tasks| progress.at(|| format!("{tasks} of {} tasks", report.tasks)),
        )
        .map_err(|found| finding("a task", found))?;
        if let Some(task) = standings.missing() {
            let message = format!("a task is broken: tenant {tenant}, task {task}: it has no row");
            return Err(Ended::broken(message).into());
        }
        Ok(report)
    }

    fn tell(&self, story: &Story) -> anyhow::Result<()> {
        if story.is_empty() {
            let message = "the ledger has no receipt about this task";
            return Err(Ended::usage(message).into());
        }
        let text = if self.mermaid {
            story.mermaid()
        } else {
            format!("{}\n\n{}", story.lines().join("\n"), story.graph())
        };
        Ok(output::say(text.trim_end())?)
    }
}

/// Checks what is left of the messages that were sent: each agrees with its hashes and its neighbours.
fn check_messages(file: &mut SqliteFile, tenant: TenantId) -> anyhow::Result<ChainReport> {
    let heads = file.chains(tenant).map_err(unread)?;
    let mut verifier = ChainVerifier::default();
    let mut progress = Progress::start();
    file.check_messages(
        tenant,
        |message| verifier.push(message).map_err(|broken| broken.to_string()),
        |messages| progress.at(|| format!("{messages} messages")),
    )
    .map_err(|found| finding("a message", found))?;
    let broken = |found| Ended::broken(format!("a chain of messages is broken: {found}")).into();
    verifier.finish(&heads).map_err(broken)
}

fn take(
    verifier: &mut Verifier,
    story: &mut Option<Story>,
    record: &ReceiptRecord,
) -> anyhow::Result<()> {
    verifier
        .push(record)
        .map_err(|error| failure(error.into()))?;
    if let Some(story) = story {
        story.push(record);
    }
    Ok(())
}

/// A head that is read off the file itself: nobody vouches for it but the signatures in the ledger.
fn unsigned(tenant: TenantId, head: asyncgate_core::Head) -> LedgerHead {
    let signed_at = Timestamp::from_millis(0);
    LedgerHead {
        tenant_id: tenant.to_string(),
        seq: head.seq,
        link: head.link.to_string(),
        open_obligations: head.open_obligations,
        signed_at: signed_at.to_string(),
        signed_at_millis: signed_at.as_millis(),
        public_key: None,
        signature: None,
    }
}

fn failure(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Broken(found) => Ended::broken(format!("the ledger is broken: {found}")).into(),
        Failure::Read(error) => anyhow::Error::new(error).context("cannot read the ledger"),
    }
}

fn finding(what: &str, found: Finding) -> anyhow::Error {
    match found {
        Finding::Wrong(found) => Ended::broken(format!("{what} is broken: {found}")).into(),
        Finding::Store(error) => error.into(),
    }
}

fn unread(error: Error) -> anyhow::Error {
    match error {
        Error::Corrupt(_) => Ended::broken(error.to_string()).into(),
        Error::Busy | Error::Unavailable(_) | Error::Conflict => error.into(),
    }
}

fn describe(whole: &Whole) -> String {
    let report = &whole.ledger;
    let vouched = match &report.signed_by {
        Some(key) => format!("{key} at {}", report.signed_at),
        None => "nobody; the head is not signed".to_owned(),
    };
    let facts = fields(&[
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
            whole.chains.map(|chains| {
                let ChainReport { messages, shards } = chains;
                format!("{messages}, in the chains of {shards} shards")
            }),
        ),
    ]);
    format!("{}\n{facts}", paint(Style::Green, "the ledger is whole"))
}

//! `asyncgate ledger`: a copy of the ledger that can be verified, and its signed head.

use std::{
    fs::File,
    io::{BufWriter, Write, stdout},
    path::PathBuf,
};

use anyhow::Context as _;
use asyncgate_client::{
    Client,
    api::{LedgerHead, ReadLedgerInput, ReceiptRecord},
};
use asyncgate_ledger::Export;
use clap::{Args, Subcommand};
use futures_util::StreamExt as _;

use crate::{
    remote::{Common, Remote},
    show::{Progress, fields},
};

/// The subcommands of `asyncgate ledger`.
#[derive(Debug, Subcommand)]
pub enum Ledger {
    /// Write every receipt and the signed head to a file that `asyncgate verify` can check offline.
    #[command(
        after_help = "Example:\n  asyncgate ledger export ledger.ndjson && asyncgate verify ledger.ndjson"
    )]
    Export(ExportArgs),
    /// Print where the ledger ends, signed. Keep it: nobody can rewrite what is before it unnoticed.
    #[command(after_help = "Example:\n  asyncgate ledger head --json > head.json")]
    Head(HeadArgs),
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The file to write; stdout when left out.
    file: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Args)]
pub struct HeadArgs {
    #[command(flatten)]
    common: Common,
}

impl Ledger {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Export(args) => args.run().await,
            Self::Head(args) => args.run().await,
        }
    }
}

impl HeadArgs {
    async fn run(self) -> anyhow::Result<()> {
        let head = self.common.client()?.get_ledger_head().await?;
        self.common.show(&head, || {
            fields([
                ("receipts", Some(head.seq.to_string())),
                ("link", Some(head.link.clone())),
                ("open obligations", Some(head.open_obligations.to_string())),
                ("signed at", Some(head.signed_at.clone())),
                ("public key", head.public_key.clone()),
                ("signature", head.signature.clone()),
            ])
        })
    }
}

impl ExportArgs {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.remote.client()?;
        match &self.file {
            None => export(&client, BufWriter::new(stdout().lock())).await,
            Some(path) => {
                let cannot = || format!("cannot write {}", path.display());
                let file = File::create(path).with_context(cannot)?;
                export(&client, BufWriter::new(&file)).await?;
                file.sync_all().with_context(cannot)
            }
        }
    }
}

/// Writes the ledger up to its present head. Receipts that come meanwhile are not part of the copy.
pub async fn export(client: &Client, out: impl Write) -> anyhow::Result<()> {
    let head = client.get_ledger_head().await?;
    let by = concat!("asyncgate ", env!("CARGO_PKG_VERSION"));
    let mut export = Export::begin(out, &head.tenant_id, &head.signed_at, Some(by))?;
    let mut progress = Progress::start();
    each_receipt(client, &head, |receipt| {
        export.receipt(receipt)?;
        progress.at(|| format!("{} of {} receipts", receipt.seq, head.seq));
        Ok(())
    })
    .await?;
    export.finish(&head)?;
    Ok(())
}

/// Passes every receipt up to a head to `take`, in the order of the ledger.
pub async fn each_receipt(
    client: &Client,
    head: &LedgerHead,
    mut take: impl FnMut(&ReceiptRecord) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if head.seq == 0 {
        return Ok(());
    }
    let limit = Some(200);
    let mut receipts = client.whole_ledger(ReadLedgerInput {
        limit,
        ..ReadLedgerInput::default()
    });
    while let Some(receipt) = receipts.next().await {
        let receipt = receipt?;
        take(&receipt)?;
        if receipt.seq >= head.seq {
            break;
        }
    }
    Ok(())
}

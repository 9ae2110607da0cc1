//! `asyncgate receipts`: an inbox, or the receipts of a task, a lease or a type.

use asyncgate_client::api::{ListLedgerInput, ListReceiptsInput, ReceiptRecord};
use clap::Args;

use crate::{
    ids,
    listing::{Paging, Quiet},
    remote::{As, Common},
    show::{short, table, who},
};

/// The arguments of `asyncgate receipts`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  asyncgate receipts --as alice\n  asyncgate receipts --task 5c3a1\n  asyncgate receipts --type system.anomaly --all --json"
)]
pub struct Receipts {
    /// Receipts about this task, instead of an inbox; short forms of ids are fine.
    #[arg(long, value_name = "TASK", group = "part")]
    task: Option<String>,
    /// Receipts under this lease, instead of an inbox.
    #[arg(long, value_name = "LEASE", group = "part")]
    lease: Option<String>,
    /// Receipts of this type, instead of an inbox.
    #[arg(long = "type", value_name = "TYPE", group = "part")]
    receipt_type: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

impl Receipts {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let task_id = match self.task {
            Some(task) => Some(ids::whole(&client, task).await?),
            None => None,
        };
        let part = ListLedgerInput {
            task_id,
            lease_id: self.lease,
            receipt_type: self.receipt_type,
            ..ListLedgerInput::default()
        };
        let is_part = [&part.task_id, &part.lease_id, &part.receipt_type]
            .iter()
            .any(|part| part.is_some());
        let inbox = ListReceiptsInput {
            principal_kind: self.for_whom.kind(),
            principal_id: self.for_whom.id(),
            ..ListReceiptsInput::default()
        };
        let pages = self.paging.gather(async |cursor, limit| {
            let limit = Some(limit);
            let page = if is_part {
                let since_receipt_id = cursor;
                let part = part.clone();
                client
                    .list_ledger(&ListLedgerInput {
                        since_receipt_id,
                        limit,
                        ..part
                    })
                    .await?
            } else {
                let since_receipt_id = cursor;
                let inbox = inbox.clone();
                client
                    .list_receipts(&ListReceiptsInput {
                        since_receipt_id,
                        limit,
                        ..inbox
                    })
                    .await?
            };
            Ok((page.receipts, page.next_cursor))
        });
        let id = |receipt: &ReceiptRecord| receipt.receipt_id.clone();
        pages
            .await?
            .show_or_ids(&self.common, self.quiet, id, receipt_table)
    }
}

/// Formats receipts as a table.
fn receipt_table(receipts: &[ReceiptRecord]) -> String {
    let row = |receipt: &ReceiptRecord| {
        [
            receipt.seq.to_string(),
            receipt.created_at.clone(),
            receipt.receipt_type.clone(),
            who(&receipt.from),
            who(&receipt.to),
            receipt.task_id.as_deref().map(short).unwrap_or_default(),
        ]
    };
    let header = ["SEQ", "AT", "TYPE", "FROM", "TO", "TASK"];
    table(header, receipts.iter().map(row).collect())
}

//! `asyncgate receipts`: an inbox, or the receipts of a task, a lease or a type.

use asyncgate_client::api::{ListLedgerInput, ListReceiptsInput, ReceiptRecord};
use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::{
    remote::{As, Common},
    show::{table, who},
};

/// The arguments of `asyncgate receipts`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  asyncgate receipts --as alice\n  asyncgate receipts --task 019a2f6e-...\n  asyncgate receipts --type system.anomaly --json"
)]
pub struct Receipts {
    /// Receipts about this task, instead of an inbox.
    #[arg(long, value_name = "TASK", group = "part")]
    task: Option<String>,
    /// Receipts under this lease, instead of an inbox.
    #[arg(long, value_name = "LEASE", group = "part")]
    lease: Option<String>,
    /// Receipts of this type, instead of an inbox.
    #[arg(long = "type", value_name = "TYPE", group = "part")]
    receipt_type: Option<String>,
    /// Only receipts after this one.
    #[arg(long, value_name = "RECEIPT")]
    since: Option<String>,
    /// The most to print.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

impl Receipts {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let page = Some(self.limit.clamp(1, 200) as u32);
        let part = self.task.is_some() || self.lease.is_some() || self.receipt_type.is_some();
        let found = if part {
            client.ledger(ListLedgerInput {
                task_id: self.task,
                lease_id: self.lease,
                receipt_type: self.receipt_type,
                since_receipt_id: self.since,
                limit: page,
                ..ListLedgerInput::default()
            })
        } else {
            client.receipts(ListReceiptsInput {
                principal_kind: self.for_whom.kind(),
                principal_id: self.for_whom.id(),
                since_receipt_id: self.since,
                limit: page,
            })
        };
        let receipts: Vec<ReceiptRecord> = found.take(self.limit).try_collect().await?;
        self.common.show(&receipts, || receipt_table(&receipts))
    }
}

/// Formats receipts as a table.
pub fn receipt_table(receipts: &[ReceiptRecord]) -> String {
    let row = |receipt: &ReceiptRecord| {
        [
            receipt.seq.to_string(),
            receipt.created_at.clone(),
            receipt.receipt_type.clone(),
            who(&receipt.from),
            who(&receipt.to),
            receipt.task_id.clone().unwrap_or_default(),
        ]
    };
    let header = ["SEQ", "AT", "TYPE", "FROM", "TO", "TASK"];
    table(header, receipts.iter().map(row).collect())
}

//! `asyncgate obligations`: what a principal is still owed.

use asyncgate_client::api::{ListOpenObligationsInput, ReceiptRecord};
use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::receipts::receipt_table;
use crate::remote::{As, Common};

/// The arguments of `asyncgate obligations`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  asyncgate obligations --as alice")]
pub struct Obligations {
    /// The most to print.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    for_whom: As,
    #[command(flatten)]
    common: Common,
}

impl Obligations {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = ListOpenObligationsInput {
            principal_kind: self.for_whom.kind(),
            principal_id: self.for_whom.id(),
            limit: Some(self.limit.clamp(1, 200) as u32),
            ..ListOpenObligationsInput::default()
        };
        let found = self.common.client()?.open_obligations(input);
        let open: Vec<ReceiptRecord> = found.take(self.limit).try_collect().await?;
        self.common.show(&open, || {
            if open.is_empty() {
                return "nothing is owed".to_owned();
            }
            receipt_table(&open)
        })
    }
}

//! `asyncgate obligations`: what a principal is still owed.

use asyncgate_client::api::ListOpenObligationsInput;
use clap::Args;
use futures_util::StreamExt as _;

use super::{
    receipts::receipt_table,
    remote::{As, Remote},
    show::show,
};

/// Whose obligations to list.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  asyncgate obligations --as alice")]
pub struct Obligations {
    /// The most to print.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    for_whom: As,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Obligations {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = ListOpenObligationsInput {
            principal_kind: self.for_whom.kind(),
            principal_id: self.for_whom.id(),
            limit: Some(self.limit.clamp(1, 200) as u32),
            ..ListOpenObligationsInput::default()
        };
        let mut found = self
            .remote
            .client()?
            .open_obligations(input)
            .take(self.limit);
        let mut open = Vec::new();
        while let Some(receipt) = found.next().await {
            open.push(receipt?);
        }
        show(self.json, &open, || {
            if open.is_empty() {
                return "nothing is owed".to_owned();
            }
            receipt_table(&open)
        })
    }
}

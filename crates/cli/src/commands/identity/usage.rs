//! `asyncgate usage`: what a tenant uses, and what it may use.

use asyncgate_client::api::{TenantUsage, UsageInput};
use clap::Args;

use super::Within;
use crate::{remote::Common, show::table};

/// The arguments of `asyncgate usage`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asyncgate usage
  asyncgate usage --tenant acme --json | jq .usage.api_calls")]
pub struct Usage {
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    common: Common,
}

impl Usage {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = UsageInput {
            tenant_id: self.within.id(&client).await?,
        };
        let answer = client.get_usage(&input).await?;
        self.common.show(&answer, || text(&answer))
    }
}

fn text(answer: &TenantUsage) -> String {
    let used = &answer.usage;
    let counted = [
        ("active_tasks", used.active_tasks),
        ("concurrent_leases", used.concurrent_leases),
        ("receipt_storage_bytes", used.receipt_storage_bytes),
        ("tasks_created", used.tasks_created),
        ("api_calls", used.api_calls),
        ("lease_seconds", used.lease_seconds),
    ];
    let bound = |name: &str| match answer.quotas.get(name) {
        Some(-1) => "no bound".to_owned(),
        Some(bound) => bound.to_string(),
        None => "-".to_owned(),
    };
    let counts = counted
        .iter()
        .map(|(name, used)| [(*name).to_owned(), used.to_string(), bound(name)]);
    // The quotas that bound a rate or a size have no count of their own.
    let is_counted = |name: &str| counted.iter().any(|(own, _)| *own == name);
    let others = answer.quotas.keys().filter(|name| !is_counted(name));
    let others = others.map(|name| [name.clone(), "-".to_owned(), bound(name)]);
    table(["WHAT", "USED", "QUOTA"], counts.chain(others).collect())
}

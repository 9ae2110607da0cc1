//! `asyncgate audit`: who was let in, who was not, and who changed what.

use std::time::Duration;

use asyncgate_client::{
    Client,
    api::{AuditEntry, ListAuditInput},
};
use clap::Args;
use futures_util::StreamExt as _;

use super::{or_dash, tenant_id};
use crate::{
    output,
    remote::Common,
    show::{Cell, Style, json_text, table},
    signals::Signals,
};

/// How often a log that is followed is looked at.
const INTERVAL: Duration = Duration::from_secs(2);
/// The most new entries that are gathered before they are printed.
const MOST_AT_ONCE: usize = 10_000;

/// The arguments of `asyncgate audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asyncgate audit --severity critical
  asyncgate audit --event auth_failure --since 2026-01-05T00:00:00Z --limit 500
  asyncgate audit --tenant none                 the server's own log (platform admin)
  asyncgate audit --follow --json | jq -r .event")]
pub struct Audit {
    /// The tenant, by its name or its id; `none` for the server's own log (platform admin).
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only this event, such as key_created.
    #[arg(long)]
    event: Option<String>,
    /// Only what principals with this id did.
    #[arg(long, value_name = "ID")]
    principal: Option<String>,
    /// Only those at or after this time, in RFC 3339.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only those at or before this time, in RFC 3339.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only those of this severity.
    #[arg(long, value_parser = ["info", "warning", "critical"])]
    severity: Option<String>,
    /// The most to print.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on with new entries until Ctrl-C; the oldest first, and with --json one a line.
    #[arg(long, short, conflicts_with = "until")]
    follow: bool,
    #[command(flatten)]
    common: Common,
}

impl Audit {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = self.input(&client).await?;
        if self.follow {
            return self.follow(&client, input).await;
        }
        let mut found = client.audit(input).take(self.limit as usize);
        let mut entries = Vec::new();
        while let Some(entry) = found.next().await {
            entries.push(entry?);
        }
        self.common.show(&entries, || {
            let header = ["TIME", "SEVERITY", "EVENT", "WHO", "FROM", "WHAT"];
            table(header, entries.iter().map(row).collect())
        })
    }

    async fn input(&self, client: &Client) -> anyhow::Result<ListAuditInput> {
        let tenant_id = match self.tenant.as_deref() {
            Some("none") => Some("none".to_owned()),
            Some(named) => Some(tenant_id(client, named).await?),
            None => None,
        };
        Ok(ListAuditInput {
            tenant_id,
            event: self.event.clone(),
            principal_id: self.principal.clone(),
            since: self.since.clone(),
            until: self.until.clone(),
            severity: self.severity.clone(),
            ..ListAuditInput::default()
        })
    }

    /// Prints entries as they come, until a signal ends it.
    async fn follow(&self, client: &Client, input: ListAuditInput) -> anyhow::Result<()> {
        let mut signals = Signals::listen()?;
        let mut newest: Option<String> = None;
        loop {
            let most = newest
                .as_ref()
                .map_or(self.limit as usize, |_| MOST_AT_ONCE);
            let mut found = client.audit(input.clone()).take(most);
            let mut fresh = Vec::new();
            while let Some(entry) = found.next().await {
                let entry = entry?;
                if Some(&entry.audit_id) == newest.as_ref() {
                    break;
                }
                fresh.push(entry);
            }
            if let Some(first) = fresh.first() {
                newest = Some(first.audit_id.clone());
            }
            for entry in fresh.iter().rev() {
                if !self.print(entry)? {
                    return Ok(());
                }
            }
            tokio::select! {
                _ = signals.next() => return Ok(()),
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    /// Prints one entry on a line. Returns false if the reader went away.
    fn print(&self, entry: &AuditEntry) -> anyhow::Result<bool> {
        let line = match self.common.json {
            true => json_text(serde_json::to_string(entry)?),
            false => {
                let cells = row(entry);
                let cells: Vec<String> = cells.iter().map(Cell::painted).collect();
                cells.join("  ")
            }
        };
        Ok(output::was_said(&line)?)
    }
}

fn row(entry: &AuditEntry) -> [Cell; 6] {
    let style = match entry.severity.as_str() {
        "critical" => Style::Red,
        "warning" => Style::Yellow,
        _ => Style::Plain,
    };
    let who = match (&entry.principal_kind, &entry.principal_id) {
        (Some(kind), Some(id)) => format!("{kind}/{id}"),
        _ => "-".to_owned(),
    };
    [
        entry.timestamp.as_str().into(),
        Cell::new(style, &entry.severity),
        entry.event.as_str().into(),
        who.into(),
        or_dash(entry.ip.as_ref()).into(),
        what(entry).into(),
    ]
}

/// Formats the reason and the facts of an entry.
fn what(entry: &AuditEntry) -> String {
    let reason = entry.reason.clone();
    let facts = entry
        .details
        .iter()
        .map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name}={text}"),
            None => format!("{name}={value}"),
        });
    reason
        .into_iter()
        .chain(facts)
        .collect::<Vec<_>>()
        .join(" ")
}

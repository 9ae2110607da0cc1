//! `asyncgate mail dlq`: dead letters, and bringing them back.

use std::time::Duration;

use anyhow::Context as _;
use asyncgate_client::{
    Client,
    api::{DeadLetter, ListDeadLettersInput, ReprocessInput, ReprocessOutput},
};
use clap::{Args, Subcommand};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    listing::{Paging, Quiet},
    remote::Common,
    show::{Progress, table},
};

/// The subcommands of `asyncgate mail dlq`.
#[derive(Debug, Subcommand)]
pub enum Dlq {
    /// List messages that were not done: failed too often, too old, or damaged.
    #[command(after_help = "Example:\n  asyncgate mail dlq list jobs --reason parse_error")]
    List(List),
    /// Bring dead letters back into their topic, in the order in which they were sent (admin).
    #[command(after_help = "\
Without --per-second they come back all together or not at all.

Examples:
  asyncgate mail dlq reprocess jobs --dry-run
  asyncgate mail dlq reprocess jobs --limit 1000 --per-second 50")]
    Reprocess(Reprocess),
}

#[derive(Debug, Args)]
pub struct List {
    /// Only of this topic.
    topic: Option<String>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Reprocess {
    /// Of which topic.
    topic: String,
    #[command(flatten)]
    which: Which,
    /// The most messages, up to 10,000.
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Only say how many would come back.
    #[arg(long)]
    dry_run: bool,
    /// At most so many each second, so that receivers are not flooded.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    per_second: Option<u32>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Which {
    /// Only with this reason.
    #[arg(long)]
    reason: Option<String>,
    /// Only those that died at least so many seconds ago.
    #[arg(long, value_name = "SECONDS")]
    older_than: Option<u64>,
}

impl Dlq {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List(args) => args.run().await,
            Self::Reprocess(args) => args.run().await,
        }
    }
}

impl List {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let filter = ListDeadLettersInput {
            topic: self.topic,
            reason: self.which.reason,
            older_than_secs: self.which.older_than,
            ..ListDeadLettersInput::default()
        };
        let pages = self.paging.gather(async |cursor, limit| {
            let mut input = filter.clone();
            (input.cursor, input.limit) = (cursor, Some(limit));
            let page = client.list_dead_letters(&input).await?;
            Ok((page.messages, page.next_cursor))
        });
        let id = |dead: &DeadLetter| dead.envelope.msg_id.clone();
        pages
            .await?
            .show_or_ids(&self.common, self.quiet, id, |dead| {
                let row = |dead: &DeadLetter| {
                    [
                        dead.envelope.msg_id.clone(),
                        dead.envelope.topic.clone(),
                        dead.cause.clone(),
                        dead.reason.clone(),
                        dead.envelope.attempt.to_string(),
                        dead.died_at.clone(),
                        dead.last_error.clone().unwrap_or_default(),
                    ]
                };
                let header = [
                    "MESSAGE", "TOPIC", "CAUSE", "REASON", "ATTEMPT", "DIED", "ERROR",
                ];
                table(header, dead.iter().map(row).collect())
            })
    }
}

impl Reprocess {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = ReprocessInput {
            topic: self.topic,
            limit: Some(self.limit),
            reason: self.which.reason,
            older_than_secs: self.which.older_than,
            dry_run: Some(self.dry_run),
            per_second: None,
        };
        let moved = match self.per_second {
            Some(step) if !self.dry_run => slowly(&client, input, step).await?,
            _ => client.reprocess_dead_letters(&input).await?,
        };
        self.common.show(&moved, || {
            let verb = if self.dry_run { "would come" } else { "came" };
            format!("{} {verb} back", moved.moved)
        })
    }
}

/// Brings messages back step by step, and shows how far it is. The server can pace itself too, but it
/// answers only at the end. At most as many come back as there were at the start: a message that dies
/// again meanwhile would otherwise come back for ever.
async fn slowly(
    client: &Client,
    mut input: ReprocessInput,
    per_second: u32,
) -> anyhow::Result<ReprocessOutput> {
    input.dry_run = Some(true);
    let total = client.reprocess_dead_letters(&input).await?.moved;
    input.dry_run = None;
    let mut moved = 0;
    let mut progress = Progress::start();
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while moved < total {
        seconds.tick().await;
        input.limit = u32::try_from(total - moved)
            .ok()
            .map(|left| left.min(per_second));
        let step = client.reprocess_dead_letters(&input).await;
        let step = step.with_context(|| format!("{moved} of {total} came back"))?;
        if step.moved == 0 {
            break;
        }
        moved += step.moved;
        progress.at(|| format!("{moved} of {total} messages"));
    }
    Ok(ReprocessOutput { moved })
}

//! `asyncgate mail topics`, `purge` and `heads`: topics as a whole.

use std::io::{IsTerminal as _, stdin};

use anyhow::{Context as _, bail};
use asyncgate_client::api::{ListTopicsInput, MailboxHead, PurgeInput, PurgeState, TopicState};
use clap::Args;

use crate::{
    exit::Exit,
    listing::Paging,
    output,
    remote::Common,
    show::{age, table},
};

#[derive(Debug, Args)]
pub struct Topics {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Purge {
    /// Whose messages.
    topic: String,
    /// Which of them: those that wait (ready), dead letters (dlq), or both (all).
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    state: PurgeState,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Heads {
    #[command(flatten)]
    common: Common,
}

impl Topics {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let pages = self.paging.gather(async |cursor, limit| {
            let limit = Some(limit);
            let input = ListTopicsInput { limit, cursor };
            let page = client.list_topics(&input).await?;
            Ok((page.topics, page.next_cursor))
        });
        pages.await?.show(&self.common, topic_table)
    }
}

/// Formats topics as a table.
pub fn topic_table(topics: &[TopicState]) -> String {
    let row = |topic: &TopicState| {
        [
            topic.topic.clone(),
            topic.ready.to_string(),
            topic.delayed.to_string(),
            topic.inflight.to_string(),
            topic.dlq_depth.to_string(),
            topic
                .oldest_age_ms
                .map_or_else(String::new, |millis| age(millis / 1_000)),
        ]
    };
    let header = ["TOPIC", "READY", "DELAYED", "INFLIGHT", "DEAD", "OLDEST"];
    table(header, topics.iter().map(row).collect())
}

impl Purge {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        if !self.yes && !confirmed(&self.topic, self.state)? {
            bail!("nothing was thrown away");
        }
        let input = PurgeInput {
            topic: self.topic,
            state: self.state,
        };
        let purged = client.purge_topic(&input).await?;
        self.common
            .show(&purged, || format!("{} thrown away", purged.purged))
    }
}

impl Heads {
    pub async fn run(self) -> anyhow::Result<()> {
        let heads = self.common.client()?.mailbox_heads().await?.heads;
        self.common.show(&heads, || {
            let row = |head: &MailboxHead| {
                [
                    head.shard.to_string(),
                    head.seq.to_string(),
                    head.link.clone(),
                    head.signed_at.clone(),
                ]
            };
            let header = ["SHARD", "MESSAGES", "LINK", "SIGNED"];
            table(header, heads.iter().map(row).collect())
        })
    }
}

/// Asks for confirmation at the terminal. Without one, `--yes` is required.
fn confirmed(topic: &str, state: PurgeState) -> anyhow::Result<bool> {
    if !stdin().is_terminal() {
        return Err(Exit::usage("nobody is here to be asked: say --yes").into());
    }
    let what = match state {
        PurgeState::Ready => "every waiting message",
        PurgeState::Dlq => "every dead letter",
        PurgeState::All => "every waiting message and dead letter",
    };
    output::ask(&format!("Throw away {what} of {topic:?}? [y/N] "));
    let mut answer = String::new();
    stdin()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn parse_state(text: &str) -> Result<PurgeState, String> {
    serde_json::from_value(text.into()).map_err(|_| "must be ready, dlq or all".to_owned())
}

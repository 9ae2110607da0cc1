//! `asyncgate mail ack`, `nack` and `extend`: how a receiver settles a message.

use asyncgate_client::api::{AckInput, ExtendInput, NackInput};
use clap::Args;

use super::seconds;
use crate::remote::Common;

#[derive(Debug, Args)]
struct Which {
    /// The message's id.
    msg_id: String,
    /// The lease of your delivery. With it you are told if somebody else got the message meanwhile.
    #[arg(long)]
    lease: Option<String>,
}

#[derive(Debug, Args)]
pub struct Ack {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Nack {
    #[command(flatten)]
    which: Which,
    /// Why, in a word; dead letters are found by it.
    #[arg(long)]
    reason: Option<String>,
    /// What went wrong, in more words.
    #[arg(long)]
    error: Option<String>,
    /// Seconds until it can be delivered again, instead of a backoff.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    delay: Option<i64>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Extend {
    #[command(flatten)]
    which: Which,
    /// Seconds from now.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    visibility: Option<i64>,
    #[command(flatten)]
    common: Common,
}

impl Ack {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = AckInput {
            msg_id: self.which.msg_id,
            lease: self.which.lease,
        };
        let done = self.common.client()?.ack_message(&input).await?;
        self.common.show(&done, || "done".to_owned())
    }
}

impl Nack {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = NackInput {
            msg_id: self.which.msg_id,
            lease: self.which.lease,
            reason: self.reason,
            error: self.error,
            delay_ms: self.delay,
        };
        let done = self.common.client()?.nack_message(&input).await?;
        self.common.show(&done, || "given back".to_owned())
    }
}

impl Extend {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = ExtendInput {
            msg_id: self.which.msg_id,
            lease: self.which.lease,
            visibility_ms: self.visibility,
        };
        let kept = self.common.client()?.extend_message(&input).await?;
        self.common
            .show(&kept, || format!("yours until {}", kept.visible_at))
    }
}

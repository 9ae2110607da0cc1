//! `asyncgate mail get`, `delete` and `redrive`: one message, by its id.

use asyncgate_client::api::{MessageInput, MessageRecord};
use clap::Args;

use super::content;
use crate::{remote::Common, show::fields};

#[derive(Debug, Args)]
pub struct Get {
    /// The message's id.
    msg_id: String,
    /// Show content as base64. Otherwise that is done only to what is not text.
    #[arg(long)]
    base64: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Delete {
    /// The message's id.
    msg_id: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Redrive {
    /// The dead letter's id.
    msg_id: String,
    #[command(flatten)]
    common: Common,
}

impl Get {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = MessageInput {
            msg_id: self.msg_id,
        };
        let found = self.common.client()?.get_message(&input).await?;
        self.common.show(&found, || described(&found, self.base64))
    }
}

fn described(message: &MessageRecord, base64: bool) -> String {
    let envelope = &message.envelope;
    let content = content::shown(&envelope.payload_b64, base64);
    fields([
        ("message", Some(&*envelope.msg_id)),
        ("topic", Some(&*envelope.topic)),
        ("state", Some(message.state.as_str())),
        ("until", envelope.visible_at.as_deref()),
        ("sent", Some(&*envelope.ts)),
        ("expires", envelope.expires_at.as_deref()),
        ("key", Some(&*envelope.idem_key)),
        ("partition", envelope.partition_key.as_deref()),
        ("attempts", Some(&*envelope.attempt.to_string())),
        ("cause", message.cause.as_deref()),
        ("reason", message.reason.as_deref()),
        ("error", message.last_error.as_deref()),
        ("died", message.died_at.as_deref()),
        ("content", Some(&*content)),
    ])
}

impl Delete {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = MessageInput {
            msg_id: self.msg_id,
        };
        let done = self.common.client()?.delete_message(&input).await?;
        self.common.show(&done, || "thrown away".to_owned())
    }
}

impl Redrive {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = MessageInput {
            msg_id: self.msg_id,
        };
        let moved = self.common.client()?.redrive_message(&input).await?;
        self.common.show(&moved, || match moved.moved {
            0 => "it is no dead letter".to_owned(),
            _ => "brought back".to_owned(),
        })
    }
}

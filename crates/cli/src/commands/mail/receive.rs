//! `asyncgate mail recv` and `peek`: print messages.

use asyncgate_client::{
    Client,
    api::{AckBatchInput, AckInput, AckResult, Envelope, PeekInput, RecvInput},
};
use clap::Args;
use futures_util::StreamExt as _;

use super::{content, seconds};
use crate::{
    exit::Exit,
    output,
    remote::Common,
    show::{json_text, table, was_shown},
    signals::{Signals, Wish},
};

#[derive(Debug, Args)]
pub struct Recv {
    /// Of which topic.
    topic: String,
    /// The most messages; with --follow, the most that are not acknowledged yet.
    #[arg(long, value_name = "N")]
    max: Option<u32>,
    /// The most bytes of content; at least one message is always given.
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
    /// Seconds that the messages are yours.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    visibility: Option<i64>,
    /// Seconds to wait for a message, up to 60.
    #[arg(long, value_name = "SECONDS", conflicts_with = "follow")]
    wait: Option<u32>,
    /// Print messages as they come, until you stop it.
    #[arg(long)]
    follow: bool,
    /// Acknowledge each message once it is printed.
    #[arg(long)]
    ack: bool,
    /// Write the contents exactly as they are, and nothing else.
    #[arg(long, conflicts_with_all = ["base64", "json"])]
    raw: bool,
    /// Print only what ack, nack and extend want to be given: MESSAGE --lease LEASE.
    #[arg(long, short, conflicts_with_all = ["base64", "json", "raw"])]
    quiet: bool,
    #[command(flatten)]
    look: Look,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Peek {
    /// Of which topic.
    topic: String,
    /// The most messages.
    #[arg(long, value_name = "N")]
    max: Option<u32>,
    #[command(flatten)]
    look: Look,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Look {
    /// Show content as base64. Otherwise that is done only to what is not text.
    #[arg(long)]
    base64: bool,
}

impl Peek {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = PeekInput {
            topic: self.topic,
            max_messages: self.max,
            max_bytes: None,
        };
        let found = self.common.client()?.peek_messages(&input).await?;
        self.common.show(&found.messages, || {
            let row = |message: &Envelope| {
                [
                    message.msg_id.clone(),
                    message.attempt.to_string(),
                    message.ts.clone(),
                    message.idem_key.clone(),
                    content::shown(&message.payload_b64, self.look.base64),
                ]
            };
            let header = ["MESSAGE", "ATTEMPT", "SENT", "KEY", "CONTENT"];
            table(header, found.messages.iter().map(row).collect())
        })
    }
}

impl Recv {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = RecvInput {
            topic: self.topic.clone(),
            visibility_ms: self.visibility,
            max_messages: self.max,
            max_bytes: self.max_bytes,
            wait_seconds: self.wait,
        };
        if self.follow {
            return self.follow(&client, input).await;
        }
        let messages = client.receive_messages(&input).await?.messages;
        let read = if self.raw {
            let contents = messages
                .iter()
                .map(|message| message.payload_b64.0.as_ref());
            output::was_written(&contents.collect::<Vec<&[u8]>>().concat())?
        } else {
            was_shown(self.common.json, &messages, || {
                if self.quiet {
                    let names: Vec<String> = messages.iter().map(delivery).collect();
                    return names.join("\n");
                }
                let row = |message: &Envelope| self.row(message);
                table(HEADER, messages.iter().map(row).collect())
            })?
        };
        if self.ack && read {
            acknowledge(&client, &messages).await?;
        }
        Ok(())
    }

    async fn follow(&self, client: &Client, input: RecvInput) -> anyhow::Result<()> {
        let mut signals = Signals::listen()?;
        let mut messages = client.receive_stream(input);
        let mut is_first = true;
        loop {
            let message = tokio::select! {
                wish = signals.next() => match wish {
                    Wish::Stop => return Ok(()),
                    Wish::Reload => continue,
                },
                message = messages.next() => message,
            };
            let Some(message) = message.transpose()? else {
                return Ok(());
            };
            let text = if self.raw {
                String::new()
            } else if self.quiet {
                delivery(&message)
            } else if self.common.json {
                json_text(serde_json::to_string(&message)?)
            } else {
                let text = table(HEADER, vec![self.row(&message)]);
                let from = if is_first {
                    0
                } else {
                    text.find('\n').map_or(0, |end| end + 1)
                };
                text[from..].to_owned()
            };
            is_first = false;
            let read = if self.raw {
                output::was_written(&message.payload_b64.0)?
            } else {
                output::was_said(&text)?
            };
            // A message that was not printed is not acknowledged, so that it is delivered again.
            if !read {
                return Ok(());
            }
            let message = std::slice::from_ref(&message);
            if self.ack
                && let Err(error) = acknowledge(client, message).await
            {
                // This message is delivered again; the next ones go on meanwhile.
                output::complain(&format!("{error:#}"));
            }
        }
    }

    fn row(&self, message: &Envelope) -> [String; 5] {
        [
            message.msg_id.clone(),
            message.attempt.to_string(),
            message.ts.clone(),
            message.lease.clone().unwrap_or_default(),
            content::shown(&message.payload_b64, self.look.base64),
        ]
    }
}

const HEADER: [&str; 5] = ["MESSAGE", "ATTEMPT", "SENT", "LEASE", "CONTENT"];

/// Names a delivery as the commands that settle it want to be told.
fn delivery(message: &Envelope) -> String {
    match &message.lease {
        Some(lease) => format!("{} --lease {lease}", message.msg_id),
        None => message.msg_id.clone(),
    }
}

async fn acknowledge(client: &Client, messages: &[Envelope]) -> anyhow::Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    let ack = |message: &Envelope| AckInput {
        msg_id: message.msg_id.clone(),
        lease: message.lease.clone(),
    };
    let acks = messages.iter().map(ack).collect();
    let answers = client.ack_messages(&AckBatchInput { acks }).await?.results;
    for (message, answer) in messages.iter().zip(answers) {
        if let AckResult::Refused(why) = answer {
            let (id, code) = (&message.msg_id, why.code.as_str());
            let text = format!("{id} was not acknowledged: {} ({code})", why.message);
            return Err(Exit::refused(text).into());
        }
    }
    Ok(())
}

//! `asyncgate mail send`.

use asyncgate_client::api::SendInput;
use clap::Args;

use super::{Common, content, seconds};
use crate::commands::show::show;

#[derive(Debug, Args)]
pub struct Send {
    /// Where to, such as user:42:inbox.
    topic: String,
    /// The content; `-` reads it from stdin, `@FILE` from a file.
    #[arg(value_name = "CONTENT", allow_hyphen_values = true)]
    content: String,
    /// The content is given in base64.
    #[arg(long)]
    base64: bool,
    /// Your name for the message: sending it again under it changes nothing. Default: a new one.
    #[arg(
        long,
        value_name = "KEY",
        default_value = "",
        hide_default_value = true
    )]
    idem_key: String,
    /// What you want to say about it; may be repeated.
    #[arg(long = "attr", value_name = "NAME=VALUE", value_parser = parse_attr)]
    attrs: Vec<(String, String)>,
    /// Messages of one topic with one partition keep their order.
    #[arg(long, value_name = "KEY")]
    partition: Option<String>,
    /// Seconds before it can be delivered.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    delay: Option<i64>,
    /// Seconds after which it is too old and becomes a dead letter.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    ttl: Option<i64>,
    /// Higher goes first.
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    #[command(flatten)]
    common: Common,
}

impl Send {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = SendInput {
            topic: self.topic,
            idem_key: self.idem_key,
            payload_b64: content::given(&self.content, self.base64)?,
            attrs: (!self.attrs.is_empty()).then(|| self.attrs.into_iter().collect()),
            partition_key: self.partition,
            delay_ms: self.delay,
            ttl_ms: self.ttl,
            priority: self.priority,
            ..SendInput::default()
        };
        let sent = self.common.remote.client()?.send_message(&input).await?;
        show(self.common.json, &sent, || {
            let note = if sent.duplicate {
                "  (was sent before)"
            } else {
                ""
            };
            format!("{}{note}", sent.msg_id)
        })
    }
}

fn parse_attr(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("must have the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

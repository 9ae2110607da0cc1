//! `asyncgate mail send`: sends a message, or each line of stdin as one.

use anyhow::Context as _;
use asyncgate_client::{
    Client,
    api::{Payload, SendBatchInput, SendInput, SendOutput, SendResult, Text},
};
use clap::Args;

use super::{content, seconds};
use crate::{exit::Exit, lines::Lines, output, remote::Common};

#[derive(Debug, Args)]
pub struct Send {
    /// Where to, such as user:42:inbox.
    topic: String,
    /// The content; `-` reads it from stdin, `@FILE` from a file.
    #[arg(
        value_name = "CONTENT",
        allow_hyphen_values = true,
        required_unless_present_any = ["lines", "text"]
    )]
    content: Option<String>,
    /// The content as it stands here, also if it begins with `@` or is `-`.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["content", "lines", "base64"])]
    text: Option<String>,
    /// Send each line of stdin as a message, as they come; with --idem-key, line 7 is KEY-7.
    #[arg(long, conflicts_with = "content")]
    lines: bool,
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
    /// Print only the message's id.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    common: Common,
}

impl Send {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let content = match (&self.text, &self.content) {
            (Some(text), _) => text.clone().into_bytes().into(),
            (None, Some(content)) => content::given(content, self.base64)?,
            (None, None) => return self.send_lines(&client).await,
        };
        let input = self.message(self.idem_key.clone(), content);
        let sent = client.send_message(&input).await?;
        self.common.show(&sent, || self.text(&sent))
    }

    fn message(&self, idem_key: String, content: Payload) -> SendInput {
        let attrs = || self.attrs.iter().cloned().collect();
        // What is text is sent as such, so that whoever looks at the message can read it.
        let (text, bytes) = match str::from_utf8(&content.0) {
            Ok(text) => (Some(Text(text.to_owned())), None),
            Err(_) => (None, Some(content)),
        };
        SendInput {
            topic: self.topic.clone(),
            idem_key,
            payload_text: text,
            payload_b64: bytes,
            attrs: (!self.attrs.is_empty()).then(attrs),
            partition_key: self.partition.clone(),
            delay_ms: self.delay,
            ttl_ms: self.ttl,
            priority: self.priority,
            ..SendInput::default()
        }
    }

    /// Sends the lines of stdin, in batches of as many as have come. Stops at the first line that is
    /// refused: the lines before it were sent, and others of its batch may have been.
    async fn send_lines(&self, client: &Client) -> anyhow::Result<()> {
        let mut lines = Lines::of_stdin();
        loop {
            let batch = lines.next_batch().await?;
            if batch.is_empty() {
                return Ok(());
            }
            let numbers: Vec<usize> = batch.iter().map(|(number, _)| *number).collect();
            let messages = batch
                .into_iter()
                .map(|(number, line)| self.line(number, line));
            let messages: Vec<SendInput> = messages.collect::<anyhow::Result<_>>()?;
            let messages = messages.into();
            let input = SendBatchInput { messages };
            let sent = client.send_messages(&input).await?.results;
            for (number, sent) in numbers.into_iter().zip(sent) {
                self.print(number, sent)?;
            }
        }
    }

    fn line(&self, number: usize, line: Vec<u8>) -> anyhow::Result<SendInput> {
        let key = match self.idem_key.as_str() {
            "" => String::new(),
            key => format!("{key}-{number}"),
        };
        let content = content::decoded(line, self.base64);
        let content = content.with_context(|| format!("line {number}"))?;
        Ok(self.message(key, content))
    }

    /// Prints the result of a line on one line, with `--json` too.
    fn print(&self, number: usize, sent: SendResult) -> anyhow::Result<()> {
        let sent = match sent {
            SendResult::Sent(sent) => sent,
            SendResult::Refused(why) => {
                let (message, code) = (why.message, why.code.as_str());
                let complaint = format!("line {number} was not sent: {message} ({code})");
                return Err(Exit::refused(complaint).into());
            }
        };
        let line = if self.common.json {
            serde_json::to_string(&sent)?
        } else {
            self.text(&sent)
        };
        Ok(output::say(&line)?)
    }

    fn text(&self, sent: &SendOutput) -> String {
        let note = match sent.duplicate && !self.quiet {
            true => "  (was sent before)",
            false => "",
        };
        format!("{}{note}", sent.msg_id)
    }
}

fn parse_attr(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("must have the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

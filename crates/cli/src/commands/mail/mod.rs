//! `asyncgate mail`: messages by topic.

mod content;
mod dlq;
mod message;
mod receive;
mod send;
mod settle;
mod topics;

use std::time::Duration;

use clap::Subcommand;

pub use topics::topic_table;

/// The subcommands of `asyncgate mail`.
#[derive(Debug, Subcommand)]
pub enum Mail {
    /// Send a message; prints its id once it is on disk.
    #[command(after_help = "\
The id comes when the message is on disk. Sending the same again under the same --idem-key changes nothing.

Examples:
  asyncgate mail send jobs 'paint the fence' --idem-key fence-1
  asyncgate mail send jobs --text '@home'
  asyncgate mail send jobs @picture.png --attr content-type=image/png
  date | asyncgate mail send jobs -
  asyncgate mail send jobs --lines --idem-key import < jobs.ndjson")]
    Send(send::Send),
    /// Receive messages; they are yours until their visibility ends.
    #[command(after_help = "\
A message that is neither acknowledged nor given back in time is delivered again.
With --follow it goes on until SIGTERM or Ctrl-C, over restarts of the server; with --json it then
prints one line for each message.

Examples:
  asyncgate mail recv jobs --wait 30
  asyncgate mail recv jobs --max 10 --visibility 60 --json
  asyncgate mail ack $(asyncgate mail recv jobs -q)
  asyncgate mail recv jobs --follow --ack
  asyncgate mail recv pictures --max 1 --raw --ack > picture.png")]
    Recv(receive::Recv),
    /// Say that a message is done.
    #[command(after_help = "Example:\n  asyncgate mail ack 01KA5Z... --lease 019a2f6e-...")]
    Ack(settle::Ack),
    /// Give a message back, to be delivered again.
    #[command(
        after_help = "Example:\n  asyncgate mail nack 01KA5Z... --lease 019a2f6e-... --reason parse_error --delay 5"
    )]
    Nack(settle::Nack),
    /// Keep a message longer.
    #[command(
        after_help = "Example:\n  asyncgate mail extend 01KA5Z... --lease 019a2f6e-... --visibility 60"
    )]
    Extend(settle::Extend),
    /// Look at the next messages of a topic without receiving them.
    #[command(after_help = "Example:\n  asyncgate mail peek jobs --max 5")]
    Peek(receive::Peek),
    /// Look at one message, wherever it is.
    #[command(after_help = "Example:\n  asyncgate mail get 01KA5Z...")]
    Get(message::Get),
    /// Throw one message away (admin).
    #[command(after_help = "\
A message that a receiver has is left alone. This cannot be undone.

Example:
  asyncgate mail delete 01KA5Z...")]
    Delete(message::Delete),
    /// Bring one dead letter back into its topic (admin).
    #[command(after_help = "Example:\n  asyncgate mail redrive 01KA5Z...")]
    Redrive(message::Redrive),
    /// List topics and what they hold.
    #[command(after_help = "Example:\n  asyncgate mail topics")]
    Topics(topics::Topics),
    /// List dead letters, or bring them back.
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    /// Throw a topic's messages away (admin).
    #[command(after_help = "\
Messages that receivers have are left alone. This cannot be undone, so it asks before.

Example:
  asyncgate mail purge jobs --state dlq --yes")]
    Purge(topics::Purge),
    /// Print where the chains of messages end, signed.
    #[command(after_help = "Example:\n  asyncgate mail heads --json > heads.json")]
    Heads(topics::Heads),
}

impl Mail {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Send(args) => args.run().await,
            Self::Recv(args) => args.run().await,
            Self::Ack(args) => args.run().await,
            Self::Nack(args) => args.run().await,
            Self::Extend(args) => args.run().await,
            Self::Peek(args) => args.run().await,
            Self::Get(args) => args.run().await,
            Self::Delete(args) => args.run().await,
            Self::Redrive(args) => args.run().await,
            Self::Topics(args) => args.run().await,
            Self::Dlq(command) => command.run().await,
            Self::Purge(args) => args.run().await,
            Self::Heads(args) => args.run().await,
        }
    }
}

/// Parses a time in seconds, such as `0.5`, into milliseconds.
fn seconds(text: &str) -> Result<i64, String> {
    let parsed = text.parse().ok();
    let time = parsed.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.and_then(|time| i64::try_from(time.as_millis()).ok())
        .ok_or_else(|| "must be a number of seconds such as 30 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_with_parts() {
        for (text, millis) in [("0", 0), ("30", 30_000), ("0.5", 500), ("1e3", 1_000_000)] {
            assert_eq!(seconds(text), Ok(millis), "{text}");
        }
        for text in ["", "-1", "x", "5s", "nan", "inf", "1e300"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}

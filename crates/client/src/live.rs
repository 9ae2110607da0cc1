//! Messages as a stream: one long answer with a message on each line.
//!
//! The server keeps the answer open, and sends an empty line if there was no message for a while. When
//! the connection breaks, or nothing at all comes for too long, the stream is opened again, for as long
//! as it takes. Messages that were lost on the way are delivered again when their visibility ends.

use std::time::Duration;

use asyncgate_api::{Envelope, Operation, ReceiveMessages, RecvInput};
use futures_util::stream::{self, StreamExt};
use tokio::time::sleep;

use crate::{
    Client, Error, Items, Kind,
    lines::{Lines, broken},
    request::Prepared,
};

const PATH: &str = "/v1/recv/stream";
/// The longest silence: three times as long as the server's pause between empty lines.
const SILENCE: Duration = Duration::from_secs(45);

impl Client {
    /// Streams messages as they come. At most `max_messages` of the input are unsettled at a time:
    /// settle each, or the stream stops until their visibility ends.
    ///
    /// The first opening is tried as often as any call; after it, the stream waits for a server that
    /// goes away. It ends with its first error: the server refuses it.
    pub fn receive_stream(&self, input: RecvInput) -> Items<Envelope> {
        let live = Live {
            client: self.clone(),
            input,
            lines: None,
            failures: 0,
            was_open: false,
            done: false,
        };
        stream::unfold(live, |mut live| async move {
            let item = live.next().await.transpose()?;
            Some((item, live))
        })
        .boxed()
    }
}

struct Live {
    client: Client,
    input: RecvInput,
    lines: Option<Lines>,
    /// The number of failures in a row.
    failures: u32,
    was_open: bool,
    done: bool,
}

impl Live {
    async fn next(&mut self) -> Result<Option<Envelope>, Error> {
        while !self.done {
            let error = match self.read().await {
                Ok(None) => continue,
                Ok(message) => return Ok(message),
                Err(error) => error,
            };
            self.lines = None;
            self.failures += 1;
            let retry = self.client.retry();
            let is_last = !self.was_open && self.failures >= retry.attempts;
            if is_last || !error.is_transient() {
                self.done = true;
                return Err(error.during(ReceiveMessages::SPEC.name, self.failures));
            }
            tracing::debug!(%error, self.failures, "the stream broke off; opening it again");
            sleep(retry.wait(self.failures, error.retry_after())).await;
        }
        Ok(None)
    }

    /// Returns the message on the next line; `None` if the line is empty.
    async fn read(&mut self) -> Result<Option<Envelope>, Error> {
        let lines = match &mut self.lines {
            Some(lines) => lines,
            none => {
                let prepared = Prepared::new::<ReceiveMessages>(&self.input, None)?;
                let target = PATH.to_owned();
                let prepared = Prepared { target, ..prepared };
                let lines = Lines::new(self.client.open(&prepared).await?, Some(SILENCE));
                self.was_open = true;
                none.insert(lines)
            }
        };
        let line = lines.next().await?;
        let line = line.ok_or_else(|| broken("the server ended it"))?;
        self.failures = 0;
        message(&line)
    }
}

fn message(line: &[u8]) -> Result<Option<Envelope>, Error> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(line).map(Some).map_err(|error| {
        let message = format!("a line of {} bytes cannot be read: {error}", line.len());
        Error::new(Kind::Protocol, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_or_nothing() {
        assert!(message(b"\r").unwrap().is_none());
        let envelope = serde_json::to_vec(&Envelope::default()).unwrap();
        assert_eq!(message(&envelope).unwrap(), Some(Envelope::default()));
        let garbage = message(b"{secret").unwrap_err();
        assert_eq!(*garbage.kind(), Kind::Protocol);
        assert!(!garbage.to_string().contains("secret"));
    }
}

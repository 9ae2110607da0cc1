//! Receiving without asking each time: one long answer, a message on each line.
//!
//! The server keeps the answer open and sends an empty line when it has had nothing to say for a
//! while. When the connection breaks, or nothing at all comes for too long, it is opened again, for
//! as long as it takes. What was on its way then is delivered again when its time is over.

use std::{mem, time::Duration};

use asyncgate_api::{Envelope, Operation, ReceiveMessages, RecvInput};
use bytes::{Buf, BytesMut};
use futures_util::stream::{self, StreamExt};
use tokio::time::{sleep, timeout};

use crate::{Client, Error, Items, Kind, exchange::Exchange, request::Prepared};

const PATH: &str = "/v1/recv/stream";
/// Three times as long as the server is silent.
const SILENCE: Duration = Duration::from_secs(45);
/// The longest line: the largest content in base64, and much room.
const MAX_LINE_BYTES: usize = 64 << 20;

impl Client {
    /// Messages as they come. The input's `max_messages` is how many may be unsettled at a time:
    /// settle each, or the stream stands still until their time is over.
    ///
    /// The first opening is tried as often as any call; after it, a server that goes away is waited
    /// for. The stream ends with its first error, which is that the server refuses it.
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
    /// In a row.
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

    /// The message on the next line, if there is one on it.
    async fn read(&mut self) -> Result<Option<Envelope>, Error> {
        let lines = match &mut self.lines {
            Some(lines) => lines,
            none => {
                let prepared = Prepared::new::<ReceiveMessages>(&self.input, None)?;
                let target = PATH.to_owned();
                let prepared = Prepared { target, ..prepared };
                let lines = Lines::new(self.client.open(&prepared).await?);
                self.was_open = true;
                none.insert(lines)
            }
        };
        let line = lines.next().await?;
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

struct Lines {
    exchange: Exchange,
    read: BytesMut,
    /// How much of `read` has no end of a line in it.
    searched: usize,
}

impl Lines {
    fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            read: BytesMut::new(),
            searched: 0,
        }
    }

    async fn next(&mut self) -> Result<BytesMut, Error> {
        loop {
            let rest = &self.read[self.searched..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(mem::take(&mut self.searched) + end);
                self.read.advance(1);
                return Ok(line);
            }
            self.searched = self.read.len();
            if self.searched > MAX_LINE_BYTES {
                return Err(Error::new(Kind::Protocol, "a line is too long"));
            }
            let piece = match timeout(SILENCE, self.exchange.piece()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => return Err(broken("the server ended it")),
                Ok(Err(lost)) => return Err(broken(&lost.to_string())),
                Err(_) => return Err(broken("the server is silent")),
            };
            self.read.unsplit(piece);
        }
    }
}

fn broken(why: &str) -> Error {
    Error::new(Kind::Unreachable, format!("the stream broke off: {why}"))
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

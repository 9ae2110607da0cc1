//! The lines of a long answer, as they come.

use std::{mem, time::Duration};

use bytes::{Buf, BytesMut};
use tokio::time::timeout;

use crate::{Error, Kind, exchange::Exchange};

/// The longest line: the largest content in base64, and much room.
const MAX_LINE_BYTES: usize = 64 << 20;

pub(crate) struct Lines {
    exchange: Exchange,
    /// The longest time without a byte, if there is one.
    silence: Option<Duration>,
    read: BytesMut,
    /// The length of the part of `read` that has no end of a line in it.
    searched: usize,
}

impl Lines {
    pub fn new(exchange: Exchange, silence: Option<Duration>) -> Self {
        Self {
            exchange,
            silence,
            read: BytesMut::new(),
            searched: 0,
        }
    }

    /// Returns the next line without its end; nothing when the server has ended the answer.
    pub async fn next(&mut self) -> Result<Option<BytesMut>, Error> {
        loop {
            let rest = &self.read[self.searched..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(mem::take(&mut self.searched) + end);
                self.read.advance(1);
                return Ok(Some(line));
            }
            self.searched = self.read.len();
            if self.searched > MAX_LINE_BYTES {
                return Err(Error::new(Kind::Protocol, "a line is too long"));
            }
            let piece = match self.silence {
                Some(silence) => timeout(silence, self.exchange.piece()).await,
                None => Ok(self.exchange.piece().await),
            };
            match piece {
                Ok(Ok(Some(piece))) => self.read.extend_from_slice(&piece),
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(lost)) => return Err(broken(&lost.to_string())),
                Err(_) => return Err(broken("the server is silent")),
            }
        }
    }
}

/// The error of a stream that ended before its time.
pub(crate) fn broken(why: &str) -> Error {
    Error::new(Kind::Unreachable, format!("the stream broke off: {why}"))
}

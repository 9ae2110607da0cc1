//! One request and its answer on a connection.
//!
//! It is driven by the task that waits for the answer. A task for each connection would have to be
//! woken for every request and every answer, which costs more than all else that a client does.

use std::{
    fmt,
    future::poll_fn,
    io::{self, Cursor},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::answer::{Body, Garbled, Head};

/// How much is read at a time, at least and at most. Most answers are smaller.
const MIN_READ_BYTES: usize = 4 << 10;
const MAX_READ_BYTES: usize = 256 << 10;

/// A connection that nobody uses.
pub(crate) type Connection = Box<dyn Stream>;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// No connection could be made.
    Unconnected(BoxError),
    /// The connection broke before the answer's end.
    Broken(io::Error),
    /// What came is no answer.
    Garbled(Garbled),
    /// The answer is longer than the limit.
    TooLong,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconnected(error) => error.fmt(f),
            Self::Broken(error) => error.fmt(f),
            Self::Garbled(Garbled(why)) => f.write_str(why),
            Self::TooLong => f.write_str("the answer is too long"),
        }
    }
}

impl From<Garbled> for Lost {
    fn from(garbled: Garbled) -> Self {
        Self::Garbled(garbled)
    }
}

/// A request that was answered. Dropped, it closes its connection.
pub(crate) struct Exchange {
    pub head: Head,
    wire: Wire,
}

/// An answer of which all has come.
pub(crate) struct Answer {
    pub head: Head,
    pub body: BytesMut,
}

struct Wire {
    connection: Connection,
    /// It stands at what is not sent yet.
    request: Cursor<Vec<u8>>,
    /// Why it cannot be sent.
    unsent: Option<io::Error>,
    /// What was read and not taken yet.
    read: BytesMut,
}

impl Exchange {
    /// Sends a request and waits for the answer's head.
    pub async fn begin(connection: Connection, request: Vec<u8>) -> Result<Self, Lost> {
        let mut wire = Wire {
            connection,
            request: Cursor::new(request),
            unsent: None,
            read: BytesMut::with_capacity(MIN_READ_BYTES),
        };
        loop {
            if wire.more().await? == 0 {
                return Err(wire.closed());
            }
            if let Some(head) = Head::take(&mut wire.read)? {
                return Ok(Self { head, wire });
            }
        }
    }

    /// The next piece of the body, as it comes; `None` at its end.
    pub async fn piece(&mut self) -> Result<Option<BytesMut>, Lost> {
        let Self { head, wire } = self;
        loop {
            let piece = head.body.take(&mut wire.read)?;
            if piece.is_some() || head.body.is_over() {
                return Ok(piece);
            }
            let room = head.body.left().clamp(MIN_READ_BYTES, MAX_READ_BYTES);
            wire.read.reserve(room);
            if wire.more().await? == 0 {
                if head.body != Body::Rest {
                    return Err(wire.closed());
                }
                head.body = Body::Length(0);
            }
        }
    }

    /// The whole answer; and the connection, if it can be used again because both sides have said
    /// all that they had to and no more.
    pub async fn whole(mut self, limit: usize) -> Result<(Answer, Option<Connection>), Lost> {
        let mut body = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            if piece.len() > limit - body.len() {
                return Err(Lost::TooLong);
            }
            body.unsplit(piece);
        }
        let Self { head, wire } = self;
        let sent = !wire.request.has_remaining() && wire.unsent.is_none();
        let again = sent && wire.read.is_empty() && !head.last;
        let connection = again.then_some(wire.connection);
        Ok((Answer { head, body }, connection))
    }
}

impl Wire {
    /// Reads more, and says how much: nothing, when the server has closed the connection. What is not
    /// sent yet is sent meanwhile: a server may answer, and even close, before it has read all of a
    /// large request.
    async fn more(&mut self) -> Result<usize, Lost> {
        let read = poll_fn(|cx| {
            if self.unsent.is_none()
                && let Poll::Ready(Err(error)) = self.send(cx)
            {
                self.unsent = Some(error);
            }
            pin!(self.connection.read_buf(&mut self.read)).poll(cx)
        });
        let read = read.await;
        read.map_err(|error| Lost::Broken(self.unsent.take().unwrap_or(error)))
    }

    /// The server closed the connection before the answer's end. If it did not take the request, that
    /// is why.
    fn closed(&mut self) -> Lost {
        let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it");
        Lost::Broken(self.unsent.take().unwrap_or_else(closed))
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.request.has_remaining() {
            let sent = Pin::new(&mut self.connection).poll_write(cx, self.request.chunk());
            match ready!(sent)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.request.advance(sent),
            }
        }
        Pin::new(&mut self.connection).poll_flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";

    /// What becomes of a request, and whether its connection can be used again.
    async fn exchange(
        connection: impl Stream + 'static,
        request: &[u8],
        limit: usize,
    ) -> Result<(BytesMut, bool), Lost> {
        let exchange = Exchange::begin(Box::new(connection), request.to_vec()).await?;
        let (answer, connection) = exchange.whole(limit).await?;
        Ok((answer.body, connection.is_some()))
    }

    #[tokio::test]
    async fn a_request_is_sent_in_as_many_pieces_as_it_takes() {
        let (client, mut server) = duplex(3);
        let server = async {
            let mut request = [0; 12];
            server.read_exact(&mut request).await.unwrap();
            assert_eq!(&request, b"all of these");
            server.write_all(ANSWER).await.unwrap();
        };
        let (answer, ()) = tokio::join!(exchange(client, b"all of these", 9), server);
        let (body, again) = answer.unwrap();
        assert_eq!((&*body, again), (&b"body"[..], true));
    }

    #[tokio::test]
    async fn an_answer_counts_though_the_request_was_not_read() {
        for closes in [false, true] {
            let (client, mut server) = duplex(64);
            let server = async {
                server.write_all(ANSWER).await.unwrap();
                (!closes).then_some(server)
            };
            let (answer, _server) = tokio::join!(exchange(client, &[b'x'; 999], 9), server);
            let (body, again) = answer.unwrap();
            assert_eq!((&*body, again), (&b"body"[..], false), "{closes}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_ends_with_the_connection_counts_though_the_request_was_not_read() {
        let (client, mut server) = duplex(64);
        let server = async {
            let answer = b"HTTP/1.1 503 Service Unavailable\r\n\r\nbusy";
            server.write_all(answer).await.unwrap();
            drop(server);
        };
        let (answer, ()) = tokio::join!(exchange(client, &[b'x'; 999], 9), server);
        let (body, again) = answer.unwrap();
        assert_eq!((&*body, again), (&b"busy"[..], false));
    }

    #[tokio::test]
    async fn a_request_that_was_not_taken_is_why_an_answer_breaks_off() {
        for length in [0, 20, ANSWER.len() - 1] {
            let (client, mut server) = duplex(64);
            server.write_all(&ANSWER[..length]).await.unwrap();
            drop(server);
            let lost = exchange(client, &[b'x'; 999], 9).await.unwrap_err();
            let Lost::Broken(why) = lost else {
                panic!("{lost}")
            };
            assert_eq!(why.kind(), io::ErrorKind::BrokenPipe, "{length}: {why}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_or_is_too_long_is_none() {
        for (length, limit) in [(0, 9), (20, 9), (ANSWER.len() - 1, 9), (ANSWER.len(), 3)] {
            let (client, mut server) = duplex(999);
            server.write_all(&ANSWER[..length]).await.unwrap();
            drop(server);
            let lost = exchange(client, b"", limit).await.unwrap_err();
            let too_long = matches!(lost, Lost::TooLong);
            assert!(too_long == (limit < 4), "{length}: {lost}");
            assert!(too_long || matches!(lost, Lost::Broken(_)), "{lost}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_says_more_is_not_used_again() {
        let (client, mut server) = duplex(999);
        server.write_all(&[ANSWER, b"more"].concat()).await.unwrap();
        let (body, again) = exchange(client, b"request", 9).await.unwrap();
        assert_eq!((&*body, again), (&b"body"[..], false));
    }

    #[tokio::test]
    async fn a_body_may_last_as_long_as_the_connection() {
        let (client, mut server) = duplex(999);
        server
            .write_all(b"HTTP/1.1 200 OK\r\n\r\nall")
            .await
            .unwrap();
        drop(server);
        let (body, again) = exchange(client, b"", 9).await.unwrap();
        assert_eq!((&*body, again), (&b"all"[..], false));
    }
}

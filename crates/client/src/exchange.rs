//! One request and its answer on a connection.
//!
//! Hyper speaks HTTP/1.1. Its connection is driven by the task that waits for the answer. A task for each
//! connection would have to be woken for every request and every answer, which costs more than all else
//! that a client does.

use std::{
    error::Error as _,
    fmt,
    future::poll_fn,
    io::{self, ErrorKind},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use tokio::task::coop::unconstrained;

use crate::wire::{Sent, Stream, Wire};

/// The most bytes of an answer's head, and of its trailers.
const MAX_HEAD_BYTES: usize = 64 << 10;

pub(crate) type Body = Full<Bytes>;
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why there is no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// No connection could be made.
    Unconnected(BoxError),
    /// The connection broke before the answer's end.
    Broken(io::Error),
    /// The bytes that came are no answer.
    Garbled(BoxError),
    /// The answer is longer than the limit.
    TooLong,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconnected(error) | Self::Garbled(error) => error.fmt(f),
            Self::Broken(error) => error.fmt(f),
            Self::TooLong => f.write_str("the answer is too long; ask for less at a time"),
        }
    }
}

impl From<hyper::Error> for Lost {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse() {
            return Self::Garbled(error.into());
        }
        let Some(cause) = error.source().and_then(|e| e.downcast_ref::<io::Error>()) else {
            return Self::Broken(io::Error::other(error));
        };
        let (kind, why) = (cause.kind(), cause.to_string());
        // Hyper says this of a chunk or a trailer that is none.
        if matches!(kind, ErrorKind::InvalidInput | ErrorKind::InvalidData) {
            return Self::Garbled(why.into());
        }
        Self::Broken(io::Error::new(kind, why))
    }
}

/// A connection with at most one request on it at a time. Dropped, it is closed.
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    driver: http1::Connection<Wire, Body>,
    /// True if the driver has ended. It must not be polled again.
    is_over: bool,
    sent: Sent,
}

impl Connection {
    pub async fn new(stream: impl Stream + 'static) -> Result<Box<Self>, BoxError> {
        let (wire, sent) = Wire::new(stream);
        let mut settings = http1::Builder::new();
        // Most requests are small: to copy a body is cheaper than to send it in a piece of its own.
        settings.writev(false).max_header_size(MAX_HEAD_BYTES);
        let (sender, driver) = settings.handshake(wire).await?;
        Ok(Box::new(Self {
            sender,
            driver,
            is_over: false,
            sent,
        }))
    }

    /// Returns true if the connection can take a request: both sides have said all that they had to and
    /// no more, and neither has closed it.
    fn is_idle(&self) -> bool {
        !self.is_over && self.sender.is_ready() && self.sent.is_all()
    }

    /// Looks for what an idle connection has got meanwhile, and returns true if it can still take a
    /// request, as far as can be told.
    pub fn is_still_idle(&mut self) -> bool {
        // Looking must not be put off by the runtime, which would seem as if the connection were open.
        self.is_over |= unconstrained(&mut self.driver).now_or_never().is_some();
        self.is_idle()
    }

    /// Waits for something that only this connection can bring about.
    async fn drive<T>(
        &mut self,
        mut wanted: impl Future<Output = hyper::Result<T>> + Unpin,
    ) -> Result<T, Lost> {
        let driven = poll_fn(|cx| {
            // A connection that was driven with the task's waker wakes the task once more for each piece
            // that is taken from it. So it gets that waker only when there is nothing to take.
            let mut nobody = Context::from_waker(Waker::noop());
            let mut wakers = [&mut nobody, cx].into_iter();
            loop {
                // Only the connection brings it, so that a look after driving is enough.
                if let Some(got) = unconstrained(&mut wanted).now_or_never() {
                    return Poll::Ready(got.map_err(Lost::from));
                }
                if self.is_over {
                    return Poll::Ready(Err(Lost::Broken(ErrorKind::UnexpectedEof.into())));
                }
                let Some(cx) = wakers.next() else {
                    return Poll::Pending;
                };
                self.is_over = Pin::new(&mut self.driver).poll(cx).is_ready();
            }
        });
        driven.await.map_err(|lost| match lost {
            // If the server did not take all of the request, that is why it closed the connection.
            Lost::Broken(error) => Lost::Broken(self.sent.take_error().unwrap_or(error)),
            lost @ (Lost::Unconnected(_) | Lost::Garbled(_) | Lost::TooLong) => lost,
        })
    }
}

/// A request that was answered. Dropped, it closes its connection.
pub(crate) struct Exchange {
    pub status: StatusCode,
    /// True if the body is a stream of server-sent events.
    pub is_event_stream: bool,
    retry_after: Option<Duration>,
    /// True if the answer can be read in two ways, so that nobody knows where the next one begins.
    is_last: bool,
    body: Incoming,
    connection: Box<Connection>,
}

/// An answer of which all has come.
pub(crate) struct Answer {
    pub status: StatusCode,
    /// The time for which the server asks to be left alone. Dates are not understood: no server of ours
    /// sends one.
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

impl Exchange {
    /// Sends a request and waits for the answer's head.
    pub async fn begin(
        mut connection: Box<Connection>,
        request: Request<Body>,
    ) -> Result<Self, Lost> {
        let answer = pin!(connection.sender.send_request(request));
        let (head, body) = connection.drive(answer).await?.into_parts();
        let headers = &head.headers;
        Ok(Self {
            status: head.status,
            is_event_stream: is_event_stream(headers),
            retry_after: retry_after(headers),
            is_last: headers.contains_key(header::TRANSFER_ENCODING)
                && headers.contains_key(header::CONTENT_LENGTH),
            body,
            connection,
        })
    }

    /// Returns the next piece of the body, as it comes; `None` at its end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Lost> {
        loop {
            let frame = self.body.frame().map(Option::transpose);
            let Some(frame) = self.connection.drive(frame).await? else {
                return Ok(None);
            };
            if let Ok(piece) = frame.into_data() {
                return Ok(Some(piece));
            }
        }
    }

    /// Returns the whole answer; and the connection, if it can be used again.
    pub async fn whole(mut self, limit: usize) -> Result<(Answer, Option<Box<Connection>>), Lost> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            if piece.len() > limit - body.len() {
                return Err(Lost::TooLong);
            }
            body.extend_from_slice(&piece);
        }
        let answer = Answer {
            status: self.status,
            retry_after: self.retry_after,
            body,
        };
        let again = !self.is_last && self.connection.is_idle();
        Ok((answer, again.then_some(self.connection)))
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let media_type = value.and_then(|value| value.to_str().ok()?.split(';').next());
    media_type.is_some_and(|it| it.trim().eq_ignore_ascii_case("text/event-stream"))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    value.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";

    /// A body, and whether its connection can be used again.
    type Read = (Vec<u8>, bool);

    /// Sends a request with this body and reads the answer.
    async fn exchange(connection: DuplexStream, body: &[u8], limit: usize) -> Result<Read, Lost> {
        let (answer, again) = answer(connection, body, limit).await?;
        Ok((answer.body, again))
    }

    async fn answer(
        connection: DuplexStream,
        body: &[u8],
        limit: usize,
    ) -> Result<(Answer, bool), Lost> {
        let connection = Connection::new(TokioIo::new(connection)).await;
        let request = Request::new(Full::from(body.to_vec()));
        let exchange = Exchange::begin(connection.unwrap(), request).await?;
        let (answer, connection) = exchange.whole(limit).await?;
        Ok((answer, connection.is_some()))
    }

    /// Reads an answer that comes in one piece and byte by byte, after which the server closes the
    /// connection if it is told so.
    async fn read(sent: &str, closes: bool) -> Result<(Answer, bool), Lost> {
        let mut last = None;
        for room in [1, 1 << 20] {
            let (client, mut server) = duplex(room);
            let server = async {
                let mut request = [0; 18];
                server.read_exact(&mut request).await.unwrap();
                // A client that has seen enough closes the connection.
                let _ = server.write_all(sent.as_bytes()).await;
                (!closes).then_some(server)
            };
            let (answer, _server) = tokio::join!(answer(client, b"", 99), server);
            last = Some(answer);
        }
        last.unwrap()
    }

    async fn whole(sent: &str) -> (Answer, String, bool) {
        let (answer, again) = read(sent, false).await.unwrap();
        let body = String::from_utf8(answer.body.clone()).unwrap();
        (answer, body, again)
    }

    #[tokio::test]
    async fn a_request_is_sent_in_as_many_pieces_as_it_takes() {
        let (client, mut server) = duplex(3);
        let server = async {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\nall of these") {
                server.read_buf(&mut request).await.unwrap();
            }
            server.write_all(ANSWER.as_bytes()).await.unwrap();
            server
        };
        let (answer, _server) = tokio::join!(exchange(client, b"all of these", 9), server);
        assert_eq!(answer.unwrap(), (b"body".to_vec(), true));
    }

    #[tokio::test]
    async fn an_answer_counts_though_the_request_was_not_read() {
        for closes in [false, true] {
            let (client, mut server) = duplex(64);
            let server = async {
                server.write_all(ANSWER.as_bytes()).await.unwrap();
                (!closes).then_some(server)
            };
            let (answer, _server) = tokio::join!(exchange(client, &[b'x'; 999], 9), server);
            assert_eq!(answer.unwrap(), (b"body".to_vec(), false), "{closes}");
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
        assert_eq!(answer.unwrap(), (b"busy".to_vec(), false));
    }

    #[tokio::test]
    async fn a_request_that_was_not_taken_is_why_an_answer_breaks_off() {
        for length in [0, 20, ANSWER.len() - 1] {
            let (client, mut server) = duplex(64);
            let server = async {
                let mut some = [0; 9];
                server.read_exact(&mut some).await.unwrap();
                server
                    .write_all(&ANSWER.as_bytes()[..length])
                    .await
                    .unwrap();
                drop(server);
            };
            let (lost, ()) = tokio::join!(exchange(client, &[b'x'; 999], 9), server);
            let lost = lost.unwrap_err();
            let Lost::Broken(why) = lost else {
                panic!("{length}: {lost}")
            };
            assert_eq!(why.kind(), ErrorKind::BrokenPipe, "{length}: {why}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_or_is_too_long_is_none() {
        for (length, limit) in [(0, 9), (20, 9), (ANSWER.len() - 1, 9), (ANSWER.len(), 3)] {
            let (client, mut server) = duplex(999);
            let server = async {
                let mut request = [0; 18];
                server.read_exact(&mut request).await.unwrap();
                server
                    .write_all(&ANSWER.as_bytes()[..length])
                    .await
                    .unwrap();
                drop(server);
            };
            let (lost, ()) = tokio::join!(exchange(client, b"", limit), server);
            let lost = lost.unwrap_err();
            let too_long = matches!(lost, Lost::TooLong);
            assert!(too_long == (limit < 4), "{length}: {lost}");
            assert!(too_long || matches!(lost, Lost::Broken(_)), "{lost}");
        }
    }

    #[tokio::test]
    async fn a_connection_is_used_again_unless_the_answer_forbids_it() {
        let chunked = "transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
        for (sent, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", true),
            (&format!("HTTP/1.1 200 OK\r\n{chunked}"), true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxmore", false),
            (
                "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 1\r\n\r\nx",
                false,
            ),
            ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", false),
            // Whoever sends both may mean either.
            (
                &format!("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n{chunked}"),
                false,
            ),
        ] {
            let (_, body, again) = whole(sent).await;
            assert_eq!((body.as_str(), again), ("x", expected), "{sent:?}");
        }
    }

    #[tokio::test]
    async fn bodies_come_in_every_form() {
        for (rest, expected) in [
            ("200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello"),
            ("200 OK\r\ncontent-length: 0\r\n\r\n", ""),
            ("204 No Content\r\n\r\n", ""),
            ("304 Not Modified\r\ncontent-length: 5\r\n\r\n", ""),
            (
                "200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nc: d\r\n\r\n",
                "hello!",
            ),
            (
                "100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok",
                "ok",
            ),
        ] {
            let (_, body, again) = whole(&format!("HTTP/1.1 {rest}")).await;
            assert_eq!((body.as_str(), again), (expected, true), "{rest:?}");
        }
        let (answer, again) = read("HTTP/1.1 200 OK\r\n\r\nall", true).await.unwrap();
        assert_eq!((&*answer.body, again), (&b"all"[..], false));
    }

    #[tokio::test]
    async fn an_answer_may_say_when_to_come_back() {
        let busy = "HTTP/1.1 503 \r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
        let (answer, ..) = whole(busy).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(whole(ANSWER).await.0.retry_after, None);
    }

    #[tokio::test]
    async fn what_can_be_misread_is_refused() {
        let long = "y".repeat(MAX_HEAD_BYTES);
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        for sent in [
            "SSH-2.0-OpenSSH_9.9\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 999999 OK\r\n\r\n",
            "HTTP/1.1 000 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            &format!("HTTP/1.1 200 OK\r\nx: {long}"),
            &format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(101)),
            &format!("{chunked}\r\n"),
            &format!("{chunked}x\r\n"),
            &format!("{chunked}11111111111111111\r\n"),
            &format!("{chunked}1\r\nab\r\n"),
            &format!("{chunked}1;{long}"),
            &format!("{chunked}0\r\n\0\r\n\r\n"),
            &format!("{chunked}0\r\nx:{long}"),
        ] {
            let lost = read(sent, false).await.map(drop).unwrap_err();
            let shown = &sent[..sent.len().min(99)];
            assert!(matches!(lost, Lost::Garbled(_)), "{shown:?}: {lost}");
        }
    }
}

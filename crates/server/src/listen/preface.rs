//! Finds the protocol that a client speaks, by the first bytes that it sends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::sleep;

/// The beginning of the first bytes of HTTP/2. No method of HTTP/1.1 is called so.
const PREFACE: &[u8; 3] = b"PRI";

/// The time until the next look at a client that has sent only a part of [`PREFACE`].
const PAUSE: Duration = Duration::from_millis(5);

/// A protocol that clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Returns the protocol of these first bytes, if they are enough to tell. A client that hangs up
/// without a byte counts as HTTP/1.1.
fn protocol(seen: &[u8]) -> Option<Protocol> {
    if seen.is_empty() || !PREFACE.starts_with(seen) {
        Some(Protocol::Http1)
    } else {
        (seen == PREFACE).then_some(Protocol::Http2)
    }
}

/// Finds the protocol without reading: the bytes stay in the socket, so that the protocol's own reader
/// sees them all and no layer stands between them.
pub(super) async fn peeked(stream: &TcpStream) -> io::Result<Protocol> {
    let mut first = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut first).await?;
        if let Some(protocol) = protocol(&first[..seen]) {
            return Ok(protocol);
        }
        // The socket is readable already, so it cannot tell when more comes.
        sleep(PAUSE).await;
    }
}

/// Finds the protocol by reading, and puts the bytes back: a socket file cannot be peeked into.
pub(super) async fn read(mut stream: UnixStream) -> io::Result<(Protocol, Rewound)> {
    let mut first = [0; PREFACE.len()];
    let mut seen = 0;
    loop {
        let more = stream.read(&mut first[seen..]).await?;
        seen += more;
        // A client that hangs up in the middle sends no more.
        let protocol = protocol(&first[..seen]).or((more == 0).then_some(Protocol::Http1));
        if let Some(protocol) = protocol {
            let rewound = Rewound {
                first,
                from: 0,
                seen,
                stream,
            };
            return Ok((protocol, rewound));
        }
    }
}

/// A stream whose first bytes were read and come again.
#[derive(Debug)]
pub(super) struct Rewound {
    first: [u8; PREFACE.len()],
    from: usize,
    seen: usize,
    stream: UnixStream,
}

impl AsyncRead for Rewound {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let some = (self.seen - self.from).min(buf.remaining());
        if some == 0 {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        buf.put_slice(&self.first[self.from..self.from + some]);
        self.from += some;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn the_first_bytes_tell() {
        for (seen, expected) in [
            (&b""[..], Some(Protocol::Http1)),
            (b"P", None),
            (b"PR", None),
            (b"PRI", Some(Protocol::Http2)),
            (b"PO", Some(Protocol::Http1)),
            (b"G", Some(Protocol::Http1)),
        ] {
            assert_eq!(protocol(seen), expected, "{seen:?}");
        }
    }

    #[tokio::test]
    async fn what_was_taken_comes_again() {
        for (sent, expected) in [
            (&b"PRI * HTTP/2.0"[..], Protocol::Http2),
            (b"GET / HTTP/1.1", Protocol::Http1),
            (b"PR", Protocol::Http1),
            (b"", Protocol::Http1),
        ] {
            let (near, mut far) = UnixStream::pair().unwrap();
            for byte in sent {
                far.write_all(&[*byte]).await.unwrap();
            }
            drop(far);
            let (protocol, mut stream) = read(near).await.unwrap();
            assert_eq!(protocol, expected);
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, sent);
        }
    }
}

//! Finds the protocol that a client speaks, by the first bytes that it sends.
//!
//! The bytes are read, and come again for the protocol's own reader. To look at them without reading would need a look
//! now and then: a socket that has some bytes cannot tell when more have come.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// The beginning of the first bytes of HTTP/2. No method of HTTP/1.1 is called so.
const PREFACE: &[u8; 3] = b"PRI";

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

/// Finds the protocol, and puts the bytes back that it read for that.
pub(super) async fn read<S>(mut stream: S) -> io::Result<(Protocol, Rewound<S>)>
where
    S: AsyncRead + Unpin,
{
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
pub(super) struct Rewound<S> {
    first: [u8; PREFACE.len()],
    from: usize,
    seen: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
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
        // What came with them is there already, and one read is enough for both. An error, or the
        // end, will come again.
        let _ = Pin::new(&mut self.stream).poll_read(cx, buf);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
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
        bufs: &[IoSlice<'_>],
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixStream;
    use tokio::time::{Duration, sleep};

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

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn half_a_preface_is_waited_for_and_not_asked_for() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(b"P").await.unwrap();
        let woken = Arc::new(Counted::default());
        let mut reading = Box::pin(read(near));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(reading.as_mut().poll(&mut cx).is_pending());
        // Long enough for many looks, if there were any.
        sleep(Duration::from_millis(100)).await;
        assert_eq!(woken.0.load(Ordering::Relaxed), 0, "nothing has come");
        far.write_all(b"RI").await.unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(reading.await.unwrap().0, Protocol::Http2);
    }
}

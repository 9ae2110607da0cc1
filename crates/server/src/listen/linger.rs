//! A stream that is not closed while its client is still sending.
//!
//! Many clients send a whole request before they look for an answer. An answer that refuses the request
//! comes earlier, and to close a connection that has unread bytes resets it: the client would lose the
//! answer. So whatever still comes after the last answer is read and dropped, within bounds and at a pace.
//!
//! It stands next to the socket, so it also notes when the bytes of a request begin to come.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use asyncgate_edge::{BODY_TIMEOUT, Pace, Patience};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::progress::{Phase, Progress};

/// The bytes that are read at a time.
const PIECE_BYTES: usize = 8 << 10;

/// The bounds on what is read and dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The most bytes.
    bytes: usize,
    /// The time for all of them.
    time: Duration,
    /// The slowest pace at which they may come.
    pace: Pace,
}

impl Bounds {
    /// Returns the bounds with this pace.
    pub fn with_pace(pace: Pace) -> Self {
        Self {
            bytes: 64 << 20,
            time: BODY_TIMEOUT,
            pace,
        }
    }
}

/// A stream that reads the rest of a request when it is shut down.
#[derive(Debug)]
pub(super) struct LingeringStream<S> {
    stream: S,
    progress: Arc<Progress>,
    bounds: Bounds,
    rest: Option<Rest>,
}

/// The rest of a request.
#[derive(Debug)]
struct Rest {
    /// The bytes that may still come.
    left: usize,
    /// The time at which the whole rest must have come.
    end: Instant,
    patience: Patience,
    /// The time at which the last bytes came.
    last: Instant,
    /// Ends when the patience or the time for the whole rest does.
    timer: Pin<Box<Sleep>>,
}

impl Rest {
    fn begin(bounds: Bounds) -> Self {
        let now = Instant::now();
        let end = now + bounds.time;
        let patience = Patience::new(bounds.pace);
        Self {
            left: bounds.bytes,
            end,
            patience,
            last: now,
            timer: Box::pin(sleep_until(end.min(now + patience.left()))),
        }
    }

    fn came(&mut self, bytes: usize) {
        let now = Instant::now();
        self.left -= bytes;
        self.patience.moved(bytes);
        self.patience.waited(now - self.last);
        self.last = now;
        let over = now + self.patience.left();
        self.timer.as_mut().reset(self.end.min(over));
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> LingeringStream<S> {
    pub fn new(stream: S, progress: Arc<Progress>, bounds: Bounds) -> Self {
        Self {
            stream,
            progress,
            bounds,
            rest: None,
        }
    }

    /// Reads and drops bytes until the client closes its side, or has had its time or its bytes.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let bounds = self.bounds;
        let rest = self.rest.get_or_insert_with(|| Rest::begin(bounds));
        let mut piece = [0; PIECE_BYTES];
        loop {
            if rest.timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut piece);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            let bytes = buffer.filled().len();
            if read.is_err() || bytes == 0 || bytes >= rest.left {
                return Poll::Ready(());
            }
            rest.came(bytes);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.progress.read();
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
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
        if self.rest.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.progress.is_being_sent() {
                return Poll::Ready(Ok(()));
            }
            // The time for the head is over, and the rest has its own.
            self.progress.enter(Phase::Open);
        }
        self.poll_rest(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(3_600);
    const SHORT: Duration = Duration::from_millis(50);
    const BOUNDS: Bounds = Bounds {
        bytes: usize::MAX,
        time: LONG,
        pace: Pace {
            bytes_per_second: 1,
            grace: LONG,
        },
    };

    fn linger(body_open: bool, bounds: Bounds) -> (LingeringStream<DuplexStream>, DuplexStream) {
        let (near, far) = tokio::io::duplex(1 << 10);
        let progress = Arc::new(Progress::default());
        progress.set_body_open(body_open);
        (LingeringStream::new(near, progress, bounds), far)
    }

    #[tokio::test]
    async fn what_was_read_to_its_end_is_closed_at_once() {
        let (mut near, _far) = linger(false, BOUNDS);
        near.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_sends_first_reads_its_answer() {
        let (mut near, mut far) = linger(true, BOUNDS);
        let serving = tokio::spawn(async move {
            near.write_all(b"no").await.unwrap();
            near.shutdown().await.unwrap();
        });
        far.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
        let mut answer = [0; 2];
        far.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"no");
        drop(far);
        serving.await.unwrap();
    }

    /// Sends pieces until nobody takes them. Returns the bytes that were taken.
    async fn send(mut far: DuplexStream, piece: &[u8], pause: Duration) -> usize {
        let mut sent = 0;
        while far.write_all(piece).await.is_ok() {
            sent += piece.len();
            tokio::time::sleep(pause).await;
        }
        sent
    }

    #[tokio::test]
    async fn neither_silence_nor_a_trickle_nor_a_flood_holds_it() {
        let pace = Bounds {
            pace: Pace {
                bytes_per_second: 10_000,
                grace: SHORT,
            },
            ..BOUNDS
        };
        let (mut near, _far) = linger(true, pace);
        near.shutdown().await.unwrap();

        let (mut near, far) = linger(true, pace);
        let trickling = tokio::spawn(send(far, b"x", SHORT / 10));
        near.shutdown().await.unwrap();
        drop(near);
        trickling.await.unwrap();

        let time = Bounds {
            time: SHORT,
            ..BOUNDS
        };
        let (mut near, far) = linger(true, time);
        let trickling = tokio::spawn(send(far, b"x", Duration::from_millis(1)));
        near.shutdown().await.unwrap();
        drop(near);
        trickling.await.unwrap();

        let bytes = Bounds {
            bytes: 1 << 20,
            ..BOUNDS
        };
        let (mut near, far) = linger(true, bytes);
        let flooding = tokio::spawn(send(far, &[b'x'; 1 << 16], Duration::ZERO));
        near.shutdown().await.unwrap();
        drop(near);
        let sent = flooding.await.unwrap();
        assert!((1 << 19..=1 << 20).contains(&sent), "{sent}");
    }
}

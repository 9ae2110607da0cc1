//! A connection whose answers leave together.
//!
//! Many requests of one HTTP/2 connection are answered by the same commit. Each answer asks at once to
//! be sent; if that is put off for one round of the scheduler, the others are there too, and all of them
//! take one system call.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// As much as is kept before it is sent without being asked.
const FULL: usize = 64 << 10;

/// Keeps what is written until it is flushed, and flushes when asked for the second time.
#[derive(Debug)]
pub(super) struct Cork<S> {
    stream: S,
    kept: Vec<u8>,
    /// How much of what is kept has been sent.
    sent: usize,
    put_off: bool,
}

impl<S: AsyncWrite + Unpin> Cork<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            kept: Vec::new(),
            sent: 0,
            put_off: false,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.kept.len() {
            let left = &self.kept[self.sent..];
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, left))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        self.sent = 0;
        self.kept.clear();
        self.kept.shrink_to(FULL);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cork<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.kept.len() >= FULL {
            ready!(self.poll_send(cx))?;
        }
        self.kept.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.kept.len() >= FULL {
            ready!(self.poll_send(cx))?;
        }
        for part in parts {
            self.kept.extend_from_slice(part);
        }
        Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.kept.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if !std::mem::replace(&mut self.put_off, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.poll_send(cx))?;
        self.put_off = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

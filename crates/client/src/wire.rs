//! The bytes of a connection, below hyper.
//!
//! A server may answer, and even close the connection, before it has read all of a large request. Hyper
//! gives an answer up when it cannot send the rest of the request. The wire keeps that error to itself:
//! to hyper, sending takes for ever from then on, and the answer is still read.

use std::{
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};

/// A stream that hyper can use.
pub(crate) trait Stream: Read + Write + Send + Unpin {}

impl<S: Read + Write + Send + Unpin> Stream for S {}

pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    sent: Sent,
}

/// The part of a request that was sent. Hyper owns the wire, so its user has a clone of this.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    All,
    Part,
    /// The rest cannot be sent.
    Failed(io::Error),
}

impl Wire {
    pub fn new(stream: impl Stream + 'static) -> (Self, Sent) {
        let sent = Sent::default();
        let wire = Self {
            stream: Box::new(stream),
            sent: sent.clone(),
        };
        (wire, sent)
    }

    /// Sends with `send`, unless that has failed before. Success leads to the state `then`.
    fn send<T>(
        &mut self,
        then: State,
        send: impl FnOnce(Pin<&mut dyn Stream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.sent.state();
        if matches!(*state, State::Failed(_)) {
            return Poll::Pending;
        }
        let sent = send(Pin::new(&mut *self.stream));
        match sent {
            Poll::Ready(Err(error)) => {
                *state = State::Failed(error);
                Poll::Pending
            }
            Poll::Ready(Ok(_)) => {
                *state = then;
                sent
            }
            Poll::Pending => {
                *state = State::Part;
                sent
            }
        }
    }
}

impl Sent {
    pub fn is_all(&self) -> bool {
        matches!(*self.state(), State::All)
    }

    /// Takes the error that ended the sending.
    pub fn take_error(&self) -> Option<io::Error> {
        match mem::replace(&mut *self.state(), State::Part) {
            State::Failed(error) => Some(error),
            State::All | State::Part => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_read(cx, buf)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.send(State::Part, |stream| stream.poll_write(cx, buf))
    }

    /// Hyper flushes when it has written all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send(State::All, |stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(cx)
    }
}

//! The progress of a connection, and the detection of one that stands still for too long.
//!
//! Timeouts cost nothing per request: the connection notes its progress in one number, and a slow tick
//! compares that number with the one it saw before. No timer is set or read on the way.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, io::IoSlice};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The time limits of a connection, named as their settings are.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a request's headers, from their first byte.
    pub read: Duration,
    /// For the answer, from the end of the headers.
    pub request: Duration,
    /// For a client that does not take its answer.
    pub write: Duration,
    /// Between requests.
    pub idle: Duration,
}

impl Timeouts {
    /// Returns the time between two looks: short enough for the shortest limit, and no shorter.
    pub fn tick(&self) -> Duration {
        let shortest = [self.request, self.write, self.idle]
            .into_iter()
            .fold(self.read, Duration::min);
        (shortest / 4).clamp(Duration::from_millis(100), Duration::from_secs(5))
    }
}

/// The phase that a connection is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Between requests, or handing over an answer that the client takes.
    Open,
    /// Some of a request's headers have arrived.
    Head,
    /// The request is being worked on; its body may still be arriving.
    Answer,
    /// An answer is there, and the client takes none of it.
    Stuck,
}

/// The phase of a connection, and a count of its steps.
///
/// Both are in one number, so that one comparison shows whether anything happened. Only the
/// connection's own task touches it, so no ordering is needed.
#[derive(Debug, Default)]
pub struct Progress {
    steps: AtomicU64,
    /// True while a part of the last request's body was not read.
    body_open: AtomicBool,
}

const PHASE_BITS: u32 = 2;

impl Progress {
    /// Moves to a phase; its time starts now.
    pub fn enter(&self, phase: Phase) {
        let step = (self.steps.load(Ordering::Relaxed) >> PHASE_BITS).wrapping_add(1);
        self.steps
            .store(step << PHASE_BITS | phase as u64, Ordering::Relaxed);
    }

    /// Notes whether a part of the request's body is still to be read.
    pub fn set_body_open(&self, open: bool) {
        self.body_open.store(open, Ordering::Relaxed);
    }

    /// Returns true if the client may still be sending a request that nobody reads: its body was left
    /// alone, or its head was refused.
    pub fn is_being_sent(&self) -> bool {
        self.body_open.load(Ordering::Relaxed) || self.phase() == Phase::Head
    }

    fn phase(&self) -> Phase {
        match self.steps.load(Ordering::Relaxed) & ((1 << PHASE_BITS) - 1) {
            1 => Phase::Head,
            2 => Phase::Answer,
            3 => Phase::Stuck,
            _ => Phase::Open,
        }
    }
}

/// An observer of the bytes that pass through an [`ObservedStream`].
pub trait Observer {
    /// Notes that bytes came in.
    fn read(&self) {}

    /// Notes that so many bytes went out: the client takes its answer.
    fn wrote(&self, bytes: usize);

    /// Notes that bytes should go out and the way to the client has no room for them.
    fn stuck(&self) {}
}

impl Observer for Progress {
    /// The first bytes after an answer begin the next request.
    fn read(&self) {
        if self.phase() == Phase::Open {
            self.enter(Phase::Head);
        }
    }

    fn wrote(&self, _bytes: usize) {
        // While a request is worked on, only its answer counts: `100 Continue` buys no time.
        if matches!(self.phase(), Phase::Open | Phase::Stuck) {
            self.enter(Phase::Open);
        }
    }

    fn stuck(&self) {
        if self.phase() == Phase::Open {
            self.enter(Phase::Stuck);
        }
    }
}

/// Looks at a connection's [`Progress`] now and then, and finds when it stands still.
#[derive(Debug)]
pub struct StallDetector {
    progress: Arc<Progress>,
    timeouts: Timeouts,
    /// The progress at the last look.
    seen: u64,
    /// The time since the progress last changed, in whole ticks.
    still: Duration,
}

impl StallDetector {
    pub fn new(progress: Arc<Progress>, timeouts: Timeouts) -> Self {
        Self {
            progress,
            timeouts,
            seen: 0,
            still: Duration::ZERO,
        }
    }

    /// Looks once; to be called every [`Timeouts::tick`]. Returns the phase in which the connection
    /// has stood still for too long.
    pub fn look(&mut self) -> Option<Phase> {
        let now = self.progress.steps.load(Ordering::Relaxed);
        if now == self.seen {
            self.still += self.timeouts.tick();
        } else {
            self.seen = now;
            self.still = Duration::ZERO;
        }
        let phase = self.progress.phase();
        let limit = match phase {
            Phase::Open => self.timeouts.idle,
            Phase::Head => self.timeouts.read,
            Phase::Answer => self.timeouts.request,
            Phase::Stuck => self.timeouts.write,
        };
        (self.still >= limit).then_some(phase)
    }
}

/// A stream that tells an observer about the bytes that pass through it.
#[derive(Debug)]
pub struct ObservedStream<S, O> {
    stream: S,
    observer: Arc<O>,
}

impl<S, O: Observer> ObservedStream<S, O> {
    pub fn new(stream: S, observer: Arc<O>) -> Self {
        Self { stream, observer }
    }

    fn note(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(Ok(bytes)) if *bytes > 0 => self.observer.wrote(*bytes),
            Poll::Ready(_) => {}
            Poll::Pending => self.observer.stuck(),
        }
    }
}

impl<S: AsyncRead + Unpin, O: Observer> AsyncRead for ObservedStream<S, O> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.observer.read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin, O: Observer> AsyncWrite for ObservedStream<S, O> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note(&written);
        written
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        read: Duration::from_secs(4),
        request: Duration::from_secs(12),
        write: Duration::from_secs(6),
        idle: Duration::from_secs(8),
    };

    /// Returns the number of looks that find a stall; fails if a hundred find none.
    fn looks_until_found(detector: &mut StallDetector) -> (usize, Phase) {
        (1..=100)
            .find_map(|n| detector.look().map(|phase| (n, phase)))
            .unwrap()
    }

    #[test]
    fn each_phase_has_its_own_timeout() {
        // One look notices the change, then one per second of its time.
        for (phase, looks) in [
            (Phase::Open, 9),
            (Phase::Head, 5),
            (Phase::Answer, 13),
            (Phase::Stuck, 7),
        ] {
            let progress = Arc::new(Progress::default());
            let mut detector = StallDetector::new(progress.clone(), TIMEOUTS);
            progress.enter(phase);
            assert_eq!(looks_until_found(&mut detector), (looks, phase));
        }
    }

    #[test]
    fn a_connection_that_never_says_anything_is_let_go() {
        let mut detector = StallDetector::new(Arc::default(), TIMEOUTS);
        assert_eq!(looks_until_found(&mut detector), (8, Phase::Open));
    }

    #[test]
    fn trickling_headers_does_not_buy_time() {
        let progress = Arc::new(Progress::default());
        let mut detector = StallDetector::new(progress.clone(), TIMEOUTS);
        progress.read();
        let found = (0..10).any(|_| {
            progress.read();
            detector.look() == Some(Phase::Head)
        });
        assert!(found);
    }

    #[test]
    fn taking_the_answer_buys_time_and_the_next_request_starts_anew() {
        let progress = Arc::new(Progress::default());
        let mut detector = StallDetector::new(progress.clone(), TIMEOUTS);
        for _ in 0..50 {
            progress.wrote(1);
            assert_eq!(detector.look(), None);
        }
        for _ in 0..50 {
            progress.read();
            progress.enter(Phase::Answer);
            progress.enter(Phase::Open);
            assert_eq!(detector.look(), None);
        }
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_told_from_a_silent_one() {
        let (near, mut far) = tokio::io::duplex(4);
        let progress = Arc::new(Progress::default());
        let mut observed = ObservedStream::new(near, progress.clone());
        observed.write_all(b"four").await.unwrap();
        assert_eq!(progress.phase(), Phase::Open);
        let more = tokio::time::timeout(Duration::from_millis(1), observed.write_all(b"more"));
        assert!(more.await.is_err());
        assert_eq!(progress.phase(), Phase::Stuck);
        far.read_exact(&mut [0; 4]).await.unwrap();
        observed.write_all(b"more").await.unwrap();
        assert_eq!(progress.phase(), Phase::Open);
    }

    #[tokio::test]
    async fn a_stream_tells_what_passes_through_it() {
        let (near, mut far) = tokio::io::duplex(64);
        let progress = Arc::new(Progress::default());
        let mut observed = ObservedStream::new(near, progress.clone());
        far.write_all(b"x").await.unwrap();
        assert_eq!(observed.read_u8().await.unwrap(), b'x');
        assert_eq!(progress.phase(), Phase::Head);
        progress.enter(Phase::Open);
        let before = progress.steps.load(Ordering::Relaxed);
        observed.write_all(b"y").await.unwrap();
        assert_ne!(progress.steps.load(Ordering::Relaxed), before);
        assert_eq!(progress.phase(), Phase::Open);
    }
}

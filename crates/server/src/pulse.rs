//! How far a connection has come, and when it has been silent for too long.
//!
//! Timeouts cost nothing per request: the connection notes where it stands in one number, and a slow
//! tick compares that number with the one it saw before. No timer is set or read on the way.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, io::IoSlice};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long a connection may stay where it is.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a request's headers, from their first byte.
    pub head: Duration,
    /// For the answer, from the end of the headers.
    pub answer: Duration,
    /// For a client that does not take what it asked for.
    pub taking: Duration,
    /// Between requests.
    pub silence: Duration,
}

impl Patience {
    /// How often to look: often enough for the shortest limit, and no more.
    pub fn tick(&self) -> Duration {
        let shortest = [self.answer, self.taking, self.silence]
            .into_iter()
            .fold(self.head, Duration::min);
        (shortest / 4).clamp(Duration::from_millis(100), Duration::from_secs(5))
    }
}

/// Where a connection stands.
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

/// Where a connection stands, and a count of its steps. Only the connection's own task touches it.
#[derive(Debug, Default)]
pub struct Pulse(AtomicU64);

const PHASE_BITS: u32 = 2;

impl Pulse {
    /// Moves to a phase; its time starts now.
    pub fn enter(&self, phase: Phase) {
        let step = (self.0.load(Ordering::Relaxed) >> PHASE_BITS).wrapping_add(1);
        self.0
            .store(step << PHASE_BITS | phase as u64, Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) & ((1 << PHASE_BITS) - 1) {
            1 => Phase::Head,
            2 => Phase::Answer,
            3 => Phase::Stuck,
            _ => Phase::Open,
        }
    }
}

/// Who is told what passes through a [`Watched`] stream.
pub trait Watch {
    /// Bytes came in.
    fn read(&self) {}

    /// So many bytes went out: the client takes its answer.
    fn wrote(&self, bytes: usize);

    /// Bytes would have gone out, and there is no room for them on the way to the client.
    fn stuck(&self) {}
}

impl Watch for Pulse {
    /// The first bytes after an answer begin the next request.
    fn read(&self) {
        if self.phase() == Phase::Open {
            self.enter(Phase::Head);
        }
    }

    fn wrote(&self, _bytes: usize) {
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

/// Looks at a [`Pulse`] now and then.
#[derive(Debug)]
pub struct Watchdog {
    pulse: Arc<Pulse>,
    patience: Patience,
    seen: u64,
    still: Duration,
}

impl Watchdog {
    pub fn new(pulse: Arc<Pulse>, patience: Patience) -> Self {
        Self {
            pulse,
            patience,
            seen: 0,
            still: Duration::ZERO,
        }
    }

    /// To be called every [`Patience::tick`]. Says in which phase the connection stood for too long.
    pub fn look(&mut self) -> Option<Phase> {
        let now = self.pulse.0.load(Ordering::Relaxed);
        if now == self.seen {
            self.still += self.patience.tick();
        } else {
            self.seen = now;
            self.still = Duration::ZERO;
        }
        let phase = self.pulse.phase();
        let limit = match phase {
            Phase::Open => self.patience.silence,
            Phase::Head => self.patience.head,
            Phase::Answer => self.patience.answer,
            Phase::Stuck => self.patience.taking,
        };
        (self.still >= limit).then_some(phase)
    }
}

/// A stream that tells what passes through it.
#[derive(Debug)]
pub struct Watched<S, W> {
    stream: S,
    watch: Arc<W>,
}

impl<S, W: Watch> Watched<S, W> {
    pub fn new(stream: S, watch: Arc<W>) -> Self {
        Self { stream, watch }
    }

    fn note(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(Ok(bytes)) if *bytes > 0 => self.watch.wrote(*bytes),
            Poll::Ready(_) => {}
            Poll::Pending => self.watch.stuck(),
        }
    }
}

impl<S: AsyncRead + Unpin, W: Watch> AsyncRead for Watched<S, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.watch.read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin, W: Watch> AsyncWrite for Watched<S, W> {
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

    const PATIENCE: Patience = Patience {
        head: Duration::from_secs(4),
        answer: Duration::from_secs(12),
        taking: Duration::from_secs(6),
        silence: Duration::from_secs(8),
    };

    /// How many looks pass before the dog barks; fails if it has not after a hundred.
    fn looks_until_bark(dog: &mut Watchdog) -> (usize, Phase) {
        (1..=100)
            .find_map(|n| dog.look().map(|phase| (n, phase)))
            .unwrap()
    }

    #[test]
    fn each_phase_has_its_own_patience() {
        // One look notices the change, then one per second of patience.
        for (phase, looks) in [
            (Phase::Open, 9),
            (Phase::Head, 5),
            (Phase::Answer, 13),
            (Phase::Stuck, 7),
        ] {
            let pulse = Arc::new(Pulse::default());
            let mut dog = Watchdog::new(pulse.clone(), PATIENCE);
            pulse.enter(phase);
            assert_eq!(looks_until_bark(&mut dog), (looks, phase));
        }
    }

    #[test]
    fn a_connection_that_never_says_anything_is_let_go() {
        let mut dog = Watchdog::new(Arc::default(), PATIENCE);
        assert_eq!(looks_until_bark(&mut dog), (8, Phase::Open));
    }

    #[test]
    fn trickling_headers_does_not_buy_time() {
        let pulse = Arc::new(Pulse::default());
        let mut dog = Watchdog::new(pulse.clone(), PATIENCE);
        pulse.read();
        let barked = (0..10).any(|_| {
            pulse.read();
            dog.look() == Some(Phase::Head)
        });
        assert!(barked);
    }

    #[test]
    fn taking_the_answer_buys_time_and_the_next_request_starts_anew() {
        let pulse = Arc::new(Pulse::default());
        let mut dog = Watchdog::new(pulse.clone(), PATIENCE);
        for _ in 0..50 {
            pulse.wrote(1);
            assert_eq!(dog.look(), None);
        }
        for _ in 0..50 {
            pulse.read();
            pulse.enter(Phase::Answer);
            pulse.enter(Phase::Open);
            assert_eq!(dog.look(), None);
        }
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_told_from_a_silent_one() {
        let (near, mut far) = tokio::io::duplex(4);
        let pulse = Arc::new(Pulse::default());
        let mut watched = Watched::new(near, pulse.clone());
        watched.write_all(b"four").await.unwrap();
        assert_eq!(pulse.phase(), Phase::Open);
        let more = tokio::time::timeout(Duration::from_millis(1), watched.write_all(b"more"));
        assert!(more.await.is_err());
        assert_eq!(pulse.phase(), Phase::Stuck);
        far.read_exact(&mut [0; 4]).await.unwrap();
        watched.write_all(b"more").await.unwrap();
        assert_eq!(pulse.phase(), Phase::Open);
    }

    #[tokio::test]
    async fn a_stream_tells_what_passes_through_it() {
        let (near, mut far) = tokio::io::duplex(64);
        let pulse = Arc::new(Pulse::default());
        let mut watched = Watched::new(near, pulse.clone());
        far.write_all(b"x").await.unwrap();
        assert_eq!(watched.read_u8().await.unwrap(), b'x');
        assert_eq!(pulse.phase(), Phase::Head);
        pulse.enter(Phase::Open);
        let before = pulse.0.load(Ordering::Relaxed);
        watched.write_all(b"y").await.unwrap();
        assert_ne!(pulse.0.load(Ordering::Relaxed), before);
        assert_eq!(pulse.phase(), Phase::Open);
    }
}

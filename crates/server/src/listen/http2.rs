//! Connections that speak HTTP/2: many requests at a time, each with its own end.
//!
//! HTTP/1.1 finds stalls by the bytes that pass. Here many requests share the bytes, so each stream
//! notes whose turn it is: the server's while the server owes it something, the client's while a part
//! of the answer has not been taken. A connection on which no stream is the server's turn and nothing
//! moves is closed, be it idle or held open by a client that does not read.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::error::Elapsed;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Connection, MAX_HEAD_BYTES, Service, Stage};
use crate::progress::{ObservedStream, Observer, Phase, Timeouts};

/// The most requests that one connection may have open. More wait at the client.
const MAX_STREAMS: u32 = 256;

/// The most bytes that a client may send ahead on one stream, and on all of them.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// The time between two questions whether the client is still there, and the time for its answer.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves until the client or the drain ends the connection. Returns the phase in which it took too
/// long, if it did.
pub(super) async fn run(
    connection: Connection,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Option<Phase> {
    let Connection {
        service,
        timeouts,
        mut stage,
        ..
    } = connection;
    let timeouts = timeouts.get();
    let turns = Arc::new(Turns::default());
    let mut detector = StallDetector::new(turns.clone(), timeouts);
    let stream = ObservedStream::new(stream, turns.clone());
    let service = service_fn(move |request| {
        let turn = Turn::begin(turns.clone());
        answer(service.clone(), turn, timeouts.request, request)
    });
    let streams = Streams::default();
    let mut http = http2::Builder::new(streams.clone());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let mut running = FuturesUnordered::new();
    let mut tick = interval(timeouts.tick());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate and tells nothing.
    tick.reset();
    // Set once the client has been told to begin nothing new, with the reason.
    let mut parting = None;
    loop {
        tokio::select! {
            biased;
            // An error is the client's: it hung up or does not speak HTTP/2.
            () = poll_fn(|cx| streams.poll(connection.as_mut(), &mut running, cx)) => return parting,
            changed = stage.changed() => {
                if changed.is_err() || *stage.borrow_and_update() == Stage::Ended {
                    return None;
                }
                connection.as_mut().graceful_shutdown();
            }
            _ = tick.tick() => {
                let Some(phase) = detector.look() else {
                    continue;
                };
                // A client that speaks the protocol is told not to begin anything new, so that no
                // request is lost on the way. One that does not answer has had its chance.
                if phase == Phase::Stuck || parting.is_some() || !detector.turns.any_begun() {
                    return Some(phase);
                }
                parting = Some(phase);
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The streams of a connection. They run in the connection's own task: the answers of one commit wake
/// it once and leave in one write.
#[derive(Clone, Default)]
struct Streams {
    begun: Arc<Mutex<Vec<BoxFuture<'static, ()>>>>,
}

impl Streams {
    /// Polls the connection and its streams, until the connection ends.
    fn poll(
        &self,
        connection: Pin<&mut impl Future>,
        running: &mut FuturesUnordered<BoxFuture<'static, ()>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if connection.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let begun = mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner));
        running.extend(begun);
        while let Poll::Ready(Some(())) = running.poll_next_unpin(cx) {}
        Poll::Pending
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.push(Box::pin(stream));
    }
}

async fn answer(
    service: Service,
    turn: Turn,
    limit: Duration,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Elapsed> {
    // An error resets only this stream: the others on the connection have nothing to do with it.
    let response = timeout(limit, service.answer(request)).await?;
    Ok(response.map(|body| Answer { body, turn }))
}

/// The size of a ping frame, which is written whether or not the client takes its answers.
const PING_BYTES: usize = 17;

impl Observer for Turns {
    fn wrote(&self, bytes: usize) {
        if bytes > PING_BYTES {
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The turns on the streams of a connection.
#[derive(Debug, Default)]
struct Turns {
    /// The number of streams that have begun and not ended.
    open: AtomicUsize,
    /// The number of those on which it is the server's turn.
    server: AtomicUsize,
    /// A count of everything that happens: turns that change, and bytes that leave.
    steps: AtomicU64,
}

impl Turns {
    fn any_begun(&self) -> bool {
        self.steps.load(Ordering::Relaxed) > 0
    }
}

/// The turn on one stream.
#[derive(Debug)]
struct Turn {
    turns: Arc<Turns>,
    /// True while it is the server's.
    server: bool,
}

impl Turn {
    fn begin(turns: Arc<Turns>) -> Self {
        turns.open.fetch_add(1, Ordering::Relaxed);
        let mut turn = Self {
            turns,
            server: false,
        };
        turn.set_servers(true);
        turn
    }

    fn set_servers(&mut self, server: bool) {
        self.turns.steps.fetch_add(1, Ordering::Relaxed);
        match (self.server, server) {
            (false, true) => self.turns.server.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.turns.server.fetch_sub(1, Ordering::Relaxed),
            (true, true) | (false, false) => return,
        };
        self.server = server;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.set_servers(false);
        self.turns.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer's body. hyper asks it for the next part only when the client has room for it, so a body
/// that is asked and has nothing shows that it is the server's turn.
#[derive(Debug)]
struct Answer {
    body: Body,
    turn: Turn,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.turn.set_servers(frame.is_pending());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Looks at [`Turns`] now and then, and finds when nothing moves.
#[derive(Debug)]
struct StallDetector {
    turns: Arc<Turns>,
    timeouts: Timeouts,
    /// The steps at the last look.
    seen: u64,
    /// The time since the last step, in whole ticks.
    still: Duration,
}

impl StallDetector {
    fn new(turns: Arc<Turns>, timeouts: Timeouts) -> Self {
        Self {
            turns,
            timeouts,
            seen: 0,
            still: Duration::ZERO,
        }
    }

    /// Looks once; to be called every [`Timeouts::tick`]. Returns the phase in which nothing has moved
    /// for too long, and then counts anew.
    fn look(&mut self) -> Option<Phase> {
        let steps = self.turns.steps.load(Ordering::Relaxed);
        let working = self.turns.server.load(Ordering::Relaxed) > 0;
        if working || steps != self.seen {
            self.seen = steps;
            self.still = Duration::ZERO;
            return None;
        }
        self.still += self.timeouts.tick();
        let (phase, limit) = match self.turns.open.load(Ordering::Relaxed) {
            0 => (Phase::Open, self.timeouts.idle),
            _ => (Phase::Stuck, self.timeouts.write),
        };
        if self.still < limit {
            return None;
        }
        self.still = Duration::ZERO;
        Some(phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        read: Duration::from_secs(4),
        request: Duration::from_secs(12),
        write: Duration::from_secs(4),
        idle: Duration::from_secs(8),
    };

    fn stalled(detector: &mut StallDetector) -> Option<Phase> {
        (0..20).find_map(|_| detector.look())
    }

    #[test]
    fn only_what_is_the_servers_turn_keeps_a_silent_connection() {
        let turns = Arc::new(Turns::default());
        let mut detector = StallDetector::new(turns.clone(), TIMEOUTS);
        let (idle, stuck) = (Some(Phase::Open), Some(Phase::Stuck));
        assert_eq!(stalled(&mut detector), idle, "nothing was ever asked");
        let mut turn = Turn::begin(turns.clone());
        assert_eq!(stalled(&mut detector), None, "the server works");
        turn.set_servers(false);
        assert_eq!(
            stalled(&mut detector),
            stuck,
            "the client does not take its answer"
        );
        turn.set_servers(true);
        assert_eq!(
            stalled(&mut detector),
            None,
            "the server has nothing to say yet"
        );
        drop(turn);
        assert_eq!(stalled(&mut detector), idle, "nothing is open");
        assert_eq!(turns.server.load(Ordering::Relaxed), 0);
        assert_eq!(turns.open.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_moves_is_kept() {
        let turns = Arc::new(Turns::default());
        let mut detector = StallDetector::new(turns.clone(), TIMEOUTS);
        for _ in 0..50 {
            drop(Turn::begin(turns.clone()));
            assert_eq!(detector.look(), None);
        }
    }
}

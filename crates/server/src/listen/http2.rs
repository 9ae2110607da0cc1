//! Connections that speak HTTP/2: many requests at a time, each with its own end.
//!
//! What HTTP/1.1 is told by bytes that pass, is told here by turns: a stream is the server's turn
//! while the server owes it something, and the client's while a part of the answer has not been
//! taken. A connection on which nothing is the server's turn and nothing moves is let go, be it idle
//! or held open by a client that does not read.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
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
use tower::Service as _;

use super::{Connection, MAX_HEAD_BYTES, Metrics, Stage};
use crate::pulse::{Patience, Phase, Watch, Watched};
use crate::traffic::Traffic;

/// Requests that one connection may have open. More wait at the client.
const MAX_STREAMS: u32 = 256;

/// How much a client may send ahead on one stream, and on all of them.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// How often a client is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves until the client or the drain ends it; or until it took too long.
pub(super) async fn run(
    connection: Connection,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Option<Phase> {
    let Connection {
        router,
        patience,
        metrics: Metrics { traffic, .. },
        mut stage,
    } = connection;
    let patience = patience.get();
    let turns = Arc::new(Turns::default());
    let mut dog = Watchdog::new(turns.clone(), patience);
    let stream = Watched::new(stream, turns.clone());
    let service = service_fn(move |request| {
        let turn = Turn::begin(turns.clone());
        answer(
            router.clone(),
            traffic.clone(),
            turn,
            patience.answer,
            request,
        )
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
    let mut tick = interval(patience.tick());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate and tells nothing.
    tick.reset();
    let mut parting = None;
    loop {
        tokio::select! {
            biased;
            // What went wrong is the client's affair: it hung up or does not speak HTTP/2.
            () = poll_fn(|cx| streams.poll(connection.as_mut(), &mut running, cx)) => return parting,
            changed = stage.changed() => {
                if changed.is_err() || *stage.borrow_and_update() == Stage::Ended {
                    return None;
                }
                connection.as_mut().graceful_shutdown();
            }
            _ = tick.tick() => {
                let Some(phase) = dog.look() else {
                    continue;
                };
                // A client that speaks the protocol is told not to begin anything new, so that no
                // request is lost on the way. One that does not answer has had its chance.
                if phase == Phase::Stuck || parting.is_some() || !dog.turns.any_begun() {
                    return Some(phase);
                }
                parting = Some(phase);
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The streams of a connection run in its own task: what one commit answers wakes it once, and leaves
/// together.
#[derive(Clone, Default)]
struct Streams {
    begun: Arc<Mutex<Vec<BoxFuture<'static, ()>>>>,
}

impl Streams {
    /// Polls the connection and what has begun on it, until the connection ends.
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
    mut router: Router,
    traffic: Arc<Traffic>,
    turn: Turn,
    patience: Duration,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Elapsed> {
    let passage = traffic.begin(request.method(), request.uri().path());
    // The stream is reset: the others on the connection have nothing to do with it.
    let Ok(response) = timeout(patience, router.call(request)).await?;
    passage.answered(response.status());
    Ok(response.map(|body| Answer { body, turn }))
}

/// The largest sign of life: a frame that is written whether or not the client takes its answers.
const PING_BYTES: usize = 17;

impl Watch for Turns {
    fn wrote(&self, bytes: usize) {
        if bytes > PING_BYTES {
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whose turn it is on the streams of a connection.
#[derive(Debug, Default)]
struct Turns {
    /// Streams that have begun and not ended.
    open: AtomicUsize,
    /// Those of them on which it is the server's.
    server: AtomicUsize,
    /// Counts what happens: turns that change, and bytes that leave.
    steps: AtomicU64,
}

impl Turns {
    fn any_begun(&self) -> bool {
        self.steps.load(Ordering::Relaxed) > 0
    }
}

/// Whose turn it is on one stream.
#[derive(Debug)]
struct Turn {
    turns: Arc<Turns>,
    server: bool,
}

impl Turn {
    fn begin(turns: Arc<Turns>) -> Self {
        turns.open.fetch_add(1, Ordering::Relaxed);
        let mut turn = Self {
            turns,
            server: false,
        };
        turn.is_the_servers(true);
        turn
    }

    fn is_the_servers(&mut self, server: bool) {
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
        self.is_the_servers(false);
        self.turns.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer's body. It is asked for the next part only when the client has room for it.
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
        self.turn.is_the_servers(frame.is_pending());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Looks at [`Turns`] now and then.
#[derive(Debug)]
struct Watchdog {
    turns: Arc<Turns>,
    patience: Patience,
    seen: u64,
    still: Duration,
}

impl Watchdog {
    fn new(turns: Arc<Turns>, patience: Patience) -> Self {
        Self {
            turns,
            patience,
            seen: 0,
            still: Duration::ZERO,
        }
    }

    /// To be called every [`Patience::tick`]. Says in which phase nothing has moved for too long; then
    /// it starts to count anew.
    fn look(&mut self) -> Option<Phase> {
        let steps = self.turns.steps.load(Ordering::Relaxed);
        let working = self.turns.server.load(Ordering::Relaxed) > 0;
        if working || steps != self.seen {
            self.seen = steps;
            self.still = Duration::ZERO;
            return None;
        }
        self.still += self.patience.tick();
        let (phase, patience) = match self.turns.open.load(Ordering::Relaxed) {
            0 => (Phase::Open, self.patience.silence),
            _ => (Phase::Stuck, self.patience.taking),
        };
        if self.still < patience {
            return None;
        }
        self.still = Duration::ZERO;
        Some(phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        head: Duration::from_secs(4),
        answer: Duration::from_secs(12),
        taking: Duration::from_secs(4),
        silence: Duration::from_secs(8),
    };

    fn barks(dog: &mut Watchdog) -> Option<Phase> {
        (0..20).find_map(|_| dog.look())
    }

    #[test]
    fn only_what_is_the_servers_turn_keeps_a_silent_connection() {
        let turns = Arc::new(Turns::default());
        let mut dog = Watchdog::new(turns.clone(), PATIENCE);
        let (idle, stuck) = (Some(Phase::Open), Some(Phase::Stuck));
        assert_eq!(barks(&mut dog), idle, "nothing was ever asked");
        let mut turn = Turn::begin(turns.clone());
        assert_eq!(barks(&mut dog), None, "the server works");
        turn.is_the_servers(false);
        assert_eq!(
            barks(&mut dog),
            stuck,
            "the client does not take its answer"
        );
        turn.is_the_servers(true);
        assert_eq!(barks(&mut dog), None, "the server has nothing to say yet");
        drop(turn);
        assert_eq!(barks(&mut dog), idle, "nothing is open");
        assert_eq!(turns.server.load(Ordering::Relaxed), 0);
        assert_eq!(turns.open.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_moves_is_kept() {
        let turns = Arc::new(Turns::default());
        let mut dog = Watchdog::new(turns.clone(), PATIENCE);
        for _ in 0..50 {
            drop(Turn::begin(turns.clone()));
            assert_eq!(dog.look(), None);
        }
    }
}

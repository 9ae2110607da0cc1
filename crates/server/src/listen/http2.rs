//! Connections that speak HTTP/2: many requests at a time, each with its own end.
//!
//! What one client can make a connection hold is bounded: the requests that are open, the bytes that it sends ahead, and
//! those that are written ahead for it. How it takes its answers is watched over all of them together.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::error::Elapsed;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Carrier, Connection, MAX_HEAD_BYTES, Service, Stage};
use crate::progress::{Answer, Cut, Progress, StallDetector, Turn};

/// The most requests that one connection may have open. More wait at the client.
const MAX_STREAMS: u32 = 256;

/// The most bytes that a client may send ahead on one stream, and on all of them.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 512 << 10;

/// The bytes of one answer after which no more of it is asked for until the client has taken some.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// The time between two questions whether the client is still there, and the time for its answer.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves until the client or the drain ends the connection. Returns the reason for which it was cut, if it was.
pub(super) async fn run(
    connection: Connection,
    progress: Arc<Progress>,
    stream: Carrier,
) -> Option<Cut> {
    let Connection {
        service,
        timeouts,
        mut stage,
        ..
    } = connection;
    let timeouts = timeouts.get();
    let mut detector = StallDetector::new(progress.clone(), timeouts);
    let begun = progress.clone();
    let service = service_fn(move |request| {
        let turn = Turn::begin(begun.clone());
        answer(service.clone(), turn, timeouts.request, request)
    });
    let streams = Streams::default();
    let mut http = http2::Builder::new(streams.clone());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
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
                let Some(cut) = detector.look() else {
                    continue;
                };
                // A client that speaks the protocol is told not to begin anything new, so that no
                // request is lost on the way. One that does not answer has had its chance.
                if cut != Cut::Idle || parting.is_some() {
                    return Some(cut);
                }
                parting = Some(cut);
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
    let response = timeout(limit, service.answer(request.map(Body::new))).await?;
    Ok(response.map(|body| Answer::new(body, turn)))
}

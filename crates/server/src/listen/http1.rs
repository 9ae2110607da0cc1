//! Connections that speak HTTP/1.1: one request after the other.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::{MissedTickBehavior, interval};

use super::linger::{Bounds, LingeringStream};
use super::{Carrier, Connection, MAX_HEAD_BYTES, Service, Stage};
use crate::clock;
use crate::progress::{Answer, Cut, Phase, Progress, StallDetector, Turn};

/// The most bytes that a connection reads ahead: a whole head, and what comes with it.
const MAX_BUFFER_BYTES: usize = 2 * MAX_HEAD_BYTES;

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
    let bounds = Bounds::with_pace(timeouts.receiving());
    let io = TokioIo::new(LingeringStream::new(stream, progress.clone(), bounds));
    let service = service_fn(move |request| answer(service.clone(), progress.clone(), request));
    let mut http = http1::Builder::new();
    http.max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES);
    let mut connection = pin!(http.serve_connection(io, service));
    let mut tick = interval(timeouts.tick());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate and tells nothing.
    tick.reset();
    loop {
        tokio::select! {
            biased;
            // An error is the client's: it hung up or does not speak HTTP.
            _ = connection.as_mut() => return None,
            changed = stage.changed() => {
                if changed.is_err() || *stage.borrow_and_update() == Stage::Ended {
                    return None;
                }
                connection.as_mut().graceful_shutdown();
            }
            _ = tick.tick() => {
                if let Some(cut) = detector.look() {
                    return Some(cut);
                }
            }
        }
    }
}

/// Lets hyper read its first date on this thread. It keeps one for each thread and reads it again only
/// when the time has gone on, but the first one must not be before 1970, or it panics. So a thread that
/// has read one goes on serving whatever the machine's clock is set to.
pub fn read_first_date() {
    if !clock::has_date(clock::wall()) {
        return;
    }
    let service =
        service_fn(async |_: Request<Incoming>| Ok::<Response, Infallible>(Response::default()));
    let nothing = TokioIo::new(tokio::io::empty());
    // A connection without a request ends at once.
    let _ = http1::Builder::new()
        .serve_connection(nothing, service)
        .now_or_never();
}

async fn answer(
    service: Service,
    progress: Arc<Progress>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let turn = Turn::begin(progress.clone());
    progress.enter(Phase::Answer);
    progress.set_body_open(!request.body().is_end_stream());
    let request = request.map(|body| {
        Body::new(RequestBody {
            body,
            progress: progress.clone(),
        })
    });
    let response = service.answer(request).await;
    progress.enter(Phase::Open);
    Ok(response.map(|body| Answer::new(body, turn)))
}

/// A request's body that notes when all of it was read.
struct RequestBody {
    body: Incoming,
    progress: Arc<Progress>,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.progress.set_body_open(false);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

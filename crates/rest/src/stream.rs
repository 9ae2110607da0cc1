//! Messages as they come, a line of JSON each.
//!
//! Invariants: what refuses the stream is an ordinary error answer, sent before the first line;
//! messages are taken only when the connection has room for them, so that a slow reader does not
//! hold messages that it cannot see.

use std::{convert::Infallible, sync::Arc};

use asyncgate_api::{Code, Operation, ReceiveMessages, RecvInput};
use asyncgate_edge::{error_response, set_corr_id};
use asyncgate_engine::{Caller, Engine, Fault, Streamed, decode};
use axum::{
    body::Body,
    http::{HeaderValue, Request, Response, header},
};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::{mpsc, oneshot};

use crate::routes::App;

/// Where the stream is.
pub(crate) const PATH: &str = "/v1/recv/stream";

/// What the OpenAPI document says of it.
pub(crate) const DOC: &str = "Takes what POST /v1/recv takes and stays open. Each line is a message \
    as /v1/recv gives it; settle it with /v1/ack, /v1/nack or /v1/extend. max_messages is how many \
    messages you have at a time: when you settle one or its time is over, the next one comes. An \
    empty line after 15 seconds of silence keeps the connection alive. The stream ends when you \
    close it or the server stops; then open it again.";

/// Opens a stream and answers with it.
pub(crate) async fn serve(app: Arc<App>, request: Request<Body>) -> Response<Body> {
    let corr_id = app.corr_id(request.headers());
    let mut response = match corr_id.scope(open(&app, request)).await {
        Ok(body) => Response::new(body),
        Err(fault) => return error_response(&fault, &corr_id.text),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    set_corr_id(&mut response, &corr_id.text);
    response
}

async fn open(app: &App, request: Request<Body>) -> Result<Body, Fault> {
    let spec = &ReceiveMessages::SPEC;
    let limit = app.options.max_body_bytes;
    let (caller, input) = app.receive(spec, request, limit).await?;
    let input = decode(input.source()).map_err(|fault| app.engine.refuse(spec, fault))?;
    let (opened, is_open) = oneshot::channel();
    let (lines, body) = mpsc::channel(1);
    asyncgate_engine::spawn(feed(Arc::clone(&app.engine), caller, input, opened, lines));
    let lost = |_| Fault::new(Code::Internal, "the stream could not be opened");
    is_open.await.map_err(lost)??;
    Ok(Body::from_stream(stream::unfold(body, |mut body| async {
        let lines = body.recv().await?;
        Some((Ok::<_, Infallible>(lines), body))
    })))
}

/// Feeds the connection until either side ends it.
async fn feed(
    engine: Arc<Engine>,
    caller: Caller,
    input: RecvInput,
    opened: oneshot::Sender<Result<(), Fault>>,
    lines: mpsc::Sender<Bytes>,
) {
    let mut stream = match engine.receive_stream(&caller, input).await {
        Ok(stream) => stream,
        Err(fault) => {
            // Who asked may be gone.
            let _ = opened.send(Err(fault));
            return;
        }
    };
    if opened.send(Ok(())).is_err() {
        return;
    }
    while let Ok(room) = lines.reserve().await {
        let next = tokio::select! {
            next = stream.next() => next,
            () = lines.closed() => return,
        };
        let Some(text) = next.and_then(encode) else {
            return;
        };
        room.send(text);
    }
}

fn encode(given: Streamed) -> Option<Bytes> {
    let messages = match given {
        Streamed::Messages(messages) => messages,
        Streamed::Heartbeat => return Some(Bytes::from_static(b"\n")),
    };
    let mut text = Vec::new();
    for message in messages {
        serde_json::to_writer(&mut text, &message).ok()?;
        text.push(b'\n');
    }
    Some(text.into())
}

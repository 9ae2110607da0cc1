//! A stream of messages, a line of JSON each.
//!
//! Invariants: what refuses the stream is an ordinary error answer, sent before the first line;
//! messages are taken only when the connection has room for them, so that a slow reader does not
//! hold messages that it cannot see.

use std::{convert::Infallible, sync::Arc};

use asyncgate_api::{Operation, ReceiveMessages};
use asyncgate_edge::{Keeper, add_headers, error_response, set_corr_id};
use asyncgate_engine::{Fault, Streamed, decode, with_rate_headers};
use axum::{
    body::Body,
    http::{HeaderValue, Request, Response, header},
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use crate::routes::App;

/// The path of the stream.
pub(crate) const PATH: &str = "/v1/recv/stream";

/// The description of the stream in the OpenAPI document.
pub(crate) const DOC: &str = "Takes what POST /v1/recv takes and stays open. Each line is a message \
    as /v1/recv gives it; settle it with /v1/ack, /v1/nack or /v1/extend. max_messages is how many \
    messages you have at a time: when you settle one or its time is over, the next one comes. An \
    empty line after 15 seconds of silence keeps the connection alive. The stream ends when you \
    close it, when your credential ends or when the server stops; then open it again.";

/// Opens a stream and answers with it.
pub(crate) async fn serve(app: Arc<App>, request: Request<Body>) -> Response<Body> {
    let corr_id = app.corr_id(request.headers());
    let (opened, limits) = with_rate_headers(corr_id.scope(open(&app, request))).await;
    let mut response = match opened {
        Ok(body) => Response::new(body),
        Err(fault) => return error_response(&fault, &corr_id.text),
    };
    let headers = response.headers_mut();
    add_headers(headers, &limits);
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
    let ended = app.until_ended(request.headers());
    let (caller, mut input) = app.receive(spec, request, limit).await?;
    let input = decode::<ReceiveMessages>(input.source());
    let stream = app.engine.receive_stream(&caller, input).await?;
    // The connection asks for the next lines only when it has room for them. When it is closed it
    // drops the body, and with it the stream.
    let keeper = Keeper::new(&app.engine, caller.tenant);
    let lines = stream::unfold((stream, keeper), async |(mut stream, keeper)| {
        let lines = stream.next().await.and_then(encode)?;
        Some((Ok::<_, Infallible>(keeper.keep(lines)), (stream, keeper)))
    });
    Ok(Body::from_stream(lines.take_until(ended)))
}

/// Returns the lines of what a stream gives. An empty line is a sign of life.
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

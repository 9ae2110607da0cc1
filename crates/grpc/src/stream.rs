//! Messages as they come, in either direction.
//!
//! Invariants: what refuses a stream of deliveries is an ordinary error; messages are taken only when
//! the connection has room for them, so that a slow reader does not hold messages that it cannot see.
//! What arrives together on a stream of sends or acks is one commit; more is read only when its results
//! were taken.

use std::sync::Arc;

use asyncgate_api::{self as api, Code, Envelope, RecvInput};
use asyncgate_engine::{Caller, Engine, Execute, Fault, Streamed, execute};
use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use prost::Message;
use tokio::sync::{mpsc, oneshot};

use crate::{
    convert::Decode,
    message::{self, Messages, framed, success},
    pb,
    status::status,
};

/// The most messages of one commit.
const MOST: usize = 1_000;

/// A call whose messages come one after the other.
pub(crate) struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) caller: Caller,
    pub(crate) corr_id: String,
    pub(crate) messages: Messages,
}

/// Sends messages as they come.
pub(crate) fn send(session: Session) -> impl Stream<Item = Frame<Bytes>> + Send {
    answers::<api::SendMessages, pb::SendRequest, _, _>(
        session,
        |messages| api::SendBatchInput { messages },
        |output| pb::SendBatchResponse::from(output).results,
    )
}

/// Acknowledges messages as they come.
pub(crate) fn ack(session: Session) -> impl Stream<Item = Frame<Bytes>> + Send {
    answers::<api::AckMessages, pb::AckRequest, _, _>(
        session,
        |acks| api::AckBatchInput { acks },
        |output| pb::AckBatchResponse::from(output).results,
    )
}

/// Runs an operation on what has come, again and again; its results are the answer.
fn answers<O, M, I, R>(
    session: Session,
    input: fn(Vec<I>) -> O::Input,
    results: fn(O::Output) -> Vec<R>,
) -> impl Stream<Item = Frame<Bytes>> + Send
where
    O: Execute,
    M: Message + Default + Decode<I>,
    I: Send,
    R: Message,
{
    stream::unfold(Some(session), move |session| async move {
        let mut session = session?;
        Some(match session.step::<O, M, I, R>(input, results).await {
            Ok(Some(results)) => (Frame::data(results), Some(session)),
            Ok(None) => (Frame::trailers(success()), None),
            Err(fault) => (Frame::trailers(failure(&fault, &session.corr_id)), None),
        })
    })
}

impl Session {
    async fn step<O, M, I, R>(
        &mut self,
        input: fn(Vec<I>) -> O::Input,
        results: fn(O::Output) -> Vec<R>,
    ) -> Result<Option<Bytes>, Fault>
    where
        O: Execute,
        M: Message + Default + Decode<I>,
        R: Message,
    {
        let messages: Result<Vec<M>, Fault> = tokio::select! {
            biased;
            messages = self.messages.next(MOST) => messages,
            () = self.engine.drained() => Ok(Vec::new()),
        };
        let messages = messages.and_then(|messages| {
            let decoded = messages.into_iter().map(Decode::decode);
            decoded.collect::<Result<Vec<I>, Fault>>()
        });
        if messages.as_ref().is_ok_and(Vec::is_empty) {
            return Ok(None);
        }
        let output = execute::<O>(&self.engine, &self.caller, messages.map(input)).await?;
        Ok(Some(framed(&results(output))))
    }
}

fn failure(fault: &Fault, corr_id: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status(fault, corr_id).add_header(&mut trailers).is_err() {
        // Only a status that is no text in a header could fail, and ours are.
        return HeaderMap::from_iter([(message::STATUS, HeaderValue::from_static("13"))]);
    }
    trailers
}

/// Delivers messages as they come.
pub(crate) async fn receive(
    engine: Arc<Engine>,
    caller: Caller,
    input: Result<RecvInput, Fault>,
) -> Result<Response<Body>, Fault> {
    let (opened, is_open) = oneshot::channel();
    let (given, receiver) = mpsc::channel(1);
    asyncgate_engine::spawn(feed(engine, caller, input, opened, given));
    let lost = |_| Fault::new(Code::Internal, "the stream could not be opened");
    is_open.await.map_err(lost)??;
    let deliveries = stream::unfold(receiver, async |mut receiver| {
        let envelopes: Vec<Envelope> = receiver.recv().await?;
        let envelopes: Vec<pb::Envelope> = envelopes.into_iter().map(Into::into).collect();
        Some((Frame::data(framed(&envelopes)), receiver))
    });
    let end = stream::once(async { Frame::trailers(success()) });
    Ok(message::many(deliveries.chain(end)))
}

/// Feeds the connection until either side ends it. It has a task of its own, because a stream
/// borrows the engine.
async fn feed(
    engine: Arc<Engine>,
    caller: Caller,
    input: Result<RecvInput, Fault>,
    opened: oneshot::Sender<Result<(), Fault>>,
    given: mpsc::Sender<Vec<Envelope>>,
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
    while let Ok(room) = given.reserve().await {
        loop {
            let next = tokio::select! {
                next = stream.next() => next,
                () = given.closed() => return,
            };
            match next {
                Some(Streamed::Messages(messages)) => {
                    room.send(messages);
                    break;
                }
                // The connection has signs of life of its own.
                Some(Streamed::Heartbeat) => {}
                None => return,
            }
        }
    }
}

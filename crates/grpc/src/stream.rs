//! Streams of messages, in either direction.
//!
//! Invariants: what refuses a stream of deliveries is an ordinary error; messages are taken only when
//! the connection has room for them, so that a slow reader does not hold messages that it cannot see.
//! Sends or acks that arrive together on a stream are one commit; more of them are read only when the
//! connection has taken the results.

use std::{sync::Arc, task::Poll};

use asyncgate_api::{self as api, RecvInput};
use asyncgate_edge::Keeper;
use asyncgate_engine::{Caller, Engine, Fault, Streamed, Typed};
use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture, stream};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use prost::Message;

use crate::{
    convert::batch,
    message::{self, Messages, framed, success},
    pb,
    status::status,
};

/// The most messages that one commit takes from a stream.
const MAX_BATCH: usize = 1_000;

/// A call that is a stream of messages.
pub(crate) struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) caller: Caller,
    pub(crate) corr_id: String,
    pub(crate) messages: Messages,
}

/// Sends messages as they come.
pub(crate) fn send(session: Session) -> impl Stream<Item = Frame<Bytes>> + Send {
    answers::<api::SendMessages, pb::SendRequest, _>(
        session,
        |messages: Vec<pb::SendRequest>| api::SendBatchInput {
            messages: batch(messages),
        },
        |output| pb::SendBatchResponse::from(output).results,
    )
}

/// Acknowledges messages as they come.
pub(crate) fn ack(session: Session) -> impl Stream<Item = Frame<Bytes>> + Send {
    answers::<api::AckMessages, pb::AckRequest, _>(
        session,
        |acks: Vec<pb::AckRequest>| api::AckBatchInput { acks: batch(acks) },
        |output| pb::AckBatchResponse::from(output).results,
    )
}

/// Answers with the results of an operation that runs on all messages that have come, again and again.
fn answers<O, M, R>(
    session: Session,
    input: fn(Vec<M>) -> O::Input,
    results: fn(O::Output) -> Vec<R>,
) -> impl Stream<Item = Frame<Bytes>> + Send
where
    O: Typed,
    M: Message + Default,
    R: Message,
{
    stream::unfold(Some(session), move |session| async move {
        let mut session = session?;
        Some(match session.step::<O, M, R>(input, results).await {
            Ok(Some(results)) => (Frame::data(results), Some(session)),
            Ok(None) => (Frame::trailers(success()), None),
            Err(fault) => (Frame::trailers(failure(&fault, &session.corr_id)), None),
        })
    })
}

impl Session {
    async fn step<O, M, R>(
        &mut self,
        input: fn(Vec<M>) -> O::Input,
        results: fn(O::Output) -> Vec<R>,
    ) -> Result<Option<Bytes>, Fault>
    where
        O: Typed,
        M: Message + Default,
        R: Message,
    {
        let messages: Result<Vec<M>, Fault> = tokio::select! {
            biased;
            messages = self.messages.next(MAX_BATCH) => messages,
            () = self.engine.drained() => Ok(Vec::new()),
        };
        if messages.as_ref().is_ok_and(Vec::is_empty) {
            return Ok(None);
        }
        let output = O::run(&self.engine, &self.caller, messages.map(input)).await?;
        Ok(Some(framed(&results(output))))
    }
}

pub(crate) fn failure(fault: &Fault, corr_id: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status(fault, corr_id).add_header(&mut trailers).is_err() {
        // Only a status that is not fit for a header could fail, and ours are fit.
        return HeaderMap::from_iter([(message::STATUS, HeaderValue::from_static("13"))]);
    }
    trailers
}

/// Delivers messages as they come.
pub(crate) async fn receive(
    engine: &Arc<Engine>,
    caller: &Caller,
    input: Result<RecvInput, Fault>,
) -> Result<impl Stream<Item = Frame<Bytes>> + Send + use<>, Fault> {
    let stream = engine.receive_stream(caller, input).await?;
    // The connection asks for the next frame only when it has room for it. When the call is over it
    // drops the body, and with it the stream.
    let keeper = Keeper::new(engine, caller.tenant);
    let deliveries = stream::unfold((stream, keeper), async |(mut stream, keeper)| {
        loop {
            match stream.next().await? {
                Streamed::Messages(messages) => {
                    let envelopes: Vec<pb::Envelope> =
                        messages.into_iter().map(Into::into).collect();
                    let frames = keeper.keep(framed(&envelopes));
                    return Some((Frame::data(frames), (stream, keeper)));
                }
                // An HTTP/2 connection has signs of life of its own.
                Streamed::Heartbeat => {}
            }
        }
    });
    let end = stream::once(async { Frame::trailers(success()) });
    Ok(deliveries.chain(end))
}

/// Gives the frames of a stream until its credential ends. Then `refuse` makes the last one.
pub(crate) fn until(
    mut ended: BoxFuture<'static, ()>,
    refuse: impl FnOnce() -> Frame<Bytes> + Send + 'static,
    frames: impl Stream<Item = Frame<Bytes>> + Send + 'static,
) -> impl Stream<Item = Frame<Bytes>> + Send {
    let mut frames = Box::pin(frames);
    let mut refuse = Some(refuse);
    stream::poll_fn(move |cx| {
        if refuse.is_some() && ended.poll_unpin(cx).is_pending() {
            return frames.as_mut().poll_next(cx);
        }
        Poll::Ready(refuse.take().map(|refuse| refuse()))
    })
}

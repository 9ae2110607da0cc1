//! Messages as they come.
//!
//! Invariants: what refuses the stream is an ordinary error; messages are taken only when the
//! connection has room for them, so that a slow reader does not hold messages that it cannot see.

use std::{pin::Pin, sync::Arc, vec};

use asyncgate_api::{Code, Envelope, RecvInput};
use asyncgate_engine::{Caller, Engine, Fault, Streamed};
use futures_util::{Stream, stream};
use tokio::sync::{mpsc, oneshot};

use crate::pb;

/// What a stream gives.
pub(crate) type Envelopes = Pin<Box<dyn Stream<Item = pb::Envelope> + Send>>;

/// Opens a stream.
pub(crate) async fn open(
    engine: Arc<Engine>,
    caller: Caller,
    input: RecvInput,
) -> Result<Envelopes, Fault> {
    let (opened, is_open) = oneshot::channel();
    let (given, receiver) = mpsc::channel(1);
    tokio::spawn(feed(engine, caller, input, opened, given));
    let lost = |_| Fault::new(Code::Internal, "the stream could not be opened");
    is_open.await.map_err(lost)??;
    let state = (Vec::new().into_iter(), receiver);
    Ok(Box::pin(stream::unfold(state, next)))
}

type State = (vec::IntoIter<Envelope>, mpsc::Receiver<Vec<Envelope>>);

async fn next((mut given, mut receiver): State) -> Option<(pb::Envelope, State)> {
    loop {
        if let Some(envelope) = given.next() {
            return Some((envelope.into(), (given, receiver)));
        }
        given = receiver.recv().await?.into_iter();
    }
}

/// Feeds the connection until either side ends it. It has a task of its own, because a stream
/// borrows the engine.
async fn feed(
    engine: Arc<Engine>,
    caller: Caller,
    input: RecvInput,
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

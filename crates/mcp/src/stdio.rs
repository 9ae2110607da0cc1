//! The stdio transport: one message per line, many calls at a time.
//!
//! Invariants:
//! - Only this loop writes, one whole line at a time.
//! - A tool call runs beside the loop, so that one which waits does not hold up the next.
//! - A call that the client cancels is dropped and not answered.

use std::{collections::HashMap, io, sync::Arc};

use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    task::{AbortHandle, Id, JoinError, JoinSet},
};

use crate::{
    backend::Backend,
    batch,
    client::Client,
    dispatch::{Dispatcher, requested_version},
    era::{self, Params, admit},
    jsonrpc::{self, Body, Error, ErrorCode, Message, Notification},
    line_reader::{Line, LineReader},
    wire,
};

/// The most calls under way; past that the client has to wait.
const MOST_CALLS: usize = 256;

/// Serves one client until its stream ends and its calls are answered.
pub(crate) async fn serve<B: Backend>(
    dispatcher: Arc<Dispatcher<B>>,
    client: Client<B::Caller>,
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut lines = LineReader::new(reader, dispatcher.max_message_bytes);
    let mut session = Session {
        dispatcher,
        client: Arc::new(client),
        version: era::HANDSHAKE[0],
        calls: JoinSet::new(),
        running: HashMap::new(),
    };
    let mut open = true;
    while open || !session.calls.is_empty() {
        let answer = tokio::select! {
            line = lines.next(), if open && session.calls.len() < MOST_CALLS => match line? {
                Some(line) => session.take(line).await,
                None => { open = false; None }
            },
            Some(ended) = session.calls.join_next_with_id() => session.finish(ended),
        };
        if let Some(json) = answer {
            let mut line = wire::on_one_line(json);
            line.push(b'\n');
            writer.write_all(&line).await?;
            writer.flush().await?;
        }
    }
    Ok(())
}

struct Session<B: Backend> {
    dispatcher: Arc<Dispatcher<B>>,
    client: Arc<Client<B::Caller>>,
    /// The version that the handshake agreed on; it decides only whether batches are taken.
    version: &'static str,
    calls: JoinSet<Option<Vec<u8>>>,
    running: HashMap<Id, Running>,
}

/// A call under way. A batch has no id of its own and cannot be cancelled.
struct Running {
    id: Option<Box<RawValue>>,
    handle: AbortHandle,
}

impl<B: Backend> Session<B> {
    /// Handles a line. Returns its answer, unless one is not owed or comes later from [`Self::start`].
    async fn take(&mut self, line: Line) -> Option<Vec<u8>> {
        let Line::Whole(line) = line else {
            let error = Error::invalid_request("the message is too long");
            return Some(jsonrpc::error_answer(None, &error));
        };
        if line.trim_ascii().is_empty() {
            return None;
        }
        let raw = match jsonrpc::read_body(&line) {
            Ok(Body::One(raw)) => raw,
            Ok(Body::Batch(messages)) => {
                if let Err(error) = batch::check(&messages, self.version) {
                    return Some(jsonrpc::error_answer(None, &error));
                }
                self.start(None, line);
                return None;
            }
            Err(error) => return Some(jsonrpc::error_answer(None, &error)),
        };
        let request = match jsonrpc::read_message(raw) {
            Ok(Message::Request(request)) => request,
            Ok(Message::Notification(notification)) => {
                self.note(&notification);
                return None;
            }
            Ok(Message::Response) => return None,
            Err(unreadable) => {
                return Some(jsonrpc::error_answer(unreadable.id, &unreadable.error));
            }
        };
        if request.method == "tools/call" {
            let id = request.id.to_owned();
            self.start(Some(id), line);
            return None;
        }
        let admitted = match admit(&request, None) {
            Ok(admitted) => admitted,
            Err(error) => return Some(jsonrpc::error_answer(Some(request.id), &error)),
        };
        if request.method == "initialize"
            && let Ok(version) = requested_version(&admitted.params)
        {
            self.version = version;
        }
        let corr_id = self.dispatcher.corr_id();
        let reply = self.dispatcher.answer(&self.client, &admitted, &corr_id);
        Some(reply.await.json)
    }

    /// Runs a line beside the loop.
    fn start(&mut self, id: Option<Box<RawValue>>, line: Vec<u8>) {
        let dispatcher = Arc::clone(&self.dispatcher);
        let client = Arc::clone(&self.client);
        let run = async move { run(&dispatcher, &client, &line).await };
        let handle = self.calls.spawn(run);
        self.running.insert(handle.id(), Running { id, handle });
    }

    fn note(&mut self, notification: &Notification<'_>) {
        if notification.method != "notifications/cancelled" {
            return;
        }
        let Ok(params) = Params::read(notification.params) else {
            return;
        };
        let cancelled = params.request_id.map(RawValue::get);
        for running in self.running.values() {
            if cancelled.is_some() && running.id.as_deref().map(RawValue::get) == cancelled {
                running.handle.abort();
            }
        }
    }

    fn finish(&mut self, ended: Result<(Id, Option<Vec<u8>>), JoinError>) -> Option<Vec<u8>> {
        match ended {
            Ok((task, answer)) => {
                self.running.remove(&task);
                answer
            }
            Err(error) => {
                let running = self.running.remove(&error.id())?;
                if error.is_cancelled() {
                    return None;
                }
                tracing::error!(cause = %error, "a call ended in a panic");
                let error = Error::new(ErrorCode::Internal, "the call failed");
                Some(jsonrpc::error_answer(running.id.as_deref(), &error))
            }
        }
    }
}

/// Answers a line that was found to be a tool call or a batch.
async fn run<B: Backend>(
    dispatcher: &Dispatcher<B>,
    client: &Client<B::Caller>,
    line: &[u8],
) -> Option<Vec<u8>> {
    let corr_id = dispatcher.corr_id();
    match jsonrpc::read_body(line) {
        Ok(Body::Batch(messages)) => batch::answer(dispatcher, client, &messages, &corr_id).await,
        Ok(Body::One(raw)) => batch::answer_one(dispatcher, client, raw, &corr_id).await,
        Err(error) => Some(jsonrpc::error_answer(None, &error)),
    }
}

#[cfg(test)]
#[path = "stdio_tests.rs"]
mod tests;

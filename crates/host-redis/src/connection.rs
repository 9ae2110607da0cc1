//! A connection that is kept up, and that many callers share.
//!
//! Requests of all callers go out together, as many as are waiting, and answers come back in order. A request is
//! sent once: if the connection is then lost, that is an error, because nobody knows whether the request was
//! done. A reply of another kind than its request has means that requests and replies are out of step, so the
//! connection is left: the replies after it may be meant for other callers. A server that does not answer for
//! [`PATIENCE`] is left and dialled again. Once dialling has failed, requests fail at once until there is a
//! connection, so that callers can act on their failure mode.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use asyncgate_store::Error;
use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    dial::{Cause, Dialer, Socket},
    resp::{self, Kind, Value},
};

/// The longest silence of a server that owes an answer, and the longest time for dialling, TLS included.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause before dialling again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The most requests that wait to be sent, and the most that wait for an answer.
const MAX_REQUESTS: usize = 8_192;
/// The most KiB of requests that wait.
const MAX_KIB: usize = 64 << 10;
/// The bytes from which on no more requests are gathered before some are written.
const MAX_GATHERED: usize = 256 << 10;

/// A connection to one server, or to the master that sentinels name.
#[derive(Debug)]
pub(crate) struct Connection {
    queue: mpsc::Sender<Request>,
    room: Arc<Semaphore>,
}

type Reply = oneshot::Sender<Result<Value, Error>>;

/// One request, or several in one write; the caller gets the answer to the last.
struct Request {
    bytes: Bytes,
    answers: usize,
    kind: Kind,
    reply: Reply,
    _room: OwnedSemaphorePermit,
}

/// A request that was sent and has no answer yet.
struct Waiting {
    answers: usize,
    /// The kind of the last answer.
    kind: Kind,
    reply: Reply,
    _room: OwnedSemaphorePermit,
}

impl Connection {
    /// Begins to dial. The connection is closed when this is dropped.
    pub(crate) fn new(dialer: Dialer) -> Self {
        let (queue, requests) = mpsc::channel(MAX_REQUESTS);
        tokio::spawn(maintain(dialer, requests));
        Self {
            queue,
            room: Arc::new(Semaphore::new(MAX_KIB)),
        }
    }

    /// Sends bytes that hold `answers` requests, and returns the answer to the last of them: one of this kind, or a
    /// refusal.
    pub(crate) async fn send(
        &self,
        bytes: Bytes,
        answers: usize,
        kind: Kind,
    ) -> Result<Value, Error> {
        let kib = u32::try_from(bytes.len() >> 10).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(kib.saturating_add(1));
        let (reply, answer) = oneshot::channel();
        let request = Request {
            bytes,
            answers,
            kind,
            reply,
            _room: room.map_err(|_| overloaded())?,
        };
        self.queue.try_send(request).map_err(|_| overloaded())?;
        let gone = |_| Error::Unavailable("the connection is being closed".to_owned());
        answer.await.map_err(gone)?
    }
}

/// Returns the error when more calls wait than Redis answers. All callers share that room, so it is a failure of the host,
/// and not `Error::Busy`, which is about the share of one caller.
pub(crate) fn overloaded() -> Error {
    Error::Unavailable("too many calls wait for Redis".to_owned())
}

/// Dials again and again, until nobody can ask any more.
async fn maintain(dialer: Dialer, mut requests: mpsc::Receiver<Request>) {
    let mut pause = BACKOFF.0;
    // The last cause in the log, while there is no connection.
    let mut logged: Option<Cause> = None;
    // The cause why the last dialling failed. Requests wait for the first dialling, and fail during later ones.
    let mut failed: Option<Cause> = None;
    loop {
        let dialled = timeout(PATIENCE, dialer.dial());
        let dialled = match &failed {
            Some(cause) => fail_requests_until(dialled, &mut requests, cause).await,
            None => Some(dialled.await),
        };
        let cause = match dialled {
            None => return,
            Some(Ok(Ok(socket))) => {
                tracing::info!(server = %socket.node, "connected to Redis");
                (pause, logged, failed) = (BACKOFF.0, None, None);
                match exchange(socket, &mut requests).await {
                    Ended::Unwanted => return,
                    Ended::Lost(cause) => cause,
                }
            }
            Some(Ok(Err(cause))) => failed.insert(cause).clone(),
            Some(Err(_)) => {
                let how = if dialer.tls.is_some() {
                    " with TLS"
                } else {
                    ""
                };
                let cause = format!("cannot connect{how} within {PATIENCE:?}");
                failed.insert(cause).clone()
            }
        };
        // A new cause is logged too: a server may come back with a certificate that is not accepted.
        if logged.as_ref() != Some(&cause) {
            tracing::warn!(cause, "no connection to Redis; dialling again");
            logged = Some(cause.clone());
        }
        let paused = fail_requests_until(sleep(pause), &mut requests, &cause).await;
        if paused.is_none() {
            return;
        }
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Waits for a future while all requests fail. Returns none when nobody can ask any more.
async fn fail_requests_until<T>(
    until: impl Future<Output = T>,
    requests: &mut mpsc::Receiver<Request>,
    cause: &str,
) -> Option<T> {
    let mut until = std::pin::pin!(until);
    loop {
        tokio::select! {
            biased;
            done = &mut until => return Some(done),
            request = requests.recv() => fail(request?.reply, cause),
        }
    }
}

/// The reason why an exchange ended.
enum Ended {
    /// Nobody can ask any more.
    Unwanted,
    Lost(Cause),
}

fn fail(reply: Reply, cause: &str) {
    // The caller may have gone.
    drop(reply.send(Err(Error::Unavailable(format!("Redis: {cause}")))));
}

/// Sends requests and delivers answers, until the connection is lost or nobody can ask any more.
async fn exchange(socket: Socket, requests: &mut mpsc::Receiver<Request>) -> Ended {
    let Socket {
        node,
        stream,
        mut received,
    } = socket;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut gathered = BytesMut::new();
    // True while bytes that were written may still be in the buffer of TLS.
    let mut unflushed = false;
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    let mut batch = Vec::new();
    // The time since which the server owes the next answer.
    let mut since = Instant::now();
    let cause = loop {
        let room = MAX_REQUESTS - waiting.len();
        tokio::select! {
            // An answer that is there counts, however late this side comes to look: the time for it may be over
            // because this machine was busy, and that is no silence of the server.
            biased;
            read = reader.read_buf(&mut received) => {
                match read {
                    Ok(0) => break format!("{node} closed the connection"),
                    Ok(_) => {}
                    Err(error) => break format!("lost {node}: {error}"),
                }
                since = Instant::now();
                if let Err(cause) = deliver(&mut received, &mut waiting) {
                    break format!("{node}: {cause}");
                }
            }
            () = sleep_until(since + PATIENCE), if !waiting.is_empty() => {
                break format!("{node} has not answered for {PATIENCE:?}");
            }
            sent = send(&mut writer, &mut gathered, &mut unflushed), if unflushed || !gathered.is_empty() => {
                if let Err(error) = sent {
                    break format!("lost {node}: {error}");
                }
            }
            count = requests.recv_many(&mut batch, room), if room > 0 && gathered.len() < MAX_GATHERED => {
                if count == 0 {
                    return Ended::Unwanted;
                }
                if waiting.is_empty() {
                    since = Instant::now();
                }
                // Requests of callers who have gone are not sent: nobody would know that their nonces were used.
                let wanted = batch.drain(..).filter(|request: &Request| !request.reply.is_closed());
                for Request { bytes, answers, kind, reply, _room } in wanted {
                    gathered.extend_from_slice(&bytes);
                    waiting.push_back(Waiting { answers, kind, reply, _room });
                }
            }
        }
    };
    for Waiting { reply, .. } in waiting {
        fail(reply, &cause);
    }
    Ended::Lost(cause)
}

/// Writes some of the gathered bytes, and flushes after the last of them. It may be dropped at any time, because
/// `gathered` and `unflushed` say at each point what is left to do.
async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    gathered: &mut BytesMut,
    unflushed: &mut bool,
) -> io::Result<()> {
    if !gathered.is_empty() {
        writer.write_buf(gathered).await?;
        *unflushed = true;
    }
    if gathered.is_empty() {
        writer.flush().await?;
        *unflushed = false;
    }
    Ok(())
}

/// Delivers the answers that have been received whole.
fn deliver(received: &mut BytesMut, waiting: &mut VecDeque<Waiting>) -> Result<(), Cause> {
    while let Some(answer) = resp::take(received).map_err(|error| error.to_string())? {
        let Some(first) = waiting.front_mut() else {
            return Err("an answer to nothing".to_owned());
        };
        first.answers -= 1;
        if first.answers > 0 {
            continue;
        }
        if !answer.is(first.kind) {
            return Err("an answer of another kind than was asked for".to_owned());
        }
        let demoted = is_demoted(&answer);
        if let Some(Waiting { reply, .. }) = waiting.pop_front() {
            drop(reply.send(Ok(answer)));
        }
        // Dialling again asks the sentinels for the new master.
        if demoted {
            return Err("it is no master any more".to_owned());
        }
    }
    Ok(())
}

/// Returns true if a server refuses a write because it is a replica. Before version 7 the error of a script
/// begins with other words.
fn is_demoted(answer: &Value) -> bool {
    matches!(answer, Value::Error(text) if text.contains("READONLY"))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::BufWriter;

    use super::*;

    /// A writer may take bytes and keep them, as TLS does while the network is slow.
    #[tokio::test]
    async fn bytes_that_were_taken_but_not_sent_are_flushed() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut writer = BufWriter::new(near);
        let mut gathered = BytesMut::from(&b"0123456789"[..]);
        let mut unflushed = false;
        let mut seen = Vec::new();
        while unflushed || !gathered.is_empty() {
            let sent = send(&mut writer, &mut gathered, &mut unflushed).now_or_never();
            if seen.is_empty() {
                assert!(sent.is_none() && unflushed && gathered.is_empty());
            }
            far.read_buf(&mut seen).await.unwrap();
        }
        assert_eq!(seen, b"0123456789");
    }

    #[test]
    fn a_replica_is_recognised_by_its_refusal() {
        for (text, demoted) in [
            (
                "READONLY You can't write against a read only replica.",
                true,
            ),
            (
                "ERR Error running script (call to f_0a): @user_script:7: @user_script: 7: -READONLY You can't write against a read only replica.",
                true,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                false,
            ),
        ] {
            assert_eq!(is_demoted(&Value::Error(text.into())), demoted, "{text}");
        }
    }
}

//! A connection that is kept up, and that many callers share.
//!
//! Requests of all callers go out together, as many as are waiting, and answers come back in order.
//! A request is sent once: after that a lost connection is an error, because nobody knows whether it
//! was done. A server that does not answer for [`PATIENCE`] is left and dialled again. Once that has
//! failed, requests fail at once until there is a connection, so that callers can do without.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use asyncgate_store::Error;
use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    dial::{Cause, Dialer, Wire},
    resp::{self, Value},
};

/// For how long a server may say nothing while it owes an answer, or take to be dialled.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait before dialling again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How many requests may wait to be sent, and as many for an answer.
const MAX_REQUESTS: usize = 8_192;
/// How many KiB of requests may wait.
const MAX_KIB: usize = 64 << 10;
/// How many bytes are gathered before the first of them must be gone.
const MAX_GATHERED: usize = 256 << 10;

/// A connection to one server.
#[derive(Debug)]
pub(crate) struct Link {
    queue: mpsc::Sender<Request>,
    room: Arc<Semaphore>,
}

/// One request, or several that go together; the last one's answer counts.
struct Request {
    bytes: Bytes,
    answers: usize,
    tell: oneshot::Sender<Result<Value, Error>>,
    _room: OwnedSemaphorePermit,
}

/// Who waits for an answer.
struct Waiting {
    answers: usize,
    tell: oneshot::Sender<Result<Value, Error>>,
    _room: OwnedSemaphorePermit,
}

impl Link {
    /// Begins to dial. The connection ends when the link is dropped.
    pub(crate) fn new(dialer: Dialer) -> Self {
        let (queue, requests) = mpsc::channel(MAX_REQUESTS);
        tokio::spawn(keep_up(dialer, requests));
        Self {
            queue,
            room: Arc::new(Semaphore::new(MAX_KIB)),
        }
    }

    /// Sends what holds `answers` requests, and answers with the answer of the last.
    pub(crate) async fn send(&self, bytes: Bytes, answers: usize) -> Result<Value, Error> {
        let kib = u32::try_from(bytes.len() >> 10).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(kib.saturating_add(1));
        let (tell, told) = oneshot::channel();
        let request = Request {
            bytes,
            answers,
            tell,
            _room: room.map_err(|_| Error::Busy)?,
        };
        self.queue.try_send(request).map_err(|_| Error::Busy)?;
        let gone = |_| Error::Unavailable("the connection is being closed".to_owned());
        told.await.map_err(gone)?
    }
}

/// Dials for as long as somebody may ask.
async fn keep_up(dialer: Dialer, mut requests: mpsc::Receiver<Request>) {
    let mut pause = BACKOFF.0;
    // The cause that the log was told last, while there is no connection.
    let mut logged: Option<Cause> = None;
    // Why the last dialling failed, if it did.
    let mut failed: Option<Cause> = None;
    loop {
        let dialled = timeout(PATIENCE, dialer.dial());
        let dialled = match &failed {
            Some(cause) => failing(&mut requests, cause, dialled).await,
            None => Some(dialled.await),
        };
        let cause = match dialled {
            None => return,
            Some(Ok(Ok(wire))) => {
                tracing::info!(server = %wire.node, "connected to Redis");
                (pause, logged, failed) = (BACKOFF.0, None, None);
                match converse(wire, &mut requests).await {
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
        if logged.as_ref() != Some(&cause) {
            tracing::warn!(cause, "no connection to Redis; dialling again");
            logged = Some(cause.clone());
        }
        if failing(&mut requests, &cause, sleep(pause)).await.is_none() {
            return;
        }
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Waits for something while all requests fail. None when nobody will ask any more.
async fn failing<T>(
    requests: &mut mpsc::Receiver<Request>,
    cause: &str,
    until: impl Future<Output = T>,
) -> Option<T> {
    let mut until = std::pin::pin!(until);
    loop {
        tokio::select! {
            biased;
            done = &mut until => return Some(done),
            request = requests.recv() => fail(request?.tell, cause),
        }
    }
}

enum Ended {
    /// Nobody asks any more.
    Unwanted,
    Lost(Cause),
}

fn fail(tell: oneshot::Sender<Result<Value, Error>>, cause: &str) {
    // Who asked may have gone.
    drop(tell.send(Err(Error::Unavailable(format!("Redis: {cause}")))));
}

/// Sends requests and tells answers until the connection or the interest in it ends.
async fn converse(wire: Wire, requests: &mut mpsc::Receiver<Request>) -> Ended {
    let Wire {
        node,
        stream,
        mut received,
    } = wire;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut gathered = BytesMut::new();
    // Whether bytes that were written may still be in the buffer of TLS.
    let mut unflushed = false;
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    let mut batch = Vec::new();
    // Since when the server owes the next answer.
    let mut since = Instant::now();
    let cause = loop {
        let room = MAX_REQUESTS - waiting.len();
        tokio::select! {
            count = requests.recv_many(&mut batch, room), if room > 0 && gathered.len() < MAX_GATHERED => {
                if count == 0 {
                    return Ended::Unwanted;
                }
                if waiting.is_empty() {
                    since = Instant::now();
                }
                // Who no longer waits is not served: a nonce that nobody asks about must not be used.
                let wanted = batch.drain(..).filter(|request: &Request| !request.tell.is_closed());
                for Request { bytes, answers, tell, _room } in wanted {
                    gathered.extend_from_slice(&bytes);
                    waiting.push_back(Waiting { answers, tell, _room });
                }
            }
            sent = send(&mut writer, &mut gathered, &mut unflushed), if unflushed || !gathered.is_empty() => {
                if let Err(error) = sent {
                    break format!("lost {node}: {error}");
                }
            }
            read = reader.read_buf(&mut received) => {
                match read {
                    Ok(0) => break format!("{node} closed the connection"),
                    Ok(_) => {}
                    Err(error) => break format!("lost {node}: {error}"),
                }
                since = Instant::now();
                if let Err(cause) = tell_all(&mut received, &mut waiting) {
                    break format!("{node}: {cause}");
                }
            }
            () = sleep_until(since + PATIENCE), if !waiting.is_empty() => {
                break format!("{node} has not answered for {PATIENCE:?}");
            }
        }
    };
    for Waiting { tell, .. } in waiting {
        fail(tell, &cause);
    }
    Ended::Lost(cause)
}

/// Writes some of what was gathered, and flushes after the last of it. May be dropped at any time.
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

/// Tells the answers that are there.
fn tell_all(received: &mut BytesMut, waiting: &mut VecDeque<Waiting>) -> Result<(), Cause> {
    while let Some(answer) = resp::take(received).map_err(|error| error.to_string())? {
        let Some(first) = waiting.front_mut() else {
            return Err("an answer to nothing".to_owned());
        };
        first.answers -= 1;
        if first.answers > 0 {
            continue;
        }
        let demoted = is_demoted(&answer);
        if let Some(Waiting { tell, .. }) = waiting.pop_front() {
            drop(tell.send(Ok(answer)));
        }
        if demoted {
            return Err("it is no master any more".to_owned());
        }
    }
    Ok(())
}

/// Whether a server refuses because it is a replica. Before version 7 the error of a script stands behind
/// words about the script.
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
    fn a_replica_is_known_by_what_it_says() {
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

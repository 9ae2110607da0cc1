//! The reader threads: each has a connection of its own and sees the newest commit.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
};

use asyncgate_store::Error;
use rusqlite::ErrorCode;
use tokio::sync::oneshot;

use crate::{
    OpenError,
    db::{Db, Use},
    rows::checksum::is_damage,
};

/// The most reads that wait; more are refused, as writes are.
const MAX_QUEUED_READS: usize = 4_096;

type Read = Box<dyn FnOnce(&mut Db) + Send>;

/// The way to the reader threads. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    reads: SyncSender<Read>,
}

impl Readers {
    pub(crate) fn start(path: &Path, threads: usize) -> Result<Self, OpenError> {
        let (reads, waiting) = sync_channel::<Read>(MAX_QUEUED_READS);
        let waiting = Arc::new(Mutex::new(waiting));
        for n in 0..threads {
            let mut db = Db::open(path, Use::Read)?;
            let waiting = Arc::clone(&waiting);
            thread::Builder::new()
                .name(format!("sqlite-reader-{n}"))
                .spawn(move || {
                    while let Some(read) = next(&waiting) {
                        read(&mut db);
                    }
                })?;
        }
        Ok(Self { reads })
    }

    /// Runs a query on some reader thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let read: Read = Box::new(move |db| {
            let answered = catch_unwind(AssertUnwindSafe(|| db.snapshot(query)));
            // The caller may have gone.
            let _ = answer.send(answered.unwrap_or(Err(rusqlite::Error::UnwindingPanic)));
        });
        self.reads.try_send(read).map_err(|error| match error {
            TrySendError::Full(_) => Error::Busy,
            TrySendError::Disconnected(_) => stopped(),
        })?;
        answered
            .await
            .map_err(|_| stopped())?
            .map_err(|error| read_error(&error))
    }
}

fn next(waiting: &Mutex<Receiver<Read>>) -> Option<Read> {
    waiting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .recv()
        .ok()
}

fn stopped() -> Error {
    Error::Unavailable("the readers have stopped".to_owned())
}

pub(crate) fn read_error(error: &rusqlite::Error) -> Error {
    if is_damage(error) || error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) {
        Error::Corrupt(error.to_string())
    } else {
        Error::Unavailable(error.to_string())
    }
}

//! The reader threads: each has a connection of its own and sees the newest commit.
//!
//! Invariant: tenants take turns, by the time that their reads take. No read is long: each looks at a bounded number
//! of rows and answers with a page.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use asyncgate_core::TenantId;
use asyncgate_store::{
    Error, Stopwatch,
    fair::{FairQueue, Flow, Lane, Popped, Refused, Room},
};
use rusqlite::ErrorCode;
use tokio::sync::oneshot;

use crate::{
    OpenError,
    db::{Db, Use},
    rows::checksum::is_damage,
};

/// The most reads that wait; more are refused, as writes are.
const MAX_QUEUED_READS: usize = 4_096;
/// The longest sleep of a reader that has nothing to do. It is woken when there is.
const PATIENCE: Duration = Duration::from_secs(60);

type Read = Box<dyn FnOnce(&mut Db) + Send>;

/// The way to the reader threads. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    reads: Arc<FairQueue<Read>>,
}

impl Readers {
    pub(crate) fn start(path: &Path, threads: usize) -> Result<Self, OpenError> {
        let readers = Self {
            reads: Arc::new(FairQueue::new(Room {
                jobs: MAX_QUEUED_READS,
                bytes: usize::MAX,
            })),
        };
        for n in 0..threads {
            let mut db = Db::open(path, Use::Read)?;
            let reads = Arc::clone(&readers.reads);
            thread::Builder::new()
                .name(format!("sqlite-reader-{n}"))
                .spawn(move || serve(&reads, &mut db))?;
        }
        Ok(readers)
    }

    /// Runs a query on some reader thread, when it is the tenant's turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tenant: TenantId,
        query: impl FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let read: Read = Box::new(move |db| {
            let answered = catch_unwind(AssertUnwindSafe(|| db.snapshot(query)));
            // The caller may have gone.
            let _ = answer.send(answered.unwrap_or(Err(rusqlite::Error::UnwindingPanic)));
        });
        let flow = Flow {
            tenant,
            lane: Lane::Reads,
            cost: 1,
            bytes: 0,
        };
        self.reads
            .push(flow, read)
            .map_err(|refused| match refused {
                Refused::Full => Error::Busy,
                Refused::Closed => stopped(),
            })?;
        answered
            .await
            .map_err(|_| stopped())?
            .map_err(|error| read_error(&error))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads.close();
    }
}

fn serve(reads: &FairQueue<Read>, db: &mut Db) {
    loop {
        match reads.pop(PATIENCE) {
            Popped::Job(turn) => {
                let watch = Stopwatch::start();
                (turn.job)(db);
                reads.settle(turn.charge, watch.elapsed());
            }
            Popped::Nothing => {}
            Popped::Closed => return,
        }
    }
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

//! The reader threads: each has a connection of its own and sees the newest commit. What a read saw is shown once it is
//! on disk.
//!
//! Invariant: tenants take turns, by the time that their reads take. No read is long: each looks at a bounded number
//! of rows and answers with a page. Should one take long nevertheless, it is interrupted and refused.

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
    admission::NOBODY,
    db::{Db, Use},
    durable::Durable,
    rows::checksum::is_damage,
};

/// The most reads that wait; more are refused, as writes are.
const MAX_QUEUED_READS: usize = 4_096;
/// The longest sleep of a reader that has nothing to do. It is woken when there is.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time that a tenant's read may take. A page takes milliseconds; a slow disk may need more.
pub(crate) const LONGEST_READ: Duration = Duration::from_secs(1);
/// The steps of SQLite between two looks at the clock: some hundred rows.
const STEPS: i32 = 10_000;

type Read = Box<dyn FnOnce(&mut Db) + Send>;

/// The way to the reader threads. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    reads: Arc<FairQueue<Read>>,
    longest: Duration,
    durable: Arc<Durable>,
}

impl Readers {
    pub(crate) fn start(
        path: &Path,
        threads: usize,
        longest: Duration,
        durable: Arc<Durable>,
    ) -> Result<Self, OpenError> {
        let readers = Self {
            longest,
            durable,
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
        let (answered, seen) = self.answer(tenant, query).await?;
        self.durable.wait(seen).await?;
        answered.map_err(|error| read_error(&error))
    }

    /// Does the same without waiting until what the query saw is on disk.
    pub(crate) async fn run_unsynced<T: Send + 'static>(
        &self,
        tenant: TenantId,
        query: impl FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (answered, _) = self.answer(tenant, query).await?;
        answered.map_err(|error| read_error(&error))
    }

    /// Returns the answer to a query, and the newest commit that it may have seen.
    async fn answer<T: Send + 'static>(
        &self,
        tenant: TenantId,
        query: impl FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<(rusqlite::Result<T>, u64), Error> {
        let (answer, answered) = oneshot::channel();
        // The server's own reads are few, and it cannot do without their answers.
        let longest = (tenant != NOBODY).then_some(self.longest);
        let durable = Arc::clone(&self.durable);
        let read: Read = Box::new(move |db| {
            let answered = catch_unwind(AssertUnwindSafe(|| limited(db, longest, query)));
            let answered = answered.unwrap_or(Err(rusqlite::Error::UnwindingPanic));
            // The caller may have gone.
            let _ = answer.send((answered, durable.written()));
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
        answered.await.map_err(|_| stopped())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads.close();
    }
}

/// Runs a query, and interrupts it if it takes longer than `longest`.
fn limited<T>(
    db: &mut Db,
    longest: Option<Duration>,
    query: impl FnOnce(&mut Db) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let watch = Stopwatch::start();
    let is_over = longest.map(|longest| move || watch.elapsed() > longest);
    db.conn.progress_handler(STEPS, is_over)?;
    db.snapshot(query)
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
    } else if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
        Error::Busy
    } else {
        Error::Unavailable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError, mpsc};

    use super::*;
    use crate::schema;

    const ONE: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    fn start(longest: Duration) -> (tempfile::TempDir, Arc<Readers>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let mut db = Db::open(&path, Use::Write).unwrap();
        schema::migrate(&mut db.conn).unwrap();
        let readers = Readers::start(&path, 1, longest, Arc::default()).unwrap();
        (dir, Arc::new(readers))
    }

    /// Counts to more than any reader has time for.
    fn endless(db: &mut Db) -> rusqlite::Result<i64> {
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                   SELECT count(*) FROM n";
        db.conn.query_row(sql, [], |row| row.get(0))
    }

    fn quick(db: &mut Db) -> rusqlite::Result<i64> {
        db.conn.query_row("SELECT 7", [], |row| row.get(0))
    }

    #[tokio::test]
    async fn a_read_that_takes_too_long_is_refused_and_the_next_one_is_not() {
        let (_dir, readers) = start(Duration::from_millis(20));
        assert_eq!(readers.run(ONE, endless).await, Err(Error::Busy));
        assert_eq!(readers.run(ONE, quick).await, Ok(7));
        // The server's own reads have the time that they need.
        let slow = |db: &mut Db| {
            let watch = Stopwatch::start();
            while watch.elapsed() < Duration::from_millis(40) {
                quick(db)?;
            }
            let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 99999)
                       SELECT count(*) FROM n";
            db.conn.query_row(sql, [], |row| row.get(0))
        };
        assert_eq!(readers.run(NOBODY, slow).await, Ok(99_999));
        assert_eq!(readers.run(ONE, slow).await, Err(Error::Busy));
    }

    /// However many costly reads one tenant has waiting, those of another come after a few of them.
    #[tokio::test]
    async fn a_flood_of_costly_reads_leaves_the_others_their_turns() {
        const FLOOD: usize = 300;
        let (_dir, readers) = start(LONGEST_READ);
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |tenant: TenantId, cost: Duration| {
            let order = Arc::clone(&order);
            let readers = Arc::clone(&readers);
            tokio::spawn(async move {
                let read = move |_: &mut Db| {
                    let watch = Stopwatch::start();
                    while watch.elapsed() < cost {
                        std::hint::spin_loop();
                    }
                    let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
                    order.push(tenant);
                    Ok(())
                };
                readers.run(tenant, read).await.unwrap();
            })
        };
        // The only reader is held until everybody waits.
        let (release, held) = mpsc::channel::<()>();
        let (entered, has_entered) = mpsc::channel();
        let gate = tokio::spawn({
            let readers = Arc::clone(&readers);
            async move {
                let hold = move |_: &mut Db| {
                    entered.send(()).ok();
                    held.recv().ok();
                    Ok(())
                };
                readers.run(NOBODY, hold).await
            }
        });
        tokio::task::yield_now().await;
        has_entered.recv().unwrap();
        let costly = Duration::from_millis(1);
        let mut reads: Vec<_> = (0..FLOOD).map(|_| note(ONE, costly)).collect();
        while readers.reads.len() < FLOOD {
            tokio::task::yield_now().await;
        }
        reads.extend((0..20).map(|_| note(OTHER, Duration::ZERO)));
        while readers.reads.len() < FLOOD + 20 {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        for read in reads {
            read.await.unwrap();
        }
        gate.await.unwrap().unwrap();
        let order = order.lock().unwrap();
        let first = order.iter().position(|tenant| *tenant == OTHER).unwrap();
        // A reader that serves in the order of arrival would have all of the flood before.
        assert!(first <= 4, "{first}");
    }
}

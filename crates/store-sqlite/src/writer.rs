//! The writer thread: it takes the jobs that are waiting, runs them in one transaction, commits once, and hands them to the
//! sync thread, which answers all of them.
//!
//! Invariants: nothing is answered before the commits that it may have seen are on disk (`durable.rs`); a failed commit is
//! rolled back whole and every job in it is told so; a job that fails alone does not fail the jobs beside it.

mod behind;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, AtomicU32, Ordering},
};
use std::{collections::HashMap, io, path::Path, thread, time::Duration};

use asyncgate_core::{TenantId, Timestamp, mailbox};
use asyncgate_store::{
    Error, Health, Signals, Stopwatch, StoreMetrics, Work, Written,
    fair::{Charge, FairQueue, Flow, Lane, Popped, Refused, Room, Turn},
    flow,
};
use rusqlite::{ErrorCode, config::DbConfig, ffi};
use tokio::sync::oneshot;

use self::behind::Behind;
use crate::{
    OpenError, Options,
    admission::{self, End, HotCells},
    db::{Db, Use},
    durable::{self, Commit, Durable, Releases},
    identity, schema,
    transaction::Writable,
    wal,
};

/// The most jobs that share a commit, so that the first of them does not wait too long.
const MAX_BATCH: usize = 256;
/// The bytes that a transaction may write before it is committed. Everybody in it, and in the next one, waits while they
/// are written and synced.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// The pages that the log may grow before they are moved into the main file.
const CHECKPOINT_PAGES: u32 = 1_000;
/// A job beyond this begins a transaction of its own, so that those before it are not answered as late as it is.
const LARGE_JOB_BYTES: usize = 256 << 10;
/// The time after which a failing disk is tried again when nobody writes.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// What operators are told until the writer knows the sends of the replay window.
const READING_SENDS: &str = "the sends of the replay window are being read back; writes wait";

/// The state that the writer shares with those who give it work.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) signals: Signals,
    pub(crate) metrics: StoreMetrics,
    /// The commits that are on disk.
    pub(crate) durable: Arc<Durable>,
    /// The limits in memory.
    pub(crate) hot: Arc<HotCells>,
    pub(crate) last_time: AtomicI64,
    /// The time for which repeated sends must be recognised.
    pub(crate) replay_window_ms: AtomicI64,
    /// The latest time at which somebody asked how full the mailbox is; 0 at first.
    pub(crate) asked_at: AtomicI64,
    /// The number of remembered sends of each tenant; absent before somebody has counted.
    remembered: Mutex<Option<HashMap<i64, u64>>>,
    health: Mutex<Health>,
}

impl Shared {
    pub(crate) fn health(&self) -> Health {
        self.health
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the number of remembered sends of each tenant.
    pub(crate) fn remembered(&self) -> MutexGuard<'_, Option<HashMap<i64, u64>>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn set_health(&self, health: Health) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    fn recovered(&self) {
        if self.health() != Health::Ready {
            tracing::info!("storage accepts writes again");
            self.set_health(Health::Ready);
        }
    }

    /// Answers the jobs of a transaction whose commit is on disk, if it wrote anything.
    fn succeed(&self, ran: Ran, commit: Option<Commit>) {
        if let Some(commit) = commit {
            self.hot.synced(commit.number);
            let wrote = ran.iter().filter(|(_, wrote)| wrote.is_some()).count();
            let metrics = &self.metrics;
            if wrote > 0 {
                metrics.jobs_per_commit.observe(wrote as f64);
            }
            let seconds = commit.begun.elapsed().as_secs_f64();
            metrics.commit_seconds.observe(seconds);
            metrics.commits.inc();
            self.recovered();
        }
        for (waiting, wrote) in ran {
            let tenant = waiting.job.tenant();
            // The caller first: those who wait for its change would only compete with it.
            self.answer(waiting, Ok(()));
            if let Some(written) = wrote {
                written.publish(&self.signals, tenant);
            }
        }
    }

    /// Tells the jobs of a transaction that it was rolled back.
    fn fail(&self, ran: Ran, told: &Error) {
        self.metrics.commit_failures.inc();
        for (waiting, _) in ran {
            self.answer(waiting, Err(told.clone()));
        }
    }

    /// Tells the jobs of a transaction that its commit, or one that they may have seen, could not be synced. Nobody knows
    /// whether the disk has what they wrote.
    fn fail_unsynced(&self, ran: Ran, error: &io::Error) {
        tracing::error!(%error, jobs = ran.len(), "{}", durable::FAILED);
        self.metrics.commit_failures.inc();
        let told = durable::FAILED.to_owned();
        self.set_health(Health::Failing(told.clone()));
        for (waiting, wrote) in ran {
            let error = match wrote {
                Some(_) => Error::Unknown(told.clone()),
                None => Error::Unavailable(told.clone()),
            };
            self.answer(waiting, Err(error));
        }
    }

    fn answer(&self, waiting: Waiting, answer: Result<(), Error>) {
        self.metrics.waiting.dec();
        // The caller may have gone; what was decided stands all the same.
        let _ = waiting.answer.send(answer);
    }
}

/// The kinds of work for the writer. All of them share the commits.
#[derive(Debug)]
pub(crate) enum Queued {
    /// A job of a plane.
    Work(Work),
    /// A change of admission's rows.
    Admission(admission::Change),
    /// Tasks that admission is asked about.
    Admitted(admission::Admitted),
}

impl Queued {
    /// Returns the tenant that it counts for. What is done for no tenant counts for [`admission::NOBODY`].
    pub(crate) fn tenant(&self) -> TenantId {
        match self {
            Self::Work(work) => work.tenant(),
            Self::Admission(change) => change.tenant.unwrap_or(admission::NOBODY),
            Self::Admitted(admitted) => admitted.job.tenant,
        }
    }

    /// Returns its place in the queue: whose turn it takes, and how much of it.
    fn flow(&self) -> Flow {
        let (lane, rows) = match self {
            Self::Work(work) => return work.flow(),
            Self::Admission(change) => (Lane::Admission, change.rows),
            Self::Admitted(admitted) => (Lane::Tasks, admitted.asks.len()),
        };
        flow(self.tenant(), lane, rows, self.weight())
    }

    const fn weight(&self) -> usize {
        match self {
            Self::Work(work) => work.weight(),
            Self::Admission(change) => change.weight,
            Self::Admitted(admitted) => admitted.job.weight,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    job: Queued,
    answer: oneshot::Sender<Result<(), Error>>,
}

/// The way to the writer thread. Dropping it lets the thread finish what is waiting and end.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: Arc<FairQueue<Waiting>>,
    thread: Option<thread::JoinHandle<()>>,
    pub(crate) shared: Arc<Shared>,
}

impl Writer {
    /// Opens the file, brings it up to date and starts the threads.
    pub(crate) fn start(
        path: &Path,
        options: &Options,
        sync: durable::SyncLog,
    ) -> Result<Self, OpenError> {
        let mut db = Db::open(path, Use::Write)?;
        schema::migrate(&mut db.conn)?;
        identity::begin(&db)?;
        let last_time = db
            .conn
            .query_row("SELECT last_time FROM clock", [], |row| row.get(0))?;
        let health = match has_mail(&db)? {
            true => Health::Failing(READING_SENDS.to_owned()),
            false => Health::Ready,
        };
        let shared = Arc::new(Shared {
            signals: Signals::default(),
            metrics: StoreMetrics::default(),
            durable: Arc::default(),
            hot: Arc::new(HotCells::new(options.hot_limits)),
            last_time: AtomicI64::new(last_time),
            replay_window_ms: AtomicI64::new(mailbox::Policy::default().t_replay_ms),
            asked_at: AtomicI64::new(0),
            remembered: Mutex::default(),
            health: Mutex::new(health),
        });
        let log_pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&log_pages);
        db.conn.wal_hook(Some(move |_: &mut _, pages: i32| {
            seen.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        // From here on the sync thread syncs what is committed.
        db.conn.pragma_update(None, "synchronous", "NORMAL")?;
        let log = wal::open_to_sync(path)?;
        let to_answer = Arc::clone(&shared);
        let releases = Releases::start(
            log,
            sync,
            Arc::clone(&shared.durable),
            move |ran, synced| match synced {
                Ok(commit) => to_answer.succeed(ran, commit),
                Err(error) => to_answer.fail_unsynced(ran, error),
            },
        )?;
        let jobs = Arc::new(FairQueue::new(Room {
            jobs: options.max_queued_jobs.max(1),
            bytes: options.max_queued_bytes,
        }));
        let waiting = Arc::clone(&jobs);
        let writable = Writable::new(
            db,
            Timestamp::from_millis(last_time),
            options.max_hot_bytes,
            Arc::clone(&shared.hot),
        );
        let mut worker = Worker {
            writable,
            shared: Arc::clone(&shared),
            releases,
            log_pages,
            checkpointed: 0,
            large: None,
            max_batch_time: options.max_batch_time,
            behind: Behind::new(options.hot_limits.write_after),
            has_failed: false,
        };
        let thread = thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || worker.run(&waiting))?;
        Ok(Self {
            jobs,
            thread: Some(thread),
            shared,
        })
    }

    /// Hands a job to the thread. It is refused when too much is waiting.
    pub(crate) fn submit(
        &self,
        job: Queued,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let metrics = &self.shared.metrics;
        let (answer, answered) = oneshot::channel();
        let flow = job.flow();
        match self.jobs.push(flow, Waiting { job, answer }) {
            Ok(()) => {
                metrics.waiting.inc();
                Ok(answered)
            }
            Err(refused) => {
                metrics.turned_away.inc();
                Err(match refused {
                    Refused::Full => Error::Busy,
                    Refused::Closed => Error::Unavailable("the writer has stopped".to_owned()),
                })
            }
        }
    }

    /// Sets how the work is divided when there is more than can be done.
    pub(crate) fn set_weights(&self, weights: asyncgate_store::fair::Weights) {
        self.jobs.set_weights(weights);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs.close();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its alarm has said so already.
            let _ = thread.join();
        }
    }
}

/// Turns readiness red and closes the queue when the thread ends, for whatever reason: nobody writes any more. Jobs that
/// still wait are dropped, and so their callers are told.
struct Alarm<'a> {
    shared: Arc<Shared>,
    queue: &'a FairQueue<Waiting>,
    reason: &'static str,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        let reason = self.reason.to_owned();
        self.shared.set_health(Health::Failing(reason));
        self.queue.close();
        while let Popped::Job(_) = self.queue.pop(Duration::ZERO) {}
    }
}

struct Worker {
    writable: Writable,
    shared: Arc<Shared>,
    releases: Releases<Ran>,
    log_pages: Arc<AtomicU32>,
    /// The size of the log at the last checkpoint. The log starts again from the front only when no reader is in the way,
    /// so it may be large without holding much that is new.
    checkpointed: u32,
    /// A large job whose turn has come, for the next transaction.
    large: Option<Turn<Waiting>>,
    max_batch_time: Duration,
    behind: Behind,
    /// True after a sync that failed.
    has_failed: bool,
}

/// The jobs that ran in the open transaction, with what they wrote.
type Ran = Vec<(Waiting, Option<Written>)>;

/// The jobs for one transaction, in the order of their turns. Each is charged by the time that it took.
struct Batch<'a> {
    queue: &'a FairQueue<Waiting>,
    first: Option<Turn<Waiting>>,
    /// The place for a large job behind others. It ends the transaction before it.
    large: &'a mut Option<Turn<Waiting>>,
    /// The number of jobs that may still be taken.
    left: usize,
    /// The time after which no more are taken.
    longest: Duration,
    begun: Stopwatch,
    /// The charge for the job that is running, and when it began.
    running: Option<(Charge, Duration)>,
}

impl<'a> Batch<'a> {
    /// Returns the jobs that wait at this moment. Later ones wait for the next commit, so that the first of these
    /// is not answered later and later.
    fn new(
        queue: &'a FairQueue<Waiting>,
        first: Turn<Waiting>,
        large: &'a mut Option<Turn<Waiting>>,
        longest: Duration,
    ) -> Self {
        Self {
            queue,
            first: Some(first),
            large,
            left: queue.len().min(MAX_BATCH - 1),
            longest,
            begun: Stopwatch::start(),
            running: None,
        }
    }
}

impl Iterator for Batch<'_> {
    type Item = Waiting;

    fn next(&mut self) -> Option<Waiting> {
        let now = self.begun.elapsed();
        let more = self.left > 0 && now < self.longest;
        let turn = match (self.running.take(), self.first.take()) {
            (None, first) => first,
            (Some((charge, since)), _) if more => {
                self.left -= 1;
                let next = self.queue.settle_and_pop(charge, now - since);
                let is_large = |turn: &Turn<Waiting>| turn.job.job.weight() > LARGE_JOB_BYTES;
                if next.as_ref().is_some_and(is_large) {
                    *self.large = next;
                    return None;
                }
                next
            }
            (Some((charge, since)), _) => {
                self.queue.settle(charge, now - since);
                None
            }
        }?;
        self.running = Some((turn.charge, now));
        Some(turn.job)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some((charge, since)) = self.running.take() {
            self.queue.settle(charge, self.begun.elapsed() - since);
        }
    }
}

impl Worker {
    fn run(&mut self, queue: &FairQueue<Waiting>) {
        let mut alarm = Alarm {
            shared: Arc::clone(&self.shared),
            queue,
            reason: "the writer has stopped",
        };
        self.read_sends();
        while !self.has_failed {
            let popped = self.large.take().map(Popped::Job);
            match popped.unwrap_or_else(|| queue.pop(self.patience())) {
                Popped::Job(first) => {
                    self.read_sends();
                    let mut large = None;
                    self.batch(Batch::new(queue, first, &mut large, self.max_batch_time));
                    self.large = large;
                }
                Popped::Nothing => self.probe(),
                Popped::Closed => break,
            }
            self.forget_sends();
            self.write_behind();
        }
        self.write_everything_behind();
        self.has_failed |= !self.releases.wait();
        if self.has_failed {
            alarm.reason = durable::FAILED;
            // What the log holds is judged when the file is opened again, not moved into the main file now.
            let conn = &self.writable.db.conn;
            let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        } else {
            self.checkpoint("TRUNCATE");
        }
    }

    /// Runs waiting jobs in one commit, as many of them as a commit may hold.
    fn batch(&mut self, jobs: Batch<'_>) {
        let mut ran: Ran = Vec::new();
        match self.transaction(&mut ran, jobs) {
            Ok(commit) => self.hand(commit, ran),
            Err(error) if ran.len() > 1 && !is_disk_error(&error) => self.one_by_one(ran),
            Err(error) => self.fail(ran, &error),
        }
    }

    /// Runs each job in a commit of its own: nobody knows to which of them the error belongs.
    fn one_by_one(&mut self, ran: Ran) {
        for (waiting, _) in ran {
            let mut alone: Ran = Vec::new();
            let outcome = self.transaction(&mut alone, std::iter::once(waiting));
            match outcome {
                Ok(commit) => self.hand(commit, alone),
                Err(error) => self.fail(alone, &error),
            }
        }
    }

    /// Runs jobs and commits. On an error everything is rolled back. `ran` holds the jobs that must be answered.
    fn transaction(
        &mut self,
        ran: &mut Ran,
        jobs: impl Iterator<Item = Waiting>,
    ) -> rusqlite::Result<Option<Commit>> {
        let changes = self.writable.db.conn.total_changes();
        let mut outcome = self.writable.db.conn.execute_batch("BEGIN IMMEDIATE");
        let (mut writes, mut bytes) = (false, 0);
        for mut waiting in jobs {
            let mut wrote = None;
            if outcome.is_ok() {
                match self.writable.run(&mut waiting.job) {
                    Ok(written) => wrote = written,
                    Err(error) => outcome = Err(error),
                }
            }
            if let Some(written) = &wrote {
                writes = true;
                bytes += written.weight();
            }
            // After an error the other jobs wait for the next batch: they would be rolled back with this one.
            let full = outcome.is_err() || bytes > MAX_BATCH_BYTES;
            ran.push((waiting, wrote));
            if full {
                break;
            }
        }
        // A job that decides nothing may still have written: the first one of a tenant begins its ledger.
        writes |= self.writable.db.conn.total_changes() != changes;
        let committed = outcome.and_then(|()| self.commit(writes));
        match &committed {
            Ok(_) => self.writable.limits.release(End::Committed),
            Err(_) => self.roll_back(),
        }
        committed
    }

    /// Commits. A transaction that does not write has nothing to save and nothing to sync.
    fn commit(&mut self, writes: bool) -> rusqlite::Result<Option<Commit>> {
        if !writes {
            self.writable.db.conn.execute_batch("COMMIT")?;
            return Ok(None);
        }
        let last_time = self.writable.last_time.as_millis();
        self.writable.ledgers.save(&self.writable.db)?;
        self.writable.mailbox.save(&self.writable.db)?;
        let conn = &self.writable.db.conn;
        conn.prepare_cached("UPDATE clock SET last_time = ?1, cells = cells + ?2")?
            .execute([last_time, self.writable.cells])?;
        // The commit before this one was synced while this one was decided. Only now may anything be written behind it.
        if !self.releases.wait() {
            self.has_failed = true;
            return Err(not_synced());
        }
        let durable = &self.shared.durable;
        let commit = Commit {
            begun: Stopwatch::start(),
            number: durable.begin(),
        };
        if let Err(error) = conn.execute_batch("COMMIT") {
            durable.reached(commit.number);
            return Err(error);
        }
        self.writable.keep();
        let mailbox = &mut self.writable.mailbox;
        mailbox.tell_remembered(&mut self.shared.remembered());
        self.shared.last_time.store(last_time, Ordering::Relaxed);
        Ok(Some(commit))
    }

    fn roll_back(&mut self) {
        if !self.writable.db.conn.is_autocommit() {
            // If even this fails, the next BEGIN fails too and tells why.
            let _ = self.writable.db.conn.execute_batch("ROLLBACK");
        }
        let committed = self.shared.last_time.load(Ordering::Relaxed);
        self.writable.forget(Timestamp::from_millis(committed));
    }

    /// Hands the jobs of a transaction to the sync thread, and looks after the log while that works.
    fn hand(&mut self, commit: Option<Commit>, ran: Ran) {
        self.releases.hand(commit, ran);
        let pages = self.log_pages.load(Ordering::Relaxed);
        if pages < self.checkpointed {
            self.checkpointed = 0;
        }
        if pages - self.checkpointed >= CHECKPOINT_PAGES && self.releases.wait() {
            self.checkpoint("PASSIVE");
            self.checkpointed = pages;
        }
    }

    fn fail(&mut self, ran: Ran, error: &rusqlite::Error) {
        // The commit before this one is released first: its success says nothing about the disk after this failure.
        self.has_failed |= !self.releases.wait();
        tracing::error!(%error, jobs = ran.len(), "a commit failed and was rolled back");
        let damaged = matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        );
        if damaged || is_disk_error(error) {
            self.shared.set_health(Health::Failing(error.to_string()));
        }
        let told = if is_disk_error(error) {
            Error::Unavailable(error.to_string())
        } else {
            Error::Corrupt(error.to_string())
        };
        self.shared.fail(ran, &told);
    }

    /// Tries a failing disk again with an empty commit, so that readiness returns even when nobody writes.
    fn probe(&mut self) {
        if self.shared.health() == Health::Ready {
            return;
        }
        let begun = self.writable.db.conn.execute_batch("BEGIN IMMEDIATE");
        match begun.and_then(|()| self.commit(true)) {
            Ok(commit) => self.hand(commit, Vec::new()),
            Err(_) => self.roll_back(),
        }
    }

    /// Reads back the sends of the replay window, at the start and when the window has grown. No job runs before, because
    /// it could take a repeated send for a new one; and since a million of them take seconds, readiness says so.
    fn read_sends(&mut self) {
        let Writable { db, mailbox, .. } = &mut self.writable;
        mailbox.set_window(self.shared.replay_window_ms.load(Ordering::Relaxed));
        if mailbox.knows_sends() {
            return;
        }
        let before = self.shared.health();
        if has_mail(db).unwrap_or(true) {
            self.shared
                .set_health(Health::Failing(READING_SENDS.to_owned()));
        }
        let last_time = Timestamp::from_millis(self.shared.last_time.load(Ordering::Relaxed));
        // A failure shows again at the next transaction, where somebody can be told of it.
        let _ = mailbox.forget(db, last_time);
        mailbox.tell_remembered(&mut self.shared.remembered());
        self.shared.set_health(match before {
            Health::Failing(reason) if reason != READING_SENDS => Health::Failing(reason),
            Health::Failing(_) | Health::Ready => Health::Ready,
        });
    }

    /// Forgets sends whose window is over, if somebody has asked for their number: perhaps nobody sends anything.
    fn forget_sends(&mut self) {
        let asked_at = self.shared.asked_at.swap(0, Ordering::Relaxed);
        if asked_at == 0 {
            return;
        }
        self.read_sends();
        let Writable { db, mailbox, .. } = &mut self.writable;
        // A failure shows again at the next transaction, where somebody can be told of it.
        let _ = mailbox.forget(db, Timestamp::from_millis(asked_at));
        mailbox.tell_remembered(&mut self.shared.remembered());
    }

    /// Moves the log into the main file, after everyone was handed over. If it fails or a reader is in the way, the log
    /// keeps everything until the next try.
    fn checkpoint(&self, mode: &str) {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        if let Err(error) = self.writable.db.conn.query_row(&sql, [], |_| Ok(())) {
            tracing::warn!(%error, "checkpoint failed");
        }
    }
}

/// Returns true if there are messages, whose sends may have to be read back.
fn has_mail(db: &Db) -> rusqlite::Result<bool> {
    db.conn
        .query_row("SELECT EXISTS (SELECT 1 FROM content)", [], |row| {
            row.get(0)
        })
}

/// Returns the error of a commit that stands behind one whose sync failed.
fn not_synced() -> rusqlite::Error {
    let code = ffi::Error::new(ffi::SQLITE_IOERR_FSYNC);
    rusqlite::Error::SqliteFailure(code, Some(durable::FAILED.to_owned()))
}

/// Returns true if the disk below is the cause, rather than one job or the content of the file.
fn is_disk_error(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OutOfMemory
                | ErrorCode::PermissionDenied
        )
    )
}

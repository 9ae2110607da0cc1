//! The owner: one thread that takes the shards, keeps them, and runs the batches.
//!
//! While one batch is being committed, the jobs that come are decided in memory and gathered for the next one. A batch is
//! one round trip: the fence, the rows of all its jobs, the commit. The next is sent once the one before is known to be
//! committed, because its jobs have seen what that one wrote.
//!
//! Invariants: nothing is answered before the batch that holds it is committed, with the fence in force; whatever fails, a
//! batch fails whole and everybody in it is told so; then memory is dropped, the shards are taken again with new epochs, and
//! memory is read again.

mod batch;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use asyncgate_core::{Placement, Timestamp, mailbox};
use asyncgate_store::{
    Error, Health, Signals, StoreMetrics, Written,
    fair::{FairQueue, Popped, Refused, Room, Turn, Weights},
};
use foldhash::fast::RandomState;
use tokio::sync::{Notify, oneshot};
use tokio_postgres::Config;

use self::batch::Work;
use crate::{
    OpenError, Options,
    memory::{Memory, Queued},
    restore::{Timers, restore},
    schema,
    session::{Deadlines, Session},
    shards::{Contender, Owned},
};

/// The first wait after a failure. It doubles with each failure that follows.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The state that the owner shares with those who give it work.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) signals: Signals,
    pub(crate) metrics: StoreMetrics,
    pub(crate) last_time: AtomicI64,
    /// The deadlines of tasks that are committed.
    timers: Mutex<Timers>,
    replay_window_ms: AtomicI64,
    health: Mutex<Health>,
}

impl Shared {
    pub(crate) fn health(&self) -> Health {
        self.health
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the deadlines of tasks that are committed.
    pub(crate) fn timers(&self) -> MutexGuard<'_, Timers> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_health(&self, health: Health) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    fn answer(&self, waiting: Waiting, answer: Result<(), Error>) {
        self.metrics.waiting.dec();
        // The caller may have gone; what was decided stands all the same.
        let _ = waiting.answer.send(answer);
    }

    /// Moves the deadlines of tasks to where a commit has put them.
    fn move_timers(&self, written: &[(asyncgate_core::TenantId, &Written)]) {
        let mut timers = self.timers();
        for (tenant, written) in written {
            let Written::Tasks(changes) = written else {
                continue;
            };
            for write in &changes.tasks {
                let id = write.task.id;
                let due = |placement: Placement| placement.due().map(|at| (at, *tenant, id));
                if let Some(timer) = write.before.and_then(|before| due(before.placement)) {
                    timers.remove(&timer);
                }
                timers.extend(due(write.task.placement()));
            }
        }
    }
}

/// A job that waits for its answer.
#[derive(Debug)]
struct Waiting {
    job: Queued,
    answer: oneshot::Sender<Result<(), Error>>,
    /// The number of times that it could not be decided because rows were missing.
    misses: u32,
}

/// The way to the owner's thread. Dropping it lets the thread finish what is waiting, give the shards back and end.
#[derive(Debug)]
pub(crate) struct Owner {
    jobs: Arc<FairQueue<Waiting>>,
    wake: Arc<Notify>,
    closed: Arc<Notify>,
    thread: Option<thread::JoinHandle<()>>,
    pub(crate) shared: Arc<Shared>,
}

impl Owner {
    /// Starts the thread, and waits until it owns the shards.
    pub(crate) fn start(config: Config, options: &Options) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared {
            signals: Signals::default(),
            metrics: StoreMetrics::default(),
            last_time: AtomicI64::new(0),
            timers: Mutex::default(),
            replay_window_ms: AtomicI64::new(mailbox::Policy::default().t_replay_ms),
            health: Mutex::new(Health::Failing("the store is being opened".to_owned())),
        });
        let jobs = Arc::new(FairQueue::new(Room {
            jobs: options.max_queued_jobs.max(1),
            bytes: options.max_queued_bytes,
        }));
        let (opened, opens) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (wake, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let keeper = Keeper {
            config,
            options: options.clone(),
            contender: Contender::new(options.instance.clone(), options.lease),
            shared: Arc::clone(&shared),
            queue: Arc::clone(&jobs),
            wake: Arc::clone(&wake),
            closed: Arc::clone(&closed),
            opened: Some(opened),
        };
        let thread = thread::Builder::new()
            .name("postgres-owner".to_owned())
            .spawn(move || runtime.block_on(keeper.run()))?;
        // It is whole before the wait, so that a wait in vain ends the thread.
        let owner = Self {
            jobs,
            wake,
            closed,
            thread: Some(thread),
            shared,
        };
        let mut last = "the database does not answer in time".to_owned();
        let begun = asyncgate_store::Stopwatch::start();
        loop {
            let left = options.open_timeout.saturating_sub(begun.elapsed());
            match opens.recv_timeout(left) {
                Ok(Ok(())) => return Ok(owner),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => return Err(OpenError::Unavailable(last)),
            }
        }
    }

    /// Hands a job to the thread. It is refused when too much is waiting.
    pub(crate) fn submit(
        &self,
        job: Queued,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let metrics = &self.shared.metrics;
        let (answer, answered) = oneshot::channel();
        let flow = job.flow();
        let waiting = Waiting {
            job,
            answer,
            misses: 0,
        };
        match self.jobs.push(flow, waiting) {
            Ok(()) => {
                metrics.waiting.inc();
                self.wake.notify_one();
                Ok(answered)
            }
            Err(refused) => {
                metrics.turned_away.inc();
                Err(match refused {
                    Refused::Full => Error::Busy,
                    Refused::Closed => Error::Unavailable("the owner has stopped".to_owned()),
                })
            }
        }
    }

    /// Sets how the work is divided when there is more than can be done.
    pub(crate) fn set_weights(&self, weights: Weights) {
        self.jobs.set_weights(weights);
    }

    /// Sets for how long repeated sends must be recognised.
    pub(crate) fn set_replay_window(&self, millis: i64) {
        let window = &self.shared.replay_window_ms;
        window.store(millis, Ordering::Relaxed);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.jobs.close();
        self.closed.notify_one();
        self.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its alarm has said so already.
            let _ = thread.join();
        }
    }
}

/// The thread's side: it takes the shards, and takes them again whenever something has failed.
struct Keeper {
    config: Config,
    options: Options,
    contender: Contender,
    shared: Arc<Shared>,
    queue: Arc<FairQueue<Waiting>>,
    wake: Arc<Notify>,
    closed: Arc<Notify>,
    /// Absent once the store is open.
    opened: Option<mpsc::Sender<Result<(), Error>>>,
}

/// Turns readiness red and closes the queue when the thread ends, for whatever reason. Jobs that still wait are dropped,
/// and so their callers are told.
struct Alarm(Arc<Shared>, Arc<FairQueue<Waiting>>);

impl Drop for Alarm {
    fn drop(&mut self) {
        let reason = "the owner has stopped".to_owned();
        self.0.set_health(Health::Failing(reason));
        self.1.close();
        while let Popped::Job(_) = self.1.pop(Duration::ZERO) {}
    }
}

impl Keeper {
    async fn run(mut self) {
        let _alarm = Alarm(Arc::clone(&self.shared), Arc::clone(&self.queue));
        let closed = Arc::clone(&self.closed);
        let mut failures = 0;
        loop {
            let error = tokio::select! {
                taken = self.take() => match taken {
                    Ok((session, owned, memory)) => {
                        failures = 0;
                        let work = Work::new(&self, session, owned, memory);
                        match work.run().await {
                            Ok(()) => return,
                            Err(error) => error,
                        }
                    }
                    Err(error) => error,
                },
                () = closed.notified() => return,
            };
            tracing::warn!(%error, "the database failed; the shards are taken again");
            self.tell(&error);
            if self.pause(wait(failures)).await {
                return;
            }
            failures += 1;
        }
    }

    /// Connects, takes the shards and reads memory. It waits while another instance owns them.
    async fn take(&mut self) -> Result<(Arc<Session>, Owned, Memory), Error> {
        let deadlines = self.options.deadlines();
        let session = Session::connect(&self.config, deadlines).await?;
        let shards = schema::migrate(&session, self.options.shards).await?;
        let owned = loop {
            if let Some(owned) = self.contender.take(&session, deadlines).await? {
                break owned;
            }
            let why = "another instance owns the shards".to_owned();
            self.tell(&Error::Unavailable(why));
            self.pause(self.options.lease / 4).await;
        };
        let options = &self.options;
        let (hot, cells) = (options.max_hot_bytes, options.max_admission_rows);
        let mut memory = Memory::new(shards, hot, cells);
        // It reads much, and nobody holds a lock meanwhile.
        let patient = Deadlines {
            statement: options.restore_timeout,
            ..deadlines
        };
        let timers = restore(&mut memory, &session, patient).await?;
        *self.shared.timers() = timers;
        let last_time = memory.last_time.as_millis();
        self.shared.last_time.store(last_time, Ordering::Relaxed);
        self.shared.set_health(Health::Ready);
        if let Some(opened) = self.opened.take() {
            // Whoever opens the store may have given up.
            let _ = opened.send(Ok(()));
        }
        Ok((Arc::new(session), owned, memory))
    }

    /// Tells everybody who waits that the store cannot work now.
    fn tell(&self, error: &Error) {
        self.shared.set_health(Health::Failing(error.to_string()));
        if let Some(opened) = &self.opened {
            let _ = opened.send(Err(error.clone()));
        }
        while let Popped::Job(Turn { job, .. }) = self.queue.pop(Duration::ZERO) {
            let told = Error::Unavailable(error.to_string());
            self.shared.answer(job, Err(told));
        }
    }

    /// Waits, and tells those who come meanwhile. Returns true once the queue is closed.
    async fn pause(&self, time: Duration) -> bool {
        let why = match self.shared.health() {
            Health::Failing(why) => why,
            Health::Ready => String::new(),
        };
        let mut time = std::pin::pin!(tokio::time::sleep(time));
        loop {
            tokio::select! {
                () = &mut time => return false,
                () = self.wake.notified() => match self.queue.pop(Duration::ZERO) {
                    Popped::Closed => return true,
                    Popped::Nothing => {}
                    Popped::Job(Turn { job, .. }) => {
                        // There may be more behind it.
                        self.wake.notify_one();
                        let told = Error::Unavailable(why.clone());
                        self.shared.answer(job, Err(told));
                    }
                },
            }
        }
    }
}

/// Returns the wait after so many failures. Half of it is drawn, so that instances that failed together do not come back
/// together.
fn wait(failures: u32) -> Duration {
    let whole = FIRST_WAIT * 2_u32.saturating_pow(failures.min(16));
    let whole = whole.min(LONGEST_WAIT);
    let drawn = std::hash::BuildHasher::hash_one(&RandomState::default(), failures);
    let percent = u32::try_from(drawn % 51).unwrap_or_default();
    whole * (50 + percent) / 100
}

/// Returns the time that a batch is written with.
const fn millis(time: Timestamp) -> i64 {
    time.as_millis()
}

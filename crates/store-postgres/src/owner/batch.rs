//! The work of an instance that owns its shards, batch after batch, until something fails.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use asyncgate_store::{
    Error, Stopwatch, Written,
    fair::{Charge, Popped, Turn},
};
use tokio::{task::JoinHandle, time::Instant};

use super::{Keeper, Waiting, millis};
use crate::{
    memory::{Memory, Stop},
    prefetch,
    recent::Wanted,
    session::{Failure, Session, Statement},
    shards::Owned,
};

/// The most jobs that share a commit, so that the first of them does not wait too long.
const MAX_BATCH: usize = 512;
/// The bytes that a batch may write.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// A job that could not be decided so often will never be.
const MAX_MISSES: u32 = 4;

/// The jobs of a batch, with what they wrote.
type Ran = Vec<(Waiting, Option<Written>)>;

/// The batch that is being gathered.
#[derive(Default)]
struct Open {
    ran: Ran,
    bytes: usize,
    /// True if no more jobs may join it.
    full: bool,
}

/// The batch that is being committed.
struct InFlight {
    answer: JoinHandle<Result<(), Failure>>,
    ran: Ran,
    writes: bool,
    last_time: i64,
    begun: Stopwatch,
}

/// The work of an owner.
pub(super) struct Work<'a> {
    keeper: &'a Keeper,
    session: Arc<Session>,
    owned: Owned,
    memory: Memory,
    open: Open,
    in_flight: Option<InFlight>,
    /// Jobs whose turn has come, for the next batch.
    carried: VecDeque<(Waiting, Charge)>,
    next_beat: Instant,
    replay_window_ms: i64,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        keeper: &'a Keeper,
        session: Arc<Session>,
        owned: Owned,
        memory: Memory,
    ) -> Self {
        Self {
            keeper,
            session,
            owned,
            memory,
            open: Open::default(),
            in_flight: None,
            carried: VecDeque::new(),
            next_beat: Instant::now(),
            replay_window_ms: asyncgate_core::mailbox::Policy::default().t_replay_ms,
        }
    }

    /// Runs batches until the queue is closed and empty, or until something fails.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        let outcome = self.batches().await;
        match &outcome {
            Ok(()) => self.give_back().await,
            Err(error) => self.fail(error),
        }
        outcome
    }

    async fn batches(&mut self) -> Result<(), Error> {
        loop {
            let closed = self.gather().await?;
            if self.in_flight.is_none() {
                if !self.open.ran.is_empty() || self.next_beat <= Instant::now() {
                    self.send().await;
                    continue;
                }
                if closed {
                    return Ok(());
                }
            }
            let keeper = self.keeper;
            let is_idle = self.in_flight.is_none();
            tokio::select! {
                biased;
                committed = committed(&mut self.in_flight) => self.finish(committed)?,
                () = keeper.wake.notified(), if !self.open.full => {}
                () = tokio::time::sleep_until(self.next_beat), if is_idle => {}
            }
        }
    }

    /// Takes the jobs that wait and decides them. Returns true once the queue is closed and empty.
    async fn gather(&mut self) -> Result<bool, Error> {
        let mut closed = false;
        while !self.open.full {
            let mut jobs = std::mem::take(&mut self.carried);
            while self.open.ran.len() + jobs.len() < MAX_BATCH {
                match self.keeper.queue.pop(std::time::Duration::ZERO) {
                    Popped::Job(Turn { job, charge }) => jobs.push_back((job, charge)),
                    Popped::Nothing => break,
                    Popped::Closed => {
                        closed = true;
                        break;
                    }
                }
            }
            if jobs.is_empty() {
                break;
            }
            // They are kept where a failure finds them.
            self.carried = jobs;
            self.set_replay_window();
            self.prefetch().await?;
            self.decide();
        }
        Ok(closed && self.carried.is_empty())
    }

    /// Puts the replay window in force that was set last. This comes after the jobs were taken: whoever set a window and then
    /// made a job finds it decided with that window.
    fn set_replay_window(&mut self) {
        let window = &self.keeper.shared.replay_window_ms;
        let window = window.load(Ordering::Relaxed);
        if window != self.replay_window_ms {
            self.memory.mail.set_replay_window(window);
            self.replay_window_ms = window;
        }
    }

    /// Asks for all rows that the jobs need and that are not in memory.
    async fn prefetch(&mut self) -> Result<(), Error> {
        let mut wanted = Wanted::default();
        for (waiting, _) in &self.carried {
            self.memory.want(&waiting.job, &mut wanted);
        }
        self.memory.want_claimed(&mut wanted);
        if wanted.is_empty() {
            return Ok(());
        }
        let questions = prefetch::questions(&wanted);
        let deadlines = self.keeper.options.deadlines();
        let answers = self.session.transact(deadlines, &questions).await;
        let answers = answers.map_err(|failure| failure.told())?;
        prefetch::learn(&mut self.memory, wanted, answers)
    }

    /// Decides the jobs, as many of them as can be decided.
    fn decide(&mut self) {
        let shared = &self.keeper.shared;
        while let Some((mut waiting, charge)) = self.carried.pop_front() {
            let begun = Stopwatch::start();
            let outcome = self.memory.run(&mut waiting.job);
            match outcome {
                Ok(written) => {
                    self.open.bytes += written.as_ref().map_or(0, Written::weight);
                    self.open.ran.push((waiting, written));
                }
                Err(Stop::Missing) if waiting.misses < MAX_MISSES => {
                    // Only once this batch is written can the database be asked.
                    waiting.misses += 1;
                    self.open.full = !self.open.ran.is_empty();
                    self.carried.push_front((waiting, charge));
                    return;
                }
                Err(Stop::Missing) => {
                    let why = "rows that a job needs cannot be found".to_owned();
                    shared.answer(waiting, Err(Error::Corrupt(why)));
                }
                Err(Stop::Failed(error)) => shared.answer(waiting, Err(error)),
            }
            self.keeper.queue.settle(charge, begun.elapsed());
            if self.open.ran.len() >= MAX_BATCH || self.open.bytes > MAX_BATCH_BYTES {
                self.open.full = true;
                return;
            }
        }
    }

    /// Sends the open batch, and the beat if it is time for it.
    async fn send(&mut self) {
        let open = std::mem::take(&mut self.open);
        let out = self.memory.begin();
        let writes = out.writes();
        let mut statements = vec![self.owned.fence(out.shards())];
        let now = Instant::now();
        if self.next_beat <= now {
            statements.push(self.owned.beat());
            self.next_beat = now + self.keeper.options.lease / 4;
        }
        statements.extend(out.statements(self.memory.last_time));
        let session = Arc::clone(&self.session);
        let deadlines = self.keeper.options.deadlines();
        let answer = tokio::spawn(async move {
            let statements: Vec<Statement> = statements;
            let answered = session.transact(deadlines, &statements).await;
            answered.map(drop)
        });
        self.in_flight = Some(InFlight {
            answer,
            ran: open.ran,
            writes,
            last_time: millis(self.memory.last_time),
            begun: Stopwatch::start(),
        });
        // It shall be on its way before the next jobs are decided.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }

    /// Answers the jobs of a batch whose fate is known.
    fn finish(&mut self, (batch, outcome): (InFlight, Result<(), Failure>)) -> Result<(), Error> {
        let shared = &self.keeper.shared;
        if let Err(failure) = outcome {
            self.fail_batch(batch.ran, &failure);
            return Err(failure.told());
        }
        if batch.writes {
            let wrote = batch.ran.iter().filter(|(_, wrote)| wrote.is_some());
            let metrics = &shared.metrics;
            metrics.jobs_per_commit.observe(wrote.count() as f64);
            let seconds = batch.begun.elapsed().as_secs_f64();
            metrics.commit_seconds.observe(seconds);
            metrics.commits.inc();
            shared.last_time.store(batch.last_time, Ordering::Relaxed);
        }
        let written: Vec<_> = batch
            .ran
            .iter()
            .filter_map(|(waiting, wrote)| Some((waiting.job.tenant(), wrote.as_ref()?)))
            .collect();
        shared.move_timers(&written);
        for (waiting, wrote) in batch.ran {
            let tenant = waiting.job.tenant();
            // The caller first: those who wait for its change would only compete with it.
            shared.answer(waiting, Ok(()));
            if let Some(written) = wrote {
                written.publish(&shared.signals, tenant);
            }
        }
        Ok(())
    }

    /// Tells the jobs of a batch that it failed. Those that wrote nothing know that nothing was written.
    fn fail_batch(&self, ran: Ran, failure: &Failure) {
        let shared = &self.keeper.shared;
        shared.metrics.commit_failures.inc();
        for (waiting, wrote) in ran {
            let told = match (failure.told(), wrote) {
                (Error::Unknown(why), None) => Error::Unavailable(why),
                (told, _) => told,
            };
            shared.answer(waiting, Err(told));
        }
    }

    /// Tells everybody who is still here that nothing was written, except those whose batch may have been committed.
    fn fail(&mut self, error: &Error) {
        let why = error.to_string();
        if let Some(batch) = self.in_flight.take() {
            batch.answer.abort();
            self.fail_batch(batch.ran, &Failure::Unknown(why.clone()));
        }
        let open = std::mem::take(&mut self.open);
        self.fail_batch(open.ran, &Failure::Refused(why.clone()));
        for (waiting, _) in std::mem::take(&mut self.carried) {
            let told = Error::Unavailable(why.clone());
            self.keeper.shared.answer(waiting, Err(told));
        }
    }

    /// Gives the shards back, so that the next instance need not wait for the end of the lease.
    async fn give_back(&self) {
        let statements = self.owned.give_back();
        let deadlines = self.keeper.options.deadlines();
        if let Err(failure) = self.session.transact(deadlines, &statements).await {
            tracing::warn!(?failure, "the shards were not given back");
        }
    }
}

/// Waits for the batch that is being committed, for ever if there is none.
async fn committed(in_flight: &mut Option<InFlight>) -> (InFlight, Result<(), Failure>) {
    let outcome = match in_flight.as_mut() {
        Some(batch) => (&mut batch.answer).await,
        None => std::future::pending().await,
    };
    let outcome = outcome.unwrap_or_else(|error| Err(Failure::Unknown(error.to_string())));
    match in_flight.take() {
        Some(batch) => (batch, outcome),
        None => std::future::pending().await,
    }
}

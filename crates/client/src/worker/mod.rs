//! The worker runtime: it runs a handler for each task, by type, and keeps the task's lease meanwhile.
//!
//! - A handler runs once per lease. Its lease is renewed at a third of its time, and all others with it in one call.
//! - A claim asks for as many tasks as there are free places, and what ends while a report is on its way is reported
//!   together in the next call.
//! - The result of a handler is reported until the server answers or the lease is over. A success that
//!   the server refuses to store becomes a failure.
//! - A handler that panics fails its task. By default the task is not retried: a panic is a defect,
//!   and its owner should hear of it at once ([`WorkerBuilder::retry_panics`]).
//! - A handler is asked to stop, through its [`Context`], when its lease is lost or its task
//!   cancelled, when its time is over, and when the worker shuts down. If it does not stop, it is
//!   dropped at its next await; a handler that blocks its thread is left behind and no longer counted.
//! - At shutdown nothing more is claimed, handlers have a grace to finish, and those that are left then
//!   are stopped and their tasks given back.
//! - A server that cannot be reached is asked again for as long as it takes; one that refuses the
//!   worker's key or claim ends the worker.

mod context;
mod lease;
mod outcome;
mod together;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use asyncgate_api::{LeaseNextInput, LeasedTask};
use futures_util::future::BoxFuture;

pub use context::Context;
pub use outcome::{Failure, Outcome, Payload};
use together::Together;

use crate::{
    Client, Error, Retry,
    runtime::{self, End, MAX_WAIT, Pace, Summary, whole_seconds},
};

const MAX_LEASE_TTL: Duration = Duration::from_secs(1_800);
/// The most types or capabilities that the server takes in a claim.
const MAX_TYPES: usize = 64;

type Handler =
    Arc<dyn Fn(Context, Payload) -> BoxFuture<'static, Result<Outcome, Failure>> + Send + Sync>;
type Observer = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// Does tasks. Made by [`Worker::builder`]; the [front page](crate#do-tasks) shows a whole program.
pub struct Worker(Arc<Shared>);

/// The settings of a worker.
pub struct WorkerBuilder(Shared);

pub(crate) struct Shared {
    /// Sends each call once: the worker itself decides when to try again.
    client: Client,
    who: Identity,
    handlers: HashMap<String, Handler>,
    /// The input of every claim, without the number of tasks.
    claim: LeaseNextInput,
    pace: Pace,
    observer: Option<Observer>,
    together: Together,
}

#[derive(Debug, Clone, Default)]
struct Identity {
    id: Option<String>,
    instance_id: Option<String>,
}

/// An event in a worker, for its observer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A task was taken.
    Leased {
        /// The task.
        task: &'a LeasedTask,
    },
    /// The worker is done with a task.
    Ended {
        /// The task.
        task_id: &'a str,
        /// Its type.
        task_type: &'a str,
        /// The way in which it ended.
        end: End,
    },
    /// The server could not be asked for tasks; it will be asked again.
    ClaimFailed {
        /// The error.
        error: &'a Error,
        /// The number of failures in a row.
        failures: u32,
    },
    /// The worker stops.
    Draining {
        /// The number of handlers that run.
        running: usize,
    },
}

impl Worker {
    /// Begins to set up a worker that takes its tasks through `client`.
    pub fn builder(client: &Client) -> WorkerBuilder {
        WorkerBuilder(Shared {
            client: client.with_retry(Retry::NONE),
            who: Identity::default(),
            handlers: HashMap::new(),
            claim: LeaseNextInput::default(),
            pace: Pace::default(),
            observer: None,
            together: Together::default(),
        })
    }

    /// Works until `shutdown` is ready, then drains. Returns an error only if the server refuses the
    /// worker for good: a wrong key, or a claim that is not valid.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Summary, Error> {
        runtime::run(self.0, shutdown).await
    }

    #[cfg(test)]
    pub(crate) fn work(self) -> Arc<Shared> {
        self.0
    }
}

impl WorkerBuilder {
    /// Sets the worker's stable name. Default: the credential's principal.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.0.who.id = Some(id.into());
        self
    }

    /// Names the process or machine that the worker runs in.
    #[must_use]
    pub fn instance_id(mut self, id: impl Into<String>) -> Self {
        self.0.who.instance_id = Some(id.into());
        self
    }

    /// Sets the worker's capabilities. Tasks that require any other are not given to it.
    #[must_use]
    pub fn capabilities<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.0.claim.capabilities = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the number of handlers that run at once. Default 1.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.0.pace.concurrency = concurrency;
        self
    }

    /// Sets the length of a lease without a renewal, in whole seconds, up to half an hour. If this worker
    /// dies, a task is given out again after that time. Default 60 s.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.0.pace.lease = ttl;
        self
    }

    /// Sets the time that a claim waits for a task, in whole seconds, up to a minute. Default 20 s.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.0.pace.wait = wait;
        self
    }

    /// Sets the longest time for a handler. One that takes longer is stopped, and its task fails and is
    /// retried. Default: no limit.
    #[must_use]
    pub fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.0.pace.timeout = Some(timeout);
        self
    }

    /// Sets the time that handlers have to end after a shutdown began. Default 30 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.0.pace.grace = grace;
        self
    }

    /// Sets the time that a handler has to end after it was asked to stop. Default 1 s.
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.0.pace.cancel_grace = grace;
        self
    }

    /// Sets whether a task whose handler panicked is retried while attempts are left. Default false.
    #[must_use]
    pub fn retry_panics(mut self, retry: bool) -> Self {
        self.0.pace.retry_panics = retry;
        self
    }

    /// Sets the waits before a server that could not be reached is asked again. The number of attempts
    /// and the total time are ignored here.
    #[must_use]
    pub fn pause(mut self, pause: Retry) -> Self {
        self.0.pace.pause = pause;
        self
    }

    /// Calls `observer` for every event. It must not block.
    #[must_use]
    pub fn observe(mut self, observer: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.0.observer = Some(Arc::new(observer));
        self
    }

    /// Runs `handler` for tasks of a type. A later handler for the same type replaces it.
    #[must_use]
    pub fn handle<F, A>(mut self, task_type: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Context, Payload) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let handler: Handler =
            Arc::new(move |context, payload| Box::pin(handler(context, payload)));
        self.0.handlers.insert(task_type.into(), handler);
        self
    }

    /// Makes the worker.
    pub fn build(self) -> Result<Worker, Error> {
        let mut shared = self.0;
        let mut types: Vec<String> = shared.handlers.keys().cloned().collect();
        if types.is_empty() || types.len() > MAX_TYPES {
            let message = format!("a worker needs handlers for 1 to {MAX_TYPES} task types");
            return Err(Error::invalid(message));
        }
        let pace = &mut shared.pace;
        if pace.concurrency == 0 {
            return Err(Error::invalid("a worker's concurrency must be at least 1"));
        }
        types.sort_unstable();
        pace.lease = whole_seconds(pace.lease).clamp(Duration::from_secs(1), MAX_LEASE_TTL);
        pace.wait = whole_seconds(pace.wait).min(MAX_WAIT);
        let claim = &mut shared.claim;
        claim.accept_types = Some(types);
        claim.worker_id.clone_from(&shared.who.id);
        claim.worker_instance_id.clone_from(&shared.who.instance_id);
        claim.lease_ttl_seconds = i64::try_from(pace.lease.as_secs()).ok();
        claim.wait_seconds = u32::try_from(pace.wait.as_secs()).ok();
        Ok(Worker(Arc::new(shared)))
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Worker").field(&self.0.claim).finish()
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerBuilder").field(&self.0.claim).finish()
    }
}

//! What a handler knows of its task, and how it learns that it should stop.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use asyncgate_api::{Code, LeasedTask, ReportProgressInput, StartTaskInput};
use serde::Serialize;
use serde_json::value::to_raw_value;
use tokio::{sync::watch, time::Instant};

use super::Shared;
use crate::{Client, Error};

/// A handler's view of its task. Clones are cheap and see the same.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    /// Without its payload, which the handler has.
    task: LeasedTask,
    cancel: watch::Sender<Option<Cause>>,
    /// When the lease runs out, by this machine's clock.
    deadline: Mutex<Instant>,
}

/// Why a handler is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The task is no longer this worker's: it was cancelled, or the lease ran out. Whatever the
    /// handler answers is ignored.
    LeaseLost,
    /// The time for a task is over. The task fails, retryably, unless the handler still succeeds.
    Timeout,
    /// The worker shuts down and the grace is over. The task is given back, unless the handler still
    /// succeeds.
    Shutdown,
}

impl Context {
    pub(super) fn new(shared: Arc<Shared>, task: LeasedTask) -> Self {
        let deadline = Mutex::new(Instant::now() + shared.lease_ttl);
        Self(Arc::new(Inner {
            shared,
            task,
            cancel: watch::Sender::new(None),
            deadline,
        }))
    }

    /// The task, its lease and its owner. The payload is null here: the handler has it.
    pub fn task(&self) -> &LeasedTask {
        &self.0.task
    }

    /// The worker's client, which sends each call once.
    pub fn client(&self) -> &Client {
        &self.0.shared.client
    }

    /// Waits until the handler should stop and says why. A handler that does not stop within the
    /// worker's cancel grace is dropped.
    pub async fn cancelled(&self) -> Cause {
        let mut cancel = self.0.cancel.subscribe();
        let cause = cancel.wait_for(Option::is_some).await.ok();
        // The sender lives in this context, so that there is a cause.
        cause.and_then(|cause| *cause).unwrap_or(Cause::LeaseLost)
    }

    /// Why the handler should stop, if it should.
    pub fn cause(&self) -> Option<Cause> {
        *self.0.cancel.borrow()
    }

    /// Says how far the work is; the owner sees the latest in `get_task`. If it turns out that the
    /// task is no longer this worker's, the handler is asked to stop.
    pub async fn progress<T: Serialize + ?Sized>(&self, progress: &T) -> Result<(), Error> {
        let progress = to_raw_value(progress).map_err(|error| {
            Error::invalid(format!("the progress cannot be written as JSON: {error}"))
        })?;
        let who = &self.0.shared.who;
        let input = ReportProgressInput {
            task_id: self.0.task.task_id.clone(),
            lease_id: self.0.task.lease_id.clone(),
            progress,
            worker_id: who.id.clone(),
            worker_kind: None,
            worker_instance_id: who.instance_id.clone(),
        };
        let told = self.client().report_progress(&input).await;
        self.notice(told.map(drop))
    }

    /// Says that the work has begun: the owner sees the task running.
    pub async fn start(&self) -> Result<(), Error> {
        let who = &self.0.shared.who;
        let input = StartTaskInput {
            task_id: self.0.task.task_id.clone(),
            lease_id: self.0.task.lease_id.clone(),
            worker_id: who.id.clone(),
            worker_kind: None,
            worker_instance_id: who.instance_id.clone(),
        };
        let told = self.client().start_task(&input).await;
        self.notice(told.map(drop))
    }

    fn notice(&self, told: Result<(), Error>) -> Result<(), Error> {
        told.inspect_err(|error| {
            if is_lost(error) {
                self.cancel(Cause::LeaseLost);
            }
        })
    }

    /// Asks the handler to stop. The first cause stands.
    pub(super) fn cancel(&self, cause: Cause) {
        self.0.cancel.send_if_modified(|cancel| {
            let first = cancel.is_none();
            if first {
                *cancel = Some(cause);
            }
            first
        });
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(super) fn deadline(&self) -> Instant {
        *self
            .0
            .deadline
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_deadline(&self, deadline: Instant) {
        *self
            .0
            .deadline
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}

/// Whether a refusal says that the task is no longer this worker's.
pub(super) fn is_lost(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(Code::LeaseInvalidOrExpired | Code::InvalidStateTransition | Code::TaskNotFound)
    )
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("task_id", &self.0.task.task_id)
            .field("lease_id", &self.0.task.lease_id)
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}

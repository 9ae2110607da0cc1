//! A handler's view of its task, and the signal that asks it to stop.

use std::{fmt, sync::Arc};

use asyncgate_api::{LeasedTask, ReportProgressInput, StartTaskInput};
use serde::Serialize;
use serde_json::value::to_raw_value;

use super::Shared;
use crate::{
    Client, Error,
    runtime::{Cause, Hold, is_lost},
};

/// A handler's view of its task. Clones are cheap and share their state.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

pub(super) struct Inner {
    shared: Arc<Shared>,
    /// The task without its payload, which the handler has.
    pub(super) task: LeasedTask,
    pub(super) hold: Hold,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.together.let_go(&self.task.lease_id);
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("task_id", &self.task.task_id)
            .finish_non_exhaustive()
    }
}

impl Context {
    pub(super) fn new(shared: Arc<Shared>, task: LeasedTask) -> Self {
        let hold = Hold::new(shared.pace.lease);
        let inner = Arc::new(Inner { shared, task, hold });
        inner.shared.together.hold(&inner);
        Self(inner)
    }

    /// Returns the task, its lease and its owner. The payload is null here: the handler has it.
    pub fn task(&self) -> &LeasedTask {
        &self.0.task
    }

    /// Returns the worker's client, which sends each call once.
    pub fn client(&self) -> &Client {
        &self.0.shared.client
    }

    /// Waits until the handler should stop, and returns the cause. A handler that does not stop within
    /// the worker's cancel grace is dropped.
    pub async fn cancelled(&self) -> Cause {
        self.0.hold.cancelled().await
    }

    /// Returns the cause if the handler should stop.
    pub fn cause(&self) -> Option<Cause> {
        self.0.hold.cause()
    }

    /// Reports progress; the owner sees the latest report in `get_task`. If the server answers that the
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

    /// Reports that the work has begun: the owner sees the task running.
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
                self.0.hold.cancel(Cause::LeaseLost);
            }
        })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    pub(super) fn hold(&self) -> &Hold {
        &self.0.hold
    }
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

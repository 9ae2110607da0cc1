//! How long something is ours, and how a handler learns that it should stop.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// Why a handler is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The task or message is no longer ours: it was cancelled, or the lease ran out. Whatever the
    /// handler answers is ignored.
    LeaseLost,
    /// The time for it is over. It fails, retryably, unless the handler still succeeds.
    Timeout,
    /// The worker or consumer shuts down and the grace is over. It is given back, unless the handler
    /// still succeeds.
    Shutdown,
}

/// A lease as its holder sees it.
pub(crate) struct Hold {
    cancel: watch::Sender<Option<Cause>>,
    /// When the lease runs out, by this machine's clock.
    deadline: Mutex<Instant>,
}

impl Hold {
    /// A lease that began now.
    pub fn new(lease: Duration) -> Self {
        Self {
            cancel: watch::Sender::new(None),
            deadline: Mutex::new(Instant::now() + lease),
        }
    }

    /// Waits until the handler should stop and says why.
    pub async fn cancelled(&self) -> Cause {
        let mut cancel = self.cancel.subscribe();
        let cause = cancel.wait_for(Option::is_some).await.ok();
        // The sender lives in this hold, so that there is a cause.
        cause.and_then(|cause| *cause).unwrap_or(Cause::LeaseLost)
    }

    /// Why the handler should stop, if it should.
    pub fn cause(&self) -> Option<Cause> {
        *self.cancel.borrow()
    }

    /// Asks the handler to stop. The first cause stands.
    pub fn cancel(&self, cause: Cause) {
        self.cancel.send_if_modified(|cancel| {
            let first = cancel.is_none();
            if first {
                *cancel = Some(cause);
            }
            first
        });
    }

    pub fn deadline(&self) -> Instant {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn keep_until(&self, deadline: Instant) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}

//! A lease as its holder sees it: its end, and the signal that asks the handler to stop.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// The reason why a handler is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The task or message is no longer ours: it was cancelled, or the lease ran out. The handler's
    /// answer is ignored.
    LeaseLost,
    /// The handler took too long. The task fails and may be retried, unless the handler still
    /// succeeds.
    Timeout,
    /// The worker or consumer shuts down and the grace is over. The task or message is given back,
    /// unless the handler still succeeds.
    Shutdown,
}

/// The lease of one task or message.
pub(crate) struct Hold {
    cancel: watch::Sender<Option<Cause>>,
    /// The end of the lease, by this machine's clock.
    deadline: Mutex<Instant>,
}

impl Hold {
    /// Begins a lease now.
    pub fn new(lease: Duration) -> Self {
        Self {
            cancel: watch::Sender::new(None),
            deadline: Mutex::new(Instant::now() + lease),
        }
    }

    /// Waits until the handler should stop, and returns the cause.
    pub async fn cancelled(&self) -> Cause {
        let mut cancel = self.cancel.subscribe();
        let cause = cancel.wait_for(Option::is_some).await.ok();
        // The sender is a field of this hold, so the wait cannot fail.
        cause.and_then(|cause| *cause).unwrap_or(Cause::LeaseLost)
    }

    /// Returns the cause if the handler should stop.
    pub fn cause(&self) -> Option<Cause> {
        *self.cancel.borrow()
    }

    /// Asks the handler to stop. Only the first cause counts.
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

    /// Returns true if less than `age` is over of the lease, which lasts for `lease` since it was renewed.
    pub fn is_fresh(&self, lease: Duration, age: Duration) -> bool {
        let left = self.deadline().saturating_duration_since(Instant::now());
        left > lease.saturating_sub(age)
    }

    pub fn keep_until(&self, deadline: Instant) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }
}

//! The common part of a worker and a consumer: it takes items under leases, runs a handler for each,
//! keeps the lease meanwhile, and reports the end to the server.

mod drive;
mod hold;
mod run;

use std::{sync::Arc, time::Duration};

use asyncgate_api::Code;

pub(crate) use drive::Settlement;
pub use hold::Cause;
pub(crate) use hold::Hold;
pub(crate) use run::run;

use crate::{Error, Retry, worker::Failure};

/// The longest wait that the server grants.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

/// The number of handlers at a time, and the time limits.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    pub concurrency: usize,
    /// The length of a lease without a renewal.
    pub lease: Duration,
    /// The longest time that a claim waits for something to do.
    pub wait: Duration,
    /// The longest time that a handler may take.
    pub timeout: Option<Duration>,
    /// The time that handlers have to end after a shutdown began.
    pub grace: Duration,
    /// The time that a handler has to end after it was asked to stop.
    pub cancel_grace: Duration,
    /// True if a panic is a failure that may be retried.
    pub retry_panics: bool,
    /// The waits between attempts; the bounds on attempts and time are not used.
    pub pause: Retry,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            concurrency: 1,
            lease: Duration::from_secs(60),
            wait: Duration::from_secs(20),
            timeout: None,
            grace: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(1),
            retry_panics: false,
            pause: Retry::default(),
        }
    }
}

/// A source of items: the tasks of a worker, or the messages of a consumer.
pub(crate) trait Work: Send + Sync + 'static {
    /// An item as a claim returns it.
    type Item: Send + 'static;
    /// An item that is being handled.
    type Held: Held;

    fn pace(&self) -> &Pace;

    /// Takes at most `places` items.
    fn claim(
        &self,
        places: usize,
    ) -> impl Future<Output = Result<Vec<Self::Item>, Error>> + Send + '_;

    /// Returns the id of an item's lease, which is unique.
    fn lease(item: &Self::Item) -> &str;

    /// Begins with an item: returns it with its handler. Without a handler it is given back.
    #[expect(clippy::type_complexity, reason = "a future cannot be named")]
    fn begin(
        self: &Arc<Self>,
        item: Self::Item,
    ) -> (
        Self::Held,
        Option<
            impl Future<Output = Result<<Self::Held as Held>::Outcome, Failure>> + Send + 'static,
        >,
    );

    /// Notifies the observer, if there is one.
    fn notify(&self, _moment: &Notice<'_, Self>) {}
}

/// An event for observers.
pub(crate) enum Notice<'a, W: Work + ?Sized> {
    Taken(&'a W::Item),
    Ended(&'a W::Held, End),
    ClaimFailed(&'a Error, u32),
    /// The number of handlers that still run.
    Draining(usize),
}

/// An item that is being handled under a lease.
pub(crate) trait Held: Send + Sync + 'static {
    /// The result of a handler that succeeds.
    type Outcome: Send + 'static;
    /// The call that settles it with the server.
    type Report: Send + Sync;

    /// Returns its name in the log.
    fn name(&self) -> &str;

    fn pace(&self) -> &Pace;

    fn hold(&self) -> &Hold;

    /// Extends the lease and notes its new end. Others may be extended with it.
    fn renew(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Makes the call that settles it so.
    fn report(&self, settlement: Settlement<Self::Outcome>) -> Self::Report;

    /// Sends the call once.
    fn send(&self, report: &Self::Report) -> impl Future<Output = Result<End, Error>> + Send;
}

/// The end of a task or a message that was handled here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It succeeded.
    Completed {
        /// True if an earlier attempt at the report had reached the server. Always false for messages:
        /// the server does not say.
        duplicate: bool,
    },
    /// It failed.
    Failed {
        /// True if it will be tried again. Always true for messages, although one becomes a dead
        /// letter after its last allowed delivery: the server does not say.
        requeued: bool,
    },
    /// It was given back undone.
    Released,
    /// It was cancelled, or the lease ran out.
    Lost,
    /// The report did not reach the server; the lease runs out by itself.
    Unreported,
}

/// The number of tasks or messages by their ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// They succeeded.
    pub completed: u64,
    /// They failed, including those that will be tried again.
    pub failed: u64,
    /// They were given back undone.
    pub released: u64,
    /// They were cancelled, or their leases ran out.
    pub lost: u64,
    /// They ended here, but the report did not reach the server.
    pub unreported: u64,
}

impl Summary {
    fn count(&mut self, end: End) {
        let counter = match end {
            End::Completed { .. } => &mut self.completed,
            End::Failed { .. } => &mut self.failed,
            End::Released => &mut self.released,
            End::Lost => &mut self.lost,
            End::Unreported => &mut self.unreported,
        };
        *counter += 1;
    }
}

/// Returns true if a refusal means that the lease is no longer ours.
pub(crate) fn is_lost(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            Code::LeaseInvalidOrExpired
                | Code::InvalidStateTransition
                | Code::TaskNotFound
                | Code::EStaleLease
                | Code::ENotLeased
                | Code::ENotFound
        )
    )
}

/// Rounds up to whole seconds.
pub(crate) fn whole_seconds(duration: Duration) -> Duration {
    let more = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(duration.as_secs().saturating_add(more))
}
